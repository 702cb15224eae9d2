"""Statistics of the rows before and after Transform, as TFX's Transform writes them, without Beam.

    pre_transform_stats/FeatureStats.pb    the analyzed splits, for the columns that features use
    pre_transform_schema/schema.pbtxt      the raw schema
    post_transform_stats/FeatureStats.pb   the transformed splits
    post_transform_schema/schema.pbtxt     the schema of the features
    post_transform_anomalies/SchemaDiff.pb deviations of the features from that schema

Statistics of raw rows come from ingest. Transformed rows are analyzed while they are written, or in a separate pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx.components.transform import labels

from infeed.components.base.errors import value_errors
from infeed.components.dataset import files
from infeed.components.dataset.reading import MapFn
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import TableStatistics, add, tables_of
from infeed.components.dataset.statistics.tfdv import StatisticsRequest
from infeed.components.transform.rows import KINDS

STATISTICS_FILE, SCHEMA_FILE, ANOMALIES_FILE = "FeatureStats.pb", "schema.pbtxt", "SchemaDiff.pb"
Folders = Mapping[str, str]  # TFX's label of an output -> its folder, as `GetStatsOutputPathEntries` returns them


@dataclass(frozen=True)
class Asked:
    """Statistics to compute of raw or transformed rows."""

    request: StatisticsRequest
    # Schema of the rows. None if TFDV's options have none, and then no schema is written.
    schema: schema_pb2.Schema | None

    @classmethod
    def of(cls, options: tfdv.StatsOptions) -> Asked:
        """Parse TFDV's options. Unsupported options are in the request."""
        try:
            return cls(StatisticsRequest.of(options.to_json()), options.schema)
        except ValueError as error:  # options that JSON cannot represent, such as user generators
            return cls(StatisticsRequest(beyond=str(error)), None)

    @classmethod
    def by_default(cls, schema: schema_pb2.Schema) -> Asked:
        """Return the statistics that TFX computes by default."""
        return cls.of(tfdv.StatsOptions(schema=schema))


def without_values(schema: schema_pb2.Schema) -> schema_pb2.Schema:
    """Return a transformed schema as TFX writes it with statistics: without results of the analysis."""
    bare = schema_pb2.Schema()
    bare.CopyFrom(schema)
    bare.ClearField("annotation")
    for feature in bare.feature:
        feature.ClearField("annotation")
        if feature.HasField("int_domain"):
            feature.int_domain.ClearField("min")
            feature.int_domain.ClearField("max")
    return bare


def write_raw(
    splits: Iterable[tuple[str, str]],
    columns: Collection[str],
    schema: schema_pb2.Schema,
    asked: Asked,
    folders: Folders,
    map_fn: MapFn,
) -> None:
    """Write the statistics of the analyzed rows. Raise InfeedError if a file is damaged, or a column has two types.

    Args:
      splits: (folder of Examples, split) of each part.
      columns: names of the columns to describe, including columns without any row.
      map_fn: reads rows without statistics, such as `Engine.map`.
    """
    named = [feature for feature in schema.feature if feature.name in columns and feature.type in KINDS]
    kinds = {feature.name: KINDS[feature.type] for feature in named}
    none = TableStatistics(0, {name: ColumnStatistics.none(name, kind) for name, kind in kinds.items()})
    with value_errors("the Examples of Transform", "use one type for a column in all files"):
        tables = (
            replace(found, columns={name: one for name, one in found.columns.items() if name in columns})
            for found in tables_of(list(splits), map_fn=map_fn)
        )
        table = add([none, *tables])
    outputs = labels.PRE_TRANSFORM_OUTPUT_STATS_PATH_LABEL, labels.PRE_TRANSFORM_OUTPUT_SCHEMA_PATH_LABEL
    _write(table, asked, *(folders[label] for label in outputs))


def write_transformed(rows: TableStatistics, asked: Asked, folders: Folders) -> None:
    """Write the statistics of the transformed rows of all splits, and compare them with the schema."""
    outputs = labels.POST_TRANSFORM_OUTPUT_STATS_PATH_LABEL, labels.POST_TRANSFORM_OUTPUT_SCHEMA_PATH_LABEL
    found = _write(rows, asked, *(folders[label] for label in outputs))
    if asked.schema is not None:
        anomalies = tfdv.validate_statistics(found, asked.schema)
        path = files.join(folders[labels.POST_TRANSFORM_OUTPUT_ANOMALIES_PATH_LABEL], ANOMALIES_FILE)
        files.write_bytes(path, anomalies.SerializeToString(deterministic=True))


def _write(
    table: TableStatistics, asked: Asked, folder: str, schema_folder: str
) -> statistics_pb2.DatasetFeatureStatisticsList:
    found = asked.request.describe(table.columns, table.rows, absent=True)
    files.write_bytes(files.join(folder, STATISTICS_FILE), found.SerializeToString(deterministic=True))
    if asked.schema is not None:
        files.write_bytes(files.join(schema_folder, SCHEMA_FILE), text_format.MessageToString(asked.schema).encode())
    return found
