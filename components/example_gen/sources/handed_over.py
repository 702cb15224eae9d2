"""Data from other libraries and Python code: Arrow tables and streams, data frames, iterators.

Arrow batches are unchanged. For dicts, the first rows determine the columns and types.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import schemas
from infeed.components.example_gen.inputs import BadRow, BadRows
from infeed.components.example_gen.sources import columnar
from infeed.components.example_gen.sources.python_rows import infer_field, to_batch
from infeed.components.seams import pyarrow as seam

SAMPLE = 1_000  # dicts that determine the columns and types
_FIRST_ROWS, _MOST_ROWS = 16, 10_000  # dicts of a batch
_SHOWN = 300  # characters of a bad row
_DO = "convert the values before reading"
SOURCES = "an Arrow table or stream, a data frame, or an iterator of dicts or record batches"
Numbered = Iterator[tuple[int, pa.RecordBatch]]  # the number of the first row, from 1, and a flat batch


@dataclass(frozen=True)
class ArrowStream:
    """Record batches of one schema."""

    first: pa.Schema
    stream: Iterable[pa.RecordBatch]

    def schema(self, kept: Sequence[str] | None, where: str) -> pa.Schema:
        """Return the flat columns to keep. Raise InfeedError if one is missing, or a tf.Example does not support it."""
        return columnar.unified([columnar.file_schema(where, self.first)], kept)

    def batches(self, columns: pa.Schema, kept: Sequence[str] | None, where: str) -> Numbered:
        """Yield flat batches of `columns`. Raise InfeedError if a batch has other columns or types."""
        row, known = 1, None
        for batch in self.stream:
            if batch.schema != known:
                _check_same(batch.schema, columns, kept, f"{where}, row {row}")
                known = batch.schema
            yield from columnar.slices(batch, columns.names, row)
            row += batch.num_rows


@dataclass(frozen=True)
class DictRows:
    """Rows as dicts. The first ones have already been read."""

    first: Sequence[Mapping[str, Any]]
    rest: Iterator[Mapping[str, Any]]

    def schema(self, kept: Sequence[str] | None, where: str) -> pa.Schema:
        """Infer the columns to keep.

        Raise InfeedError if one is missing, or a tf.Example does not support its values.
        """
        names = list(dict.fromkeys(name for row in self.first for name in row))  # in the order of first occurrence
        if unknown := sorted({*(kept or ())} - {*names}):
            do = f"use some of {', '.join(names[:20])}"
            raise InfeedError(f"there is no column {unknown[0]!r}", where="columns", do=do)
        wanted = [name for name in names if kept is None or name in kept]
        return pa.schema([infer_field(name, [row.get(name) for row in self.first], where, _DO) for name in wanted])

    def batches(
        self, columns: pa.Schema, kept: Sequence[str] | None, where: str, block_bytes: int, bad_rows: BadRows
    ) -> Numbered:
        """Yield batches of `columns`, of about `block_bytes`.

        A row with another column, or with a value of another type, is a bad row.
        """
        rows, first_row, step, names = chain(self.first, self.rest), 1, _FIRST_ROWS, set(columns.names)
        while some := list(islice(rows, step)):
            cells = []
            for number, row in enumerate(some, first_row):
                new = sorted(name for name in row if name not in names) if kept is None else ()
                if new:
                    reason = f"the first {SAMPLE:,} rows have no column {new[0]!r}"
                    bad_rows.report(BadRow(where, number, new[0], reason, repr(row)[:_SHOWN]))
                else:
                    cells.append(tuple(map(row.get, columns.names)))
            batch = to_batch(cells, columns, where, bad_rows, first_row)
            yield first_row, batch
            first_row += len(some)
            step = min(max(1, block_bytes * len(some) // max(batch.nbytes, 1)), _MOST_ROWS)


def data_of(data: Any, where: str) -> ArrowStream | DictRows:
    """Return data as a table or as rows. Raise InfeedError with the type of other data."""
    if table := _table_of(data):
        return table
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _of_items(iter(data), where)
    raise InfeedError(f"data of type {type_of(data)} is not a supported source", where=where, do=f"use {SOURCES}")


def type_of(data: Any) -> str:
    """Return the name of a type with its package, such as polars.DataFrame. Messages do not contain values."""
    package = type(data).__module__.partition(".")[0]
    return type(data).__qualname__ if package == "builtins" else f"{package}.{type(data).__qualname__}"


def _table_of(data: Any) -> ArrowStream | None:
    if _is_a(data, "pandas", "DataFrame"):
        data = pa.Table.from_pandas(data)
    elif hasattr(type(data), "to_arrow"):  # the stream of polars holds views of text, which no Arrow decodes everywhere
        data = data.to_arrow()
    if isinstance(data, pa.Table):
        data = data.to_reader()
    elif _is_a(data, "pyarrow.dataset", "Dataset"):
        data = data.scanner().to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return ArrowStream(data.schema, data)
    if isinstance(data, pa.RecordBatch):
        return ArrowStream(data.schema, [data])
    if hasattr(type(data), "__arrow_c_stream__"):
        stream = seam.read_stream(data)
        return ArrowStream(stream.schema, stream)
    if hasattr(type(data), "__arrow_c_array__"):
        batch = seam.read_array(data)
        return ArrowStream(batch.schema, [batch])
    return None


def _is_a(data: Any, module: str, name: str) -> bool:
    """Return whether data is of a class. It cannot be if the class's module has not been imported."""
    return module in sys.modules and isinstance(data, getattr(sys.modules[module], name))


def _of_items(items: Iterator[Any], where: str) -> ArrowStream | DictRows:
    first = next(items, None)
    if first is None or isinstance(first, Mapping):
        rows = _rows(chain([first], items) if first is not None else iter(()), where)
        return DictRows(list(islice(rows, SAMPLE)), rows)
    tables = (_batches(item, where) for item in chain([first], items))
    one = next(tables)
    return ArrowStream(one.first, chain.from_iterable(table.stream for table in chain([one], tables)))


def _batches(item: Any, where: str) -> ArrowStream:
    if table := _table_of(item):
        return table
    do = "yield dicts of columns and values, or record batches"
    raise InfeedError(f"a row has the type {type_of(item)}", where=where, do=do)


def _rows(rows: Iterator[Any], where: str) -> Iterator[Mapping[str, Any]]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            do = "yield dicts of columns and values"
            raise InfeedError(f"a row has the type {type_of(row)}", where=f"{where}, row {number}", do=do)
        yield row


def _check_same(found: pa.Schema, columns: pa.Schema, kept: Sequence[str] | None, where: str) -> None:
    """Raise InfeedError if a batch has columns or types that do not fit `columns`, those of the first batch."""
    both = columnar.unified([schemas.FileSchema("the first batch", columns), columnar.file_schema(where, found)], kept)
    for one in both:
        if one.name not in columns.names or columns.field(one.name).type != one.type:
            before = columns.field(one.name).type if one.name in columns.names else "missing"
            what = f"column {one.name!r} is {one.type}, but {before} in the first batch"
            raise InfeedError(what, where=where, do="cast the column, so that all batches have one type")
