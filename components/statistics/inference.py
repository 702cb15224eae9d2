"""Infer the statistics and the schema of a dataset as protos, without TFX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from infeed.components.dataset.reading import MapFn
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import TableStatistics, tables_of
from infeed.components.dataset.statistics.tfdv import StatisticsRequest


def describe(table: TableStatistics, request: StatisticsRequest) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Return the statistics proto of one split, as StatisticsGen writes it.

    Columns that are absent from all records are skipped, because TFDV does not see them. As in TFDV, columns without
    values are text.
    """
    named = {name: ColumnStatistics.none(name, "bytes", table.rows) for name in table.without_values}
    present = {name: column for name, column in table.columns.items() if column.present}
    return request.describe(named | present, table.rows, absent=True)


def infer_schema(root: str, splits: Sequence[str], map_fn: MapFn) -> schema_pb2.Schema:
    """Infer the schema of a dataset from the statistics of its splits, in manifest order, as SchemaGen does.

    `map_fn` reads the records of splits without statistics.
    """
    import tensorflow_data_validation as tfdv  # takes seconds

    tables = tables_of([(root, split) for split in splits], map_fn=map_fn)
    first, *others = described = [describe(table, StatisticsRequest.of(None, None)) for table in tables]
    schema = tfdv.infer_schema(first, infer_feature_shape=True)
    for statistics in others:
        schema = tfdv.update_schema(schema, statistics, infer_feature_shape=True)
    keep_columns(schema, described)
    return schema


def keep_columns(schema: schema_pb2.Schema, splits: Iterable[statistics_pb2.DatasetFeatureStatisticsList]) -> None:
    """Make columns optional if some split has no value of them.

    TFDV deprecates such a column, so that it is missing from the parsing spec of the schema.
    """
    everywhere: set[str] | None = None
    for split in splits:
        found = ((one, one.WhichOneof("stats")) for dataset in split.datasets for one in dataset.features)
        there = {one.path.step[0] for one, kind in found if kind and getattr(one, kind).common_stats.num_non_missing}
        everywhere = there if everywhere is None else everywhere & there
    assert everywhere is not None, "a dataset has a split"
    for feature in schema.feature:
        if feature.name not in everywhere:
            for part in ("lifecycle_stage", "presence", "shape"):
                feature.ClearField(part)
