"""Reader of Avro files. Each task reads a run of blocks.

Blocks are found by reading only their lengths, so that each task reads only its own bytes. Tasks decode blocks behind
a rewritten header without the logical types that Arrow converts faster from plain numbers. The decoder runs in a
child process with a memory limit, because a block may decompress to gigabytes; see `reader_process`.

| Avro | Arrow |
|---|---|
| null, boolean, int, long | null, bool, int32, int64 |
| float, double, bytes, string | float32, float64, binary, string |
| enum, uuid | string |
| fixed | binary of that size |
| decimal | decimal |
| date; timestamps of any unit | date32; timestamp |
| array, record | list, struct |
| a union of null and a type | that type |
| a union of numbers | the widest of them |
| a union of strings, enums, bytes and fixed | binary |
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import fastavro
import pyarrow as pa
from pyarrow import types

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, schemas
from infeed.components.dataset.encode import varint
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import Batches, OpenedSource, Patterns
from infeed.components.example_gen.sources import columnar, json_lines
from infeed.components.example_gen.sources.columnar import FileLayout, Reader, RowGroups
from infeed.components.example_gen.sources.file_kinds import not_a
from infeed.components.example_gen.sources.reader_process import Limits

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_LONG_BYTES = 10  # longest variable-length integer of Avro
_ROWS_PER_BATCH = 1 << 14
_REMEDY = "write the file again, or leave it out"
_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_MOST_DIGITS = 76  # of decimal256
_MOST_NARROW_DIGITS = 38  # of decimal128


@dataclass(frozen=True)
class AvroHeader:
    """The header of a file. `stop` is the offset of the first block, and `arrow` is the schema in Arrow."""

    path: str
    schema: Any
    arrow: pa.Schema
    codec: str
    sync: bytes
    stop: int


def open_avro(root: str, patterns: Patterns, options: IngestOptions) -> OpenedSource:
    """Open Avro files with compatible columns."""
    reader = Reader("avro", read_layout, decode_blocks)
    return columnar.open_columnar(reader, root, inputs.find(root, patterns), options)


def read_layout(path: str, block_bytes: int) -> FileLayout:
    """Read the header and the lengths of the blocks. Raises InfeedError if the file is not Avro or is truncated."""
    header, tasks = read_header(path), list[RowGroups]()
    start, first_row, row = header.stop, 1, 1
    with files.open_input(path, ahead=True) as file:
        size, at = file.size(), header.stop
        while at < size:
            rows, stop = _measure_block(file, at, header, row)
            if at > start and stop - start > block_bytes:
                tasks.append(RowGroups(path, (header, start, at), first_row))
                start, first_row = at, row
            at, row = stop, row + rows
        if at > start:
            tasks.append(RowGroups(path, (header, start, at), first_row))
    return FileLayout(schemas.FileSchema(path, header.arrow), tuple(tasks))


def read_header(path: str) -> AvroHeader:
    """Raise InfeedError if the file is not Avro or does not hold records."""
    with files.open_input(path, ahead=True) as file:
        try:
            reader = fastavro.reader(file)  # reads the header, and no more
            metadata, schema, stop = reader.metadata, json.loads(reader.metadata["avro.schema"]), file.tell()
            arrow = to_arrow(schema, path)
            file.seek(stop - _SYNC_BYTES)
            return AvroHeader(path, schema, arrow, metadata.get("avro.codec", "null"), file.read(_SYNC_BYTES), stop)
        except InfeedError:
            raise
        except Exception as error:  # decoders raise arbitrary errors on corrupt bytes
            reason = "a corrupt length exceeds memory" if isinstance(error, MemoryError) else repr(error)
            raise not_a("Avro", path, reason) from error


def decode_blocks(what: RowGroups, wanted: Sequence[str], limits: Limits) -> Batches:
    """Yield some blocks in batches of about `limits.block` bytes. Raises InfeedError if a row exceeds `limits.row`."""
    del wanted  # the decoder reads whole rows
    row, (header, *_) = what.first_row, what.groups
    for rows in _read_rows(what, limits.block):
        batch = _batch(rows, header)
        row += batch.num_rows
        if batch.nbytes > limits.row + limits.block:  # only the last row can be this large
            do = "write the file with smaller values, or raise max_row_mb (--max-row-mb)"
            raise InfeedError(f"a row takes {batch.nbytes >> 20:,} MB", where=f"{header.path}, row {row - 1}", do=do)
        yield batch


def _batch(rows: list[dict[str, Any]], header: AvroHeader) -> pa.RecordBatch:
    try:
        with suppress(pa.ArrowInvalid):  # an integer that float64 cannot represent, in a union with floats
            return pa.RecordBatch.from_pylist(rows, schema=header.arrow)
        form = json_lines.kind_of_arrow(pa.struct(list(header.arrow)))
        return pa.RecordBatch.from_pylist([json_lines.fit(row, form) for row in rows], schema=header.arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InfeedError(f"values do not match the Avro schema: {error}", where=header.path, do=_REMEDY) from error


def _read_rows(what: RowGroups, block_bytes: int) -> Iterator[list[dict[str, Any]]]:
    header, start, stop = what.groups
    with files.open_input(what.path) as file:
        file.seek(start)
        data = file.read(stop - start)
    metadata = {"avro.codec": header.codec, "avro.schema": json.dumps(without_logical_types(header.schema))}
    pairs = b"".join(_encode_long(len(text)) + text for pair in metadata.items() for text in map(str.encode, pair))
    rewritten = _MAGIC + _encode_long(len(metadata)) + pairs + _encode_long(0) + header.sync
    rows: list[dict[str, Any]] = []
    done, size = 0, 0.0
    try:
        for block in cast(Any, fastavro.block_reader(io.BytesIO(rewritten + data))):
            of_row = block.bytes_.getbuffer().nbytes / max(block.num_records, 1)
            for row in block:
                rows.append(cast("dict[str, Any]", row))
                size += of_row
                if size >= block_bytes or len(rows) == _ROWS_PER_BATCH:
                    yield rows
                    done, rows, size = done + len(rows), [], 0
    except MemoryError:
        raise
    except Exception as error:  # codecs raise arbitrary errors on corrupt bytes
        where = f"{what.path}, row {what.first_row + done + len(rows)}"
        raise InfeedError(f"cannot read the Avro block: {error!r}", where=where, do=_REMEDY) from error
    if rows:
        yield rows


def _measure_block(file: pa.NativeFile, at: int, header: AvroHeader, row: int) -> tuple[int, int]:
    """Return (number of rows of the block at byte `at`, offset of the next block)."""
    file.seek(at)
    head = io.BytesIO(file.read(2 * _LONG_BYTES))
    rows, size = _read_long(head), _read_long(head)
    stop = at + head.tell() + size + _SYNC_BYTES
    where, is_inside = f"{header.path}, row {row}", rows >= 0 and size >= 0 and stop <= file.size()
    if is_inside:
        file.seek(stop - _SYNC_BYTES)
    if not is_inside or file.read(_SYNC_BYTES) != header.sync:
        raise InfeedError("the file is truncated or corrupt: a block ends too early", where=where, do=_REMEDY)
    if rows > stop - at and all(map(is_empty, header.arrow.types)):
        raise InfeedError(f"the block announces {rows:,} rows without values", where=where, do=_REMEDY)
    return rows, stop


def _read_long(file: BinaryIO) -> int:
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    return (value >> 1) ^ -(value & 1)  # zigzag encoding


def _encode_long(value: int) -> bytes:
    return varint(value << 1)  # zigzag encoding of a non-negative integer


def to_arrow(schema: Any, path: str) -> pa.Schema:
    """Convert an Avro schema. Raises InfeedError if it is not a record, or a tf.Example cannot hold a field."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        name = schema.get("type") if isinstance(schema, dict) else schema
        raise InfeedError(f"the Avro schema is {name}, not a record", where=path, do="write one record for each row")
    named, fields = {_full_name(schema, ""): schema}, list[tuple[str, pa.DataType]]()
    for field in schema["fields"]:
        name = field["name"]
        try:
            fields.append((name, _type(field["type"], _namespace(schema, ""), named, ())))
        except InfeedError as error:
            raise InfeedError(error.what, where=f"{path}, column {name!r}", do=error.do) from error
    return pa.schema(fields)


def without_logical_types(schema: Any) -> Any:
    """Replace the logical types of dates, times, and uuids by plain numbers and text. Decimals stay."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "logicalType" or _is_decimal(schema)}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = without_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [without_logical_types(field) for field in kept["fields"]]
    return kept


def _type(schema: Any, namespace: str, named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        return _union([_type(one, namespace, named, within) for one in schema])
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        known = schema if schema in named else f"{namespace}.{schema}"
        return _type(named[known], namespace, named, within)
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if _is_decimal(schema):
        decimal = pa.decimal128 if schema["precision"] <= _MOST_NARROW_DIGITS else pa.decimal256
        return decimal(schema["precision"], schema.get("scale", 0))
    return _complex(schema, namespace, named, within)


def _is_decimal(schema: dict[str, Any]) -> bool:
    """Return whether Arrow has such a decimal. Avro's specification treats wider decimals as bytes."""
    return schema.get("logicalType") == "decimal" and int(schema["precision"]) <= _MOST_DIGITS


def _complex(schema: Any, namespace: str, named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    kind, name = schema["type"], _full_name(schema, namespace)
    if "name" in schema:
        named[name] = schema
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary(schema["size"])
    if kind == "array":
        item = _type(schema["items"], namespace, named, within)
        if is_empty(item):
            raise InfeedError("a tf.Example cannot hold an array of nulls", do="leave out the column")
        return pa.list_(item)
    # Columns cannot be nested without end, so a record within itself has no type in Arrow.
    if kind == "record" and name not in within:
        inner = _namespace(schema, namespace)
        return pa.struct([(one["name"], _type(one["type"], inner, named, (*within, name))) for one in schema["fields"]])
    if isinstance(kind, (dict, list)) or kind in _PLAIN:
        return _type(kind, namespace, named, within)
    what = f"the recursive record {name}" if kind == "record" else f"the Avro type {kind}"
    raise InfeedError(f"a tf.Example cannot hold {what}", do="leave out the column, or write it as text")


def is_empty(kind: pa.DataType) -> bool:
    """Return whether values take no bytes. A damaged file may announce an endless number of such values."""
    if types.is_struct(kind):
        return all(is_empty(field.type) for field in kind)
    return bool(types.is_null(kind) or (types.is_fixed_size_binary(kind) and not kind.byte_width))


def _union(members: list[pa.DataType]) -> pa.DataType:
    distinct = list(dict.fromkeys(one for one in members if not types.is_null(one)))
    if len(distinct) == 1:
        return distinct[0]
    if not distinct:
        return pa.null()
    if all(types.is_integer(one) for one in distinct):
        return pa.int64()
    if all(types.is_integer(one) or types.is_floating(one) for one in distinct):
        return pa.float64()
    if all(types.is_string(one) or types.is_binary(one) or types.is_fixed_size_binary(one) for one in distinct):
        return pa.binary()
    what = f"a tf.Example cannot hold a union of {' and '.join(str(one) for one in distinct)}"
    raise InfeedError(what, do="write a separate column for each type")


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name, inner = str(schema.get("name", "")), _namespace(schema, namespace)
    return name if "." in name or not inner else f"{inner}.{name}"


def _namespace(schema: dict[str, Any], namespace: str) -> str:
    own = str(schema.get("name", "")).rpartition(".")[0]
    return own or str(schema.get("namespace", namespace))
