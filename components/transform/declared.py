"""Transform of declared features: from Examples to a transform graph in tft's format, without Beam.

    transform_fn/                          the SavedModel; its `transform_fn` takes all raw features of the schema
    transform_fn/assets/                   vocabularies, one word per line
    transformed_metadata/schema.pbtxt      schema of the features. Beside it, `asset_map` maps vocabularies to files,
    and `feature_inputs.json` maps features to raw columns
    metadata/schema.pbtxt                  schema of the raw features

`tft.TFTransformOutput` reads it, and so do TFX's Trainer, Evaluator and BulkInferrer. If there is also a user's
function, tft traces the graph of both. The constants of the features are known by then, so tft analyzes only the
user's function.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io, schema_utils

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.reading import ShardRange, record_ranges
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import stored_statistics, tables_of
from infeed.components.dataset.time_formats import EPOCHS
from infeed.components.engine.engine import Engine, WithSetUp
from infeed.components.transform.columns import (
    AnalysisPass,
    Filled,
    Found,
    Need,
    Raw,
    TracedPass,
    analyze,
    explained,
    merge_filled,
    outputs_of,
    raw_needs,
)
from infeed.components.transform.feature import Feature, Tables
from infeed.components.transform.features import check_features, check_types
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.rows import KINDS, RowReader, arrow_of, load_graph, with_sample

# With more columns, tracing an analysis graph takes minutes, while Arrow counts whole columns without a graph.
_MOST_IN_GRAPH = 128
Tensors = dict[str, Any]  # name -> tf.Tensor, tf.SparseTensor or tf.RaggedTensor
Function = Callable[[Tensors], Tensors]


@dataclass(frozen=True)
class Examples:
    """Rows from which features are computed."""

    roots: Sequence[str]  # folders of one or several Examples artifacts
    analyzed: Sequence[str]  # names of the splits that determine constants
    schema: schema_pb2.Schema  # schema of all rows

    @property
    def folders(self) -> list[str]:
        return [names.split_dir(root, split) for root in self.roots for split in self.analyzed]


def constants_of(features: Sequence[Feature], examples: Examples, engine: Engine, folder: str) -> Found:
    """Return the analyses that the features need, from statistics or by reading rows on the engine.

    Args:
      folder: shared folder for counts that exceed memory. The caller removes it once the graph is written.

    Raises:
      InfeedError: a feature's column does not exist or has an unsupported type, or a row has several values but a
          feature expects one.
    """

    def read(one: AnalysisPass) -> Filled:
        inputs = {column for feature in features for column in feature.inputs}
        spec = {name: spec for name, spec in raw_spec(examples.schema).items() if name in inputs}
        set_up, ranges = partial(_traced, one, spec), record_ranges(examples.folders, engine.map)
        return engine.reduce(WithSetUp(_analyse_range, set_up), ranges, merge_filled) if ranges else {}

    try:
        return analyze(features, read, _known(features, examples, engine), folder)
    except InfeedError as error:
        raise with_sample(error, [files.join(folder, "*") for folder in examples.folders]) from error


def _known(features: Sequence[Feature], examples: Examples, engine: Engine) -> dict[Need, Any]:
    """Check the features. Return the analyses that statistics provide."""
    types = {feature.name: KINDS[feature.type] for feature in examples.schema.feature if feature.type in KINDS}
    check_features(features, types)
    check_types(features, types)
    raw = raw_needs(features)
    columns = _statistics(examples, engine if len(raw) > _MOST_IN_GRAPH else None)
    for feature in features:
        for name in feature.columns if feature.values == "one" else ():
            if name in columns and columns[name].lengths.maximum > 1:
                what = f"column {name!r} holds lists of up to {columns[name].lengths.maximum} values"
                raise InfeedError(what, where=f"{feature}", do='set values="all" or values="by_position" on it')
    answers = {need: need[1].of(columns[name]) for need, name in raw.items() if name in columns}
    known = {need: answer for need, answer in answers.items() if answer is not None}
    for feature in features:
        # Before reading rows, check for impossible features, such as an empty vocabulary.
        needs = [(feature.stream, need) for need in feature.needs]
        if all(need in known for need in needs):
            feature.domain([known[need] for need in needs])
    return known


def _traced(one: AnalysisPass, spec: Mapping[str, Any]) -> tuple[TracedPass, RowReader]:
    return TracedPass(one), RowReader(spec)


def _analyse_range(traced: tuple[TracedPass, RowReader], shard: ShardRange) -> Filled:
    one, reader = traced

    def batches() -> Iterator[Mapping[str, Raw]]:
        for batch in reader.batches(shard):
            progress.count("batch analyzed", 1)
            yield batch

    return one.over(batches())


def write(folder: str, features: Sequence[Feature], examples: Examples, engine: Engine) -> DeclaredGraph:
    """Write the transform graph. Read the rows on the engine if statistics do not suffice."""
    with files.temporary(counting_folder(folder)) as counts, tempfile.TemporaryDirectory() as vocabularies:
        found = constants_of(features, examples, engine, counts)
        module = write_graph(folder, features, examples.schema, found, vocabularies)
    return DeclaredGraph(folder, raw_spec(examples.schema), module)


def counting_folder(artifact: str) -> str:
    """Return a hidden folder in the artifact for temporary files, which workers can access like the artifact."""
    return files.join(artifact, ".counts")


@dataclass(frozen=True)
class DeclaredGraph:
    """A written transform graph and the parsing spec of raw rows. Workers receive its folder."""

    folder: str
    spec: Mapping[str, Any]
    _module: Any = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_module": None}

    def load(self) -> DeclaredTransformer:
        apply = self._module.transform_fn if self._module else load_graph(self.folder).apply_transform_model
        return DeclaredTransformer(self.spec, lambda raw: dict(apply(dict(raw))))


class DeclaredTransformer(RowReader):
    """The graph of declared features, applied to rows that TensorFlow parses."""

    def transformed(self, shard: ShardRange) -> Iterator[pa.RecordBatch]:
        """Yield batches with a column for each feature. Raise InfeedError if rows have several values, not one."""
        with explained():
            yield from map(arrow_of, self.batches(shard))

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return encode_examples(batch)


def make_preprocessing_fn(features: Sequence[Feature], own: Function, found: Found, vocabularies: str) -> Function:
    """Combine the declared features with the user's function, which receives the same raw columns.

    The result raises InfeedError if a column does not exist, or two features have the same name. It writes
    vocabularies to the folder `vocabularies`. tft copies them into the graph.
    """

    def preprocessing_fn(inputs: Tensors) -> Tensors:
        check_features(features, inputs)
        os.makedirs(vocabularies, exist_ok=True)  # on any machine where Beam runs the function
        tables = Tables(vocabularies)
        declared = outputs_of(features, inputs, found, tables, alone=True)  # tft copies files that its own tables read
        for name, file in tables.assets.items():
            tft.annotate_asset(name, file)
        made = own(dict(inputs))
        if both := sorted(declared.keys() & made.keys()):
            what = f"the features and the preprocessing function both return {', '.join(both)}"
            raise InfeedError(what, where="Transform", do="rename one of them: features have the option output")
        return {**declared, **made}

    return preprocessing_fn


def _statistics(examples: Examples, engine: Engine | None) -> Mapping[str, ColumnStatistics]:
    """Return column statistics of all splits. Empty if a split has none and there is no engine to read its rows."""
    places = [(root, split) for root in examples.roots for split in examples.analyzed]
    parts: list[Mapping[str, ColumnStatistics] | None] = (
        [table.columns for table in tables_of(places, map_fn=engine.map)]
        if engine
        else [stored_statistics(root, split) for root, split in places]
    )
    # Statistics of some datasets would describe other rows than those asked for.
    if not parts or not all(parts):
        return {}
    columns = [part for part in parts if part]
    names = set[str].intersection(*map(set, columns))
    return {name: reduce(add, [part[name] for part in columns]) for name in sorted(names)}


def write_graph(
    folder: str, features: Sequence[Feature], raw_schema: schema_pb2.Schema, found: Found, vocabularies: str
) -> Any:
    """Write the artifact, and return its function: a batch of all raw features -> transformed features.

    Args:
      raw_schema: schema of the Examples. Every feature in it becomes an input, as in tft.
      vocabularies: empty folder for vocabulary files until they are copied into the SavedModel.
    """
    tables = Tables(vocabularies)
    signature = {name: _type_spec(spec) for name, spec in raw_spec(raw_schema).items()}

    @tf.function(input_signature=[signature], autograph=False)
    def transform_fn(inputs: Mapping[str, Raw]) -> dict[str, Raw]:
        return outputs_of(features, inputs, found, tables)

    module = tf.Module()
    # Save the concrete function, because saving a `tf.function` traces it again and creates all tables again.
    module.transform_fn = transform_fn.get_concrete_function()
    module.tables = tables.held
    graph = os.path.join(folder, tft.TFTransformOutput.TRANSFORM_FN_DIR)
    tf.saved_model.save(module, graph)
    # TensorFlow copies only files that a table of the graph reads. These serve lookups by name in the written graph.
    for path in tables.copied:
        asset = files.join(graph, tf.saved_model.ASSETS_DIRECTORY, os.path.basename(path))
        files.write_bytes(asset, files.read_bytes(path))
    schema = _transformed_schema(features, module.transform_fn.structured_outputs, found)
    metadata = os.path.join(folder, tft.TFTransformOutput.TRANSFORMED_METADATA_DIR)
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(schema), metadata)
    inputs = {one.output_name: one.inputs for one in features}
    written = {
        tft.TFTransformOutput.ASSET_MAP: tables.assets,
        names.FEATURE_INPUTS: inputs,
        names.DATE_FORMATS: _date_formats(features),
    }
    for name, content in written.items():
        files.write_bytes(files.join(metadata, name), json.dumps(content).encode())
    raw_folder = os.path.join(folder, tft.TFTransformOutput.RAW_METADATA_DIR)
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(raw_schema), raw_folder)
    return module


def _date_formats(features: Sequence[Feature]) -> dict[str, list[str]]:
    """Return the formats of the dates that features read in text columns, by column."""
    found: dict[str, list[str]] = {}
    for feature in features:
        if feature.steps and isinstance(step := feature.steps[0], DatePart) and step.format not in EPOCHS:
            for column in feature.columns:
                found[column] = sorted({*found.get(column, ()), step.format})
    return found


def raw_spec(raw_schema: schema_pb2.Schema) -> dict[str, Any]:
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


def _transformed_schema(features: Sequence[Feature], outputs: Mapping[str, Any], found: Found) -> schema_pb2.Schema:
    """Return the schema of the outputs: types, shapes, and the maximum index of integer outputs."""
    specs: dict[str, Any] = {}
    for name, tensor in outputs.items():
        if isinstance(tensor, tf.RaggedTensor):
            rows = [tf.io.RaggedFeature.UniformRowLength(size) for size in tensor.flat_values.shape[1:].as_list()]
            specs[name] = tf.io.RaggedFeature(tensor.dtype, partitions=rows)
        else:
            specs[name] = tf.io.FixedLenFeature(tensor.shape[1:].as_list(), tensor.dtype)
    known = {f.output_name: f.domain([found[f.stream, need] for need in f.needs]) for f in features}
    domains = {
        name: schema_pb2.IntDomain(min=domain[0], max=domain[1], is_categorical=True)
        for name, domain in known.items()
        if domain
    }
    return schema_utils.schema_from_feature_spec(specs, domains)
