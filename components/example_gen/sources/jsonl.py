"""JSON Lines files, one object a line -> typed record batches.

Arrow reads block after block; only a block in which something is odd is read line by line, to say which line. Types
are found over the whole input in one pass. Objects inside objects become columns named with dots.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from infeed.components.dataset import columns, schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import json_types, streams
from infeed.components.example_gen.sources.json_types import MismatchError
from infeed.components.example_gen.sources.streams import Block, Span

_NULL_IN_LIST = re.compile(rb"[\[,]\s*null\b")  # Arrow drops it without a word
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character; Arrow refuses a half alone, Python takes it
_NO_FIELDS = pa.struct([])


@dataclass(frozen=True)
class JsonlOptions:
    """How the files are written; compression (gzip, zstd) is told from their content.

    Args:
      encoding: any that Python knows. A file that is not UTF-8 is read by one worker.
    """

    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        streams.check_encoding(self.encoding, "JsonlOptions")


@dataclass(frozen=True)
class _Format:
    """What reading needs to know: `row` is the type of a whole line."""

    row: pa.StructType
    schema: pa.Schema
    encoding: str
    block_bytes: int


def open_jsonl(
    root: str, patterns: inputs.Patterns, options: IngestOptions, jsonl: JsonlOptions | None = None
) -> Input:
    """JSON Lines files whose columns go together; the first value of a column decides what it holds."""
    encoding = (jsonl or JsonlOptions()).encoding
    found = inputs.find(root, patterns)
    known, work = _NO_FIELDS, list[tuple[str | None, Span]]()
    for split, matched in found.items():
        for file in matched:
            known, spans = scan(file.path, known, encoding, options)
            work += [(split, span) for span in spans]
    schema = schemas.unify([schemas.FileSchema(root, pa.schema(list(known)))])
    if not schema.names:
        raise InfeedError("no rows with values", where=root, do="give files with one JSON object a line")
    read = partial(read_span, form=_Format(known, schema, encoding, options.block_bytes))
    tasks = inputs.as_tasks(iter(work))
    return Input(Source.of("jsonl", root, inputs.all_files(found)), schema, tasks, read, decimals=True)


def scan(path: str, known: pa.StructType, encoding: str, options: IngestOptions) -> tuple[pa.StructType, list[Span]]:
    """One pass over one file: `known`, widened to hold its rows, and where to cut the file."""
    bad_rows = BadRows(options.on_bad_row, sys.maxsize)
    blocks = list[Block]()
    for block in _blocks(Span(path), encoding, options.block_bytes):
        known = _widen(known, block, bad_rows)
        bad_rows.take()
        blocks.append(replace(block, data=b""))
    plain = streams.is_plain(path, encoding)
    return known, streams.split_spans(path, blocks, options.block_bytes) if plain else [Span(path)]


def read_span(span: Span, form: _Format, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """The rows of a span in order; a line that is no row of the schema is reported."""
    for block in _blocks(span, form.encoding, form.block_bytes):
        table = _parse(block, pa.schema(list(form.row)))
        if table is not None and table.schema.types == [field.type for field in form.row]:
            batch = _one_batch(table)
        else:
            rows, _ = _parse_lines(block, form.row, bad_rows)
            fitting = pa.array([json_types.fit(row, form.row) for row in rows], form.row)
            batch = pa.RecordBatch.from_arrays(fitting.flatten(), schema=pa.schema(list(form.row)))
        yield schemas.fill(schemas.flatten_batch(batch), form.schema)


def _blocks(span: Span, encoding: str, block_bytes: int) -> Iterator[Block]:
    return streams.read_blocks(span, encoding, block_bytes, streams.whole_lines)


def _widen(known: pa.StructType, block: Block, bad_rows: BadRows) -> pa.StructType:
    table = _parse(block, None)
    if table is not None:
        try:
            return json_types.widen(known, json_types.as_json(pa.struct(list(table.schema))))
        except MismatchError:
            pass  # which line it is, and which column, is found below
    return _parse_lines(block, known, bad_rows)[1]


def _parse(block: Block, schema: pa.Schema | None) -> pa.Table | None:
    """All rows at once; None where Arrow cannot read them, or might read something else than what stands there."""
    try:
        table = arrow_json.read_json(
            pa.BufferReader(block.data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="error" if schema else "infer"
            ),
        )
    except pa.ArrowInvalid:
        return None
    return None if _may_mislead(block.data, table) else table


def _may_mislead(data: bytes, table: pa.Table) -> bool:
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if table.num_rows != lines or not streams.is_utf8(data):
        return True
    if b"null" in data and _NULL_IN_LIST.search(data):
        return True
    return any(_any_beyond_int64(column) for column in schemas.flatten_batch(_one_batch(table)).columns)


def _any_beyond_int64(column: pa.Array) -> bool:
    """Arrow makes floats of integers that do not fit."""
    items = columns.items_of(column)
    largest = pc.max(pc.abs(items)).as_py() if pa.types.is_floating(items.type) else None
    return largest is not None and largest >= 2.0**63


def _parse_lines(block: Block, known: pa.StructType, bad_rows: BadRows) -> tuple[list[dict[str, Any]], pa.StructType]:
    """The rows that go together with `known`, and `known`, widened to hold them."""
    rows = []
    for number, line in streams.numbered_lines(block):
        if not line.strip():
            continue
        try:
            row = _parse_line(line)
            known = json_types.widen(known, json_types.type_of(row))
        except MismatchError as error:
            bad_rows.report(block.bad_row(number, error.reason, line, error.column or None))
        else:
            rows.append(row)
    return rows, known


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode(), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError:
        raise MismatchError("", "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise MismatchError("", f"not JSON: {error.msg} at character {error.pos + 1}") from None
    if _SURROGATE.search(line) and not _is_unicode(row):
        raise MismatchError("", "text that is no Unicode: half of a surrogate pair")
    if not isinstance(row, dict):
        raise MismatchError("", "not a JSON object")
    return row


def _is_unicode(row: Any) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MismatchError(twice, "a name that stands there twice")
    return dict(pairs)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
