"""Graphs of a user's `preprocessing_fn`: for the analysis, each phase, and the features. tft traces them."""

from __future__ import annotations

import functools
import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import (
    analyzer_nodes,
    graph_context,
    graph_tools,
    impl_helper,
    nodes,
    schema_inference,
    tf2_utils,
)
from tensorflow_transform.beam import common
from tensorflow_transform.saved import saved_transform_io_v2
from tensorflow_transform.tf_metadata import metadata_io

from infeed.components.base.errors import InfeedError
from infeed.components.seams import tft as tft_seam
from infeed.components.transform.rows import FailedBatchError, explain

Constants = Mapping[str, tf.Tensor]  # name of an analyzer's placeholder -> its value
Function = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Apply = Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]]  # a batch, tensors by name -> arrays by key
_FUNCTION = "transform_fn"  # tft's name of the function in a SavedModel


class Traced:
    """Traced function from columns to the input arrays of a phase's analyzers.

    Args:
      concrete: the function.
      owner: object that keeps the tables of the graph alive.
      graph: the original graph, if `concrete` is a copied part, which has no traceback to the user's lines.
    """

    def __init__(self, concrete: Any, owner: tf.Module, graph: Any = None) -> None:
        self._concrete, self._owner = concrete, owner
        self._graph = graph or concrete.graph
        self.keys: Sequence[str] = sorted(concrete.structured_outputs)  # names of the arrays
        self._columns = tf2_utils.get_structured_inputs_from_func_graph(concrete.graph)
        outputs = tf.nest.pack_sequence_as(concrete.structured_outputs, concrete.graph.outputs, expand_composites=True)
        # Columns that the arrays depend on. Only these are read.
        self.inputs: Sequence[str] = sorted(graph_tools.get_dependent_inputs(concrete.graph, self._columns, outputs))
        absent = set(self._columns).difference(self.inputs)
        # The function requires all columns. A column without a dependent array gets an empty value.
        self._absent = tf2_utils.supply_missing_inputs(self._columns, 1, absent) if absent else {}

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Compute the arrays of a batch. Raises FailedBatchError if the function rejects values of the batch."""
        given = tf.nest.flatten({**self._absent, **columns}, expand_composites=True)
        return _arrays(lambda: self._concrete(*given), columns)

    def explain(self, failed: FailedBatchError) -> InfeedError:
        """Return the error for a failure of this graph, here or in a worker, with the user's line."""
        return explain(failed, self._graph, tf2_utils.get_structured_inputs_from_func_graph(self._graph))

    def save(self, folder: str) -> None:
        """Write the function for workers, which load it with `saved`."""
        tf.saved_model.save(self._owner, folder)


def saved(folder: str, inputs: Sequence[str], keys: Sequence[str]) -> Apply:
    """Load a function written by `Traced.save`. It maps batches of the columns `inputs` to the arrays `keys`."""
    model = saved_transform_io_v2.SavedModelLoader(folder)
    model.finalize(inputs, keys)
    return lambda batch: _arrays(lambda: model.apply_transform_model(batch), batch)


def _arrays(call: Callable[[], Mapping[str, Any]], batch: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    try:
        return {name: np.asarray(tensor) for name, tensor in call().items()}
    except tf.errors.OpError as error:
        raise FailedBatchError.of(error, batch) from error


@dataclass(frozen=True)
class Tracing:
    """One trace of a user's function by tft."""

    concrete: Any
    owner: tf.Module  # keeps tables and variables of the graph alive, and is saved with the function

    @classmethod
    def of(
        cls,
        function: Function,
        specs: Mapping[str, tf.TypeSpec],
        folder: str,
        constants: Constants | None,
        names: Mapping[str, str] | None = None,
    ) -> Tracing:
        """Trace the function, with the known results of analyzers as constants.

        Args:
          folder: temporary folder, for placeholders of vocabularies.
          names: names of the tensors to return. Defaults to the function's outputs.
        """
        owner = tf.Module()
        context = graph_context.TFGraphContext(owner, folder, constants)
        traced = impl_helper.get_traced_transform_fn(function, specs, context, names)
        return cls(tft_seam.traced(traced, owner, _FUNCTION), owner)

    def whole(self) -> Traced:
        self._part(self.concrete.structured_outputs)
        return Traced(self.concrete, self.owner)

    def up_to(self, outputs: Mapping[str, tf.Tensor]) -> Traced:
        """Return the part of the graph that computes these tensors, as a new trace would.

        It includes operations with side effects, such as assertions, because TensorFlow makes outputs depend on them.
        """
        graph, flat = self.concrete.graph, tf.nest.flatten(self.concrete.structured_outputs, expand_composites=True)
        # TensorFlow would drop assertions that the wanted tensors do not depend on.
        _, effects = tf2_utils.strip_and_get_tensors_and_control_dependencies(flat)
        with graph.as_default(), tf.control_dependencies(list(effects)):
            named = {key: tf.identity(graph.get_tensor_by_name(tensor.name)) for key, tensor in outputs.items()}
        return Traced(self._part(named), self.owner, graph)

    def save(self, folder: str, options: Any = None) -> None:
        self._part(self.concrete.structured_outputs)
        tf.saved_model.save(self.owner, folder, options=options)

    def _part(self, outputs: Any) -> Any:
        """Return the function that computes some outputs, and register it with the owner for saving."""
        signature = self.concrete.structured_input_signature
        part = tft_seam.part_of(self.concrete.graph, outputs, self.concrete.inputs, signature)
        setattr(self.owner, _FUNCTION, part)
        return part


@dataclass(frozen=True)
class Graph:
    """A user's function and the result of its first trace."""

    function: Function
    specs: Mapping[str, tf.TypeSpec]  # type of each column
    folder: str  # temporary folder of the analysis
    first: Tracing  # trace with the analyzers

    @classmethod
    def of(cls, function: Function, specs: Mapping[str, tf.TypeSpec], folder: str) -> Graph:
        return cls(function, specs, folder, Tracing.of(function, specs, folder, None))

    def check(self) -> None:
        """Raise InfeedError if the function returns no features, or creates trainable variables."""
        if not isinstance(self.outputs, dict) or not self.outputs:
            do = "return a dict of at least one feature: name -> tensor"
            raise InfeedError(f"preprocessing_fn returns {self.outputs!r}", where="preprocessing_fn", do=do)
        if variables := self.traced.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
            what = f"preprocessing_fn creates trainable variables: {', '.join(one.name for one in variables)}"
            raise InfeedError(what, where="preprocessing_fn", do="train them in the model: Transform only computes")

    @property
    def traced(self) -> Any:
        """Graph with the analyzers."""
        return self.first.concrete.graph

    @functools.cached_property
    def inputs(self) -> Mapping[str, Any]:
        """Placeholder of each column."""
        return tf2_utils.get_structured_inputs_from_func_graph(self.traced)  # type: ignore[no-any-return]

    @property
    def outputs(self) -> Any:
        return self.first.concrete.structured_outputs

    @property
    def features_from(self) -> list[str]:
        """Columns that the final features depend on."""
        return sorted(graph_tools.get_dependent_inputs(self.traced, self.inputs, self.outputs))

    @functools.cached_property
    def analyzed(self) -> list[str]:
        """Columns that the analysis depends on. Valid until tft plans it, which removes the analyzers."""
        sourced = graph_tools.SourcedTensorsVisitor()
        for sink in self.traced.get_collection(analyzer_nodes.TENSOR_REPLACEMENTS):
            nodes.Traverser(sourced).visit_value_node(sink.future)
        flat = tf.nest.flatten(self.outputs, expand_composites=True)
        _, controls = tf2_utils.strip_and_get_tensors_and_control_dependencies(flat)
        tensors = [*sourced.sourced_tensors, *controls]
        return sorted(graph_tools.get_dependent_inputs(self.traced, self.inputs, tensors))

    def schema(self) -> Any:
        """Return the schema of the features before the analysis."""
        return self._schema_of(self.first, None, final=False)

    def trace(self, constants: Constants | None, outputs: Mapping[str, tf.Tensor]) -> Traced:
        """Return the graph up to the tensors of `outputs`, with the known results of analyzers as constants."""
        if not constants:
            return self.first.up_to(outputs)
        names = {key: tensor.name for key, tensor in outputs.items()}
        return Tracing.of(self.function, self.specs, self.folder, constants, names).whole()

    def write(self, constants: Constants | None, output: str, assets: Mapping[str, str], save_options: Any) -> None:
        """Write the SavedModel and the metadata of its features, as TFTransformOutput reads them, to `output`."""
        last = Tracing.of(self.function, self.specs, self.folder, constants) if constants else self.first
        # A function that traces differently the second time would get the results of other analyzers.
        fingerprint = graph_tools.get_analyzers_fingerprint(self.traced, self.inputs)
        tft_seam.check_fingerprint(fingerprint, last.concrete.graph)
        model = common.get_unique_temp_path(self.folder)
        last.save(model, save_options)
        tf.io.gfile.makedirs(output)
        tf.io.gfile.rename(model, posixpath.join(output, tft.TFTransformOutput.TRANSFORM_FN_DIR), overwrite=True)
        described = posixpath.join(output, tft.TFTransformOutput.TRANSFORMED_METADATA_DIR)
        schema = self._schema_of(last, constants, final=True)
        metadata_io.write_metadata(tft.DatasetMetadata(schema), described)
        if assets:
            with tf.io.gfile.GFile(posixpath.join(described, tft.TFTransformOutput.ASSET_MAP), "w") as file:
                file.write(json.dumps(assets))

    def _schema_of(self, tracing: Tracing, constants: Constants | None, *, final: bool) -> Any:
        """Return the schema of the features, with the function's annotations if this is the last trace."""
        graph, outputs = tracing.concrete.graph, tracing.concrete.structured_outputs
        noted = tft_seam.annotations_of(graph, outputs, final=final)
        if noted is None:  # some annotations depend on columns, so tft traces again, with placeholder values
            inputs = tf2_utils.get_structured_inputs_from_func_graph(graph)
            context = graph_context.TFGraphContext(tf.Module(), self.folder, constants or {})
            noted = schema_inference.get_traced_metadata_fn(self.function, inputs, context, final)
        return schema_inference.infer_feature_schema_v2(outputs, noted, final)
