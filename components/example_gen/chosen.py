"""The rows that pass the filter and hold what is required, and the columns that are written."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import example_types
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import passes
from infeed.components.dataset.splits import column_of
from infeed.components.example_gen.inputs import BadRow, BadRows, FilePart, text_of

MISSING = "no value, and one is required"


def choose_rows(batch: pa.RecordBatch, options: IngestOptions, place: str, bad_rows: BadRows) -> pa.RecordBatch:
    """The rows that pass the filter; those of them without a required value are reported as bad rows.

    Args:
      batch: all columns, those that are not written among them.
      options: the filter, and the required columns.
      place: the file, for the report.

    Raises:
      InfeedError: no such column, a filter that does not fit, or a bad row where none is allowed.
    """
    if options.filter is not None:
        kept = passes(batch, options.filter)
        batch = batch if kept.true_count == len(kept) else batch.filter(kept)
    for name in options.required:
        missing = np.flatnonzero(_is_missing(column_of(batch, name, "required columns")))
        for row in missing.tolist():
            bad_rows.report(BadRow(place, None, name, MISSING, text_of(batch.slice(row, 1))))
        if len(missing):
            batch = batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), missing)))
    return batch


def choose_columns(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """The columns that are written, in the order of the options."""
    if options.columns is None:
        return batch
    kept = [column_of(batch, name, "columns to keep") for name in options.columns]
    return pa.RecordBatch.from_arrays(kept, schema=chosen_schema(batch.schema, options))


def chosen_schema(schema: pa.Schema, options: IngestOptions) -> pa.Schema:
    """The columns that are written."""
    return schema if options.columns is None else pa.schema([schema.field(name) for name in options.columns])


def place_of(payload: object) -> str:
    """The file that a task reads, as far as one is known."""
    return payload.file.path if isinstance(payload, FilePart) else "the input"


def _is_missing(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each row holds nothing: null, an empty list, or a number that is not finite."""
    missing = column.is_null()
    if example_types.is_list(column.type):
        missing = pc.or_(missing, pc.fill_null(pc.equal(pc.list_value_length(column), 0), True))
    elif pa.types.is_floating(column.type):
        missing = pc.or_(missing, pc.fill_null(pc.invert(pc.is_finite(column)), True))
    return np.asarray(missing)
