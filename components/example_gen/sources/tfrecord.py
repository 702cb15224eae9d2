"""TFRecord files -> the same records in new shards: serialized bytes pass through, and no value is parsed.

Any number of files, gzip or not, of tf.Examples, SequenceExamples or other serialized protos. A record's split follows
from the hash of its bytes as they are.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

from infeed.components.dataset import records
from infeed.components.dataset.checksums import verify
from infeed.components.dataset.decode import is_example
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.reading import check_listed, expected_file, listed_files
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, OpenedSource

SCHEMA = pa.schema([("record", pa.large_binary())])


def open_tfrecords(root: str, patterns: inputs.Patterns, options: IngestOptions) -> OpenedSource:
    """TFRecord files; a file is a task, since a record's place in it is known only by walking there."""
    found = inputs.find(root, patterns)
    for folder in {posixpath.dirname(file.path) for some in found.values() for file in some}:
        if listed := listed_files(folder):
            check_listed(folder, listed)
    parts = inputs.look(found, lambda path: [path])
    read = partial(read_blocks, block_bytes=options.block_bytes, most_bytes=options.max_row_mb << 20)
    return inputs.of_parts("tfrecord", root, SCHEMA, parts, read, serialized=True)


def read_blocks(path: str, block_bytes: int, most_bytes: int, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """The records of one file in order, as batches of about `block_bytes`.

    Args:
      most_bytes: a longer record is an error.

    Raises:
      InfeedError: a file that is not what its dataset's manifest tells; a truncated or corrupt one, with the record's
        number. It is never set aside as a bad row, since nobody can say how many records are lost behind it.
    """
    del bad_rows
    if expected := expected_file(path):
        verify([expected])
    block: list[bytes] = []
    size = 0
    for record in records.read_records(path, most_bytes):
        if block and size + len(record) > block_bytes:
            yield _batch(block)
            block, size = [], 0
        block.append(record)
        size += len(record)
    if block:
        yield _batch(block)


def check_examples(opened: OpenedSource, *, sequences: bool) -> None:
    """Looks at the first record of every file.

    Raises:
      InfeedError: a record that cannot be a tf.Example, or, with `sequences`, a SequenceExample.
    """
    name = "SequenceExample" if sequences else "tf.Example"
    paths = [task.payload.piece for task in opened.tasks if isinstance(task.payload.piece, str)]
    for path in paths:
        first = next(records.read_records(path), None)
        if first is not None and not is_example(first, sequence=sequences):
            raise InfeedError(
                f"the record is no {name}",
                where=f"{path}, record 0",
                do="set payload_format to what the records are",
            )


def _batch(block: Iterable[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(block, pa.large_binary())], schema=SCHEMA)
