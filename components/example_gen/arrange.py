"""One record batch -> the rows that pass the filter, encoded, each with its split and its stratum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import assign
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import passes
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.example_gen import strata
from infeed.components.example_gen.spills import Strata

RowsBySplit = Mapping[str | None, npt.NDArray[np.int64]]  # None where labels are divided once all are counted


@dataclass(frozen=True)
class Arranged:
    """The rows that go on: as columns, as serialized examples, by split and by label."""

    written: pa.RecordBatch
    examples: pa.LargeBinaryArray
    rows: RowsBySplit
    strata: Strata


def arrange(
    batch: pa.RecordBatch, split: str | None, *, buckets: Buckets | None, options: IngestOptions, serialized: bool
) -> Arranged:
    """Filters, selects columns, encodes and splits.

    Args:
      split: of all rows, where the input is split; else `buckets` has the splits.
      serialized: the only column holds finished records.

    Raises:
      InfeedError: options that do not fit the batch, or a value that does not fit a tf.Example or the splits.
    """
    if options.filter is not None:
        batch = _filter(batch, options.filter)
    written = _select(batch, options)
    examples = batch.column(0) if serialized else encode_examples(written, empty_lists=options.compat == "tfx")
    rows: RowsBySplit = {split: np.arange(len(examples))}
    if split is None and buckets is not None and not isinstance(options.split_by, ByLabel):
        assigned = _assign(batch, written, examples, buckets, options)
        rows = {name: np.flatnonzero(assigned == number) for number, name in enumerate(buckets.names)}
    return Arranged(written, examples, rows, strata.of_rows(batch, options.strata))


def written_schema(schema: pa.Schema, options: IngestOptions) -> pa.Schema:
    """The columns that are written."""
    return schema if options.columns is None else pa.schema([schema.field(name) for name in options.columns])


def _filter(batch: pa.RecordBatch, text: str) -> pa.RecordBatch:
    kept = passes(batch, text)
    return batch if kept.true_count == len(kept) else batch.filter(kept)


def _select(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    if options.columns is None:
        return batch
    kept = [assign.column_of(batch, name, "columns to keep") for name in options.columns]
    return pa.RecordBatch.from_arrays(kept, schema=written_schema(batch.schema, options))


def _assign(
    batch: pa.RecordBatch,
    written: pa.RecordBatch,
    examples: pa.LargeBinaryArray,
    buckets: Buckets,
    options: IngestOptions,
) -> npt.NDArray[np.int64]:
    if options.split_by is not None and not isinstance(options.split_by, ByLabel):
        return assign.assign_rows(batch, buckets, options.split_by)
    if buckets.feature is not None:
        return assign.assign_by_feature(batch, buckets.feature, buckets)
    return assign.assign_by_record(written, examples, buckets, empty_lists=options.compat == "tfx")
