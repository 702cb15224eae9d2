"""ExampleValidator with the interface of TFX's, in linear instead of quadratic time in the number of columns.

TFDV's `validate_statistics` is quadratic and holds the GIL, so `validate` calls it for some columns at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow_data_validation as tfdv
import tfx.components
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2
from tfx.components.example_validator import executor
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import executor_spec
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils

from infeed.components.base import progress
from infeed.components.dataset import files
from infeed.components.engine.executor import Artifacts
from infeed.components.statistics.component import SCHEMA, STATISTICS, included_splits, read_schema

ANOMALIES, CUSTOM_VALIDATION = "anomalies", "custom_validation_config"
COLUMNS = 200  # columns validated at a time
Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


class ValidatorExecutor(executor.Executor):
    """Write `Split-NAME/SchemaDiff.pb` for each split, or fall back to TFX's executor for a custom validation."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> Any:
        if exec_properties.get(CUSTOM_VALIDATION):
            return super().Do(input_dict, output_dict, exec_properties)
        statistics = artifact_utils.get_single_instance(input_dict[STATISTICS])
        anomalies = artifact_utils.get_single_instance(output_dict[ANOMALIES])
        schema, names = read_schema(input_dict[SCHEMA]), included_splits(statistics, exec_properties)
        # The properties that TFX's executor sets and that readers expect.
        anomalies.split_names, anomalies.span = artifact_utils.encode_split_names(names), statistics.span
        blessed = {}
        for split in names:
            found = validate(stats_artifact_utils.load_statistics(statistics, split).proto(), schema)
            target = files.join(artifact_utils.get_split_uri([anomalies], split), executor.DEFAULT_FILE_NAME)
            files.write_bytes(target, found.SerializeToString())
            wrong = found.anomaly_info or found.HasField("dataset_anomaly_info")
            blessed[split] = executor.NOT_BLESSED_VALUE if wrong else executor.BLESSED_VALUE
        anomalies.set_json_value_custom_property(executor.ARTIFACT_PROPERTY_BLESSED_KEY, blessed)
        result = execution_result_pb2.ExecutorOutput()
        result.output_artifacts[ANOMALIES].artifacts.append(anomalies.mlmd_artifact)
        return result


class ExampleValidator(tfx.components.ExampleValidator):
    """Compares the statistics of each split with the schema.

        ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])

    The arguments, the output `anomalies` and the anomalies are those of TFX's ExampleValidator. TFX's takes minutes for
    thousands of columns. This component validates some columns at a time, and reports its progress.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(ValidatorExecutor)


def validate(statistics: Statistics, schema: schema_pb2.Schema, columns: int = COLUMNS) -> anomalies_pb2.Anomalies:
    """Return the anomalies that `tfdv.validate_statistics` returns, found in `columns` columns at a time.

    A schema with dependent features, such as sparse ones, is validated as a whole.
    """
    features = [one for dataset in statistics.datasets for one in dataset.features]
    names = list(dict.fromkeys([*(one.name for one in schema.feature), *map(_name, features)]))
    # Columns must be independent, and no slice or constraint may cover the whole dataset.
    whole = schema.sparse_feature or schema.weighted_feature or any(one.cross_features for one in statistics.datasets)
    nested = any(one.HasField("struct_domain") for one in schema.feature)
    if len(names) <= columns or whole or nested or any(len(one.path.step) > 1 for one in features):
        return tfdv.validate_statistics(statistics=statistics, schema=schema)
    found = anomalies_pb2.Anomalies()
    for start, part in _parts(statistics, schema, names, columns):
        anomalies = tfdv.validate_statistics(statistics=part[0], schema=part[1])
        if start:
            found.drift_skew_info.extend(anomalies.drift_skew_info)
        else:
            found.CopyFrom(anomalies)
            found.baseline.CopyFrom(schema)
        for name, one in anomalies.anomaly_info.items():
            found.anomaly_info[name].CopyFrom(one)
        progress.report(f"validated {min(start + columns, len(names)):,} of {len(names):,} columns")
    return found


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    return str(feature.name or feature.path.step[0])


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
    # The constraints of the dataset hold for all columns together, so only one part has them.
    for place, (counted, part) in enumerate(parts):
        part.default_environment.extend(schema.default_environment)
        if not place and schema.HasField("dataset_constraints"):
            part.dataset_constraints.CopyFrom(schema.dataset_constraints)
        yield place * columns, (counted, part)
