"""ExampleValidator with the interface of TFX's, in linear instead of quadratic time in the number of columns."""

from __future__ import annotations

from typing import Any

import tfx.components
from tfx.components.example_validator import executor
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import executor_spec
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils

from infeed.components.dataset import files
from infeed.components.engine.executor import Artifacts
from infeed.components.statistics.component import EXCLUDE_SPLITS, SCHEMA, STATISTICS
from infeed.components.statistics.validation import validate

ANOMALIES, CUSTOM_VALIDATION = "anomalies", "custom_validation_config"


class ValidatorExecutor(executor.Executor):
    """Write `Split-NAME/SchemaDiff.pb` for each split, or fall back to TFX's executor for a custom validation."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> Any:
        if exec_properties.get(CUSTOM_VALIDATION):
            return super().Do(input_dict, output_dict, exec_properties)
        statistics = artifact_utils.get_single_instance(input_dict[STATISTICS])
        anomalies = artifact_utils.get_single_instance(output_dict[ANOMALIES])
        path = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(input_dict[SCHEMA]))
        schema = io_utils.SchemaReader().read(path)
        excluded = json_utils.loads(exec_properties.get(EXCLUDE_SPLITS) or "null") or []
        names = [name for name in artifact_utils.decode_split_names(statistics.split_names) if name not in excluded]
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
