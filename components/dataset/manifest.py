"""`manifest.json`: what a dataset holds, written last, so that a dataset that has one is whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from infeed.components.dataset import files, names, records
from infeed.components.dataset.files import FileStat
from infeed.components.errors import InfeedError

FORMAT = 1
ColumnType = Literal["int", "float", "bytes"]


def _created_by() -> str:
    """`tfx-infeed 0.1.0`."""
    return f"tfx-infeed {metadata.version('tfx-infeed')}"


@dataclass(frozen=True)
class Column:
    """One feature. `shape` is `(1,)` for one value a row, `(n,)` for n, None where the number varies."""

    name: str
    type: ColumnType
    shape: tuple[int, ...] | None
    nulls: int


@dataclass(frozen=True)
class Shard:
    """One file; `file` is relative to the dataset's root, `crc32c` is of the file as it lies on disk, in hex."""

    file: str
    records: int
    bytes: int
    crc32c: str


@dataclass(frozen=True)
class Split:
    """One split; `bytes` is the size of its files on disk, `reason` why there are so many of them."""

    records: int
    bytes: int
    shards: tuple[Shard, ...]
    reason: str = ""

    @classmethod
    def of(cls, shards: tuple[Shard, ...], reason: str = "") -> Split:
        return cls(sum(shard.records for shard in shards), sum(shard.bytes for shard in shards), shards, reason)


@dataclass(frozen=True)
class Source:
    """What was read. `fingerprint` changes when a file's name, size or time of change does."""

    kind: str
    fingerprint: str
    files: int
    bytes: int

    @classmethod
    def of(cls, kind: str, root: str, found: list[FileStat]) -> Source:
        return cls(kind, _fingerprint(root, found), len(found), sum(file.size for file in found))


@dataclass(frozen=True)
class Rejected:
    """Rows set aside, and the file that says which and why."""

    rows: int = 0
    file: str | None = None


@dataclass(frozen=True)
class Balanced:
    """Records that class balancing wrote once more, and rows that it left out."""

    repeated: int = 0
    dropped: int = 0

    def __add__(self, other: Balanced) -> Balanced:
        return Balanced(self.repeated + other.repeated, self.dropped + other.dropped)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole of a dataset. `schema` is empty for a dataset that somebody else wrote; `filtered` counts rows.

    Every row is accounted for: rows_read + repeated == records + rejected + filtered + dropped.
    """

    format: int = FORMAT
    complete: bool = True
    created_by: str = field(default_factory=_created_by)
    source: Source
    options: Mapping[str, Any]
    schema: tuple[Column, ...]
    splits: Mapping[str, Split]
    rejected: Rejected = field(default_factory=Rejected)
    filtered: int = 0
    balanced: Balanced = field(default_factory=Balanced)
    warnings: tuple[str, ...] = ()
    rows_read: int

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
          InfeedError: where there is none, or it was written by a later version or cut short.
        """
        path = files.join(root, names.MANIFEST)
        try:
            return cls.from_json(files.read_bytes(path).decode())
        except FileNotFoundError:
            raise InfeedError("no manifest.json", where=root, do="point at a finished dataset") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InfeedError(f"unreadable manifest: {error}", where=path, do="write the dataset again") from error

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        fields = json.loads(text)
        if fields["format"] != FORMAT:
            raise ValueError(f"format {fields['format']}, this version reads {FORMAT}")
        if not fields["complete"]:
            raise ValueError("not complete")
        return cls(
            **{
                **fields,
                "source": Source(**fields["source"]),
                "schema": tuple(_column(column) for column in fields["schema"]),
                "splits": {name: _split(split) for name, split in fields["splits"].items()},
                "rejected": Rejected(**fields["rejected"]),
                "balanced": Balanced(**fields.get("balanced", {})),
                "warnings": tuple(fields.get("warnings", ())),
            }
        )

    def _check_every_row_is_accounted_for(self) -> None:
        written = sum(split.records for split in self.splits.values())
        came, went = self.rows_read + self.balanced.repeated, self.rejected.rows + self.filtered + self.balanced.dropped
        if came != written + went:
            raise ValueError(
                f"{self.rows_read} rows read and {self.balanced.repeated} repeated, but {written} written, "
                f"{self.rejected.rows} rejected, {self.filtered} filtered, {self.balanced.dropped} dropped"
            )


def manifest_of(root: str, cache_dir: str | None = None) -> Manifest:
    """The manifest of any TFRecord dataset, whoever wrote it.

    One without a manifest is counted once by walking its record framing; the count is kept in `cache_dir`, keyed by the
    names, sizes and times of its files, and never written into the dataset. Where the folder cannot be written to, the
    next call counts again.

    Raises:
      InfeedError: where `root` holds no split, is not finished, or a file is truncated or corrupt.
    """
    if files.exists(files.join(root, names.MANIFEST)):
        return Manifest.read(root)
    if files.exists(files.join(root, names.UNFINISHED)):
        raise InfeedError(
            "a dataset that is not finished", where=root, do="wait for its writer, or write it again if that was killed"
        )
    found = [file for folder in _split_folders(root) for file in files.list_files(files.join(root, folder))]
    source = Source.of("tfrecord", root, found)
    if cache_dir is None:
        return _count(root, source)
    cached = files.join(cache_dir, f"counted-{source.fingerprint}")
    if files.exists(files.join(cached, names.MANIFEST)):
        return Manifest.read(cached)
    counted = _count(root, source)
    with suppress(OSError, InfeedError):
        counted.write(cached)
    return counted


def _count(root: str, source: Source) -> Manifest:
    splits = {
        folder.removeprefix(names.SPLIT_FOLDER): Split.of(tuple(_count_shards(root, folder)))
        for folder in _split_folders(root)
    }
    rows = sum(split.records for split in splits.values())
    return Manifest(source=source, options={}, schema=(), splits=splits, rows_read=rows)


def _count_shards(root: str, folder: str) -> Iterator[Shard]:
    for file in files.list_files(files.join(root, folder)):
        if not files.is_hidden(file.path):
            yield Shard(
                file=files.relative(file.path, root),
                records=records.count_records(file.path),
                bytes=file.size,
                crc32c=records.file_crc32c(file.path),
            )


def _split_folders(root: str) -> list[str]:
    folders = [folder for folder in files.list_folders(root) if folder.startswith(names.SPLIT_FOLDER)]
    if not folders:
        raise InfeedError(
            "not a TFRecord dataset: no Split-* folder",
            where=root,
            do="point at the folder that holds Split-train and its like, such as an Examples artifact",
        )
    return folders


def _fingerprint(root: str, found: list[FileStat]) -> str:
    lines = sorted(f"{files.relative(file.path, root)}\t{file.size}\t{file.mtime_ns}" for file in found)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _column(fields: dict[str, Any]) -> Column:
    shape = fields["shape"]
    return Column(**{**fields, "shape": None if shape is None else tuple(shape)})


def _split(fields: dict[str, Any]) -> Split:
    return Split(**{**fields, "shards": tuple(Shard(**shard) for shard in fields["shards"])})
