"""Importer of TFRecord files. Records are copied without parsing, and the hash of their bytes determines their split.

Reads tf.Examples, SequenceExamples, or other serialized protos, with or without gzip.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import pyarrow as pa

from infeed.components.base.errors import InfeedError, ReadFailedError
from infeed.components.dataset import records
from infeed.components.dataset.checksums import verify
from infeed.components.dataset.decode import is_example
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.reading import check_listed, expected_file, listed_files
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import (
    AstrayError,
    BadRows,
    Batches,
    FilePart,
    Findings,
    OpenedSource,
    Patterns,
    Sample,
)
from infeed.components.example_gen.sources import streams

SCHEMA = pa.schema([("record", pa.large_binary())])


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
