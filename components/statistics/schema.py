"""SchemaGen with the interface of TFX's, whose schema keeps the columns of all splits."""

from __future__ import annotations

from typing import Any

import tfx.components
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx.components.schema_gen import executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils

from infeed.components.dataset import files
from infeed.components.engine.executor import Artifacts
from infeed.components.statistics.component import FILE, SCHEMA, STATISTICS, included_splits
from infeed.components.statistics.inference import keep_columns


class SchemaExecutor(executor.Executor):
    """Write `schema.pbtxt` as TFX's executor does, but keep columns that are missing from a split."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        super().Do(input_dict, output_dict, exec_properties)
        path = files.join(artifact_utils.get_single_uri(output_dict[SCHEMA]), executor.DEFAULT_FILE_NAME)
        statistics = artifact_utils.get_single_instance(input_dict[STATISTICS])
        schema = text_format.Parse(files.read_bytes(path), schema_pb2.Schema())
        splits = included_splits(statistics, exec_properties)
        folders = (artifact_utils.get_split_uri([statistics], split) for split in splits)
        found = (files.read_bytes(files.join(folder, FILE)) for folder in folders)
        keep_columns(schema, map(statistics_pb2.DatasetFeatureStatisticsList.FromString, found))
        files.write_bytes(path, text_format.MessageToString(schema).encode())


class SchemaGen(tfx.components.SchemaGen):
    """Infers a schema from the statistics of all splits.

        SchemaGen(statistics=statistics.outputs["statistics"])

    The arguments, the output `schema` and the inference are those of TFX's SchemaGen. TFX's schema deprecates a column
    without values in a later split, so Transform and Trainer do not get it. This component keeps the column as
    optional.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(SchemaExecutor)
