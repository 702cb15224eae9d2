"""Row filter, required columns, and column selection of an ingest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import nearest
from infeed.components.dataset import example_types
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import passes
from infeed.components.dataset.splits import column_of
from infeed.components.example_gen.inputs import BadRow, BadRows, FilePart, text_of, without

_SHOWN = 20  # columns that an error names
MISSING = "a required value is missing"


def choose_rows(batch: pa.RecordBatch, options: IngestOptions, place: str, bad_rows: BadRows) -> pa.RecordBatch:
    """Return the rows that pass the filter and have a label. Report rows without a required value as bad rows.

    `batch` has all columns of the input at `place`, including those that are not written. Raises InfeedError if a
    column is missing, the
    filter does not fit, or a bad row is not allowed.
    """
    return complete(with_label(passing(batch, options), options), options, place, bad_rows)


def passing(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """Return the rows that pass the filter."""
    if options.filter is None:
        return batch
    kept = passes(batch, options.filter)
    return batch if kept.true_count == len(kept) else batch.filter(kept)


def with_label(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """Return the rows that have a value in each column of `options.labeled`. An empty list is a set without classes."""
    for name in options.labeled:
        column = column_of(batch, name, "label")
        is_list = example_types.is_list(column.type)
        missing = column.is_null() if is_list else _are_missing(column)
        if example_types.kind_of(column.type) == "bytes" and not is_list:
            decoded = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            missing = pc.or_(missing, pc.fill_null(pc.equal(pc.binary_length(decoded), 0), True))
        batch = batch.filter(pc.invert(missing)) if missing.true_count else batch
    return batch


def complete(batch: pa.RecordBatch, options: IngestOptions, place: str, bad_rows: BadRows) -> pa.RecordBatch:
    """Return the rows that have all required values. Report the other rows as bad rows of `place`."""
    for name in options.required:
        rows = np.flatnonzero(np.asarray(_are_missing(column_of(batch, name, "required columns")))).tolist()
        for row in rows:
            bad_rows.report(BadRow(place, None, name, MISSING, text_of(batch.slice(row, 1))))
        batch = without(batch, rows)
    return batch


def _are_missing(column: pa.Array) -> pa.BooleanArray:
    """Return whether each row has no value. Empty lists and non-finite numbers count as missing."""
    missing = column.is_null()
    if example_types.is_list(column.type):
        return pc.or_(missing, pc.fill_null(pc.equal(pc.list_value_length(column), 0), True))
    if pa.types.is_floating(column.type):
        return pc.or_(missing, pc.fill_null(pc.invert(pc.is_finite(column)), True))
    return missing


def choose_columns(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """Return the columns to write, in the order of the options."""
    if options.columns is None and not options.drop:
        return batch
    kept = [column_of(batch, name, "columns to keep") for name in options.written(batch.schema.names)]
    return pa.RecordBatch.from_arrays(kept, schema=chosen_schema(batch.schema, options))


def chosen_schema(schema: pa.Schema, options: IngestOptions) -> pa.Schema:
    """Return the schema of the columns to write. Raises InfeedError if a column to drop is missing, or none is left."""
    if options.columns is None and not options.drop:
        return schema
    if unknown := sorted(set(options.drop) - set(schema.names)):
        what = f"there is no column {unknown[0]!r} to drop{nearest(unknown[0], schema.names)}"
        raise InfeedError(what, where="--drop", do=f"use one of {', '.join(schema.names[:_SHOWN])}")
    if not (names := options.written(schema.names)):
        raise InfeedError("every column is dropped", where="--drop", do="keep one or more columns")
    return pa.schema([schema.field(name) for name in names])


def place_of(payload: object) -> str:
    """Return the path of the file that a task reads, if known."""
    return payload.file.path if isinstance(payload, FilePart) else "the input"
