"""Column statistics in the format of TensorFlow Data Validation: its options, and its proto.

Counts, means, deviations, extremes, lengths and counts of values equal TFDV's, which are exact too. The median and the
buckets of histograms are within TFDV's error of 1 % of the numbers. For columns of more than 10,000 distinct values,
the number of distinct values is an estimate, and only frequent values have counts, as in TFDV with
`use_sketch_based_topk_uniques`. `StatisticsRequest.beyond` reports options that only TFDV implements.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import (
    BUCKETS,
    Bucket,
    Histogram,
    lengths_of,
    numbers_of,
    quantile_histogram,
    standard_histogram,
)

_TYPES = {
    "int": statistics_pb2.FeatureNameStatistics.INT,
    "float": statistics_pb2.FeatureNameStatistics.FLOAT,
    "bytes": statistics_pb2.FeatureNameStatistics.STRING,
}
# TFDV's labels for values that are not text, and for values that are too long.
NOT_TEXT, TOO_LONG = "__BYTES_VALUE__", "__LARGE_BYTES__"
# Serialized names of TFDV's options. A leading underscore marks an attribute behind a property.
_SHAPES = {
    "num_top_values": "num_top_values",
    "frequency_threshold": "frequency_threshold",
    "num_rank_histogram_buckets": "num_rank_histogram_buckets",
    "_num_values_histogram_buckets": "num_values_histogram_buckets",
    "_num_histogram_buckets": "num_histogram_buckets",
    "_num_quantiles_histogram_buckets": "num_quantiles_histogram_buckets",
}
# Options that do not change the result: batching, partitioning, reading, weights, text and CSV files.
_WITHOUT_EFFECT = {
    "TYPE_NAME",
    "weighted_frequency_threshold",
    "infer_type_from_schema",
    "label_feature",  # without a schema; with one, see `_unsupported_in_schema`
    "_desired_batch_size",
    "_semantic_domain_stats_sample_rate",
    "_vocab_paths",
    "_use_sketch_based_topk_uniques",
    "_experimental_num_feature_partitions",
    "_experimental_filter_read_paths",
}
_NEEDED = {"_add_default_generators": True, "_experimental_result_partitions": 1}
_EPSILON = 0.01  # TFDV's default error of quantiles, an upper bound of ours
_SCHEMA, _ALLOWED = "schema_json", "_feature_allowlist"


@dataclass(frozen=True)
class ProtoOptions:
    """The options of TFDV's StatsOptions that shape the proto, with TFDV's defaults.

    Attributes:
      num_top_values: number of most frequent values to list.
      frequency_threshold: minimum count of a listed value.
      num_rank_histogram_buckets: values in the rank histogram.
      num_values_histogram_buckets: buckets of the histogram of lengths.
      num_histogram_buckets: buckets of equal width.
      num_quantiles_histogram_buckets: buckets of equal count.
      images: columns of encoded images, whose values are measured and not counted.
      categories: integer columns that name categories and are counted like text.
      absent: whether to describe columns without any row, as TFDV does for columns of a schema.
    """

    num_top_values: int = 20
    frequency_threshold: int = 1
    num_rank_histogram_buckets: int = 1000
    num_values_histogram_buckets: int = BUCKETS
    num_histogram_buckets: int = BUCKETS
    num_quantiles_histogram_buckets: int = BUCKETS
    images: frozenset[str] = field(default_factory=frozenset)
    categories: frozenset[str] = field(default_factory=frozenset)
    absent: bool = False


def to_proto(
    columns: Iterable[ColumnStatistics], rows: int, options: ProtoOptions | None = None
) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Return the proto that TFX's StatisticsGen writes for one split.

    Args:
      columns: columns of the split. Columns that no row has are skipped unless `absent` is set, as in TFDV.
    """
    options = options or ProtoOptions()
    found = statistics_pb2.DatasetFeatureStatisticsList()
    dataset = found.datasets.add(num_examples=rows)
    for column in sorted(columns, key=lambda column: column.name):
        if column.present or options.absent:
            dataset.features.append(_feature(column, options))
    return found


def _feature(column: ColumnStatistics, options: ProtoOptions) -> statistics_pb2.FeatureNameStatistics:
    feature = statistics_pb2.FeatureNameStatistics(type=_TYPES[column.type])
    feature.path.step.append(column.name)
    common = _common(column, options)
    if column.type == "bytes" and column.name in options.images:
        feature.type = statistics_pb2.FeatureNameStatistics.BYTES
        lengths, found = column.byte_lengths, feature.bytes_stats
        found.avg_num_bytes, found.min_num_bytes = lengths.mean, lengths.minimum
        found.max_num_bytes = found.max_num_bytes_int = lengths.maximum
        found.common_stats.CopyFrom(common)
    elif column.type == "bytes" or (column.type == "int" and column.name in options.categories):
        feature.string_stats.CopyFrom(_counted(column, options))
        feature.string_stats.common_stats.CopyFrom(common)
    else:
        feature.num_stats.CopyFrom(_numbers(column, options))
        feature.num_stats.common_stats.CopyFrom(common)
    return feature


def _common(column: ColumnStatistics, options: ProtoOptions) -> statistics_pb2.CommonStatistics:
    common = statistics_pb2.CommonStatistics(num_non_missing=column.present, num_missing=column.missing)
    if not column.present:
        return common
    common.tot_num_values = column.values
    common.min_num_values, common.max_num_values = column.lengths.minimum, column.lengths.maximum
    common.avg_num_values = column.lengths.mean
    lengths = quantile_histogram(lengths_of(column.lengths), options.num_values_histogram_buckets)
    common.num_values_histogram.CopyFrom(_histogram(lengths, statistics_pb2.Histogram.QUANTILES))
    return common


def _numbers(column: ColumnStatistics, options: ProtoOptions) -> statistics_pb2.NumericStatistics:
    found = statistics_pb2.NumericStatistics()
    if not column.values:
        return found
    numbers = numbers_of(column)
    if numbers.total:
        found.num_zeros = column.zeros
        # With infinities, TFDV writes no mean and a deviation of 0.
        found.mean = math.nan if column.infinities else column.mean
        found.std_dev = 0.0 if column.infinities else column.std
        found.min, found.max = float(numbers.values[0]), float(numbers.values[-1])
        found.median = float(numbers.at([0.5])[0])
    standard = standard_histogram(numbers, options.num_histogram_buckets)
    if numbers.total and not len(numbers.finite):  # TFDV's form if all numbers are infinite
        standard = Histogram((Bucket(math.inf, -math.inf, numbers.total),), numbers.nans)
    found.histograms.append(_histogram(standard, statistics_pb2.Histogram.STANDARD))
    quantiles = quantile_histogram(numbers, options.num_quantiles_histogram_buckets)
    found.histograms.append(_histogram(quantiles, statistics_pb2.Histogram.QUANTILES))
    return found


def _histogram(histogram: Histogram, kind: int) -> statistics_pb2.Histogram:
    found = statistics_pb2.Histogram(type=kind, num_nan=histogram.nans)
    for bucket in histogram.buckets:
        found.buckets.add(low_value=bucket.low, high_value=bucket.high, sample_count=bucket.count)
    return found


def _counted(column: ColumnStatistics, options: ProtoOptions) -> statistics_pb2.StringStatistics:
    found = statistics_pb2.StringStatistics(unique=distinct(column))
    if column.type == "bytes":
        found.avg_length, found.invalid_utf8_count = column.byte_lengths.mean, column.invalid_utf8
    elif column.values:
        digits = sum(len(str(value)) * count for value, count in column.counts.items())
        found.avg_length = digits / column.values
    most = max(options.num_top_values, options.num_rank_histogram_buckets)
    labeled = ((label_of(value), count) for value, count in column.counts.items())
    long = [(TOO_LONG, column.counts.uncounted)] if column.counts.uncounted else []
    ordered = heapq.merge(long, labeled, key=lambda pair: -pair[1])
    for rank, (label, count) in enumerate(itertools.islice(ordered, most)):
        if count < options.frequency_threshold:
            break
        if rank < options.num_top_values:
            found.top_values.add(value=label, frequency=count)
        # SchemaGen infers a domain from the rank histogram, so it must hold all values or none.
        if rank < options.num_rank_histogram_buckets and not column.counts.uncounted:
            found.rank_histogram.buckets.add(low_rank=rank, high_rank=rank, label=label, sample_count=count)
    return found


def distinct(column: ColumnStatistics) -> int:
    """Return the number of distinct values. Each value too long to be counted counts as distinct."""
    return column.counts.distinct + column.counts.uncounted


def label_of(value: object) -> str:
    """Return TFDV's label of a value: text unchanged, `__BYTES_VALUE__` for other bytes, and numbers as in Python."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NOT_TEXT


@dataclass(frozen=True)
class StatisticsRequest:
    """Statistics that a StatisticsGen requests.

    Attributes:
      columns: names of the columns to describe. None for all.
      beyond: the option that only TFDV's own code supports, or "".
    """

    proto: ProtoOptions = field(default_factory=ProtoOptions)
    columns: frozenset[str] | None = None
    beyond: str = ""

    @classmethod
    def of(cls, stats_options: str | None, schema: schema_pb2.Schema | None = None) -> StatisticsRequest:
        """Parse the options of a StatisticsGen.

        Args:
          stats_options: JSON of `StatsOptions`, from the exec properties.
          schema: content of the input channel `schema`.

        Raises:
          InfeedError: both contain a schema.
        """
        given: dict[str, Any] = json.loads(stats_options) if stats_options else {}
        if _SCHEMA in given:
            if schema is not None:
                do = "use only one of them"
                raise InfeedError("both the input schema and stats_options hold a schema", where="StatisticsGen", do=do)
            schema = json_format.Parse(given[_SCHEMA], schema_pb2.Schema())
        proto = ProtoOptions(**{ours: given[theirs] for theirs, ours in _SHAPES.items() if theirs in given})
        reasons = [*_unsupported_options(given), *(_unsupported_in_schema(schema, given) if schema else ())]
        allowed = given.get(_ALLOWED)
        names = frozenset(map(str, allowed)) if allowed else None
        return cls(_with_kinds(proto, schema) if schema else proto, names, next(iter(reasons), ""))

    def describe(
        self, columns: Mapping[str, ColumnStatistics], rows: int, *, absent: bool = False
    ) -> statistics_pb2.DatasetFeatureStatisticsList:
        """Return the proto of the chosen columns. With `absent`, include columns without any row."""
        chosen = [column for name, column in columns.items() if self.columns is None or name in self.columns]
        return to_proto(chosen, rows, dataclasses.replace(self.proto, absent=absent))


def _unsupported_options(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the unsupported options. Unknown options count unless they are off."""
    known = {*_SHAPES, *_WITHOUT_EFFECT, _SCHEMA, _ALLOWED, "epsilon"}
    for name, value in given.items():
        usual = (_NEEDED[name],) if name in _NEEDED else (None, False)
        if name not in known and value not in usual:
            yield f"stats_options.{name.removeprefix('_')} is {value!r}"
    if not all(isinstance(name, str) for name in given.get(_ALLOWED) or ()):
        yield "stats_options.feature_allowlist holds paths"
    if given.get("epsilon", _EPSILON) < _EPSILON:
        yield f"stats_options.epsilon is {given['epsilon']}, less than {_EPSILON}"


def _unsupported_in_schema(schema: schema_pb2.Schema, given: Mapping[str, Any]) -> Iterator[str]:
    if given.get("label_feature"):
        yield f"stats_options.label_feature is {given['label_feature']!r}, for which TFDV computes the lift"
    for what in ("sparse_feature", "weighted_feature"):
        for feature in getattr(schema, what):
            yield f"the schema has the {what} {feature.name!r}"
    for feature in schema.feature:
        if feature.type == schema_pb2.STRUCT:
            yield f"{feature.name!r} is a struct in the schema"
        elif feature.HasField("natural_language_domain"):
            yield f"{feature.name!r} is natural language in the schema"
        elif feature.HasField("float_domain") and feature.float_domain.is_categorical:
            yield f"the numbers of {feature.name!r} are categories in the schema"


def _with_kinds(proto: ProtoOptions, schema: schema_pb2.Schema) -> ProtoOptions:
    """Add the image columns and the categorical integer columns of a schema."""
    images = (feature.name for feature in schema.feature if feature.HasField("image_domain"))
    categories = (
        feature.name
        for feature in schema.feature
        if feature.type == schema_pb2.INT
        and (feature.HasField("bool_domain") or (feature.HasField("int_domain") and feature.int_domain.is_categorical))
    )
    return dataclasses.replace(proto, images=frozenset(images), categories=frozenset(categories))
