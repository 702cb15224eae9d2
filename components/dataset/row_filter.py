"""Row filters: an Arrow expression in Python syntax, or a user's function.

The expression is parsed and never executed. It supports comparisons, `and`, `or`, `not`, `in`, `is None`, column names
(`field("a/b")` for a name that is not a Python name), numbers, strings, True, False, and `time("2020-01-31")`, which
compares with dates and timestamps.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components import user_code
from infeed.components.errors import InfeedError

_DEEPEST = 100
_SHOWN = 200  # characters of a filter in an error
_FUNCTION = re.compile(r"[\w./-]+:\w+")
_load = functools.cache(user_code.load)
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EXAMPLE = 'use an expression such as `fare > 0 and company in ["A", "B"] and tip is not None`, or "module:function"'


def passes(batch: pa.RecordBatch, text: str) -> pa.BooleanArray:
    """Return for each row whether it passes the filter. A null result counts as False.

    Raises InfeedError if the filter cannot be parsed, names an unknown column, or does not return booleans.
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
    if is_function(text):
        return None
    parse(text)
    nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    quoted = {ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "field"}
    plain = {node.id for node in nodes if isinstance(node, ast.Name)} - {ast.unparse(call.func) for call in calls}
    return frozenset(quoted | plain)


@functools.cache
def parse(text: str) -> pc.Expression:
    """Parse a filter. Raises InfeedError if the syntax is not supported; see the module's docstring."""
    try:
        body = ast.parse(text.strip(), mode="eval").body
        level: list[ast.AST] = [body]
        for _ in range(_DEEPEST):  # Arrow evaluates expressions recursively, and a deep one crashes the process
            level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        if level:
            raise _UnknownError(f"it is nested deeper than {_DEEPEST} levels")
        return _translate(body)
    except (SyntaxError, RecursionError, MemoryError, _UnknownError, pa.ArrowInvalid) as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise InfeedError(f"cannot parse the filter: {error}", where=f"filter {shown!r}", do=_EXAMPLE) from error


class _UnknownError(Exception):
    """Python syntax that filters do not support."""


def _evaluate(batch: pa.RecordBatch, text: str) -> pa.Array:
    from pyarrow import dataset  # imports pandas, which takes most of a second

    expression = parse(text)
    table = pa.Table.from_batches([batch])
    for number, column in enumerate(batch.schema):
        if pa.types.is_date(column.type):  # Arrow 10 compares only timestamps with timestamps
            table = table.set_column(number, column.name, table.column(number).cast(pa.timestamp("us")))
    try:
        table = dataset.dataset(table).to_table(columns={"kept": expression})
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        names = ", ".join(batch.schema.names[:10])
        do = f"use the columns {names}"
        raise InfeedError(f"the filter does not fit the data: {reason}", where=f"filter {text!r}", do=do) from error
    return table["kept"].combine_chunks() if batch.num_rows else pa.array([], table.schema.field("kept").type)


def _call(batch: pa.RecordBatch, text: str) -> pa.Array:
    kept = _load(text, "filter")(batch)
    if isinstance(kept, pa.ChunkedArray):
        return kept.combine_chunks()
    try:
        return kept if isinstance(kept, pa.Array) else pa.array(kept)
    except (TypeError, pa.ArrowException) as error:
        what = f"the filter returned {str(kept)[:_SHOWN]} of type {type(kept).__name__}"
        do = "return one boolean for each row"
        raise InfeedError(what, where=f"filter {text!r}", do=do) from error


def _translate(node: ast.expr) -> Any:
    match node:
        case ast.BoolOp(op=op, values=values):
            join = operator.and_ if isinstance(op, ast.And) else operator.or_
            return functools.reduce(join, map(_translate, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_translate(operand)
        case ast.Compare(left=left, ops=ops, comparators=others):
            pairs = zip([left, *others], ops, others, strict=False)
            return functools.reduce(operator.and_, (_compare(*pair) for pair in pairs))
        case ast.Name(id=name):
            return pc.field(name)
        case ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str(name))], keywords=[]):
            return pc.field(name)
        case ast.Call(func=ast.Name(id="time"), args=[ast.Constant(value=str(text))], keywords=[]):
            return pc.scalar(_time(text))
        case _:
            return pc.scalar(_constant(node))


def _compare(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
    match op:
        case ast.Is() | ast.IsNot() if isinstance(right, ast.Constant) and right.value is None:
            missing = _translate(left).is_null()
            return missing if isinstance(op, ast.Is) else ~missing
        case ast.In() | ast.NotIn() if isinstance(right, ast.List | ast.Tuple):
            value = _translate(left)
            among = value.isin([_constant(item) for item in right.elts])
            return among if isinstance(op, ast.In) else ~among & value.is_valid()
        case _ if type(op) in _COMPARE:
            return _COMPARE[type(op)](_translate(left), _translate(right))
    raise _UnknownError(f"`{ast.unparse(ast.Compare(left, [op], [right]))}`")


def _time(text: str) -> pa.Scalar:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pc.cast(pa.scalar(text), kind)
        except pa.ArrowInvalid:  # noqa: PERF203 (at most twice)
            continue
    raise _UnknownError(f"`{text}` is not a time such as 2020-01-31T12:00:00 or 2020-01-31T12:00:00Z")


def _constant(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise _UnknownError(f"`{ast.unparse(node)}`") from None
    if not isinstance(value, bool | int | float | str):
        raise _UnknownError(f"`{ast.unparse(node)}`")
    return value
