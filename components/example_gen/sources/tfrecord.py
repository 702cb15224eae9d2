"""TFRecord files -> the same records in new shards: serialized bytes pass through, and no value is parsed.

Any number of files, gzip or not, of tf.Examples, SequenceExamples or other serialized protos. A record's split follows
from the hash of its bytes as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa

from infeed.components.dataset import records
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.ingest import Input

SCHEMA = pa.schema([("record", pa.large_binary())])
_FEATURES, _FEATURE_LISTS = 0x0A, 0x12  # tags of the two fields that a SequenceExample has; a tf.Example has the first


def open_tfrecords(root: str, patterns: inputs.Patterns, options: IngestOptions) -> Input:
    """TFRecord files; a file is a task, since a record's place in it is known only by walking there."""
    found = inputs.find(root, patterns)
    tasks = inputs.as_tasks((split, file.path) for split, some in found.items() for file in some)
    read = partial(read_blocks, block_bytes=options.block_bytes)
    return Input(Source.of("tfrecord", root, inputs.all_files(found)), SCHEMA, tasks, read, serialized=True)


def read_blocks(path: str, block_bytes: int, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """The records of one file in order, as batches of about `block_bytes`.

    Raises:
      InfeedError: a truncated or corrupt file, with the record's number; never set aside as a bad row, since nobody can
        say how many records are lost behind it.
    """
    del bad_rows
    block: list[bytes] = []
    size = 0
    for record in records.read_records(path):
        if block and size + len(record) > block_bytes:
            yield _batch(block)
            block, size = [], 0
        block.append(record)
        size += len(record)
    if block:
        yield _batch(block)


def check_examples(opened: Input, *, sequences: bool) -> None:
    """Looks at the first record of every file.

    Raises:
      InfeedError: a record that cannot be a tf.Example, or, with `sequences`, a SequenceExample.
    """
    tags = {_FEATURES, _FEATURE_LISTS} if sequences else {_FEATURES}
    name = "SequenceExample" if sequences else "tf.Example"
    for task in opened.tasks:
        for record in records.read_records(task.what):
            if not _has_only(record, tags):
                raise InfeedError(
                    f"the record is no {name}",
                    where=f"{task.what}, record 0",
                    do="set payload_format to what the records are",
                )
            break


def _batch(block: Iterable[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(block, pa.large_binary())], schema=SCHEMA)


def _has_only(message: bytes, tags: set[int]) -> bool:
    """Whether a serialized proto consists of length-delimited fields with these tags."""
    at = 0
    while at < len(message):
        if message[at] not in tags:
            return False
        length, at = _varint(message, at + 1)
        at += length
    return at == len(message)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """(value, place behind it); a varint that never ends runs past the message."""
    value = shift = 0
    while at < len(message):
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 0x80:
            return value, at
    return 0, at + 1
