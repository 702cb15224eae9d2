"""JSON Lines files, one object a line -> typed record batches.

Arrow reads block after block; a block in which something is odd is halved, and halved again, until the few lines
around it are read one by one, to say which it is. Types are those of the whole input: `open_jsonl` reads it for them,
and `open_sampled_jsonl` takes the types of a sample, which each task checks. Objects inside objects become columns
named with dots.

Arrow is given no line that it may take for something else, or end the process at: a null where an object should be,
thousands of levels, two objects on a line. A line that starts with `{` and ends with `}` cannot go on in the next,
since no JSON has `}` before `{`, so as many rows as lines means one a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from infeed.components.checks import about
from infeed.components.dataset import example_types, files, schemas
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRow, BadRows, Findings, OpenedSource, Sample
from infeed.components.example_gen.sources import kinds, sampling, streams
from infeed.components.example_gen.sources.kinds import MismatchError
from infeed.components.example_gen.sources.numbers import Numbers, formats_of, read_numbers, with_numbers
from infeed.components.example_gen.sources.sampling import Part, PartReader, is_small, parts_of
from infeed.components.example_gen.sources.streams import Span, SpanCutter, TextBlock

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
MOST_LEVELS = 100
_LF, _CR = ord("\n"), ord("\r")
_OPEN, _CLOSE = ord("{"), ord("}")
_BRACE = 0x20  # makes a brace of a bracket, in ASCII
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NULL_IN_LIST = re.compile(rb"[\[,]\s*null\b")  # Arrow drops it without a word
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character; Arrow refuses a half alone, Python takes it
_SMALL_BYTES, _SMALL_LINES = 1 << 16, 32  # a piece of a block that is read line by line rather than halved again


@dataclass(frozen=True)
class JsonlOptions:
    """How the files are written; their content tells whether they are compressed (gzip, zstd).

    Attributes:
      encoding: any that Python knows. A file that is not UTF-8 is read by one worker.
      flatten: whether each field of the objects in a list becomes a list column, such as `items.price`, and a list of
        lists becomes one list; else such columns are left out.
      numbers: an example of how the numbers of a text column are written, by column, such as {"price": "$1,234.5"}.
        A text of another format makes its row a bad row.
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
    """What reading needs to know: `row` is what a whole line holds, `arrow` the same as Arrow's type."""

    row: kinds.Object
    arrow: pa.StructType
    schema: pa.Schema
    options: JsonlOptions
    block_bytes: int
    max_row_mb: int

    @classmethod
    def of(cls, known: kinds.Object, schema: pa.Schema, options: JsonlOptions, ingest: IngestOptions) -> _JsonlReading:
        return cls(known, kinds.to_arrow(known), schema, options, ingest.block_bytes, ingest.max_row_mb)


def open_jsonl(
    root: str, patterns: inputs.Patterns, options: IngestOptions, jsonl: JsonlOptions | None = None
) -> OpenedSource:
    """JSON Lines files whose columns go together; the first value of a column decides what it holds."""
    jsonl = jsonl or JsonlOptions()
    known, parts, bad = kinds.Object(), list[tuple[str | None, FileStat, list[Span]]](), list[BadRow]()
    for split, matched in inputs.find(root, patterns).items():
        for file in matched:
            with files.unchanged(file):
                known, spans = scan(file.path, known, jsonl.encoding, options, bad)
            parts.append((split, file, spans))
    schema, left_out = _schema_of(kinds.to_arrow(known), root, jsonl)
    if not schema.names:
        inputs.check_any_good(bad)
        raise InfeedError("no rows with values", where=root, do="give files with one JSON object a line")
    read = partial(read_span, form=_JsonlReading.of(known, schema, jsonl, options))
    return inputs.of_parts("jsonl", root, schema, parts, read, decimals=True, left_out=left_out)


def open_sampled_jsonl(
    root: str,
    patterns: inputs.Patterns,
    options: IngestOptions,
    jsonl: JsonlOptions | None = None,
    known: kinds.Object | None = None,
) -> OpenedSource:
    """As `open_jsonl`, but of a large input the types are those of a sample, or of the kinds that are known."""
    jsonl = jsonl or JsonlOptions()
    found = inputs.find(root, patterns)
    if is_small(found):
        return open_jsonl(root, patterns, options, jsonl)
    parts = [
        (split, file, parts_of(file, Span(file.path), jsonl.encoding, options.block_bytes))
        for split, matched in found.items()
        for file in matched
    ]
    reader = PartReader.of(streams.LINES, jsonl.encoding, options)
    sampled, sure = (known, known) if known else _sample_kinds(reader, [part for *_, some in parts for part in some])
    try:
        schema, left_out = _schema_of(kinds.to_arrow(sampled), root, jsonl)
    except InfeedError:  # more rows may well hold more
        return open_jsonl(root, patterns, options, jsonl)
    if not schema.names:
        return open_jsonl(root, patterns, options, jsonl)
    read = partial(read_part, form=_JsonlReading.of(sampled, schema, jsonl, options), sure=sure, reader=reader)
    opened = inputs.of_parts("jsonl", root, schema, parts, read, decimals=True, left_out=left_out)

    def reopen(merged: Any) -> OpenedSource:
        if merged is None:
            return open_jsonl(root, patterns, options, jsonl)
        return open_sampled_jsonl(root, patterns, options, jsonl, kinds.of_plain_object(merged))

    return replace(opened, sample=Sample(kinds.to_plain(sampled), partial(_merge_kinds, known=sampled)), reopen=reopen)


def _sample_kinds(reader: PartReader, parts: Sequence[Part]) -> tuple[kinds.Object, kinds.Object]:
    """The kinds in a sample, and the certain ones: those of the first rows, since the first value decides the kind."""
    bad_rows = BadRows("reject", sys.maxsize, relative=True)
    sure = kinds.Object()
    for block in reader.prefix(parts):
        sure = _widen(sure, block, bad_rows)
        bad_rows.take()
    known = sure
    for block in reader.sample(parts):
        known = kinds.restrict(_widen(known, block, bad_rows), sure)
        bad_rows.take()
    return known, sure


def _merge_kinds(found: Sequence[Findings], known: kinds.Object) -> Any:
    """The kinds of all rows; None if tasks contradict one another: then a row is bad because of an earlier one."""
    try:
        for one in found:
            if one.kinds is not None:
                known = kinds.widen_object(known, kinds.of_plain_object(one.kinds))
    except MismatchError:
        return None
    return kinds.to_plain(known)


def read_part(
    part: Part, form: _JsonlReading, sure: kinds.Object, reader: PartReader, *, bad_rows: BadRows
) -> Iterator[pa.RecordBatch]:
    """As `read_span`, as long as the kinds of `form` hold the rows; then nothing more.

    If these do not hold the rows, `bad_rows.found` has wider kinds. Rows that contradict them are bad rows if the
    `sure` kinds, which are those of the first rows of the input, say so. Else it takes a reading in order.
    """
    learning = _Learning(form.row, sure)
    for block in reader.blocks(part, bad_rows):
        if learning.known != form.row:
            learning.known = _widen(learning.known, block, bad_rows, learning)
            continue
        batches = list(_read(block, form, bad_rows, learning))
        if learning.known == form.row:
            yield _finished(batches, block, form, bad_rows)
    wider = None if learning.known == form.row else kinds.to_plain(learning.known)
    sampling.with_kinds(bad_rows, wider, astray=learning.contradicted)


@dataclass
class _Learning:
    """What a task finds about kinds that are those of a sample.

    Attributes:
      known: widened to hold the rows.
      sure: what contradicts these kinds is a bad row.
      contradicted: whether a row contradicts what is known, and nothing that is sure.
    """

    known: kinds.Object
    sure: kinds.Object
    contradicted: bool = False

    def is_bad(self, row: kinds.Object) -> bool:
        """Whether a row that contradicts what is known is a bad one."""
        try:
            kinds.widen_object(self.sure, row)
        except MismatchError:
            return True
        self.contradicted = True
        return False


def _schema_of(row: pa.StructType, root: str, options: JsonlOptions) -> tuple[pa.Schema, dict[str, str]]:
    """The flat schema, and the columns without a place in it: column -> why.

    Raises:
      InfeedError: no column has a place in a tf.Example.
    """
    flat = _flat(pa.RecordBatch.from_pylist([], schema=pa.schema(list(row))), options).schema
    left_out = {one.name: _why_left_out(one.type) for one in flat if schemas.is_nested(one.type)}
    kept = [one for one in flat if one.name not in left_out]
    if left_out and not kept:
        name, why = next(iter(left_out.items()))
        raise InfeedError(f"no column is left: {why}", where=f"{root}, column {name!r}", do="add --set flatten=true")
    schema = schemas.unify([schemas.FileSchema(root, pa.schema(kept))])
    return with_numbers(schema, options.numbers), left_out


def _why_left_out(column: pa.DataType) -> str:
    of_lists = example_types.is_list(column.value_type)
    what, makes = ("lists of lists", "joins them") if of_lists else ("lists of objects", "makes a column of each field")
    return f"its rows hold {what}; --set flatten=true {makes}"


def _flat(batch: pa.RecordBatch, options: JsonlOptions) -> pa.RecordBatch:
    flat = schemas.flatten_batch(batch)
    return schemas.flatten_lists(flat) if options.flatten else flat


def scan(
    path: str, known: kinds.Object, encoding: str, options: IngestOptions, bad: list[BadRow]
) -> tuple[kinds.Object, list[Span]]:
    """One pass over one file: `known`, widened to hold its rows, and where to cut the file.

    Args:
      bad: gets the first bad row.
    """
    bad_rows = BadRows(options.on_bad_row, sys.maxsize)
    cutter = SpanCutter(Span(path), options.block_bytes, streams.LINES)
    for block in _blocks(Span(path), encoding, options.block_bytes, options.max_row_mb):
        known = _widen(known, block, bad_rows)
        bad += bad_rows.take()[: not bad]
        cutter.add(block)
    return known, cutter.spans() if streams.is_plain(path, encoding) else [Span(path)]


def read_span(span: Span, form: _JsonlReading, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """The rows of a span in order; a line that is no row of the schema is reported."""
    for block in _blocks(span, form.options.encoding, form.block_bytes, form.max_row_mb):
        yield _finished(list(_read(block, form, bad_rows)), block, form, bad_rows)


def _finished(
    read: Sequence[pa.RecordBatch], block: TextBlock, form: _JsonlReading, bad_rows: BadRows
) -> pa.RecordBatch:
    """The rows of a block, as the schema has them."""
    batch = _flat(_one_batch(pa.Table.from_batches(read)), form.options)
    batch, unfit = read_numbers(batch, form.options.numbers)
    kept = _report_unfit(unfit, block, batch, bad_rows) if unfit else batch
    return schemas.fill(kept, form.schema)


def _report_unfit(
    unfit: dict[int, tuple[str, str]], block: TextBlock, batch: pa.RecordBatch, bad_rows: BadRows
) -> pa.RecordBatch:
    """The batch without the rows that are `unfit`; their lines are known where no other line is bad."""
    lines = [(number, line) for number, line in streams.numbered_lines(block) if line.strip()]
    for row, (column, reason) in sorted(unfit.items()):
        number, line = lines[row] if len(lines) == batch.num_rows else (None, b"")
        bad_rows.report(block.bad_row(number, reason, line, column))
    return batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), list(unfit))))


def _blocks(span: Span, encoding: str, block_bytes: int, max_row_mb: int) -> Iterator[TextBlock]:
    return streams.read_blocks(span, encoding, block_bytes, streams.whole_lines, max_row_mb)


def _widen(known: kinds.Object, block: TextBlock, bad_rows: BadRows, learning: _Learning | None = None) -> kinds.Object:
    """`known`, widened to hold the rows of a block; a block with something odd is halved until that stands alone."""
    table = _parse(block, None)
    if table is not None:
        with suppress(MismatchError):  # which line it is, and which column, is found below
            return kinds.widen_object(known, {one.name: kinds.kind_of_arrow(one.type) for one in table.schema})
    if _is_small(block):
        return _parse_lines(block, known, bad_rows, learning)[1]
    for half in _halves(block):
        known = _widen(known, half, bad_rows, learning)
    return known


def _read(
    block: TextBlock, form: _JsonlReading, bad_rows: BadRows, learning: _Learning | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a block, halved in the same way; fewer once `learning` has kinds that `form` does not hold."""
    schema = pa.schema(list(form.arrow))
    table = _parse(block, schema)
    if table is not None and table.schema.types == schema.types:
        yield _one_batch(table)
    elif _is_small(block):
        rows, known = _parse_lines(block, learning.known if learning else form.row, bad_rows, learning)
        if learning:
            learning.known = known
        if known == form.row:
            fitting = pa.array([kinds.fit(row, form.row) for row in rows], form.arrow)
            yield pa.RecordBatch.from_arrays(fitting.flatten(), schema=schema)
    else:
        for half in _halves(block):
            yield from _read(half, form, bad_rows, learning)


def _is_small(block: TextBlock) -> bool:
    return len(block.data) <= _SMALL_BYTES or block.data.count(b"\n") <= _SMALL_LINES


def _halves(block: TextBlock) -> tuple[TextBlock, TextBlock]:
    """Two blocks of whole lines, about as large; there are several lines."""
    middle = len(block.data) // 2
    cut = block.data.find(b"\n", middle, -1) + 1 or block.data.rfind(b"\n", 0, middle) + 1
    first, second = block.data[:cut], block.data[cut:]
    line = block.line + first.count(b"\n")
    return replace(block, data=first), replace(block, data=second, start=block.start + cut, line=line)


def _parse(block: TextBlock, schema: pa.Schema | None) -> pa.Table | None:
    """All rows at once; None where Arrow cannot read them, or might read something else than what stands there."""
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
    return None if table.num_rows != rows or _may_mislead(block.data, table) else table


def _may_mislead(data: bytes, table: pa.Table) -> bool:
    if not streams.is_utf8(data):
        return True
    if b"null" in data and _NULL_IN_LIST.search(data):
        return True
    return any(_any_beyond_int64(column) for column in schemas.flatten_batch(_one_batch(table)).columns)


def _any_beyond_int64(column: pa.Array) -> bool:
    """Arrow makes floats of integers that do not fit."""
    items = example_types.items_of(column)
    largest = pc.max(pc.abs(items)).as_py() if pa.types.is_floating(items.type) else None
    return largest is not None and largest >= 2.0**63


def _parse_lines(
    block: TextBlock, known: kinds.Object, bad_rows: BadRows, learning: _Learning | None = None
) -> tuple[list[dict[str, Any]], kinds.Object]:
    """The rows that go together with `known`, and `known`, widened to hold them."""
    rows = []
    for number, line in streams.numbered_lines(block):
        if not line.strip():
            continue
        of_row: kinds.Object | None = None
        try:
            row = _parse_line(line)
            of_row = {name: kinds.kind_of(value, name) for name, value in row.items()}
            known = kinds.widen_object(known, of_row)
        except MismatchError as error:
            if learning is None or of_row is None or learning.is_bad(of_row):
                bad_rows.report(block.bad_row(number, error.reason, line, error.column or None))
        else:
            rows.append(row)
    return rows, known


def _parse_line(line: bytes) -> dict[str, Any]:
    if is_deep(line):
        raise MismatchError("", f"more than {MOST_LEVELS} levels of objects and lists")
    try:
        row = json.loads(line.decode(), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError:
        raise MismatchError("", "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise MismatchError("", f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError:  # Python refuses to read thousands of digits
        raise MismatchError("", "a number of too many digits") from None
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
    row = dict[str, Any]()
    for name, value in pairs:
        if name in row:
            raise MismatchError(name, "a name that stands there twice")
        row[name] = value
    return row


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def count_objects(data: bytes) -> int | None:
    """How many lines of `data` are not blank; None where one of them is no object by its ends, or has many levels."""
    text = np.frombuffer(data, np.uint8)
    starts, ends = _lines(data, text)
    if not ((text[starts] == _OPEN).all() and (text[ends - 1] == _CLOSE).all()):
        return None
    return None if _any_deep(data, text, starts, ends) else len(starts)


def is_deep(line: bytes) -> bool:
    """Whether objects and lists stand within one another in more than `MOST_LEVELS` levels."""
    if line.count(b"{") + line.count(b"[") <= MOST_LEVELS:
        return False
    braces = np.frombuffer(_STRING.sub(b"", line), np.uint8) | _BRACE
    steps = (braces == _OPEN).astype(np.int8) - (braces == _CLOSE)
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > MOST_LEVELS)


def _lines(data: bytes, text: Bytes) -> tuple[Ints, Ints]:
    """Where lines begin and end, line ends left out, blank lines too."""
    ends = np.flatnonzero(text == _LF)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    if b"\r" in data:
        ends = ends - (text[ends - 1] == _CR)
    filled = ends > starts
    return starts[filled], ends[filled]


def _any_deep(data: bytes, text: Bytes, starts: Ints, ends: Ints) -> bool:
    if data.count(b"{") + data.count(b"[") < len(starts) + MOST_LEVELS:  # nearly always, and the fastest to tell
        return False
    opened = np.add.reduceat(text | _BRACE == _OPEN, starts, dtype=np.int64)
    suspects = np.flatnonzero(opened > MOST_LEVELS)
    return any(is_deep(data[starts[line] : ends[line]]) for line in suspects)
