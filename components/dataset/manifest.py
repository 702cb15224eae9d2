"""`manifest.json`: what a dataset holds, written last, so that a dataset that has one is whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from infeed.components import schema
from infeed.components.annotations import Count
from infeed.components.dataset import files, names
from infeed.components.dataset.checksums import Expected
from infeed.components.dataset.files import FileStat
from infeed.components.errors import InfeedError

FORMAT = 1
ColumnType = Literal["int", "float", "bytes"]
_CRC32C = re.compile("[0-9a-f]{8}")


def _created_by() -> str:
    """`tfx-infeed 0.1.0`."""
    return f"tfx-infeed {metadata.version('tfx-infeed')}"


@dataclass(frozen=True)
class Column:
    """One feature. `shape` is `(1,)` for one value a row, `(n,)` for n, None where the number varies."""

    name: str
    type: ColumnType
    shape: tuple[Count, ...] | None
    nulls: Count


@dataclass(frozen=True)
class Shard:
    """One file; `file` is relative to the dataset's root, `crc32c` is of the file as it lies on disk, in hex."""

    file: str
    records: Count
    bytes: Count
    crc32c: str

    def expected(self, root: str) -> Expected:
        """What the file has to be in the dataset at `root`."""
        return Expected(files.join(root, self.file), self.bytes, self.crc32c)


@dataclass(frozen=True)
class Split:
    """One split; `bytes` is the size of its files on disk, `reason` why there are so many of them."""

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

    @classmethod
    def of(cls, kind: str, root: str, found: list[FileStat]) -> Source:
        return cls(kind, _fingerprint(root, found), len(found), sum(file.size for file in found))


@dataclass(frozen=True)
class Rejected:
    """Rows set aside, and the file that says which and why."""

    rows: Count = 0
    file: str | None = None


@dataclass(frozen=True)
class Balanced:
    """Records that class balancing wrote once more, and rows that it left out."""

    repeated: Count = 0
    dropped: Count = 0

    def __add__(self, other: Balanced) -> Balanced:
        return Balanced(self.repeated + other.repeated, self.dropped + other.dropped)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole of a dataset. `schema` is empty for a dataset that somebody else wrote; `filtered` counts rows.

    Every row is accounted for: rows_read + repeated == records + rejected + filtered + dropped.
    """

    format: Count = FORMAT
    complete: bool = True
    created_by: str = field(default_factory=_created_by)
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
        """Writes `ROOT/manifest.json` under a temporary name, then renames it.

        Raises:
          ValueError: where the rows read are not the rows written, rejected and filtered: a bug, never bad input.
        """
        self._check_every_row_is_accounted_for()
        files.write_bytes(files.join(root, names.MANIFEST), self.to_json().encode())

    @classmethod
    def read(cls, root: str) -> Manifest:
        """Reads `ROOT/manifest.json`.

        Raises:
          InfeedError: where there is none, or it was written by a later version, cut short or tampered with.
        """
        path = files.join(root, names.MANIFEST)
        try:
            found = cls.from_json(files.read_bytes(path))
            for name, split in found.splits.items():
                _check_shard_names(name, split)
            return found
        except FileNotFoundError:
            raise InfeedError("no manifest.json", where=root, do="point at a finished dataset") from None
        except ValueError as error:
            raise InfeedError(f"unreadable manifest: {error}", where=path, do="write the dataset again") from error

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Trusts nothing: every value is of its type and range, every file in its place, and all counts add up.

        Raises:
          ValueError: with the place of the value at fault.
        """
        found = schema.read_json(cls, text, _check_header)
        _check_names_and_sums(found)
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


def _fingerprint(root: str, found: list[FileStat]) -> str:
    lines = sorted(f"{files.relative(file.path, root)}\t{file.size}\t{file.mtime_ns}" for file in found)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _check_header(given: Any) -> None:
    """Raises ValueError for another version, and for what a file has to say itself."""
    fields = given if isinstance(given, dict) else {"format": None}
    version, complete = fields.get("format", FORMAT), fields.get("complete", True)
    if type(version) is not int or type(complete) is not bool:
        return  # `read_json` says what is wrong
    if version != FORMAT:
        raise ValueError(f"format {version}, this version reads {FORMAT}")
    if not complete:
        raise ValueError("not complete")
    for name in ("format", "complete", "created_by", "rejected", "filtered"):
        if name not in fields:
            raise ValueError(f"{name} is missing")


def _check_names_and_sums(manifest: Manifest) -> None:
    if not manifest.splits:
        raise ValueError("no split")
    if manifest.rejected.file is not None and not names.is_file_name(manifest.rejected.file):
        raise _refusal(("rejected", "file"), manifest.rejected.file, "is no plain file name")
    for name, split in manifest.splits.items():
        place = ("splits", name)
        for number, shard in enumerate(split.shards):
            _check_shard((*place, "shards", number), name, shard)
        if split != Split.of(split.shards, split.reason):
            raise _refusal(place, f"{split.records} records, {split.bytes} bytes", "is not the sum of its shards")
        if len({shard.file for shard in split.shards}) < len(split.shards):
            raise _refusal(place, len(split.shards), "shards, and one of them is named twice")


def _check_shard(place: tuple[Any, ...], split: str, shard: Shard) -> None:
    folder = f"{names.split_folder(split)}/"
    if "/" in split or not shard.file.startswith(folder) or not names.is_file_name(shard.file[len(folder) :]):
        raise _refusal((*place, "file"), shard.file, "is no file in the folder of its split")
    if not _CRC32C.fullmatch(shard.crc32c):
        raise _refusal((*place, "crc32c"), shard.crc32c, "is no checksum of 8 hexadecimal digits")


def _refusal(place: tuple[Any, ...], value: object, why: str) -> ValueError:
    return ValueError(schema.sentence(place, value, why))


def _check_shard_names(name: str, split: Split) -> None:
    """What we write is named by rule, so that a shard that the manifest leaves out is noticed."""
    if not names.are_shard_names([files.name(shard.file) for shard in split.shards]):
        raise ValueError(f"splits.{name}: the names are not those of {len(split.shards)} shards")
