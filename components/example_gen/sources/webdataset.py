"""Reader of WebDataset shards: tar files, in which neighboring files of one name are a sample.

    0001.jpg  0001.cls  0001.json   ->   __key__ "0001", jpg (bytes), cls (int), json.caption, json.width

The part of a file name after its first dot names the column. Its last suffix determines the type, as in WebDataset's
own decoder: text, an integer, JSON, or bytes. The types of JSON values are those of all samples, so the files are first
scanned for them. Each task reads a range of samples.

Format: https://github.com/webdataset/webdataset
"""

from __future__ import annotations

import json
import posixpath
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, BinaryIO, cast

import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, schemas
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRow, BadRows, Batches, OpenedSource, Patterns, too_large
from infeed.components.example_gen.sources import kinds
from infeed.components.example_gen.sources.kinds import MismatchError

KEY = "__key__"
_TEXT = ("txt", "text", "transcript")
_INTEGERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_JSON = ("json", "jsn")
_ROWS_PER_BATCH = 1 << 14
_DO = "write the file again, or remove it"


@dataclass(frozen=True)
class SampleRange:
    """Neighboring samples of a file, bytes `start` to `stop`. `first_row` counts samples from 1."""

    path: str
    start: int
    stop: int
    first_row: int


@dataclass(frozen=True)
class TarSample:
    """The members of a sample: column -> member."""

    tar: tarfile.TarFile
    path: str
    key: str
    members: Mapping[str, tarfile.TarInfo]
    repeated: str  # column that occurs twice, or ""

    @property
    def start(self) -> int:
        return min(member.offset for member in self.members.values())

    @property
    def size(self) -> int:
        return sum(member.size for member in self.members.values())


def open_webdataset(root: str, patterns: Patterns, options: IngestOptions) -> OpenedSource:
    """Open tar files with compatible columns."""
    known, bad = kinds.Object(), list[BadRow]()
    parts = inputs.look(inputs.find(root, patterns), lambda path: scan(path, known, options, bad))
    if not known:
        inputs.check_any_good(bad)
        raise InfeedError("no samples in the input", where=root, do="use tar files that WebDataset can read")
    flat = schemas.flatten_schema(pa.schema(list(kinds.to_arrow(known))))
    left_out = {one.name: "its JSON holds nested lists" for one in flat if schemas.is_nested(one.type)}
    kept = pa.schema([one for one in flat if one.name not in left_out])
    schema = schemas.unify([schemas.FileSchema(root, kept)])
    read = partial(read_samples, known=known, schema=schema, options=options)
    return inputs.of_parts("webdataset", root, schema, parts, read, decimals=True, left_out=left_out)


def scan(path: str, known: kinds.Object, options: IngestOptions, bad: list[BadRow]) -> list[SampleRange]:
    """Cut a file into ranges of about `block_bytes`. Widens `known` to hold its samples, adds a bad row to `bad`."""
    bad_rows = BadRows(options.on_bad_row, sys.maxsize)
    starts = list[tuple[int, int]]()
    with files.open_input(path, ahead=True) as file:
        end = file.size()
        for row, sample in enumerate(_samples(cast(BinaryIO, file), path, 0, end), 1):
            if not starts or sample.start - starts[-1][0] >= options.block_bytes:
                starts.append((sample.start, row))
            decoded = _decoded(sample, row, known, options, bad_rows, with_bytes=False)
            wider = kinds.widen_object(known, _kinds_of(decoded)) if decoded else known
            if wider is not known:
                known.update(wider)
            bad += bad_rows.take()[: not bad]
    stops = [start for start, _ in starts[1:]] + [end]
    return [SampleRange(path, start, stop, row) for (start, row), stop in zip(starts, stops, strict=True)]


def read_samples(
    what: SampleRange, known: kinds.Object, schema: pa.Schema, options: IngestOptions, *, bad_rows: BadRows
) -> Batches:
    """Yield the samples of a range in order, and report samples that do not fit."""
    rows, size = list[dict[str, Any]](), 0
    with files.open_input(what.path, ahead=True, stop=what.stop) as file:
        samples = _samples(cast(BinaryIO, file), what.path, what.start, what.stop)
        for row, sample in enumerate(samples, what.first_row):
            decoded = _decoded(sample, row, known, options, bad_rows, with_bytes=True)
            if decoded is None:
                continue
            rows.append(decoded)
            size += sample.size
            if size >= options.block_bytes or len(rows) == _ROWS_PER_BATCH:
                yield _to_batch(rows, known, schema)
                rows, size = [], 0
    if rows:
        yield _to_batch(rows, known, schema)


def _to_batch(rows: list[dict[str, Any]], known: kinds.Object, schema: pa.Schema) -> pa.RecordBatch:
    array = pa.array([kinds.fit(row, known) for row in rows], kinds.to_arrow(known))
    batch = pa.RecordBatch.from_arrays(array.flatten(), schema=pa.schema(list(array.type)))
    return schemas.fill(schemas.flatten_batch(batch), schema)


def _samples(file: BinaryIO, path: str, start: int, stop: int) -> Iterator[TarSample]:
    """Yield the samples that begin between two offsets of a tar file. Raises InfeedError if it is damaged or no tar."""
    file.seek(start)
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for key, members in groupby(_members(tar, path, stop), _key_of):
                found, repeated = dict[str, tarfile.TarInfo](), ""
                for member in members:
                    column = _column_of(member)
                    repeated = column if column in found else repeated
                    found[column] = member
                yield TarSample(tar, path, key, found, repeated)
    except tarfile.TarError as error:
        raise InfeedError(f"not a tar file, or truncated: {error}", where=path, do=_DO) from error


def _members(tar: tarfile.TarFile, path: str, stop: int) -> Iterator[tarfile.TarInfo]:
    """Yield the files of a tar that WebDataset reads, up to the offset `stop`."""
    while (member := tar.next()) is not None and member.offset < stop:
        tar.members = []  # type: ignore[attr-defined] # tarfile keeps all members otherwise
        if member.isfile() and not files.is_hidden(member.name) and _column_of(member):
            yield member
    if member is None:  # at a block of zeros, or, silently, at a damaged header
        file = cast(BinaryIO, tar.fileobj)
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise InfeedError(f"the tar file is damaged or truncated at byte {tar.offset:,}", where=path, do=_DO)


def _key_of(member: tarfile.TarInfo) -> str:
    folder, name = posixpath.split(member.name)
    return posixpath.join(folder, name.partition(".")[0])


def _column_of(member: tarfile.TarInfo) -> str:
    return posixpath.basename(member.name).partition(".")[2].lower()


def _decoded(
    sample: TarSample, row: int, known: kinds.Object, options: IngestOptions, bad_rows: BadRows, *, with_bytes: bool
) -> dict[str, Any] | None:
    """Return the values of a sample, or None for a bad row, which is reported."""
    column = sample.repeated
    try:
        if column:
            raise MismatchError(column, f"the sample has two files {column!r}")
        if sample.size > options.max_row_mb << 20:
            raise MismatchError("", too_large(options.max_row_mb))
        values: dict[str, Any] = {KEY: sample.key}
        for column, member in sample.members.items():
            is_read = with_bytes or column.rpartition(".")[2] in (*_TEXT, *_INTEGERS, *_JSON)
            values[column] = _value(column, cast(BinaryIO, sample.tar.extractfile(member)).read()) if is_read else b""
        kinds.widen_object(known, _kinds_of(values))
    except MismatchError as error:
        bad_rows.report(BadRow(sample.path, row, error.column or None, error.reason, sample.key))
        return None
    return values


def _value(column: str, content: bytes) -> Any:
    """Decode a file by its last suffix. Raises MismatchError if the content is not what the suffix says."""
    suffix = column.rpartition(".")[2]
    try:
        if suffix in _TEXT:
            return content.decode()
        if suffix in _INTEGERS:
            return int(content)
        if suffix not in _JSON:
            return content
        value = json.loads(content)
        if b"\\u" in content:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair raises UnicodeEncodeError
        return value
    except UnicodeDecodeError:
        raise MismatchError(column, "not UTF-8 text") from None
    except ValueError as error:
        what = "an integer" if suffix in _INTEGERS else "JSON"
        raise MismatchError(column, f"not {what}: {error}") from None
    except RecursionError:
        raise MismatchError(column, "the JSON is nested too deeply") from None


def _kinds_of(values: Mapping[str, Any]) -> kinds.Object:
    return {name: kinds.kind_of(value, name) for name, value in values.items()}
