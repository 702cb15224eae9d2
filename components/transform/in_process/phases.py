"""The phases of an analysis: a user's function as a graph, traced once for each, and a pass of the rows through it.

A phase computes the analyzers whose inputs depend on no other analyzer than those of the phases before. Its graph has
the values of those as constants, and gives what the analyzers of the phase take. Beam has to write and load that graph
to hand it to its workers; here it is called as it is. At last the function is written as a SavedModel.

A value of tft's analysis graph is what Beam would call a collection: a list of elements, made when it is asked for.
What depends on rows is not a list but a `Pass` over them. The nodes of a phase all say what they want of a pass before
the graph of the next phase asks for the first result, so the rows are read once for each phase.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
from tensorflow_transform.beam import analyzer_impls, common
from tensorflow_transform.saved import saved_transform_io_v2

from infeed.components import progress
from infeed.components.errors import InfeedError
from infeed.components.transform.in_process.failures import explain

Constants = Mapping[str, tf.Tensor]  # the name of an analyzer's placeholder -> its value
Function = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Elements = list[Any]
Arrays = tuple[npt.NDArray[Any], ...]
Batches = Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]  # names of inputs -> tensors by name, for each batch


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


class Value:
    """The elements of a collection, made once, when they are first asked for."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make: Callable[[], Iterable[Any]] | None = make
        self._elements: Elements = []

    def elements(self) -> Elements:
        if self._make is not None:
            self._elements, self._make = list(self._make()), None
        return self._elements

    def sole(self) -> Any:
        (element,) = self.elements()
        return element


class Sink(Protocol):
    """Takes the values of one analyzer, batch by batch, and gives the elements that they add up to."""

    def add(self, values: Arrays) -> None: ...
    def elements(self) -> Elements: ...


class Pass:
    """One reading of the rows through a traced graph, with everything that is wanted of them."""

    def __init__(self, traced: Callable[[], Traced], batches: Batches) -> None:
        self._traced, self._batches = traced, batches
        self._sinks: list[tuple[Sequence[str], Sink]] = []
        self._ran = False

    def want(self, keys: Sequence[str], sink: Sink) -> Value:
        """The elements of the sink, which gets the arrays of these keys."""
        if self._ran:
            raise AssertionError(f"{keys} are wanted of rows that were read before")
        self._sinks.append((keys, sink))

        def elements() -> Elements:
            self._run()
            return sink.elements()

        return Value(elements)

    def _run(self) -> None:
        if self._ran:
            return
        self._ran = True
        traced = self._traced()
        for batch in self._batches(traced.inputs):
            arrays = traced(batch)
            progress.count("batches analyzed", 1)
            for keys, sink in self._sinks:
                sink.add(tuple(arrays[key] for key in keys))


@dataclass(frozen=True)
class Extracted:
    """Some of the arrays of a pass."""

    rows: Pass
    keys: Sequence[str]


@dataclass
class Combined:
    """All values, added up by one of tft's combiners."""

    combiner: Any
    accumulator: Any = None
    started: bool = False

    def add(self, values: Arrays) -> None:
        if not self.started:
            self.accumulator, self.started = self.combiner.create_accumulator(), True
        self.accumulator = self.combiner.add_input(self.accumulator, values)

    def elements(self) -> Elements:
        if not self.started:  # there are no rows
            self.accumulator = self.combiner.create_accumulator()
        return [self.combiner.compact(self.accumulator)]


@dataclass
class CombinedByKey:
    """The values of each key, added up by one of tft's combiners; the key is the first array."""

    combiner: Any
    accumulators: dict[Any, Any] = field(default_factory=dict)

    def add(self, values: Arrays) -> None:
        for key, row in analyzer_impls._split_inputs_by_key(values):
            before = self.accumulators.get(key)
            before = self.combiner.create_accumulator() if before is None else before
            self.accumulators[key] = self.combiner.add_input(before, row)

    def elements(self) -> Elements:
        return [(key, self.combiner.compact(accumulator)) for key, accumulator in self.accumulators.items()]
