"""The executors of TFX's components in TFX's own tests, replaced by ours where a test looks them up."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import apache_beam as beam
import tensorflow as tf
from peers import calls
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts
from tfx.utils import json_utils, proto_utils

from infeed.components.dataset.options import IngestOptions
from infeed.components.evaluation.component import EvaluatorExecutor
from infeed.components.evaluation.predictions.component import BulkInferrerExecutor
from infeed.components.example_gen.executor import Executor, TFRecordExecutor, pack
from infeed.components.statistics.component import StatisticsExecutor
from infeed.components.statistics.schema import SchemaExecutor
from infeed.components.transform.executor import TransformExecutor, pack_config

Properties = dict[str, Any]
_TFX = "tfx.components"


def replace_in(module: ModuleType) -> None:
    """Replace the executors of a module of tests. TFX's own modules keep theirs, to which ours fall back."""
    for place, attribute, replaced in _REPLACED.get(module.__name__, ()):
        holder = importlib.import_module(place)
        original = getattr(holder, attribute)
        if not isinstance(original, _Facade):
            setattr(holder, attribute, _Facade(original, replaced))


class _Facade:
    """A module of TFX, with other values for some names."""

    def __init__(self, module: ModuleType, replaced: Mapping[str, Any]) -> None:
        self._module = module
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _counted(kind: Any, properties: Callable[[Properties], Properties] = dict) -> Any:
    """Return a subclass that counts its calls, and is given the properties that our component adds."""

    class Counted(kind):  # type: ignore[misc]
        def Do(self, input_dict: Any, output_dict: Any, exec_properties: Properties) -> None:
            calls.add()
            super().Do(input_dict, output_dict, properties(exec_properties))

    return Counted


def _example_gen(kind: Any, format: str) -> Any:
    """Return an executor of a format, whose missing values are written as TFX writes them."""
    config = proto_utils.proto_to_json(pack(format, IngestOptions(compat="tfx")))
    return _counted(kind, lambda properties: {**properties, "custom_config": config})


def _reading(kind: Any, parse: Callable[[bytes], Any]) -> Any:
    """Return the transform of Beam that TFX's tests call to read a pattern, which runs our executor."""

    class Read(beam.PTransform):  # type: ignore[misc]
        def __init__(self, exec_properties: Properties, split_pattern: str) -> None:
            super().__init__()
            self._base, self._pattern = exec_properties["input_base"], split_pattern

        def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
            examples = standard_artifacts.Examples()
            examples.uri = tempfile.mkdtemp()
            split = example_gen_pb2.Input.Split(name="all", pattern=self._pattern)
            properties = {
                "input_base": self._base,
                "input_config": proto_utils.proto_to_json(example_gen_pb2.Input(splits=[split])),
                "output_config": proto_utils.proto_to_json(example_gen_pb2.Output()),
            }
            kind().Do({}, {"examples": [examples]}, properties)
            folder = os.path.join(examples.uri, "Split-all")
            paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
            records = tf.data.TFRecordDataset(paths, "GZIP").as_numpy_iterator()
            return pipeline | beam.Create(list(map(parse, records)))

    return Read


def _transform(properties: Properties) -> Properties:
    given = json_utils.loads(properties.get("custom_config") or "null")
    return {**properties, "custom_config": json_utils.dumps(pack_config([], given, {}))}


def _bulk_inferrer(properties: Properties) -> Properties:
    return {**properties, "predict_options": json_utils.dumps({"output_format": "prediction_log"})}


_csv, _parquet, _avro = (_example_gen(Executor, format) for format in ("csv", "parquet", "avro"))
_import = _example_gen(TFRecordExecutor, "tfrecord")
_example = tf.train.Example.FromString
_OF_MODULE = {
    "example_gen.csv_example_gen.executor_test": {"Executor": _csv, "_CsvToExample": _reading(_csv, _example)},
    "example_gen.import_example_gen.executor_test": {
        "Executor": _import,
        "_ImportSerializedRecord": _reading(_import, bytes),
    },
    "example_gen.custom_executors.parquet_executor_test": {
        "Executor": _parquet,
        "_ParquetToExample": _reading(_parquet, _example),
    },
    "example_gen.custom_executors.avro_executor_test": {
        "Executor": _avro,
        "_AvroToExample": _reading(_avro, _example),
    },
    "statistics_gen.executor_test": {"Executor": _counted(StatisticsExecutor)},
    "schema_gen.executor_test": {"Executor": _counted(SchemaExecutor)},
    "evaluator.executor_test": {"Executor": _counted(EvaluatorExecutor)},
    "bulk_inferrer.executor_test": {"Executor": _counted(BulkInferrerExecutor, _bulk_inferrer)},
    "transform.executor_test": {"Executor": _counted(TransformExecutor, _transform)},
}
# Module of tests -> (module, its attribute, values of the names in what that attribute holds).
_REPLACED = {
    f"{_TFX}.{name}": [(f"{_TFX}.{name}", name.rpartition(".")[2].removesuffix("_test"), replaced)]
    for name, replaced in _OF_MODULE.items()
}
_REPLACED[f"{_TFX}.transform.executor_v2_test"] = _REPLACED[f"{_TFX}.transform.executor_test"]
