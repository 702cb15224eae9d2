"""TFRecord files -> the same records in new shards: serialized bytes pass through, and no value is parsed.

Any number of files, gzip or not, of tf.Examples, SequenceExamples or other serialized protos. A record's split follows
from the hash of its bytes as they are.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import pyarrow as pa

from infeed.components.dataset import names, records
from infeed.components.dataset.checksums import verify
from infeed.components.dataset.decode import is_example
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.reading import check_listed, expected_file, listed_files
from infeed.components.errors import InfeedError, ReadFailedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import AstrayError, BadRows, Findings, OpenedSource, Sample
from infeed.components.example_gen.sources import streams

SCHEMA = pa.schema([("record", pa.large_binary())])


@dataclass(frozen=True)
class RecordStretch:
    """The records of a file that is not compressed which begin at byte `start` or behind, and before `stop`."""

    path: str
    start: int
    stop: int | None


def open_tfrecords(root: str, patterns: inputs.Patterns, options: IngestOptions) -> OpenedSource:
    """TFRecord files; a file is a task, since a record's place in it is surely known only by walking there."""
    found = inputs.find(root, patterns)
    for folder in {posixpath.dirname(file.path) for some in found.values() for file in some}:
        if listed := listed_files(folder):
            check_listed(folder, listed)
    parts = inputs.look(found, lambda path: [path])
    read = partial(read_blocks, block_bytes=options.block_bytes, most_bytes=options.max_row_mb << 20)
    return inputs.of_parts("tfrecord", root, SCHEMA, parts, read, serialized=True)


def open_cut_tfrecords(root: str, patterns: inputs.Patterns, options: IngestOptions) -> OpenedSource:
    """As `open_tfrecords`, but large files that are not compressed are several tasks.

    A task looks for the first record at its place, and reads until the next task begins. If no record begins there,
    one of them saw a record where none is, and each file is one task.
    """
    opened = open_tfrecords(root, patterns, options)
    size = streams.span_bytes(options.block_bytes)
    tasks = inputs.as_tasks(
        (task.split, replace(task.payload, piece=piece))
        for task in opened.tasks
        for piece in _cut(task.payload.piece, task.payload.file.size, size)
    )
    if len(tasks) == len(opened.tasks):
        return opened
    return replace(
        opened,
        tasks=tasks,
        sample=Sample(None, _no_kinds),
        reopen=lambda _: open_tfrecords(root, patterns, options),
    )


def _cut(path: str, size: int, range_bytes: int) -> list[str | RecordStretch]:
    if path.endswith(names.GZIP_SUFFIX) or size <= range_bytes:
        return [path]
    bounds = [*range(0, size, range_bytes), None]
    return [RecordStretch(path, start or 0, stop) for start, stop in pairwise(bounds)]


def _no_kinds(found: Sequence[Findings]) -> None:
    del found


def read_blocks(
    piece: str | RecordStretch, block_bytes: int, most_bytes: int, *, bad_rows: BadRows
) -> Iterator[pa.RecordBatch]:
    """The records of a file, or of a range of one, in order, as batches of about `block_bytes`.

    Args:
      most_bytes: a longer record is an error.

    Raises:
      InfeedError: a file that is not what its dataset's manifest tells; a truncated or corrupt one, with the record's
        number. It is never set aside as a bad row, since nobody can say how many records are lost behind it.
      AstrayError: the range begins or ends within a record.
    """
    del bad_rows
    path, first = (piece, True) if isinstance(piece, str) else (piece.path, piece.start == 0)
    if first and (expected := expected_file(path)):
        verify([expected])
    block: list[bytes] = []
    size = 0
    for record in records.read_records(path, most_bytes) if isinstance(piece, str) else _records(piece, most_bytes):
        if block and size + len(record) > block_bytes:
            yield _batch(block)
            block, size = [], 0
        block.append(record)
        size += len(record)
    if block:
        yield _batch(block)


def _records(piece: RecordStretch, most_bytes: int) -> Iterator[bytes]:
    start = records.find_record(piece.path, piece.start) if piece.start else 0
    stop = None if piece.stop is None else records.find_record(piece.path, piece.stop)
    try:
        yield from records.read_range(piece.path, start, stop, most_bytes)
    except ReadFailedError:
        raise
    except InfeedError as error:
        for _ in records.read_records(piece.path, most_bytes):  # which raises it again, with the record's number
            pass
        raise AstrayError from error


def check_examples(opened: OpenedSource, *, sequences: bool) -> None:
    """Looks at the first record of every file.

    Raises:
      InfeedError: a record that cannot be a tf.Example, or, with `sequences`, a SequenceExample.
    """
    name = "SequenceExample" if sequences else "tf.Example"
    pieces = [task.payload.piece for task in opened.tasks]
    paths = {piece.path if isinstance(piece, RecordStretch) else piece: None for piece in pieces}
    for path in (path for path in paths if isinstance(path, str)):
        first = next(records.read_records(path), None)
        if first is not None and not is_example(first, sequence=sequences):
            raise InfeedError(
                f"the record is no {name}",
                where=f"{path}, record 0",
                do="set payload_format to what the records are",
            )


def _batch(block: Iterable[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(block, pa.large_binary())], schema=SCHEMA)
