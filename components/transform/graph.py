"""The transform graph of declared features, written directly: one SavedModel, as the artifact that tft writes.

    transform_fn/                          the SavedModel; its `transform_fn` takes all raw features of the schema
    transform_fn/assets/                   vocabularies, one word a line
    transformed_metadata/schema.pbtxt      what the features are; `asset_map`, which file holds whose vocabulary
    metadata/schema.pbtxt                  what the raw features are

`tft.TFTransformOutput` reads it, and with it TFX's Trainer, Evaluator and BulkInferrer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io, schema_utils

from infeed.components.dataset.manifest import ColumnType
from infeed.components.transform.columns import Found, Raw, outputs_of
from infeed.components.transform.feature import Feature
from infeed.components.transform.tables import GraphTables

KINDS: Mapping[int, ColumnType] = {schema_pb2.INT: "int", schema_pb2.FLOAT: "float", schema_pb2.BYTES: "bytes"}


def write_graph(
    folder: str, features: Sequence[Feature], raw_schema: schema_pb2.Schema, found: Found, vocabularies: str
) -> Any:
    """Writes the whole artifact, and returns the function in it: a batch of all raw features -> transformed features.

    Args:
      folder: of the artifact.
      raw_schema: of the Examples; every feature in it becomes an input, as with tft.
      found: all analyses that the features need.
      vocabularies: an empty folder, for vocabulary files until they are copied into the SavedModel.
    """
    tables = GraphTables(vocabularies)
    signature = raw_signature(raw_schema)

    @tf.function(input_signature=[signature], autograph=False)
    def transform_fn(inputs: Mapping[str, Raw]) -> dict[str, Raw]:
        return outputs_of(features, inputs, found, tables)

    module = tf.Module()
    # The concrete function: saving a `tf.function` traces it once more, and makes all tables again.
    module.transform_fn = transform_fn.get_concrete_function()
    module.tables = tables.held
    tf.saved_model.save(module, os.path.join(folder, tft.TFTransformOutput.TRANSFORM_FN_DIR))
    _write_metadata(folder, transformed_schema(features, module.transform_fn.structured_outputs, found), tables.assets)
    raw_folder = os.path.join(folder, tft.TFTransformOutput.RAW_METADATA_DIR)
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(raw_schema), raw_folder)
    return module


def raw_signature(raw_schema: schema_pb2.Schema) -> dict[str, Any]:
    """The type of each raw feature of a batch as `tf.io.parse_example` gives it."""
    return {name: _type_spec(spec) for name, spec in raw_spec(raw_schema).items()}


def raw_spec(raw_schema: schema_pb2.Schema) -> dict[str, Any]:
    """How raw Examples are parsed."""
    spec: dict[str, Any] = schema_utils.schema_as_feature_spec(raw_schema).feature_spec
    return spec


def _type_spec(spec: Any) -> Any:
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.TensorSpec([None, *spec.shape], spec.dtype)
    if isinstance(spec, tf.io.RaggedFeature):
        inner = [part.length for part in spec.partitions if isinstance(part, tf.io.RaggedFeature.UniformRowLength)]
        ragged = len(spec.partitions) - len(inner) + 1
        shape = [None, *(None for _ in range(ragged)), *inner]
        return tf.RaggedTensorSpec(shape, spec.dtype, ragged, spec.row_splits_dtype)
    rank = 2 if isinstance(spec, tf.io.VarLenFeature) or isinstance(spec.index_key, str) else 1 + len(spec.index_key)
    return tf.SparseTensorSpec([None] * rank, spec.dtype)


def transformed_schema(features: Sequence[Feature], outputs: Mapping[str, Any], found: Found) -> schema_pb2.Schema:
    """What the outputs are: their types and shapes, and the greatest index of those that are indices."""
    specs = {name: _feature_spec(tensor) for name, tensor in outputs.items()}
    known = {f.output_name: f.domain([found[f.stream, need] for need in f.needs]) for f in features}
    domains = {
        name: schema_pb2.IntDomain(min=domain[0], max=domain[1], is_categorical=True)
        for name, domain in known.items()
        if domain
    }
    return schema_utils.schema_from_feature_spec(specs, domains)


def _feature_spec(tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        inner = tensor.flat_values.shape[1:].as_list()
        return tf.io.RaggedFeature(tensor.dtype, partitions=[tf.io.RaggedFeature.UniformRowLength(n) for n in inner])
    return tf.io.FixedLenFeature(tensor.shape[1:].as_list(), tensor.dtype)


def _write_metadata(folder: str, schema: schema_pb2.Schema, assets: Mapping[str, str]) -> None:
    metadata = os.path.join(folder, tft.TFTransformOutput.TRANSFORMED_METADATA_DIR)
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(schema), metadata)
    with tf.io.gfile.GFile(os.path.join(metadata, tft.TFTransformOutput.ASSET_MAP), "w") as file:
        file.write(json.dumps(assets))
