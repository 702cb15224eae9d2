"""Batches as a format's own reader gives them -> flat batches of one schema, without the rows that do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from infeed.components.dataset import columns, schemas
from infeed.components.example_gen.bad_rows import BadRow, BadRows

_SHOWN = 300  # characters of a bad row


def fit_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: str, bad_rows: BadRows, *, first_row: int = 1
) -> Iterator[pa.RecordBatch]:
    """Flattens structs, adds the columns that a file lacks, casts, and reports each row that a tf.Example cannot hold.

    Args:
      first_row: the number in `file`, from 1, of the first row of `batches`.
    """
    for batch in batches:
        flat = schemas.flatten_batch(batch)
        yield schemas.fill(_drop_unfit(flat, file, bad_rows, first_row), schema)
        first_row += batch.num_rows


def _drop_unfit(batch: pa.RecordBatch, file: str, bad_rows: BadRows, first_row: int) -> pa.RecordBatch:
    unfit = dict(sorted(_unfit_rows(batch)))
    if not unfit:
        return batch
    for row, (column, reason) in unfit.items():
        bad_rows.report(BadRow(file, first_row + row, column, reason, _text_of(batch.slice(row, 1))))
    kept = np.setdiff1d(np.arange(batch.num_rows), list(unfit))
    return batch.take(pa.array(kept, pa.int64()))


def _unfit_rows(batch: pa.RecordBatch) -> Iterator[tuple[int, tuple[str, str]]]:
    """(row in the batch, (column, reason)) of every value without a place in a tf.Example."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        items = columns.items_of(column)
        unfit = columns.find_unfit(items, in_list=columns.is_list(column.type))
        for item, row in zip(unfit.tolist(), columns.rows_of(column, unfit).tolist(), strict=True):
            yield row, (name, columns.explain_unfit(items, item).what)


def _text_of(row: pa.RecordBatch) -> str:
    cells = {name: _plain(column) for name, column in zip(row.schema.names, row.columns, strict=True)}
    return json.dumps(cells, default=str, ensure_ascii=False)[:_SHOWN]


def _plain(cell: pa.Array) -> Any:
    """The one value of an array; of dates that Python has no year for, the numbers that they are stored as."""
    try:
        return cell[0].as_py()
    except (OverflowError, ValueError):
        return columns.ticks(columns.items_of(cell)).to_pylist()
