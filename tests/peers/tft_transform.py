"""`assertAnalyzeAndTransformResults` of tft's tests, with our Transform in place of tft on Beam.

The input becomes a TFRecord file of tf.Examples and a schema. The outputs are compared by the methods of the test case.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from peers import calls
from tensorflow.python.util.protobuf import compare
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.beam import tft_unit
from tfx.proto import transform_pb2
from tfx.types import artifact_utils, channel_utils, standard_artifacts

from infeed.components.transform import rows
from infeed.components.transform.component import Transform

_KINDS = {schema_pb2.INT: "int64_list", schema_pb2.FLOAT: "float_list", schema_pb2.BYTES: "bytes_list"}
_function: Callable[..., Any]


def replace() -> None:
    tft_unit.TransformTestCase.assertAnalyzeAndTransformResults = _assert_results


def preprocessing_fn(inputs: Mapping[str, Any]) -> Any:
    """Call the function of the running test, which is a closure and has no name."""
    return _function(inputs)


def _assert_results(
    self: Any,
    input_data: Sequence[Mapping[str, Any]],
    input_metadata: Any,
    preprocessing_fn: Callable[..., Any],
    expected_data: Any = None,
    expected_metadata: Any = None,
    expected_vocab_file_contents: Mapping[str, Any] | None = None,
    test_data: Sequence[Mapping[str, Any]] | None = None,
    desired_batch_size: int | None = None,
    beam_pipeline: Any = None,
    temp_dir: str | None = None,
    force_tf_compat_v1: bool = False,
    output_record_batches: bool = False,
) -> None:
    global _function
    _function = preprocessing_fn
    folder = tempfile.mkdtemp(dir=self.get_temp_dir())
    graph_folder = temp_dir or os.path.join(folder, "graph")
    splits = {"train": input_data, **({} if test_data is None else {"test": test_data})}
    schema = input_metadata.schema
    examples = _write_examples(os.path.join(folder, "examples"), splits, schema)
    with mock.patch.object(rows, "MOST_ROWS", desired_batch_size or rows.MOST_ROWS):
        transformed = _transform(folder, graph_folder, examples, schema, list(splits), force_tf_compat_v1)
    graph = tft.TFTransformOutput(graph_folder)
    if expected_data is not None:
        self.assertDataCloseOrEqual(expected_data, _rows(transformed, graph.transformed_metadata.schema))
    if expected_metadata:
        found = schema_pb2.Schema.FromString(graph.transformed_metadata.schema.SerializeToString())
        for one in (found, *found.feature):
            one.ClearField("annotation")
        if expected_metadata.schema != found:
            compare.assertProtoEqual(self, expected_metadata.schema, found)
    for name, content in (expected_vocab_file_contents or {}).items():
        self.AssertVocabularyContents(graph.vocabulary_file_by_name(name), content)


def _transform(
    folder: str, graph_folder: str, examples: Any, schema: Any, splits: Sequence[str], compatible: bool
) -> list[str]:
    """Run our executor, and return the transformed files of the last split."""
    of_schema = _at(standard_artifacts.Schema(), os.path.join(folder, "schema"))
    os.makedirs(of_schema.uri)
    with open(os.path.join(of_schema.uri, "schema.pbtxt"), "w", encoding="utf-8") as file:
        file.write(text_format.MessageToString(schema))
    inputs = {"examples": [examples], "schema": [of_schema]}
    component = Transform(
        **{name: channel_utils.as_channel(artifacts) for name, artifacts in inputs.items()},
        preprocessing_fn=f"{__name__}:preprocessing_fn",
        splits_config=transform_pb2.SplitsConfig(analyze=["train"], transform=splits[-1:]),
        disable_statistics=True,
        disable_analyzer_cache=True,
    )
    outputs = {name: [_at(channel.type(), os.path.join(folder, name))] for name, channel in component.outputs.items()}
    outputs["transform_graph"][0].uri = graph_folder
    kind = component.executor_spec.executor_class
    context = kind.Context(beam_pipeline_args=[], tmp_dir=os.path.join(folder, "tmp"), unique_id="1")
    calls.add()
    kind(context).Do(inputs, outputs, {**component.exec_properties, "force_tf_compat_v1": int(compatible)})
    [written] = artifact_utils.get_split_uris(outputs["transformed_examples"], splits[-1])
    return sorted(os.path.join(written, name) for name in os.listdir(written))


def _rows(paths: Sequence[str], schema: schema_pb2.Schema) -> list[dict[str, Any]]:
    shapes = {
        one.name: [size.size for size in one.shape.dim] if one.HasField("shape") else [-1] for one in schema.feature
    }
    records = tf.data.TFRecordDataset(paths, "GZIP").as_numpy_iterator()
    return [tft_unit._format_example_as_numpy_dict(record, shapes) for record in records]


def _write_examples(folder: str, splits: Mapping[str, Iterable[Mapping[str, Any]]], schema: schema_pb2.Schema) -> Any:
    artifact = _at(standard_artifacts.Examples(), folder)
    artifact.split_names = artifact_utils.encode_split_names(list(splits))
    kinds = {feature.name: _KINDS[feature.type] for feature in schema.feature}
    for split, given in splits.items():
        os.makedirs(os.path.join(folder, f"Split-{split}"))
        with tf.io.TFRecordWriter(os.path.join(folder, f"Split-{split}", "data.gz"), "GZIP") as writer:
            for row in given:
                writer.write(_example(row, kinds))
    return artifact


def _example(row: Mapping[str, Any], kinds: Mapping[str, str]) -> bytes:
    example = tf.train.Example()
    for name, value in row.items():
        if value is not None and name in kinds:
            values = np.asarray(value, object if kinds[name] == "bytes_list" else None).reshape(-1).tolist()
            feature = getattr(example.features.feature[name], kinds[name])
            feature.value.extend(one.encode() if isinstance(one, str) else one for one in values)
    return example.SerializeToString()  # type: ignore[no-any-return]


def _at(artifact: Any, folder: str) -> Any:
    artifact.uri = folder
    return artifact
