"""Translate a filter in Python syntax, parsed and never executed, to an Arrow expression; see `row_filter`."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.example_types import without_dictionary
from infeed.components.dataset.splits import column_of
from infeed.components.dataset.time_formats import EPOCHS, ISO, pieces_of
from infeed.components.dataset.times import Limit, holds_times, read_column, read_limit

_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class UnknownError(Exception):
    """Python syntax that filters do not support."""


def column_name(node: ast.AST) -> str | None:
    """Return the column that a node names, as `fare` or `field("trip/miles")`; None for other nodes."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str(name))], keywords=[]):
            return name
    return None


def columns_in(node: ast.AST) -> frozenset[str]:
    """Return all columns that a filter names."""
    if name := column_name(node):
        return frozenset([name])
    inner = ast.iter_child_nodes(node) if not isinstance(node, ast.Call) else iter(node.args)
    return frozenset[str]().union(*map(columns_in, inner))


class Translation:
    """Translation of one filter for one batch. Without a batch, only the syntax is checked.

    Attributes:
      times: additional columns that the expression uses, int64 microseconds since 1970, by name.
    """

    def __init__(self, batch: pa.RecordBatch | None, where: str = "") -> None:
        self._batch, self._where = batch, where
        self.times: dict[str, pa.Array] = {}

    def of(self, node: ast.expr) -> Any:
        """Return the expression of a node.

        Raises:
          UnknownError: the syntax is not supported.
          InfeedError: a column that is compared with a time is missing or contains no times.
        """
        match node:
            case ast.BoolOp(op=op, values=values):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                return functools.reduce(join, map(self.of, values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self.of(operand)
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others], ops, others, strict=False)
                return functools.reduce(operator.and_, (self._compare(*pair) for pair in pairs))
            case _ if name := column_name(node):
                return pc.field(name)
        return pc.scalar(constant_of(node))

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
        match op:
            case ast.Is() | ast.IsNot() if isinstance(right, ast.Constant) and right.value is None:
                missing = self.of(left).is_null()
                return missing if isinstance(op, ast.Is) else ~missing
            case ast.In() | ast.NotIn() if isinstance(right, ast.List | ast.Tuple):
                value = self.of(left)
                among = value.isin([constant_of(item) for item in right.elts])
                # isin is false for a null, but a comparison with a null must drop the row either way.
                return among if isinstance(op, ast.In) else ~among & value.is_valid()
            case _ if type(op) in _COMPARE:
                is_time = bool(_inside_time(left) or _inside_time(right))
                sides = self._times(left, right) if is_time else [self.of(left), self.of(right)]
                return _COMPARE[type(op)](*sides)
        raise UnknownError(f"`{ast.unparse(ast.Compare(left, [op], [right]))}`")

    def _times(self, *sides: ast.expr) -> list[Any]:
        """Return both sides of a comparison of times, in microseconds."""
        read = [_limit_of(side, self._where) for side in sides]
        limits = [limit for limit in read if limit]
        pairs = zip(sides, read, strict=True)
        return [pc.scalar(limit.micros) if limit else self._column(side, limits) for side, limit in pairs]

    def _column(self, side: ast.expr, limits: Sequence[Limit]) -> Any:
        inner, form = _inside_time(side) or (side, ISO)
        if not (name := column_name(inner)):
            raise UnknownError(f"`{ast.unparse(side)}` is not a time column")
        if self._batch is None:
            return pc.field(name)
        self.times[key := f"time({name!r}, {form!r})"] = self._read(name, form, limits, self._batch)
        return pc.field(key)

    def _read(self, name: str, form: str, limits: Sequence[Limit], batch: pa.RecordBatch) -> pa.Array:
        values = without_dictionary(column_of(batch, name, self._where))
        if not holds_times(values.type, form):
            what = f"column {name!r} is compared with a time, but has the type {values.type}"
            do = f"""compare it with a value of this type, or give its format, such as time({name}, "epoch_s")"""
            raise InfeedError(what, where=self._where, do=do)
        times = read_column(values, form, limits, self._where, f"time({name}, {{}})")
        return pa.array(times.micros, mask=~times.valid)


def _limit_of(node: ast.expr, where: str) -> Limit | None:
    """Read `"2020-01-31"`, `time("2020-01-31")` or `time("01/31/2020", "%m/%d/%Y")`. None for other nodes."""
    inner, form = _inside_time(node) or (node, ISO)
    if not isinstance(inner, ast.Constant):
        return None
    if isinstance(inner.value, str) and (limit := read_limit(inner.value, form, where)):
        return limit
    raise UnknownError(f"`{inner.value!s}` is not a time such as 2020-01-31T12:00:00 or 2020-01-31T12:00:00Z")


def _inside_time(node: ast.expr) -> tuple[ast.expr, str] | None:
    """Return the argument of `time(...)` and its format. None for other nodes."""
    match node:
        case ast.Call(func=ast.Name(id="time"), args=[read], keywords=[]):
            return read, ISO
        case ast.Call(func=ast.Name(id="time"), args=[read, ast.Constant(value=str(form))], keywords=[]):
            if form not in EPOCHS:
                pieces_of(form)
            return read, form
    return None


def constant_of(node: ast.expr) -> Any:
    """Return the value of a constant. Raises UnknownError for other nodes."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise UnknownError(f"`{ast.unparse(node)}`") from None
    if not isinstance(value, bool | int | float | str):
        raise UnknownError(f"`{ast.unparse(node)}`")
    return value
