"""Apply the row filter, required columns, and the choice of columns of an ingest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import example_types
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import passes
from infeed.components.dataset.splits import column_of
from infeed.components.example_gen.inputs import BadRow, BadRows, FilePart, text_of, without

MISSING = "a required value is missing"


def choose_rows(batch: pa.RecordBatch, options: IngestOptions, place: str, bad_rows: BadRows) -> pa.RecordBatch:
    """Return the rows that pass the filter. Report rows without a required value as bad rows of `place`.

    `batch` has all columns of the input, written or not. Raises InfeedError if a column is missing, the filter does not
    fit, or a bad row is not allowed.
    """
    if options.filter is not None:
        kept = passes(batch, options.filter)
        batch = batch if kept.true_count == len(kept) else batch.filter(kept)
    for name in options.required:
        column = column_of(batch, name, "required columns")
        missing = column.is_null()  # an empty list and a number that is not finite are missing, too
        if example_types.is_list(column.type):
            missing = pc.or_(missing, pc.fill_null(pc.equal(pc.list_value_length(column), 0), True))
        elif pa.types.is_floating(column.type):
            missing = pc.or_(missing, pc.fill_null(pc.invert(pc.is_finite(column)), True))
        rows = np.flatnonzero(np.asarray(missing)).tolist()
        for row in rows:
            bad_rows.report(BadRow(place, None, name, MISSING, text_of(batch.slice(row, 1))))
        batch = without(batch, rows)
    return batch


def choose_columns(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """Return the columns to write, in the order of the options."""
    if options.columns is None:
        return batch
    kept = [column_of(batch, name, "columns to keep") for name in options.columns]
    return pa.RecordBatch.from_arrays(kept, schema=chosen_schema(batch.schema, options))


def chosen_schema(schema: pa.Schema, options: IngestOptions) -> pa.Schema:
    return schema if options.columns is None else pa.schema([schema.field(name) for name in options.columns])


def place_of(payload: object) -> str:
    """Return the path of the file that a task reads, if known."""
    return payload.file.path if isinstance(payload, FilePart) else "the input"
