"""A user's function as a graph: traced once for each phase of its analysis, and at last written as a SavedModel.

A phase computes the analyzers whose inputs depend on no other analyzer than those of the phases before. Its graph has
the values of those as constants, and gives what the analyzers of the phase take. Beam has to write and load that graph
to hand it to its workers; here it is called as it is.
"""

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
from infeed.components.transform.in_process.failures import explain

Constants = Mapping[str, tf.Tensor]  # the name of an analyzer's placeholder -> its value
Function = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Traced:
    """A function from columns to the arrays that the analyzers of a phase take.

    Attributes:
      inputs: columns that the arrays depend on; the others need not be read.
    """

    def __init__(self, concrete: Any, owner: tf.Module) -> None:
        self._concrete = concrete
        self._owner = owner  # of the tables in the graph, which live as long as it does
        self._columns = tf2_utils.get_structured_inputs_from_func_graph(concrete.graph)
        outputs = tf.nest.pack_sequence_as(concrete.structured_outputs, concrete.graph.outputs, expand_composites=True)
        self.inputs: Sequence[str] = sorted(graph_tools.get_dependent_inputs(concrete.graph, self._columns, outputs))
        absent = set(self._columns).difference(self.inputs)
        # Without a name it would supply all of them.
        self._absent = tf2_utils.supply_missing_inputs(self._columns, 1, absent) if absent else {}

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        given = tf.nest.flatten({**self._absent, **columns}, expand_composites=True)
        try:
            return {name: np.asarray(tensor) for name, tensor in self._concrete(*given).items()}
        except tf.errors.OpError as error:
            raise explain(error, self._concrete.graph, self._columns, columns) from error


@dataclass(frozen=True)
class Graph:
    """A user's function and what its first tracing told.

    Attributes:
      specs: type of each column.
      folder: for what is written while it is analysed.
      traced: the graph, which holds the analyzers.
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
        """Traces the function for the first time.

        Raises:
          InfeedError: it returns no features, or wants to train variables.
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
        """Columns that the features depend on, once all is known of the rows."""
        return sorted(graph_tools.get_dependent_inputs(self.traced, self.inputs, self.outputs))

    @property
    def analysed(self) -> list[str]:
        """Columns that the analysis depends on."""
        sourced = graph_tools.SourcedTensorsVisitor()
        for sink in self.traced.get_collection(analyzer_nodes.TENSOR_REPLACEMENTS):
            nodes.Traverser(sourced).visit_value_node(sink.future)
        flat = tf.nest.flatten(self.outputs, expand_composites=True)
        _, controls = tf2_utils.strip_and_get_tensors_and_control_dependencies(flat)
        tensors = [*sourced.sourced_tensors, *controls]
        return sorted(graph_tools.get_dependent_inputs(self.traced, self.inputs, tensors))

    def schema(self) -> Any:
        """The schema of the features before anything is known of the rows."""
        context = graph_context.TFGraphContext(tf.Module(), self.folder, {})
        metadata = schema_inference.get_traced_metadata_fn(self.function, self.inputs, context, False)
        return schema_inference.infer_feature_schema_v2(self.outputs, metadata, False)

    def trace(self, constants: Constants | None, outputs: Mapping[str, tf.Tensor]) -> Traced:
        """The function up to the tensors of `outputs`, with the analyzers' values that are known."""
        owner = tf.Module()
        context = graph_context.TFGraphContext(owner, self.folder, constants)
        names = {key: tensor.name for key, tensor in outputs.items()}
        function = impl_helper.get_traced_transform_fn(self.function, self.specs, context, names)
        concrete = saved_transform_io_v2.trace_and_update_module(owner, function, "transform_fn", False)
        return Traced(concrete, owner)

    def write(self, constants: Constants | None, output: str, assets: Mapping[str, str]) -> None:
        """Writes the SavedModel and the metadata of its features, as TFTransformOutput reads them.

        Args:
          output: folder of the transform graph.
          assets: name of an asset -> its file's name.
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
