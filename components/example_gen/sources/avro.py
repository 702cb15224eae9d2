"""Avro files -> record batches: runs of blocks between sync markers are the tasks.

A file's blocks are found by hopping from length to length, so that a task reads its own bytes alone. It decodes them
behind a header made anew, which leaves out the logical types that Arrow reads faster from plain numbers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, cast

import fastavro
import pyarrow as pa

from infeed.components.dataset import files, schemas
from infeed.components.dataset.encode import varint
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.fitting import fit_batches
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import avro_schema

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_LONG_BYTES = 10  # of Avro's longest variable-length integer
_ROWS_PER_BATCH = 1 << 14
_REMEDY = "write the file again, or leave it out"


@dataclass(frozen=True)
class Header:
    """What stands before a file's first block, which begins at byte `stop`."""

    path: str
    schema: Any
    codec: str
    sync: bytes
    stop: int


@dataclass(frozen=True)
class Blocks:
    """Neighbouring blocks of one file: bytes `start` to `stop`; `first_row` counts over the file, from 1."""

    header: Header
    start: int
    stop: int
    first_row: int


def open_avro(root: str, patterns: inputs.Patterns, options: IngestOptions) -> Input:
    """Avro files whose columns go together."""
    found = inputs.find(root, patterns)
    headers = {split: [read_header(file.path) for file in some] for split, some in found.items()}
    schema = schemas.unify(
        [
            schemas.FileSchema(header.path, avro_schema.to_arrow(header.schema, header.path))
            for some in headers.values()
            for header in some
        ]
    )
    tasks = inputs.as_tasks(
        (split, blocks)
        for split, some in headers.items()
        for header in some
        for blocks in plan_blocks(header, options.block_bytes)
    )
    return Input(Source.of("avro", root, inputs.all_files(found)), schema, tasks, partial(read_blocks, schema=schema))


def read_header(path: str) -> Header:
    """Raises InfeedError where the file is not Avro, or its schema is not of records."""
    with files.open_input(path) as file:
        try:
            reader = fastavro.reader(file)
            metadata, schema = reader.metadata, json.loads(reader.metadata["avro.schema"])
            file.seek(0)
            stop = _end_of_header(cast(BinaryIO, file))
            file.seek(stop - _SYNC_BYTES)
            return Header(path, schema, metadata.get("avro.codec", "null"), file.read(_SYNC_BYTES), stop)
        except (ValueError, KeyError, EOFError, IndexError, fastavro.schema.SchemaParseException) as error:
            raise InfeedError(f"not Avro, or cut short: {error}", where=path, do=_REMEDY) from error


def plan_blocks(header: Header, block_bytes: int) -> Iterator[Blocks]:
    """Blocks in order, small ones together up to about `block_bytes`.

    Raises:
      InfeedError: a file that ends within a block.
    """
    start, first_row, row = header.stop, 1, 1
    with files.open_input(header.path) as file:
        size, at = file.size(), header.stop
        while at < size:
            rows, stop = _hop(cast(BinaryIO, file), at, header, row)
            if at > start and stop - start > block_bytes:
                yield Blocks(header, start, at, first_row)
                start, first_row = at, row
            at, row = stop, row + rows
        if at > start:
            yield Blocks(header, start, at, first_row)


def read_blocks(what: Blocks, schema: pa.Schema, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """The rows of some blocks in order, with the columns of `schema`."""
    arrow = avro_schema.to_arrow(what.header.schema, what.header.path)
    batches = (pa.RecordBatch.from_pylist(rows, schema=arrow) for rows in _read_rows(what))
    yield from fit_batches(batches, schema, what.header.path, bad_rows, first_row=what.first_row)


def _read_rows(what: Blocks) -> Iterator[list[dict[str, Any]]]:
    with files.open_input(what.header.path) as file:
        file.seek(what.start)
        data = file.read(what.stop - what.start)
    rows: list[dict[str, Any]] = []
    done = 0
    try:
        for row in fastavro.reader(io.BytesIO(_plain_header(what.header) + data)):
            rows.append(cast("dict[str, Any]", row))
            if len(rows) == _ROWS_PER_BATCH:
                yield rows
                done, rows = done + len(rows), []
    except Exception as error:  # whatever a codec or a decoder makes of broken bytes
        where = f"{what.header.path}, row {what.first_row + done + len(rows)}"
        raise InfeedError(f"unreadable Avro: {error}", where=where, do=_REMEDY) from error
    if rows:
        yield rows


def _plain_header(header: Header) -> bytes:
    metadata = {"avro.codec": header.codec, "avro.schema": json.dumps(avro_schema.without_logical_types(header.schema))}
    pairs = b"".join(_bytes(key.encode()) + _bytes(value.encode()) for key, value in metadata.items())
    return _MAGIC + _long(len(metadata)) + pairs + _long(0) + header.sync


def _hop(file: BinaryIO, at: int, header: Header, row: int) -> tuple[int, int]:
    """(rows in the block at byte `at`, where the next begins)."""
    file.seek(at)
    head = io.BytesIO(file.read(2 * _LONG_BYTES))
    rows, size = _read_long(head), _read_long(head)
    stop = at + head.tell() + size + _SYNC_BYTES
    file.seek(max(stop - _SYNC_BYTES, 0))
    if rows < 0 or size < 0 or file.read(_SYNC_BYTES) != header.sync:
        raise InfeedError(
            "cut short, or corrupt: a block ends too early", where=f"{header.path}, row {row}", do=_REMEDY
        )
    return rows, stop


def _end_of_header(file: BinaryIO) -> int:
    file.seek(len(_MAGIC))
    while count := _read_long(file):
        if count < 0:
            _read_long(file)  # the size in bytes, which a negative count announces
        for _ in range(2 * abs(count)):
            file.seek(_read_long(file), io.SEEK_CUR)
    return file.tell() + _SYNC_BYTES


def _read_long(file: BinaryIO) -> int:
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    return (value >> 1) ^ -(value & 1)  # zigzag: small negative numbers are short as well


def _long(value: int) -> bytes:
    """Avro's variable-length integer, for a value of 0 or more."""
    return varint(value << 1)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value
