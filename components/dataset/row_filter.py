"""Row filters: Arrow expressions in Python syntax, or user functions.

The expression is parsed and never executed. It supports comparisons, `and`, `or`, `not`, `in`, `is None`, column names
(`field("a/b")` for a name that is not a Python name), numbers, strings, True, False, and times. `time("2020-01-31")`
compares with dates, timestamps, and ISO 8601 text. `time(day, "%m/%d/%Y")` reads a column in another format.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re

import pyarrow as pa

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import filter_misfits
from infeed.components.dataset.filter_expressions import Translation, UnknownError, columns_in

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
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        do = _in_python(text) or _EXAMPLE
        raise InfeedError(f"cannot parse the filter: {reason}", where=f"filter {shown!r}", do=do) from error


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
    filter_misfits.check_columns(body, batch, where)
    filter_misfits.check_text(body, batch, where)
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
        raise filter_misfits.misfit(body, batch, where, str(error).partition("\n")[0]) from error
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
