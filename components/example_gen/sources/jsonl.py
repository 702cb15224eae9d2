"""Reader of JSON Lines files, one object per line.

Arrow parses block by block. A block that Arrow cannot parse is halved repeatedly, until a few lines remain that Python
parses one by one to find the bad line. Types are those of the whole input: `open_jsonl` reads the input for them, and
`open_sampled_jsonl` infers them from a sample that each task verifies. Nested objects become columns with dotted
names.

Some lines are never passed to Arrow, because Arrow misreads them or aborts: null in place of an object, thousands of
levels, or two objects on a line. A line that starts with `{` and ends with `}` cannot continue on the next line, since
no JSON value has `}` before `{`. So if there are as many rows as lines, each line is one row.

`read_rows` reads row by row for predictions: it keeps each value as written, so that rows are independent.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from infeed.components.base.checks import about
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types, schemas
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRow, BadRows, Batches, Findings, OpenedSource, Patterns, Sample
from infeed.components.example_gen.sources import file_kinds, json_lines, streams
from infeed.components.example_gen.sources.json_lines import (
    MismatchError,
    count_objects,
    has_too_many_values,
    most_values,
    parse_line,
)
from infeed.components.example_gen.sources.kinds import Numbers, formats_of, read_numbers, with_numbers
from infeed.components.example_gen.sources.streams import (
    Part,
    PartReader,
    Span,
    SpanCutter,
    TextBlock,
    is_small,
    parts_of,
)

_NULL_IN_LIST = re.compile(rb"[\[,]\s*null\b")  # Arrow drops such nulls silently
_LONG = re.compile(rb"[0-9]{16}[0-9]*[^0-9.eE]")  # a whole number beyond 2^53
_SMALL_BYTES, _SMALL_LINES = 1 << 16, 32  # smaller pieces are parsed line by line
Row = dict[str, Any]


@dataclass(frozen=True)
class JsonlOptions:
    """Options of the JSON Lines reader. Compression (gzip, zstd) is detected from the content.

    Attributes:
      encoding: any text encoding of Python. One worker reads a file that is not UTF-8.
      flatten: whether each field of a list of objects becomes a list column, such as `items.price`, and a list of lists
        becomes one list. Otherwise such columns are skipped.
      numbers: number format of text columns by example, such as {"price": "$1,234.5"}. A row with a cell of another
        format is a bad row.
    """

    encoding: str = "utf-8"
    flatten: bool = False
    numbers: Numbers = field(default_factory=dict)

    def __post_init__(self) -> None:
        streams.check_encoding(self)
        with about(self, "numbers"):
            formats_of(self.numbers)


@dataclass(frozen=True)
class _JsonlReading:
    """Settings of the tasks. `row` is the kind of a whole line, and `arrow` is the equivalent Arrow type."""

    row: json_lines.Object
    arrow: pa.StructType
    schema: pa.Schema
    options: JsonlOptions
    ingest: IngestOptions


def open_jsonl(root: str, patterns: Patterns, options: IngestOptions, jsonl: JsonlOptions) -> OpenedSource:
    """Open JSON Lines files with compatible columns. The first value of a column determines its kind."""
    found, known, bad = inputs.find(root, patterns), json_lines.Object(), list[BadRow]()
    parts = inputs.look(found, lambda path: scan(path, known, jsonl.encoding, options, bad))
    row = json_lines.to_arrow(known)
    schema, left_out = _schema_of(row, root, jsonl)
    if not schema.names:
        inputs.check_any_good(bad)
        raise InfeedError("no row has values", where=root, do="use files with one JSON object per line")
    read = partial(read_span, form=_JsonlReading(known, row, schema, jsonl, options))
    return inputs.of_parts("jsonl", root, schema, parts, read, decimals=True, left_out=left_out)


def open_sampled_jsonl(
    root: str, patterns: Patterns, options: IngestOptions, jsonl: JsonlOptions, known: json_lines.Object | None = None
) -> OpenedSource:
    """Open like `open_jsonl`, but infer the types of a large input from a sample or from known kinds."""
    found = inputs.find(root, patterns)
    if is_small(found):
        return open_jsonl(root, patterns, options, jsonl)
    inputs.look(found, lambda path: file_kinds.check_lines(path, streams.read_head(path, jsonl.encoding)))
    parts = [
        (split, file, parts_of(file, Span(file.path), jsonl.encoding, options.block_bytes))
        for split, matched in found.items()
        for file in matched
    ]
    reader = PartReader(streams.LINES, jsonl.encoding, options.block_bytes, options.max_row_mb)
    sampled, sure = (known, known) if known else _sample_kinds(reader, [part for *_, some in parts for part in some])
    row = json_lines.to_arrow(sampled)
    try:
        schema, left_out = _schema_of(row, root, jsonl)
    except InfeedError:  # further rows may hold more columns
        return open_jsonl(root, patterns, options, jsonl)
    if not schema.names:
        return open_jsonl(root, patterns, options, jsonl)
    read = partial(read_part, form=_JsonlReading(sampled, row, schema, jsonl, options), sure=sure, reader=reader)
    opened = inputs.of_parts("jsonl", root, schema, parts, read, decimals=True, left_out=left_out)

    def reopen(merged: Any) -> OpenedSource:
        if merged is None:
            return open_jsonl(root, patterns, options, jsonl)
        return open_sampled_jsonl(root, patterns, options, jsonl, merged)

    return replace(opened, sample=Sample(sampled, partial(_merge_kinds, known=sampled)), reopen=reopen)


def _sample_kinds(reader: PartReader, parts: Sequence[Part]) -> tuple[json_lines.Object, json_lines.Object]:
    """Return the kinds in a sample, and the certain kinds, which are those of the first rows."""
    bad_rows = BadRows("reject", sys.maxsize, relative=True)
    sure = json_lines.Object()
    for block in reader.prefix(parts):
        sure = _widen(sure, block, bad_rows)
        bad_rows.take()
    known = sure
    for block in reader.sample(parts):
        known = json_lines.restrict(_widen(known, block, bad_rows), sure)
        bad_rows.take()
    return known, sure


def _merge_kinds(found: Sequence[Findings], known: json_lines.Object) -> Any:
    """Merge the kinds of all tasks. Returns None if they conflict, since then the order of rows decides."""
    try:
        for one in found:
            if one.kinds is not None:
                known = json_lines.widen_object(known, one.kinds)
    except MismatchError:
        return None
    return known


def read_part(
    part: Part, form: _JsonlReading, sure: json_lines.Object, reader: PartReader, *, bad_rows: BadRows
) -> Batches:
    """Yield rows like `read_span` while the kinds of `form` hold them, and then only collect kinds.

    If the kinds of `form` do not hold the rows, `bad_rows.found` gets wider kinds. A row that contradicts the `sure`
    kinds of the first rows is a bad row. Any other contradiction requires reading the input in order.
    """
    learning = _Learning(form.row, sure)
    for block in reader.blocks(part, bad_rows):
        if learning.known != form.row:
            # The input is read again, with the kinds of all cells. So only the kinds of the rest are needed.
            learning.known = _widen(learning.known, block, bad_rows, learning)
            continue
        batches = list(_read(block, form, bad_rows, learning))
        if learning.known == form.row:
            yield _fill_schema(batches, block, form, bad_rows)
    wider = None if learning.known == form.row else learning.known
    streams.with_kinds(bad_rows, wider, astray=learning.contradicted)


@dataclass
class _Learning:
    """The column kinds that a task finds in its part."""

    known: json_lines.Object  # wide enough for the rows so far
    sure: json_lines.Object  # a row that contradicts these is a bad row
    contradicted: bool = False  # whether a row contradicts the known kinds, but not the sure ones

    def is_bad(self, row: json_lines.Object) -> bool:
        """Return whether a row that contradicts the known kinds is a bad row."""
        try:
            json_lines.widen_object(self.sure, row)
        except MismatchError:
            return True
        self.contradicted = True
        return False


def _schema_of(row: pa.StructType, root: str, options: JsonlOptions) -> tuple[pa.Schema, dict[str, str]]:
    """Return the flat schema, and reasons for excluded columns.

    Raise InfeedError if no column can be a tf.Example feature.
    """
    flat = _flat(pa.RecordBatch.from_pylist([], schema=pa.schema(list(row))), options).schema
    kept, left_out = list[pa.Field](), dict[str, str]()
    for one in flat:
        if not schemas.is_nested(one.type):
            kept.append(one)
        elif example_types.is_list(one.type.value_type):
            left_out[one.name] = "its rows hold lists of lists; --set flatten=true joins them"
        else:
            left_out[one.name] = "its rows hold lists of objects; --set flatten=true makes a column of each field"
    if left_out and not kept:
        name, why = next(iter(left_out.items()))
        raise InfeedError(f"no usable column: {why}", where=f"{root}, column {name!r}", do="add --set flatten=true")
    schema = schemas.unify([schemas.FileSchema(root, pa.schema(kept))])
    return with_numbers(schema, options.numbers), left_out


def _flat(batch: pa.RecordBatch, options: JsonlOptions) -> pa.RecordBatch:
    flat = schemas.flatten_batch(batch)
    return schemas.flatten_lists(flat) if options.flatten else flat


def scan(path: str, known: json_lines.Object, encoding: str, options: IngestOptions, bad: list[BadRow]) -> list[Span]:
    """Read one file, and find where to cut it. Widens `known` to hold its rows, and adds the first bad row to `bad`."""
    file_kinds.check_lines(path, streams.read_head(path, encoding))
    bad_rows = BadRows(options.on_bad_row, sys.maxsize)
    cutter = SpanCutter(Span(path), options.block_bytes, streams.LINES)
    for block in blocks_of(Span(path), encoding, options):
        known.update(_widen(known, block, bad_rows))
        bad += bad_rows.take()[: not bad]
        cutter.add(block)
    return cutter.spans() if streams.is_plain(path, encoding) else [Span(path)]


def read_span(span: Span, form: _JsonlReading, *, bad_rows: BadRows) -> Batches:
    """Yield the rows of a span in order, and report lines that do not fit the schema."""
    for block in blocks_of(span, form.options.encoding, form.ingest):
        yield _fill_schema(list(_read(block, form, bad_rows)), block, form, bad_rows)


def _fill_schema(
    read: Sequence[pa.RecordBatch], block: TextBlock, form: _JsonlReading, bad_rows: BadRows
) -> pa.RecordBatch:
    batch = _flat(streams.one_batch(pa.Table.from_batches(read)), form.options)
    batch, unfit = read_numbers(batch, form.options.numbers)
    if unfit:
        lines = [(number, line) for number, line in streams.numbered_lines(block) if line.strip()]
        for row, (column, reason) in sorted(unfit.items()):
            # Another bad line hides which line is which row.
            number, line = lines[row] if len(lines) == batch.num_rows else (None, b"")
            bad_rows.report(block.bad_row(number, reason, line, column))
    return schemas.fill(inputs.without(batch, unfit), form.schema)


def blocks_of(span: Span, encoding: str, options: IngestOptions) -> Iterator[TextBlock]:
    """Yield blocks of whole lines."""
    return streams.read_blocks(span, encoding, options.block_bytes, streams.whole_lines, options.max_row_mb)


def _widen(
    known: json_lines.Object, block: TextBlock, bad_rows: BadRows, learning: _Learning | None = None
) -> json_lines.Object:
    """Widen `known` to hold the rows of a block. A block with a bad line is halved repeatedly."""
    batch = _parse(block, None)
    if batch is not None:
        with suppress(MismatchError):  # the line and column are found below
            return json_lines.widen_object(
                known, {one.name: json_lines.kind_of_arrow(one.type) for one in batch.schema}
            )
    if _is_small(block):
        return _parse_lines(block, known, bad_rows, learning)[1]
    for half in _halves(block):
        known = _widen(known, half, bad_rows, learning)
    return known


def _read(block: TextBlock, form: _JsonlReading, bad_rows: BadRows, learning: _Learning | None = None) -> Batches:
    """Yield the rows of a block, halved if necessary. Stops once `learning` has wider kinds than `form`."""
    schema = pa.schema(list(form.arrow))
    batch = _parse(block, schema)
    if batch is not None and batch.schema.types == schema.types:
        yield batch
    elif _is_small(block):
        rows, known = _parse_lines(block, learning.known if learning else form.row, bad_rows, learning)
        if learning:
            learning.known = known
        if known == form.row:
            fitting = pa.array([json_lines.fit(row, form.row) for row in rows], form.arrow)
            yield pa.RecordBatch.from_arrays(fitting.flatten(), schema=schema)
    else:
        for half in _halves(block):
            yield from _read(half, form, bad_rows, learning)


def _is_small(block: TextBlock) -> bool:
    return len(block.data) <= _SMALL_BYTES or block.data.count(b"\n") <= _SMALL_LINES


def _halves(block: TextBlock) -> tuple[TextBlock, TextBlock]:
    middle = len(block.data) // 2
    cut = block.data.find(b"\n", middle, -1) + 1 or block.data.rfind(b"\n", 0, middle) + 1
    first, second = block.data[:cut], block.data[cut:]
    line = block.line + streams.count_lines(first)
    return replace(block, data=first), replace(block, data=second, start=block.start + cut, line=line)


def _parse(block: TextBlock, schema: pa.Schema | None) -> pa.RecordBatch | None:
    """Parse all rows with Arrow. Returns None if Arrow cannot parse them or may misread them."""
    # Only a long block may hold a line with too many values.
    lines = block.data.split(b"\n") if len(block.data) > most_values(block.most_mb) else []
    if any(has_too_many_values(line, block.most_mb) for line in lines):
        return None
    rows = count_objects(block.data)
    if not rows:
        return None
    try:
        with streams.lending() as lend:
            table = arrow_json.read_json(
                pa.BufferReader(lend(np.frombuffer(block.data, np.uint8))),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="error" if schema else "infer"
                ),
            )
    except pa.ArrowInvalid:
        return None
    # Arrow may read several objects on a line, or one object over two lines, and accepts invalid UTF-8.
    if table.num_rows != rows or not streams.is_utf8(block.data):
        return None
    if b"null" in block.data and _NULL_IN_LIST.search(block.data):
        return None
    batch = streams.one_batch(table)
    columns = map(example_types.items_of, schemas.flatten_batch(batch).columns)
    largest = (pc.max(pc.abs(items)).as_py() for items in columns if pa.types.is_floating(items.type))
    most = max((one for one in largest if one is not None), default=0.0)
    # Arrow reads integers beyond 64 bits, and long integers beside fractions, as rounded floats.
    return None if most >= 2.0**63 or (most >= 2.0**53 and _LONG.search(block.data)) else batch


def _parse_lines(
    block: TextBlock, known: json_lines.Object, bad_rows: BadRows, learning: _Learning | None = None
) -> tuple[list[dict[str, Any]], json_lines.Object]:
    """Parse the rows one by one. Returns rows that fit `known`, and `known` widened to hold them."""
    rows = []
    for number, line in streams.numbered_lines(block):
        if not line.strip():
            continue
        of_row: json_lines.Object | None = None
        try:
            row = parse_line(line, block.most_mb)
            of_row = {name: json_lines.kind_of(value, name) for name, value in row.items()}
            known = json_lines.widen_object(known, of_row)
        except MismatchError as error:
            # A row that only contradicts the sample may be right, so it is not reported: the input is read again.
            if learning is None or of_row is None or learning.is_bad(of_row):
                bad_rows.report(block.bad_row(number, error.reason, line, error.column or None))
        else:
            rows.append(row)
    return rows, known


class JsonNumber(str):
    """The text of a number, such as `1.10`."""

    __slots__ = ()


def read_rows(path: str, options: JsonlOptions, ingest: IngestOptions) -> Iterator[list[Row | BadRow]]:
    """Yield blocks of flat rows in order. A line that is not a JSON object is a BadRow."""
    for block in blocks_of(Span(path), options.encoding, ingest):
        lines = ((number, line) for number, line in streams.numbered_lines(block) if line.strip())
        yield [_flat_row(block, number, line, options.flatten) for number, line in lines]


def _flat_row(block: TextBlock, number: int, line: bytes, flatten: bool) -> Row | BadRow:
    row: Row = {}
    try:
        for name, value in _flat_cells(parse_line(line, block.most_mb, JsonNumber), "", flatten):
            if name in row:
                raise MismatchError(name, f"the column {name!r} occurs twice")
            row[name] = value
    except MismatchError as error:
        return block.bad_row(number, error.reason, line, error.column or None)
    return row


def _flat_cells(row: Mapping[str, Any], prefix: str, flatten: bool) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat_cells(value, f"{prefix}{name}.", flatten)
        elif flatten and isinstance(value, list):
            yield from _unnested(f"{prefix}{name}", value)
        else:
            yield f"{prefix}{name}", value


def _unnested(name: str, items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Replace a list of objects by a list for each field, and join a list of lists; see `schemas.flatten_lists`."""
    if any(isinstance(one, dict) for one in items):
        rows = [dict(_flat_cells(one, "", False)) for one in items if isinstance(one, dict)]
        for field in dict.fromkeys(field for row in rows for field in row):
            yield from _unnested(f"{name}.{field}", [row[field] for row in rows if row.get(field) is not None])
    elif any(isinstance(one, list) for one in items):
        yield from _unnested(name, [item for one in items if isinstance(one, list) for item in one if item is not None])
    else:
        yield name, items


def as_json(value: Any) -> str:
    """Return the JSON text of a value, with numbers as written."""
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(as_json, value))}]"
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{json.dumps(name, ensure_ascii=False)}: {as_json(one)}' for name, one in value.items())}}}"
        )
    return json.dumps(value, ensure_ascii=False)
