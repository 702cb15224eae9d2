"""Row filters: Arrow expressions in Python syntax, or user functions.

The expression is parsed and never executed. It supports comparisons, `and`, `or`, `not`, `in`, `is None`, column names
(`field("a/b")` for a name that is not a Python name), numbers, strings, True, False, and times. `time("2020-01-31")`
compares with dates, timestamps, and ISO 8601 text. `time(day, "%m/%d/%Y")` reads a column in another format.

The error of a filter that does not fit a batch shows the type of the column, an example value, and a comparison that
fits.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.example_types import without_dictionary
from infeed.components.dataset.filter_expressions import Translation, UnknownError, column_name, columns_in, constant_of
from infeed.components.dataset.splits import column_of
from infeed.components.dataset.time_formats import ISO, formats_of
from infeed.components.dataset.times import is_text, read_limit, shown, times_of

_DEEPEST = 100
_SHOWN = 200  # characters of a filter in an error
_FUNCTION = re.compile(r"[\w./-]+:\w+")
_load = functools.cache(user_code.load)
_EXAMPLE = 'use an expression such as `fare > 0 and company in ["A", "B"] and tip is not None`, or "module:function"'
# Operators of SQL and C, outside of quotes.
_FOREIGN = re.compile(
    r"""(?P<text>"[^"]*"|'[^']*')|&&?|\|\|?|<>|(?<![=!<>])=(?!=)|\b(?:and|or|not|in|is|null|true|false)\b""",
    re.IGNORECASE,
)
_PYTHON = {"&": "and", "&&": "and", "|": "or", "||": "or", "<>": "!=", "=": "==", "null": "None"}
_BAD_SYNTAX = (SyntaxError, RecursionError, MemoryError, UnknownError, pa.ArrowInvalid)


def passes(batch: pa.RecordBatch, text: str) -> pa.BooleanArray:
    """Return a boolean for each row: whether it passes the filter. A null result counts as False.

    Raises InfeedError if the filter cannot be parsed, names an unknown column, compares a column with a value of
    another type, or does not return booleans.
    """
    kept = _call(batch, text) if is_function(text) else _evaluate(batch, text)
    if not pa.types.is_boolean(kept.type) or len(kept) != batch.num_rows:
        what = f"the filter returned {len(kept)} values of type {kept.type} for {batch.num_rows} rows"
        raise InfeedError(what, where=f"filter {text!r}", do="return one boolean for each row")
    return kept.fill_null(False)


def is_function(text: str) -> bool:
    return bool(_FUNCTION.fullmatch(text))


def columns_of(text: str) -> frozenset[str] | None:
    """Return the columns that a filter names. None for a function, which may use all."""
    return None if is_function(text) else columns_in(parse(text))


@functools.cache
def parse(text: str) -> ast.expr:
    """Parse a filter. Raises InfeedError if the syntax is not supported; see the module's docstring."""
    try:
        return _parse(text)
    except _BAD_SYNTAX as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        do = _in_python(text) or _EXAMPLE
        raise InfeedError(f"cannot parse the filter: {reason}", where=f"filter {excerpt!r}", do=do) from error


def _parse(text: str) -> ast.expr:
    body = ast.parse(text.strip(), mode="eval").body
    level: list[ast.AST] = [body]
    for _ in range(_DEEPEST):  # Arrow evaluates expressions recursively, and a deep one crashes the process
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    if level:
        raise UnknownError(f"it is nested deeper than {_DEEPEST} levels")
    Translation(None).of(body)
    return body


def _in_python(text: str) -> str:
    """Return the filter with Python's operators in place of SQL's and C's. Empty if that does not make it valid."""

    def python(found: re.Match[str]) -> str:
        word = found[0].lower()
        return found["text"] or _PYTHON.get(word) or (word.title() if word in ("true", "false") else word)

    written = _FOREIGN.sub(python, text)
    with contextlib.suppress(*_BAD_SYNTAX):
        _parse(written)
        return f"write {written}"
    return ""


def _evaluate(batch: pa.RecordBatch, text: str) -> pa.Array:
    from pyarrow import dataset  # imports pandas, which takes most of a second

    body, where = parse(text), f"filter {text!r}"
    check_columns(body, batch, where)
    check_text(body, batch, where)
    translation = Translation(batch, where)
    expression = translation.of(body)
    table = pa.Table.from_batches([batch])
    for name, times in translation.times.items():
        table = table.append_column(name, times)
    for number, column in enumerate(batch.schema):
        if pa.types.is_date(column.type):  # Arrow 10 compares only timestamps with timestamps
            table = table.set_column(number, column.name, table.column(number).cast(pa.timestamp("us")))
    try:
        table = dataset.dataset(table).to_table(columns={"kept": expression})
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        raise misfit(body, batch, where, str(error).partition("\n")[0]) from error
    return table["kept"].combine_chunks() if batch.num_rows else pa.array([], table.schema.field("kept").type)


def _call(batch: pa.RecordBatch, text: str) -> pa.Array:
    function = _load(text, "filter")
    if not batch.num_rows:  # a list of no values would have the type null
        return pa.array([], pa.bool_())
    kept = function(batch)
    if isinstance(kept, pa.ChunkedArray):
        return kept.combine_chunks()
    try:
        return kept if isinstance(kept, pa.Array) else pa.array(kept)
    except (TypeError, pa.ArrowException) as error:
        what = f"the filter returned {str(kept)[:_SHOWN]} of type {type(kept).__name__}"
        do = "return one boolean for each row"
        raise InfeedError(what, where=f"filter {text!r}", do=do) from error


_Kind = Literal["time", "string", "number", "boolean"]


class _Comparison(NamedTuple):
    """Comparison of a column with a constant. `node` is the constant, or a list or tuple of constants."""

    column: ast.expr
    op: ast.cmpop
    node: ast.expr


class _Times(NamedTuple):
    """Times in a text column. The text of `unordered` does not sort by time."""

    all: list[str]
    unordered: list[str]


_Side = tuple[str, list[str]]  # source text of one side of a comparison, and its times


def check_columns(body: ast.expr, batch: pa.RecordBatch, where: str) -> None:
    """Raise InfeedError if the filter names a column that the batch does not have."""
    for name in sorted(columns_in(body)):
        column_of(batch, name, where)


def check_text(body: ast.expr, batch: pa.RecordBatch, where: str) -> None:
    """Raise InfeedError if the filter orders text by a date or by a column, but letters do not order it like times.

    They do in ISO 8601 without offsets from UTC.
    """
    for one in _comparisons(body):
        if type(one.op) not in _MIRRORED:
            continue
        name, limit, other = column_name(one.column) or "", _first_constant(one.node), column_name(one.node) or ""
        if other:
            _check_columns_of_times(name, other, _SYMBOLS[type(one.op)], batch, where)
        elif isinstance(limit, str) and (forms := formats_of([limit])):
            times = _times_in(_column(batch, name), ordered_too=ISO not in forms)
            if times.unordered:
                what = f"text such as {times.unordered[0]!r} is not ordered like times, but is compared with {limit!r}"
                do = _as_times((name, times.all), _SYMBOLS[type(one.op)], (repr(limit), [limit]))
                raise InfeedError(f"column {name!r}: {what}", where=where, do=do)


def _check_columns_of_times(name: str, other: str, symbol: str, batch: pa.RecordBatch, where: str) -> None:
    columns = {one: _column(batch, one) for one in (name, other)}
    if not all(is_text(column.type) for column in columns.values()):
        return
    left, right = map(_times_in, columns.values()) if name != other else (_Times([], []),) * 2
    for one, beside, times in ((name, other, left), (other, name, right)):
        if times.unordered:
            what = f"text such as {times.unordered[0]!r} is not ordered like times, but is compared with {beside!r}"
            do = _as_times((name, left.all), symbol, (other, right.all))
            raise InfeedError(f"column {one!r}: {what}", where=where, do=do)


def _times_in(column: pa.Array, *, ordered_too: bool = False) -> _Times:
    """Return the times among the first texts of a column. With `ordered_too`, all of them count as unordered."""
    if not is_text(column.type):
        return _Times([], [])
    times = times_of(column, ISO)
    ordered = times.valid & ~times.has_offset & (not ordered_too)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    rows = np.concatenate([np.flatnonzero(valid & ~ordered)[:_SAMPLE], np.flatnonzero(valid & ordered)[:_SAMPLE]])
    known = {row: text for row in rows.tolist() if formats_of([text := shown(column, row)])}
    unordered = [text for row, text in known.items() if not ordered[row] and not text.endswith(("Z", "z"))]
    return _Times(list(known.values()), unordered)


def _as_times(left: _Side, symbol: str, right: _Side) -> str:
    """Return the advice to compare two sides as times: in one format if one fits both, else each in its own."""
    both = _forms([*left[1], *right[1]]) if left[1] and right[1] else []
    pairs: list[tuple[str, ...]] = [(form, form) for form in both]
    if not pairs:
        first, second = (_forms(texts) or _forms(texts[:1]) for _, texts in (left, right))
        pairs = list(itertools.product(first, second)) or [(form, form) for form in first or second]
    ways = (f" {symbol} ".join(map(_as_time, (left[0], right[0]), pair)) for pair in pairs[:3])
    return f"compare times, such as {' or '.join(ways)}"


def _forms(texts: list[str]) -> list[str]:
    forms = formats_of(texts) if texts else []
    return [ISO] if ISO in forms else forms


def _as_time(text: str, form: str) -> str:
    return f"time({text})" if form == ISO else f"time({text}, {form!r})"


def misfit(body: ast.expr, batch: pa.RecordBatch, where: str, reason: str) -> InfeedError:
    """Return the error for a filter that Arrow rejects for `reason`."""
    for one in _comparisons(body):
        name = column_name(one.column) or ""
        column = _column(batch, name)
        value, kind = _first_constant(one.node), _kind_of_column(column.type)
        kind_of_value = "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
        if value is not None and kind and kind != kind_of_value:
            example = next((shown(column, row) for row in np.flatnonzero(column.is_valid()).tolist()), "")
            of_values = f", with values such as {example}" if example else ""
            what = f"{value!r} is not a {kind}, but column {name!r} has the type {column.type}{of_values}"
            if kind == "string" and type(one.op) in _MIRRORED and (number := _number_in(column)):
                option = json.dumps({name: number}, ensure_ascii=False)
                do = f"letters order text, so read the column as numbers, such as --set 'numbers={option}'"
                return InfeedError(what, where=where, do=do)
            fitting = _fitting(one, kind, column.type, value, example)
            return InfeedError(what, where=where, do=f"write {fitting}, which fits the type {column.type}")
    what, names = f"the filter does not fit the data: {reason}", ", ".join(batch.schema.names[:10])
    return InfeedError(what, where=where, do=f"use the columns {names}")


def _number_in(column: pa.Array) -> str:
    """Return an example of the column's numbers, as the option `numbers` takes it. Empty if most texts are none."""
    texts = [shown(column, row) for row in np.flatnonzero(column.is_valid())[:_SAMPLE].tolist()]
    found = [number for text in texts if (number := _NUMBER.fullmatch(text.strip()))]
    if len(found) * 2 < len(texts) or not found:
        return ""
    best = max(found, key=lambda number: (bool(number["thousands"]), bool(number["rest"])))
    thousands = best["thousands"]
    decimal = "" if best["rest"] or not thousands else ",5" if thousands == "." else ".5"
    return f"{best['start']}{best['rest']}{decimal}{best['unit']}"


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return without_dictionary(batch.column(batch.schema.get_field_index(name)))


def _comparisons(body: ast.expr) -> Iterator[_Comparison]:
    for node in ast.walk(body):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
                if column_name(left):
                    yield _Comparison(left, op, right)
                elif column_name(right):
                    yield _Comparison(right, _MIRRORED.get(type(op), type(op))(), left)


_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_SYMBOLS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_SAMPLE = 100  # values to look for a time in
_NUMBER = re.compile(
    r"(?P<start>[-+]?[$€£¥]?\s?(?:\d{1,3}(?:(?P<thousands>[., '])\d{3})(?:(?P=thousands)\d{3})*|\d+))"
    r"(?P<rest>(?:[.,]\d+)?)(?P<unit>\s?(?:%|[$€£¥]|[A-Za-z]{1,3})?)"
)


def _first_constant(node: ast.expr) -> Any:
    """Return the constant, or the first one of a list. None if there is none."""
    items = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    try:
        return constant_of(items[0]) if items else None
    except UnknownError:
        return None


def _kind_of_column(type_: pa.DataType) -> _Kind | None:
    types = pa.types
    if types.is_timestamp(type_) or types.is_date(type_):
        return "time"
    if types.is_boolean(type_):
        return "boolean"
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    return "string" if is_text(type_) else None


def _fitting(one: _Comparison, kind: _Kind, type_: pa.DataType, value: Any, example: str) -> str:
    """Return the comparison with a value that fits the column."""
    wanted, op = _as_kind(kind, type_, value, example), one.op
    if isinstance(op, ast.In | ast.NotIn):
        if kind == "time":
            op = ast.Eq() if isinstance(op, ast.In) else ast.NotEq()
        else:
            wanted = f"[{wanted}]"
    return ast.unparse(ast.Compare(one.column, [op], [ast.parse(wanted, mode="eval").body])).replace("'", '"')


def _as_kind(kind: _Kind, type_: pa.DataType, value: Any, example: str) -> str:
    """Return the constant as source text of the kind. If that is impossible, return the example."""
    if kind == "time":
        has_zone = getattr(type_, "tz", None) is not None
        limit = read_limit(value, ISO, "") if isinstance(value, str) else None
        micros = limit.micros if limit else 1_577_836_800_000_000  # 2020-01-01
        text = str(np.datetime64(micros, "us").astype("datetime64[s]")) + "Z" * has_zone
        return f'time("{text.removesuffix("T00:00:00")}")'
    if kind == "number":
        try:
            return repr(float(value) if "." in value else int(value))
        except (TypeError, ValueError):
            return example or "0"
    return "True" if kind == "boolean" else json.dumps(str(value))
