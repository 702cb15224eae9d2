"""Errors of filters that do not fit a batch: the column's type, an example value, and a comparison that fits."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.filter_expressions import UnknownError, column_name, columns_in, constant_of
from infeed.components.dataset.splits import column_of
from infeed.components.dataset.time_formats import ISO, formats_of
from infeed.components.dataset.time_limits import read_limit, shown
from infeed.components.dataset.times import is_text, times_of

_Kind = Literal["time", "string", "number", "boolean"]


class _Comparison(NamedTuple):
    """Comparison of a column with a constant. `node` is the constant, or a list or tuple of constants."""

    column: ast.expr
    op: ast.cmpop
    node: ast.expr


def check_columns(body: ast.expr, batch: pa.RecordBatch, where: str) -> None:
    """Raise InfeedError if the filter names a column that the batch does not have."""
    for name in sorted(columns_in(body)):
        column_of(batch, name, where)


def check_text(body: ast.expr, batch: pa.RecordBatch, where: str) -> None:
    """Raise InfeedError if the filter orders text by a date, but letters do not order the text like times.

    They do in ISO 8601 without offsets from UTC.
    """
    for one in _comparisons(body):
        name, limit = column_name(one.column) or "", _first_constant(one.node)
        forms = formats_of([limit]) if isinstance(limit, str) and type(one.op) in _MIRRORED else []
        if forms and (example := _unordered_time(_column(batch, name), iso=ISO in forms)):
            what = f"text such as {example!r} is not ordered like times, but is compared with {limit!r}"
            sides = [_as_time(name, formats_of([example])), _as_time(repr(limit), forms)]
            do = f"compare times, such as {sides[0]} {_SYMBOLS[type(one.op)]} {sides[1]}"
            raise InfeedError(f"column {name!r}: {what}", where=where, do=do)


def _unordered_time(column: pa.Array, iso: bool) -> str:
    """Return a time that letters do not order. Empty if there is none. Any time is one if the limit is not ISO 8601."""
    if not is_text(column.type):
        return ""
    times = times_of(column, ISO)
    ordered = times.valid & ~times.has_offset if iso else np.zeros(len(column), bool)
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False) & ~ordered)[:_SAMPLE]
    examples = (shown(column, row) for row in rows.tolist())
    return next((text for text in examples if formats_of([text]) and not text.endswith(("Z", "z"))), "")


def _as_time(text: str, forms: list[str]) -> str:
    return f"time({text})" if ISO in forms else f"time({text}, {forms[0]!r})"


def misfit(body: ast.expr, batch: pa.RecordBatch, where: str, reason: str) -> InfeedError:
    """Return the error for a filter that Arrow rejects for `reason`."""
    for one in _comparisons(body):
        name = column_name(one.column) or ""
        column = _column(batch, name)
        value, kind = _first_constant(one.node), _kind_of_column(column.type)
        if value is not None and kind and kind != _kind_of(value):
            example = next((shown(column, row) for row in np.flatnonzero(column.is_valid()).tolist()), "")
            of_values = f", with values such as {example}" if example else ""
            what = f"{value!r} is not a {kind}, but column {name!r} has the type {column.type}{of_values}"
            fitting = _fitting(one, kind, column.type, value, example)
            return InfeedError(what, where=where, do=f"write {fitting}, which fits the type {column.type}")
    what, names = f"the filter does not fit the data: {reason}", ", ".join(batch.schema.names[:10])
    return InfeedError(what, where=where, do=f"use the columns {names}")


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(batch.schema.get_field_index(name))
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


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


def _first_constant(node: ast.expr) -> Any:
    """Return the constant, or the first one of a list. None if there is none."""
    items = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    try:
        return constant_of(items[0]) if items else None
    except UnknownError:
        return None


def _kind_of(value: object) -> _Kind:
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


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
