"""A user's `preprocessing_fn` as graphs: of the analysis, of each phase, and of the features. tft traces it."""

from __future__ import annotations

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

from infeed.components.errors import InfeedError
from infeed.components.transform.in_process.failures import FailedBatchError, explain

Constants = Mapping[str, tf.Tensor]  # the name of an analyzer's placeholder -> its value
Function = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Apply = Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]]  # a batch, tensors by name -> arrays by key


class Traced:
    """A traced function from columns to the input arrays of the analyzers of a phase.

    Attributes:
      inputs: columns that the arrays depend on; only these are read.
      keys: names of the arrays.
    """

    def __init__(self, concrete: Any, owner: tf.Module) -> None:
        self._concrete = concrete
        self._owner = owner  # of the tables in the graph, which live as long as it does
        self.keys: Sequence[str] = sorted(concrete.structured_outputs)
        self._columns = tf2_utils.get_structured_inputs_from_func_graph(concrete.graph)
        outputs = tf.nest.pack_sequence_as(concrete.structured_outputs, concrete.graph.outputs, expand_composites=True)
        self.inputs: Sequence[str] = sorted(graph_tools.get_dependent_inputs(concrete.graph, self._columns, outputs))
        absent = set(self._columns).difference(self.inputs)
        # Without a name it would supply all of them.
        self._absent = tf2_utils.supply_missing_inputs(self._columns, 1, absent) if absent else {}

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Compute the arrays of a batch.

        Raises:
          FailedBatchError: the function rejects values of the batch.
        """
        given = tf.nest.flatten({**self._absent, **columns}, expand_composites=True)
        return _arrays(lambda: self._concrete(*given), columns)

    def explain(self, failed: FailedBatchError) -> InfeedError:
        """Return the error of a failure of this graph, here or in a worker, with the user's line."""
        return explain(failed, self._concrete.graph, self._columns)

    def save(self, folder: str) -> None:
        """Write the function for workers, which load it by `saved`."""
        tf.saved_model.save(self._owner, folder)


def saved(folder: str, inputs: Sequence[str], keys: Sequence[str]) -> Apply:
    """Load a function that `Traced.save` wrote.

    Args:
      inputs: columns of its batches.
      keys: names of the arrays to compute.
    """
    model = saved_transform_io_v2.SavedModelLoader(folder)
    model.finalize(inputs, keys)
    return lambda batch: _arrays(lambda: model.apply_transform_model(batch), batch)


def _arrays(call: Callable[[], Mapping[str, Any]], batch: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    try:
        return {name: np.asarray(tensor) for name, tensor in call().items()}
    except tf.errors.OpError as error:
        raise FailedBatchError.of(error, batch) from error


@dataclass(frozen=True)
class Graph:
    """A user's function and the result of its first tracing.

    Attributes:
      specs: type of each column.
      folder: scratch folder of the analysis.
      traced: graph that holds the analyzers.
    """

    function: Function
    specs: Mapping[str, tf.TypeSpec]
    folder: str
    save_options: Any
    traced: Any
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @classmethod
    def of(cls, function: Function, specs: Mapping[str, tf.TypeSpec], folder: str, save_options: Any) -> Graph:
        """Trace the function for the first time.

        Raises:
          InfeedError: the function returns no features, or makes trainable variables.
        """
        traced, inputs, outputs = impl_helper.trace_preprocessing_function(function, specs, False, folder)
        if not isinstance(outputs, dict) or not outputs:
            raise InfeedError(
                f"preprocessing_fn returns {outputs!r}",
                where="preprocessing_fn",
                do="return a dict of at least one feature, name -> tensor",
            )
        if variables := traced.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
            raise InfeedError(
                f"preprocessing_fn makes trainable variables: {', '.join(one.name for one in variables)}",
                where="preprocessing_fn",
                do="train them in the model; Transform only computes",
            )
        return cls(function, specs, folder, save_options, traced, inputs, outputs)

    @property
    def features_from(self) -> list[str]:
        """Columns that the features depend on after the analysis."""
        return sorted(graph_tools.get_dependent_inputs(self.traced, self.inputs, self.outputs))

    @property
    def analyzed(self) -> list[str]:
        """Columns that the analysis depends on."""
        sourced = graph_tools.SourcedTensorsVisitor()
        for sink in self.traced.get_collection(analyzer_nodes.TENSOR_REPLACEMENTS):
            nodes.Traverser(sourced).visit_value_node(sink.future)
        flat = tf.nest.flatten(self.outputs, expand_composites=True)
        _, controls = tf2_utils.strip_and_get_tensors_and_control_dependencies(flat)
        tensors = [*sourced.sourced_tensors, *controls]
        return sorted(graph_tools.get_dependent_inputs(self.traced, self.inputs, tensors))

    def schema(self) -> Any:
        """Return the schema of the features before the analysis."""
        context = graph_context.TFGraphContext(tf.Module(), self.folder, {})
        metadata = schema_inference.get_traced_metadata_fn(self.function, self.inputs, context, False)
        return schema_inference.infer_feature_schema_v2(self.outputs, metadata, False)

    def trace(self, constants: Constants | None, outputs: Mapping[str, tf.Tensor]) -> Traced:
        """Trace the function up to the tensors of `outputs`, with the known results of analyzers as constants."""
        owner = tf.Module()
        context = graph_context.TFGraphContext(owner, self.folder, constants)
        names = {key: tensor.name for key, tensor in outputs.items()}
        function = impl_helper.get_traced_transform_fn(self.function, self.specs, context, names)
        concrete = saved_transform_io_v2.trace_and_update_module(owner, function, "transform_fn", False)
        return Traced(concrete, owner)

    def write(self, constants: Constants | None, output: str, assets: Mapping[str, str]) -> None:
        """Write the SavedModel and the metadata of its features, as TFTransformOutput reads them.

        Args:
          output: folder of the transform graph.
          assets: file name of each asset, by name of the asset.
        """
        fingerprint = graph_tools.get_analyzers_fingerprint(self.traced, self.inputs)
        model = common.get_unique_temp_path(self.folder)
        impl_helper.trace_and_write_v2_saved_model(
            model, self.function, self.specs, self.folder, fingerprint, constants, {}, self.save_options
        )
        metadata = posixpath.join(model, impl_helper.METADATA_DIR_NAME)
        if assets:
            with tf.io.gfile.GFile(posixpath.join(metadata, tft.TFTransformOutput.ASSET_MAP), "w") as file:
                file.write(json.dumps(assets))
        tf.io.gfile.makedirs(output)
        described = posixpath.join(output, tft.TFTransformOutput.TRANSFORMED_METADATA_DIR)
        tf.io.gfile.rename(metadata, described, overwrite=True)
        tf.io.gfile.rename(model, posixpath.join(output, tft.TFTransformOutput.TRANSFORM_FN_DIR), overwrite=True)
