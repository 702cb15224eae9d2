"""`manifest.json`: the content of a dataset. It is written last, so a dataset with a manifest is complete."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from infeed.components.base import schema
from infeed.components.base.annotations import Count
from infeed.components.base.errors import InfeedError, value_errors
from infeed.components.dataset import files, names
from infeed.components.dataset.cache import Expected
from infeed.components.dataset.files import FileStat

FORMAT = 1
ColumnType = Literal["int", "float", "bytes"]
_CRC32C = re.compile("[0-9a-f]{8}")


@dataclass(frozen=True)
class Column:
    """A feature. `shape` is `(1,)` for one value per row, `(n,)` for n values, and None for a varying number."""

    name: str
    type: ColumnType
    shape: tuple[Count, ...] | None
    nulls: Count


@dataclass(frozen=True)
class Shard:
    """A file. `file` is relative to the root of the dataset, and `crc32c` is the checksum on disk, in hex."""

    file: str
    records: Count
    bytes: Count
    crc32c: str

    def expected(self, root: str) -> Expected:
        """Return the expected size and checksum of the file in the dataset at `root`."""
        return Expected(files.join(root, self.file), self.bytes, self.crc32c)


@dataclass(frozen=True)
class Split:
    """A split. `bytes` is the size of its files on disk, and `reason` explains their number."""

    records: Count
    bytes: Count
    shards: tuple[Shard, ...]
    reason: str = ""

    @classmethod
    def of(cls, shards: tuple[Shard, ...], reason: str = "") -> Split:
        return cls(sum(shard.records for shard in shards), sum(shard.bytes for shard in shards), shards, reason)


@dataclass(frozen=True)
class Source:
    """Source of a dataset. `fingerprint` changes with the name, size or modification time of a file."""

    kind: str
    fingerprint: str
    files: Count
    bytes: Count
    version: str | None = None  # of a table, if it is known

    @classmethod
    def of(cls, kind: str, root: str, found: list[FileStat]) -> Source:
        lines = sorted(f"{files.relative(file.path, root)}\t{file.size}\t{file.mtime_ns}" for file in found)
        fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
        return cls(kind, fingerprint, len(found), sum(file.size for file in found))


@dataclass(frozen=True)
class Rejected:
    """The number of rejected rows, and the file that lists them with reasons."""

    rows: Count = 0
    file: str | None = None


@dataclass(frozen=True)
class Balanced:
    """Records that class balancing repeated, and rows that it dropped."""

    repeated: Count = 0
    dropped: Count = 0

    def __add__(self, other: Balanced) -> Balanced:
        return Balanced(self.repeated + other.repeated, self.dropped + other.dropped)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a dataset. `schema` is empty for a dataset of another writer.

    Every row is accounted for: rows_read + repeated == records + rejected + filtered + dropped.
    """

    format: Count = FORMAT
    complete: bool = True
    created_by: str = field(default_factory=lambda: f"tfx-infeed {metadata.version('tfx-infeed')}")
    source: Source
    options: Mapping[str, Any]
    schema: tuple[Column, ...]
    splits: Mapping[str, Split]
    rejected: Rejected = field(default_factory=Rejected)
    filtered: Count = 0
    balanced: Balanced = field(default_factory=Balanced)
    warnings: tuple[str, ...] = ()
    rows_read: Count

    def write(self, root: str) -> None:
        """Write `ROOT/manifest.json` under a temporary name, then rename it.

        Raises ValueError if the row counts do not add up, which is a bug.
        """
        self._check_every_row_is_accounted_for()
        files.write_bytes(files.join(root, names.MANIFEST), self.to_json().encode())

    @classmethod
    def read(cls, root: str) -> Manifest:
        """Read `ROOT/manifest.json`.

        Raises InfeedError if the file does not exist, is damaged, or was written by a later version.
        """
        path = files.join(root, names.MANIFEST)
        try:
            content = files.read_bytes(path)
        except FileNotFoundError:
            do = "use the folder of a complete dataset"
            raise InfeedError("there is no manifest.json", where=root, do=do) from None
        with value_errors(path, "write the dataset again", "cannot read the manifest: "):
            found = cls.from_json(content)
            for name, split in found.splits.items():  # so that a shard missing from the manifest is noticed
                if not names.are_shard_names([files.name(shard.file) for shard in split.shards]):
                    raise ValueError(f"splits.{name}: the file names do not match {len(split.shards)} shards")
        return found

    def split(self, name: str, root: str) -> Split:
        """Return a split. Raises InfeedError if the dataset, which is at `root`, does not have it."""
        if name not in self.splits:
            raise InfeedError(f"there is no split {name!r}", where=root, do=f"use one of {', '.join(self.splits)}")
        return self.splits[name]

    def to_json(self) -> str:
        plain = dataclasses.asdict(self)
        if self.source.version is None:  # earlier readers of manifests refuse a field that they do not know
            del plain["source"]["version"]
        return json.dumps(plain, indent=1)

    @classmethod
    def from_json(cls, text: bytes, *, flat: bool = False) -> Manifest:
        """Parse a manifest. Check the types, ranges, file names and sums of all values.

        With `flat`, the shards have no split folders, as in a folder of another writer.

        Raises ValueError if a value is invalid. The error names its location.
        """
        found = schema.read_json(cls, text, _check_header)
        _check_names_and_sums(found, flat)
        found._check_every_row_is_accounted_for()
        return found

    def _check_every_row_is_accounted_for(self) -> None:
        written = sum(split.records for split in self.splits.values())
        came, went = self.rows_read + self.balanced.repeated, self.rejected.rows + self.filtered + self.balanced.dropped
        if came != written + went:
            raise ValueError(
                f"{self.rows_read} rows read and {self.balanced.repeated} repeated, but {written} written, "
                f"{self.rejected.rows} rejected, {self.filtered} filtered, {self.balanced.dropped} dropped"
            )


def _check_header(given: Any) -> None:
    """Raise ValueError for another format version, an incomplete dataset, or a missing required field."""
    fields = given if isinstance(given, dict) else {"format": None}
    version, complete = fields.get("format", FORMAT), fields.get("complete", True)
    if type(version) is not int or type(complete) is not bool:
        return  # `read_json` reports the error
    if version != FORMAT:
        raise ValueError(f"format is {version}, but this version reads {FORMAT}")
    if not complete:
        raise ValueError("the dataset is not complete")
    for name in ("format", "complete", "created_by", "rejected", "filtered"):
        if name not in fields:
            raise ValueError(f"{name} is missing")


def _check_names_and_sums(manifest: Manifest, flat: bool) -> None:
    if not manifest.splits:
        raise ValueError("there are no splits")
    if manifest.rejected.file is not None and not names.is_file_name(manifest.rejected.file):
        raise _invalid_value(("rejected", "file"), manifest.rejected.file, "is not a plain file name")
    for name, split in manifest.splits.items():
        place, folder = ("splits", name), "" if flat else f"{names.split_folder(name)}/"
        for number, shard in enumerate(split.shards):
            of_shard = (*place, "shards", number)
            if "/" in name or not shard.file.startswith(folder) or not names.is_file_name(shard.file[len(folder) :]):
                raise _invalid_value((*of_shard, "file"), shard.file, "is not a file in the folder of its split")
            if not _CRC32C.fullmatch(shard.crc32c):
                why = "is not a checksum of 8 hexadecimal digits"
                raise _invalid_value((*of_shard, "crc32c"), shard.crc32c, why)
        if split != Split.of(split.shards, split.reason):
            raise _invalid_value(place, f"{split.records} records, {split.bytes} bytes", "is not the sum of its shards")
        if len({shard.file for shard in split.shards}) < len(split.shards):
            raise _invalid_value(place, len(split.shards), "shards, one of which is listed twice")


def _invalid_value(place: tuple[Any, ...], value: object, why: str) -> ValueError:
    return ValueError(schema.sentence(place, value, why))
