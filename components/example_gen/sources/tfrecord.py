"""Importer of TFRecord files. Records are copied without parsing, and the hash of their bytes determines their split.

Reads tf.Examples, SequenceExamples, or other serialized protos, with or without gzip.

For options that use values (filter, splits, balance, required columns), `with_values` adds the features that they name
as columns. The first records determine the types. A later record that does not match is a bad row.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError, ReadFailedError
from infeed.components.dataset import example_types, records, row_filter
from infeed.components.dataset.cache import verify
from infeed.components.dataset.decode import is_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.reading import check_listed, expected_file, listed_files
from infeed.components.dataset.splits import columns_of
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import (
    AstrayError,
    BadRow,
    BadRows,
    Batches,
    FilePart,
    Findings,
    OpenedSource,
    Patterns,
    Read,
    Sample,
)
from infeed.components.example_gen.sources import streams

SCHEMA = pa.schema([("record", pa.large_binary())])
_SAMPLE = 1_000  # records that determine the types; more if a feature is missing in them
_KINDS = {pa.large_binary(): "bytes", pa.float32(): "float", pa.int64(): "int"}


@dataclass(frozen=True)
class RecordStretch:
    """The records of an uncompressed file that start in bytes `start` to `stop`."""

    path: str
    start: int
    stop: int | None


def open_tfrecords(root: str, patterns: Patterns, options: IngestOptions) -> OpenedSource:
    """Open TFRecord files. Each file is a task, because only sequential reading finds records reliably."""
    found = inputs.find(root, patterns, companions=False)
    for folder in {posixpath.dirname(file.path) for some in found.values() for file in some}:
        if listed := listed_files(folder):
            check_listed(folder, listed)
    parts = inputs.look(found, lambda path: [path])
    read = partial(read_blocks, block_bytes=options.block_bytes, most_bytes=options.max_row_mb << 20)
    notes = records.misnamed_gzip(file.path for file in inputs.all_files(found))
    return inputs.of_parts("tfrecord", root, SCHEMA, parts, read, serialized=True, warnings=notes)


def open_cut_tfrecords(root: str, patterns: Patterns, options: IngestOptions) -> OpenedSource:
    """Open like `open_tfrecords`, but divide large uncompressed files into several tasks.

    A task searches for the first record after its start, and reads until the next task's first record. If no record
    starts there, a search has failed, and the input is reopened with one task for each file.
    """
    opened = open_tfrecords(root, patterns, options)
    size = streams.span_bytes(options.block_bytes)
    work = list[tuple[str | None, FilePart]]()
    for task in opened.tasks:
        path, pieces = task.payload.piece, [task.payload.piece]
        if task.payload.file.size > size and not records.is_gzip(path):
            bounds = [*range(0, task.payload.file.size, size), None]
            pieces = [RecordStretch(path, start or 0, stop) for start, stop in pairwise(bounds)]
        work += [(task.split, replace(task.payload, piece=piece)) for piece in pieces]
    tasks = inputs.as_tasks(iter(work))
    if len(tasks) == len(opened.tasks):
        return opened
    sample = Sample(None, _no_kinds)
    return replace(opened, tasks=tasks, sample=sample, reopen=lambda _: open_tfrecords(root, patterns, options))


def _no_kinds(found: Sequence[Findings]) -> None:
    del found


def read_blocks(piece: str | RecordStretch, block_bytes: int, most_bytes: int, *, bad_rows: BadRows) -> Batches:
    """Yield the records of a file or of a range, in order, in batches of about `block_bytes`.

    Args:
      most_bytes: maximum size of a record.

    Raises:
      InfeedError: the file contradicts its dataset's manifest, or is truncated or corrupt. Corrupt files are never
        rejected as bad rows, because the number of lost records is unknown.
      AstrayError: the range starts or ends within a record.
    """
    del bad_rows
    path, first = (piece, True) if isinstance(piece, str) else (piece.path, piece.start == 0)
    if first and (expected := expected_file(path)):
        verify([expected])
    found = records.read_records(path, most_bytes) if isinstance(piece, str) else _records(piece, most_bytes)
    for block in streams.grouped(found, len, block_bytes):
        yield pa.RecordBatch.from_arrays([pa.array(block, pa.large_binary())], schema=SCHEMA)


def _records(piece: RecordStretch, most_bytes: int) -> Iterator[bytes]:
    start = records.find_record(piece.path, piece.start) if piece.start else 0
    stop = None if piece.stop is None else records.find_record(piece.path, piece.stop)
    try:
        yield from records.read_range(piece.path, start, stop, most_bytes)
    except ReadFailedError:
        raise
    except InfeedError as error:
        for _ in records.read_records(piece.path, most_bytes):  # raises the error again, with the record's number
            pass
        raise AstrayError from error


def paths_of(opened: OpenedSource) -> list[str]:
    """Return the files of a record source, in order. Dangling links are excluded."""
    pieces = [task.payload.piece for task in opened.tasks]
    paths = [piece.path if isinstance(piece, RecordStretch) else piece for piece in pieces]
    return [path for path in dict.fromkeys(paths) if isinstance(path, str)]


def check_examples(opened: OpenedSource, *, sequences: bool) -> None:
    """Raise InfeedError unless the first record of each file is a tf.Example, or a SequenceExample if `sequences`."""
    name = "SequenceExample" if sequences else "tf.Example"
    for path in paths_of(opened):
        first = next(records.read_records(path), None)
        if first is not None and not is_example(first, sequence=sequences):
            what = f"the record is not a {name}"
            raise InfeedError(what, where=f"{path}, record 0", do="set payload_format to the format of the records")


def with_values(
    opened: OpenedSource, options: IngestOptions, partition_feature: str | None = None, *, every: bool = False
) -> OpenedSource:
    """Add the features that the options use as columns, if the source holds serialized records.

    Args:
      partition_feature: feature whose hash splits the records, as in TFX.
      every: add all features.

    Raises:
      InfeedError: no record has the feature, no record is a tf.Example, or the options exclude columns.
    """
    for name in ("columns", "drop"):
        if opened.serialized and (chosen := getattr(options, name)):
            what = f"{name} is {', '.join(chosen)}, but records are written unchanged"
            do = f"leave out {name}. To select features, list them in the config, or select them in the feed"
            raise InfeedError(what, where=opened.place, do=do)
    wanted = None if every else _wanted(options, partition_feature)
    if not opened.serialized or wanted == set():
        return opened
    seen = _Seen.of(opened, options, wanted)
    for name in sorted((wanted or set()) - seen.kinds.keys()):
        raise InfeedError(f"no record has the feature {name!r}", where=opened.place, do=f"use {seen.others(opened)}")
    if every and not seen.kinds:
        do = "write the pipeline in Python with ImportExampleGen(payload_format=...)"
        raise InfeedError("the records are not tf.Examples with features", where=opened.place, do=do)
    read = partial(_read_values, read=opened.read, values=seen.schema)
    return replace(opened, schema=pa.schema([*opened.schema, *seen.schema]), read=read)


def without_records(opened: OpenedSource) -> OpenedSource:
    """Return a source of serialized records as a table of the features that `with_values` has added."""
    if not opened.serialized:
        return opened
    schema = pa.schema(list(opened.schema)[1:])
    read = partial(_read_features, read=opened.read, schema=schema)
    return replace(opened, schema=schema, read=read, serialized=False)


def _read_features(payload: Any, read: Read, schema: pa.Schema, *, bad_rows: BadRows) -> Batches:
    for batch in read(payload, bad_rows=bad_rows):
        yield pa.RecordBatch.from_arrays(batch.columns[1:], schema=schema)


def _wanted(options: IngestOptions, partition_feature: str | None) -> set[str] | None:
    """Return the features that the options use, or None if a function may use all."""
    filtered = row_filter.columns_of(options.filter) if options.filter else frozenset[str]()
    if filtered is None:
        return None
    others = (partition_feature, options.balance and options.balance.label)
    split, named = columns_of(options.split_by), (*options.required, *options.labeled)
    return {*filtered, *split, *named, *(name for name in others if name)}


@dataclass
class _Seen:
    """Properties of the first records: feature types, features with several values, and non-text features."""

    kinds: dict[str, pa.DataType] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)
    binary: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, opened: OpenedSource, options: IngestOptions, wanted: set[str] | None) -> _Seen:
        """Read records until there are enough of them, and each wanted feature occurs."""
        seen, count = cls(), 0
        for path in paths_of(opened):
            for batch in read_blocks(path, options.block_bytes, options.max_row_mb << 20, bad_rows=BadRows()):
                seen.add(batch.column(0).to_pylist(), wanted)
                count += batch.num_rows
                if count >= _SAMPLE and (wanted is None or wanted <= seen.kinds.keys()):
                    return seen
        return seen

    def add(self, payloads: Sequence[bytes], wanted: set[str] | None) -> None:
        try:
            columns = decode_columns(payloads, wanted)
        except ValueError:
            for payload in payloads if len(payloads) > 1 else ():
                self.add([payload], wanted)
            return
        for name, column in columns.items():
            self.kinds.setdefault(name, column.type.value_type)
            if example_types.item_counts(column).max(initial=0) > 1:
                self.lists.add(name)
            if pa.types.is_large_binary(column.type.value_type):
                try:
                    column.flatten().cast(pa.large_string())
                except pa.ArrowInvalid:
                    self.binary.add(name)

    @property
    def schema(self) -> pa.Schema:
        fields = list[tuple[str, pa.DataType]]()
        for name, kind in sorted(self.kinds.items()):
            item = pa.large_string() if pa.types.is_large_binary(kind) and name not in self.binary else kind
            fields.append((name, pa.large_list(item) if name in self.lists else item))
        return pa.schema(fields)

    def others(self, opened: OpenedSource) -> str:
        """List features of the first record, for errors."""
        first = next((record for path in paths_of(opened) for record in records.read_records(path)), b"")
        with suppress(ValueError):
            if names := list(decode_columns([first]))[:10]:
                return f"a feature such as {', '.join(names)}"
        return "files of serialized tf.Examples"


def _read_values(part: FilePart, read: Read, values: pa.Schema, *, bad_rows: BadRows) -> Batches:
    count, start = 0, part.piece.start if isinstance(part.piece, RecordStretch) else 0
    if start:
        path = part.file.path
        bad_rows.lines_before = lambda: sum(1 for _ in records.read_range(path, 0, records.find_record(path, start)))
    for batch in read(part, bad_rows=bad_rows):
        payloads = batch.column(0)
        try:
            columns = _columns(payloads.to_pylist(), values)
        except ValueError:
            payloads = payloads.take(_fitting(payloads.to_pylist(), values, part.file.path, count, bad_rows))
            columns = _columns(payloads.to_pylist(), values)
        count += batch.num_rows
        yield pa.RecordBatch.from_arrays([payloads, *columns], schema=pa.schema([*batch.schema, *values]))
    bad_rows.found = Findings(lines=count, line=None if start else 1)


def _fitting(payloads: list[bytes], values: pa.Schema, path: str, before: int, bad_rows: BadRows) -> pa.Array:
    """Return the indices of the records that fit the columns, and report the others."""
    kept = list[int]()
    for number, payload in enumerate(payloads):
        try:
            _columns([payload], values)
            kept.append(number)
        except ValueError as error:  # noqa: PERF203 (only blocks with a bad record come here)
            name, _, reason = str(error).rpartition("\n")
            bad_rows.report(BadRow(path, before + number + 1, name or None, reason, ""))
    return pa.array(kept, pa.int64())


def _columns(payloads: list[bytes], values: pa.Schema) -> list[pa.Array]:
    """Return the features as columns.

    If a record does not match, the ValueError is the feature, a line end, and the reason.
    """
    found = decode_columns(payloads, values.names)
    return [
        _converted(found[one.name], one) if one.name in found else pa.nulls(len(payloads), one.type) for one in values
    ]


def _converted(column: pa.Array, to: pa.Field) -> pa.Array:
    kind, wanted = column.type.value_type, example_types.item_type(to.type)
    if kind not in (wanted, pa.large_binary() if pa.types.is_large_string(wanted) else wanted):
        raise ValueError(f"{to.name}\nthe value is {_KINDS[kind]}, and those of the first records are {wanted}")
    try:
        items = column.flatten().cast(wanted)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{to.name}\nthe value is not UTF-8 text, and those of the first records are") from error
    counts = example_types.item_counts(column)
    if example_types.is_list(to.type):
        lists = pa.LargeListArray.from_arrays(pa.array(np.append(0, np.cumsum(counts)), pa.int64()), items)
        return pc.if_else(column.is_valid(), lists, pa.scalar(None, lists.type)) if column.null_count else lists
    if counts.max(initial=0) > 1:
        raise ValueError(f"{to.name}\nthe record has {counts.max()} values, and the first records have one")
    return items.take(pa.array(np.cumsum(counts) - 1, mask=counts == 0))
