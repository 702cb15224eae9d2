"""Validation of the statistics of wide tables against a schema, some columns at a time.

The time of TFDV's `validate_statistics` is quadratic in the number of columns, and it holds the GIL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from infeed.components.base import progress

COLUMNS = 200  # columns validated at a time

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


def validate(statistics: Statistics, schema: schema_pb2.Schema, columns: int = COLUMNS) -> anomalies_pb2.Anomalies:
    """Return the anomalies that `tfdv.validate_statistics` returns, found in `columns` columns at a time.

    A schema with dependent features, such as sparse ones, is validated as a whole.
    """
    names = _names(statistics, schema)
    if len(names) <= columns or not _is_divisible(statistics, schema):
        return tfdv.validate_statistics(statistics=statistics, schema=schema)
    found = anomalies_pb2.Anomalies()
    for start, part in _parts(statistics, schema, names, columns):
        anomalies = tfdv.validate_statistics(statistics=part[0], schema=part[1])
        if not start:
            found.CopyFrom(anomalies)
            found.baseline.CopyFrom(schema)
        for name, one in anomalies.anomaly_info.items():
            found.anomaly_info[name].CopyFrom(one)
        if start:
            found.drift_skew_info.extend(anomalies.drift_skew_info)
        progress.report(f"validated {min(start + columns, len(names)):,} of {len(names):,} columns")
    return found


def _names(statistics: Statistics, schema: schema_pb2.Schema) -> list[str]:
    counted = [_name(one) for dataset in statistics.datasets for one in dataset.features]
    return list(dict.fromkeys([*(feature.name for feature in schema.feature), *counted]))


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    return str(feature.name or feature.path.step[0])


def _is_divisible(statistics: Statistics, schema: schema_pb2.Schema) -> bool:
    """Return whether columns are independent, and no slice or constraint covers the whole dataset."""
    nested = any(feature.HasField("struct_domain") for feature in schema.feature)
    paths = any(len(one.path.step) > 1 for dataset in statistics.datasets for one in dataset.features)
    crossed = any(dataset.cross_features for dataset in statistics.datasets)
    return not (nested or paths or crossed or schema.sparse_feature or schema.weighted_feature)


def _parts(
    statistics: Statistics, schema: schema_pb2.Schema, names: Sequence[str], columns: int
) -> Iterator[tuple[int, tuple[Statistics, schema_pb2.Schema]]]:
    """Yield (number of the first column, statistics, schema) for groups of columns."""
    number = {name: place // columns for place, name in enumerate(names)}
    parts = [(Statistics(), schema_pb2.Schema()) for _ in range(0, len(names), columns)]
    domains = {domain.name: domain for domain in schema.string_domain}
    for dataset in statistics.datasets:
        for counted, _ in parts:
            counted.datasets.add(name=dataset.name, num_examples=dataset.num_examples)
            counted.datasets[-1].weighted_num_examples = dataset.weighted_num_examples
        for one in dataset.features:
            parts[number[_name(one)]][0].datasets[-1].features.append(one)
    for feature in schema.feature:
        part = parts[number[feature.name]][1]
        part.feature.append(feature)
        if feature.domain in domains and feature.domain not in {domain.name for domain in part.string_domain}:
            part.string_domain.append(domains[feature.domain])
    for place, (counted, part) in enumerate(parts):
        part.default_environment.extend(schema.default_environment)
        if not place and schema.HasField("dataset_constraints"):
            part.dataset_constraints.CopyFrom(schema.dataset_constraints)
        yield place * columns, (counted, part)
