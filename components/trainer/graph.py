"""The source of a model's features in training and serving: a transform graph, or the raw Examples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import graph_tools, tf2_utils
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader
from tensorflow_transform.tf_metadata import schema_utils

from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files, names
from infeed.components.seams import tensorflow as tensorflow_seam
from infeed.components.seams import tft as tft_seam

Labels: TypeAlias = str | Sequence[str]  # transformed features that are labels
Features = dict[str, Any]  # name -> tensor, sparse or ragged tensor, [batch, ...]


def open_graph(transform_graph: str | None, schema: str | None, labels: Labels, weight: str | None = None) -> Graph:
    """Open the source of a Trainer's features: the transform graph if there is one, else the Examples' schema.

    Raise InfeedError if both are missing, or a label or the weight is not among the features.
    """
    if transform_graph:
        return TransformGraph(transform_graph, labels, weight)
    if schema:
        return RawExamples(schema, labels, weight)
    do = 'give transform_graph=transform.outputs["transform_graph"], or schema=schema_gen.outputs["schema"]'
    raise InfeedError("the features of the Examples are unknown", where="Trainer", do=do)


class TransformGraph:
    """TransformGraph artifact on disk, with the names of the labels and of the optional weight feature.

    The SavedModel is loaded once, for training, evaluation and export.
    """

    transforms = True  # whether the features differ from the raw ones

    def __init__(self, path: str, labels: Labels, weight: str | None = None) -> None:
        self.path = path
        self.output = tft.TFTransformOutput(path)
        self.labels = _as_tuple(labels)
        self.not_inputs = [*self.labels] if weight is None else [*self.labels, weight]
        # tft's loader searches the graph for the inputs of each output, which takes minutes for wide tables.
        load = tf.saved_model.load if self._feature_inputs else SavedModelLoader
        self._loaded = _loaded(self.output.transform_savedmodel_dir, load)
        _check_names(self.labels, weight, self._names, "the transform graph has")

    @cached_property
    def raw_spec(self) -> dict[str, Any]:
        return self.output.raw_feature_spec()  # type: ignore[no-any-return]

    @cached_property
    def transformed_spec(self) -> dict[str, Any]:
        """Parsing spec of materialised examples."""
        return self.output.transformed_feature_spec()  # type: ignore[no-any-return]

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes of the only label. Empty for a regression, and for several labels."""
        return self.classes_of(self.labels[0]) if len(self.labels) == 1 else ()

    def classes_of(self, label: str) -> tuple[str, ...]:
        """Return the classes of a label in index order, from the vocabulary of its name. Empty for a regression."""
        return tuple(word.decode("utf-8", "replace") for word in self.words(label))

    @cached_property
    def vocabulary_sizes(self) -> dict[str, int]:
        """Size of each vocabulary by its feature name, sorted.

        Sorted because tft returns ragged features in varying order, and a model may depend on the order.
        """
        named = [name for name in sorted(self.transformed_spec) if self.output.vocabulary_file_by_name(name)]
        return {name: self.output.vocabulary_size_by_name(name) for name in named}

    @property
    def first_word(self) -> int:
        """Index of the first word of a vocabulary: 1 for declared features, whose index 0 is a missing value."""
        return 1 if self._feature_inputs else 0

    def vocabulary_file(self, name: str) -> str | None:
        return self.output.vocabulary_file_by_name(name)  # type: ignore[no-any-return]

    def words(self, name: str) -> tuple[bytes, ...]:
        """Return the words of a feature in index order. Empty without a vocabulary."""
        return tuple(self.output.vocabulary_by_name(name)) if self.vocabulary_file(name) else ()

    def unseen(self, name: str) -> int:
        """Return the number of indices for unseen words, which follow the words."""
        [feature] = [one for one in self.output.transformed_metadata.schema.feature if one.name == name]
        highest: int = feature.int_domain.max
        return max(0, highest + 1 - self.first_word - self.vocabulary_sizes[name])

    @property
    def fingerprint(self) -> str:
        folder, digest = self.output.transform_savedmodel_dir, hashlib.sha256()
        for file in files.list_files(folder, depth=2):
            digest.update(files.relative(file.path, folder).encode() + files.read_bytes(file.path))
        return digest.hexdigest()

    @tf.autograph.experimental.do_not_convert
    def transform(self, raw: Features) -> Features:
        """Apply the graph.

        Features that depend on missing raw features are omitted, for example the label in serving.
        """
        if not self._feature_inputs:
            return dict(self._loaded.apply_transform_model(raw))
        given = _with_absent(raw, self.raw_spec)
        made = self._loaded.transform_fn(*_parts(given))
        return {name: made[name] for name, inputs in self._feature_inputs.items() if raw.keys() >= set(inputs)}

    @property
    def held(self) -> Any:
        """Tables, assets and variables of the graph. A model that contains the graph must hold references to them."""
        return self._loaded if self._feature_inputs else tft_seam.saved_model_in(self._loaded)

    def serving_spec(self, unused: Collection[str] = ()) -> dict[str, Any]:
        """Return the parsing spec of the raw features that a client must send.

        `unused` are features that the model ignores.
        """
        left_out = {*self.not_inputs, *unused}
        return self.raw_spec_of([name for name in self._names if name not in left_out])

    def raw_spec_of(self, features: Collection[str]) -> dict[str, Any]:
        """Return the parsing spec of the raw features that these transformed features depend on."""
        if self._feature_inputs:
            needed = {column for name in features for column in self._feature_inputs[name]}
            return {name: spec for name, spec in self.raw_spec.items() if name in needed}
        inputs, outputs = self._transform_io
        wanted = [outputs[name] for name in features]
        # Control dependencies do not count, because TensorFlow ties every output to every lookup table.
        sources = graph_tools.retrieve_sources([t.op for t in _parts(wanted)], ignore_control_dependencies=True)
        needed = {name for name, tensor in inputs.items() if any(part in sources for part in _parts(tensor))}
        return {name: spec for name, spec in self.raw_spec.items() if name in needed}

    @cached_property
    def _feature_inputs(self) -> Mapping[str, Sequence[str]]:
        """Raw columns that each feature depends on, if the writer of the graph recorded them. Otherwise empty.

        They cannot be read from the graph, which computes similar declared features together.
        """
        return self._recorded(names.FEATURE_INPUTS)

    @property
    def date_formats(self) -> Mapping[str, Sequence[str]]:
        """Formats of the dates in text columns, by raw column. Empty if the writer of the graph recorded none."""
        return self._recorded(names.DATE_FORMATS)

    def _recorded(self, name: str) -> Mapping[str, Sequence[str]]:
        path = files.join(self.path, self.output.TRANSFORMED_METADATA_DIR, name)
        return json.loads(files.read_bytes(path)) if files.exists(path) else {}

    @property
    def _names(self) -> Collection[str]:
        return self._feature_inputs or self._transform_io[1]

    @cached_property
    def _transform_io(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Inputs and outputs of the saved function by name."""
        outputs = self._loaded.structured_outputs
        return tf2_utils.get_structured_inputs_from_func_graph(_parts(outputs)[0].graph), outputs


class RawExamples:
    """Raw Examples as features, parsed by the schema.

    Has the interface of `TransformGraph`. Classes have no names, so the label is a number.
    """

    path = ""
    held = None  # there is nothing to hold in an export
    transforms = False
    classes: tuple[str, ...] = ()
    vocabulary_sizes: Mapping[str, int] = {}
    date_formats: Mapping[str, Sequence[str]] = {}
    first_word = 0

    def vocabulary_file(self, name: str) -> None:
        """Return None: there are no vocabularies."""

    def words(self, name: str) -> tuple[bytes, ...]:
        return ()

    def unseen(self, name: str) -> int:
        return 0

    def classes_of(self, label: str) -> tuple[str, ...]:
        """Return no classes: they have no names."""
        return ()

    def __init__(self, schema: str, labels: Labels, weight: str | None = None) -> None:
        text = files.read_bytes(schema).decode()
        parsed = text_format.Parse(text, schema_pb2.Schema())
        self.raw_spec: dict[str, Any] = schema_utils.schema_as_feature_spec(parsed).feature_spec
        self.transformed_spec = self.raw_spec
        self.labels = _as_tuple(labels)
        self.not_inputs = [*self.labels] if weight is None else [*self.labels, weight]
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()
        _check_names(self.labels, weight, self.raw_spec, "the schema has")
        for label in (one for one in self.labels if self.raw_spec[one].dtype == tf.string):
            do = 'number its classes in a Transform: Transform(..., features=[..., Label("...")])'
            raise InfeedError(f"the label {label!r} is text", where=schema, do=do)

    def serving_spec(self, unused: Collection[str] = ()) -> dict[str, Any]:
        """Return the parsing spec of a client's input: all features except labels, weight and unused ones."""
        return {name: spec for name, spec in self.raw_spec.items() if name not in (*self.not_inputs, *unused)}

    def raw_spec_of(self, features: Collection[str]) -> dict[str, Any]:
        return {name: self.raw_spec[name] for name in features}

    def transform(self, raw: Features) -> Features:
        return dict(raw)


Graph: TypeAlias = TransformGraph | RawExamples


def _loaded(folder: str, load: Callable[[str], Any]) -> Any:
    """Load the graph. A graph with a tokenizer of tensorflow-text needs the import of that package first."""
    try:
        return load(folder)
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        if not tensorflow_seam.is_unregistered_operation(error):
            raise
        required("tensorflow_text")
        return load(folder)


def _as_tuple(labels: Labels) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else tuple(labels)


def _check_names(labels: Sequence[str], weight: str | None, given: Iterable[str], gives: str) -> None:
    for option, name in (*(("label", label) for label in labels), ("feed.weight", weight)):
        if name is not None and name not in given:
            do = f"use one of its features: {', '.join(sorted(given))}"
            raise InfeedError(f"{gives} no feature {name!r}", where=f"option {option} of the Trainer", do=do)


def _with_absent(raw: Features, spec: Mapping[str, Any]) -> Features:
    """Add absent raw features as those of empty examples, for outputs that do not depend on them."""
    absent = {name: one for name, one in spec.items() if name not in raw}
    for name, one in absent.items():
        if isinstance(one, tf.io.FixedLenFeature):
            absent[name] = one._replace(default_value=tf.zeros(one.shape, one.dtype))
    value = next(iter(raw.values()))
    if isinstance(value, tf.SparseTensor):
        rows = value.dense_shape[0]
    else:
        rows = value.nrows() if isinstance(value, tf.RaggedTensor) else tf.shape(value, tf.int64)[0]
    return {**raw, **(tf.io.parse_example(tf.fill([rows], b""), absent) if absent else {})}


def _parts(value: Any) -> list[tf.Tensor]:
    """Return the component tensors of dense, sparse and ragged tensors."""
    return tf.nest.flatten(value, expand_composites=True)  # type: ignore[no-any-return]
