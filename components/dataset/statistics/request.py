"""Which statistics are asked for: TFDV's StatsOptions as TFX passes them, and what of them only TFDV's code can do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.tfdv import ProtoOptions, to_proto
from infeed.components.errors import InfeedError

# How TFDV writes its options. Some begin with an underscore, since they are attributes behind properties.
_SHAPES = {
    "num_top_values": "num_top_values",
    "frequency_threshold": "frequency_threshold",
    "num_rank_histogram_buckets": "num_rank_histogram_buckets",
    "_num_values_histogram_buckets": "num_values_histogram_buckets",
    "_num_histogram_buckets": "num_histogram_buckets",
    "_num_quantiles_histogram_buckets": "num_quantiles_histogram_buckets",
}
# What changes no figure: how TFDV batches, divides and reads, and what it does of weights, of text and of CSV files.
_WITHOUT_EFFECT = {
    "TYPE_NAME",
    "weighted_frequency_threshold",
    "infer_type_from_schema",
    "label_feature",  # without a schema; with one, see `_of_schema`
    "_desired_batch_size",
    "_semantic_domain_stats_sample_rate",
    "_vocab_paths",
    "_use_sketch_based_topk_uniques",
    "_experimental_num_feature_partitions",
    "_experimental_filter_read_paths",
}
_NEEDED = {"_add_default_generators": True, "_experimental_result_partitions": 1}
_EPSILON = 0.01  # TFDV's default error of quantiles, below which ours always is
_SCHEMA, _ALLOWED = "schema_json", "_feature_allowlist"


@dataclass(frozen=True)
class StatisticsRequest:
    """
    Attributes:
      proto: what shapes the proto.
      columns: names of those that are described; None for all.
      beyond: why only TFDV's own code can do it; empty where ours can.
    """

    proto: ProtoOptions = field(default_factory=ProtoOptions)
    columns: frozenset[str] | None = None
    beyond: str = ""

    @classmethod
    def of(cls, stats_options: str | None, schema: schema_pb2.Schema | None = None) -> StatisticsRequest:
        """
        Args:
          stats_options: JSON of `StatsOptions`, as the component passes it.
          schema: what the component's input of that name holds.

        Raises:
          InfeedError: a schema in both places.
        """
        given: dict[str, Any] = json.loads(stats_options) if stats_options else {}
        if _SCHEMA in given:
            if schema is not None:
                raise InfeedError(
                    "both the input schema and stats_options hold a schema",
                    where="StatisticsGen",
                    do="give one of them",
                )
            schema = json_format.Parse(given[_SCHEMA], schema_pb2.Schema())
        proto = ProtoOptions(**{ours: given[theirs] for theirs, ours in _SHAPES.items() if theirs in given})
        reasons = [*_of_options(given), *(_of_schema(schema, given) if schema else ())]
        allowed = given.get(_ALLOWED)
        names = frozenset(map(str, allowed)) if allowed else None
        return cls(_with_kinds(proto, schema) if schema else proto, names, next(iter(reasons), ""))

    def describe(
        self, columns: Mapping[str, ColumnStatistics], rows: int, *, absent: bool = False
    ) -> statistics_pb2.DatasetFeatureStatisticsList:
        """What is asked of these columns, of so many rows; with `absent` of those that no row has as well."""
        chosen = [column for name, column in columns.items() if self.columns is None or name in self.columns]
        return to_proto(chosen, rows, dataclasses.replace(self.proto, absent=absent))


def _of_options(given: Mapping[str, Any]) -> Iterator[str]:
    """Why an option is beyond us; one that a later TFDV may have is, too, unless it is switched off."""
    known = {*_SHAPES, *_WITHOUT_EFFECT, _SCHEMA, _ALLOWED, "epsilon"}
    for name, value in given.items():
        usual = (_NEEDED[name],) if name in _NEEDED else (None, False)
        if name not in known and value not in usual:
            yield f"stats_options.{name.removeprefix('_')} is {value!r}"
    if not all(isinstance(name, str) for name in given.get(_ALLOWED) or ()):
        yield "stats_options.feature_allowlist holds paths"
    if given.get("epsilon", _EPSILON) < _EPSILON:
        yield f"stats_options.epsilon is {given['epsilon']}, less than {_EPSILON}"


def _of_schema(schema: schema_pb2.Schema, given: Mapping[str, Any]) -> Iterator[str]:
    if given.get("label_feature"):
        yield f"stats_options.label_feature is {given['label_feature']!r}, for which TFDV computes the lift"
    for what in ("sparse_feature", "weighted_feature"):
        for feature in getattr(schema, what):
            yield f"the schema has the {what} {feature.name!r}"
    for feature in schema.feature:
        if feature.type == schema_pb2.STRUCT:
            yield f"the schema says that {feature.name!r} is a struct"
        elif feature.HasField("natural_language_domain"):
            yield f"the schema says that {feature.name!r} is natural language"
        elif feature.HasField("float_domain") and feature.float_domain.is_categorical:
            yield f"the schema says that the numbers of {feature.name!r} are categories"


def _with_kinds(proto: ProtoOptions, schema: schema_pb2.Schema) -> ProtoOptions:
    """Says which columns TFDV takes for pictures, and which whole numbers for categories."""
    images = (feature.name for feature in schema.feature if feature.HasField("image_domain"))
    categories = (feature.name for feature in schema.feature if _is_category(feature))
    return dataclasses.replace(proto, images=frozenset(images), categories=frozenset(categories))


def _is_category(feature: schema_pb2.Feature) -> bool:
    says = feature.HasField("bool_domain") or (feature.HasField("int_domain") and feature.int_domain.is_categorical)
    return feature.type == schema_pb2.INT and bool(says)
