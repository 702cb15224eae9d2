"""Phases of an analysis. Each phase traces the user's function and reads the rows once.

A phase computes the analyzers that depend only on analyzers of earlier phases. Its graph holds their results as
constants and computes the inputs of the phase's analyzers. tft on Beam saves and loads this graph for its workers; this
module calls it directly. After the last phase, the function is written as a SavedModel.

A `Value` corresponds to a collection of Beam: its elements are made on demand. They are a list or, if memory may not
hold them, an object that makes them again for each reader. A `Pass` stands for the rows of a dataset in a phase. All
nodes of a phase register with the pass before the next phase needs the first result, so each phase reads the rows once.
"""

from __future__ import annotations

import json
import posixpath
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from tensorflow_transform.beam import common
from tensorflow_transform.saved import saved_transform_io_v2

from infeed.components import progress
from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.seams import tft as tft_seam
from infeed.components.transform.in_process.failures import FailedBatchError, explain
from infeed.components.transform.keyed_runs import KeyedRuns
from infeed.components.transform.tally import Tally

Constants = Mapping[str, tf.Tensor]  # the name of an analyzer's placeholder -> its value
Function = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Elements = Iterable[Any]  # no iterator: it can be read several times
Arrays = tuple[npt.NDArray[Any], ...]
Apply = Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]]  # a batch, tensors by name -> arrays by key
Wanted = tuple[Sequence[str], Callable[[], "Sink"]]  # keys of arrays, and what makes a sink that takes them


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


@dataclass(frozen=True)
class Scratch:
    """Where an analysis keeps what exceeds memory.

    Attributes:
      folder: folder that all workers can write to. The caller of the analysis removes it.
      secret: signs the files.
    """

    folder: str
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)

    def keyed(self, merge: Callable[[Any, Any], Any], *, descends: bool = False) -> KeyedRuns[Any]:
        return KeyedRuns(files.join(self.folder, "keys"), merge, secret=self.secret, descends=descends)

    def tally(self) -> Tally:
        return Tally(files.join(self.folder, "tallies"))


@dataclass(frozen=True)
class Repeatable:
    """Elements that are made again for each reader, instead of held in memory."""

    make: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.make()


class Value:
    """Elements of a collection, made once and on demand."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make: Callable[[], Iterable[Any]] | None = make
        self._elements: Elements = []

    def elements(self) -> Elements:
        if self._make is not None:
            made = self._make()
            self._elements, self._make = list(made) if isinstance(made, Iterator) else made, None
        return self._elements

    def sole(self) -> Any:
        (element,) = self.elements()
        return element


class Sink(Protocol):
    """Accumulates the input of one analyzer, batch by batch."""

    def add(self, values: Arrays) -> None: ...
    def merge(self, other: Any) -> None:
        """Add the input of another sink, which has taken the rows that follow."""

    def elements(self) -> Elements: ...


class Reading(Protocol):
    """Reads the rows of datasets once."""

    def __call__(self, traced: Traced, wanted: Mapping[Any, Sequence[Wanted]], /) -> Mapping[Any, list[Sink]]:
        """Return the filled sinks by dataset, in the order of `wanted`; none for a dataset without rows."""


def fill(apply: Apply, wanted: Sequence[Wanted], batches: Iterable[Mapping[str, Any]]) -> list[Sink]:
    """Return sinks that are filled with batches.

    Raises:
      FailedBatchError: the function rejects values of a batch.
    """
    sinks = [make() for _, make in wanted]
    for batch in batches:
        arrays = apply(batch)
        progress.count("batches analyzed", 1)
        for (keys, _), sink in zip(wanted, sinks, strict=True):
            sink.add(tuple(arrays[key] for key in keys))
    return sinks


def merge_sinks(sinks: list[Sink], others: list[Sink]) -> list[Sink]:
    """Merge the sinks of the rows that follow into the first ones, and return the first ones."""
    for sink, other in zip(sinks, others, strict=True):
        sink.merge(other)
    return sinks


class Phase:
    """One pass over the rows through a traced graph, with all sinks of each dataset."""

    def __init__(self, traced: Callable[[], Traced], reading: Reading) -> None:
        self._traced, self._reading = traced, reading
        self._wanted: dict[Any, list[Wanted]] = {}
        self._sinks: Mapping[Any, list[Sink]] | None = None

    def want(self, dataset: Any, keys: Sequence[str], make: Callable[[], Sink]) -> Value:
        """Register a sink for the arrays of these keys, and return its elements."""
        if self._sinks is not None:
            raise AssertionError(f"{keys} are wanted of rows that were read before")
        wanted = self._wanted.setdefault(dataset, [])
        number = len(wanted)
        wanted.append((keys, make))
        return Value(lambda: self._run()[dataset][number].elements())

    def _run(self) -> Mapping[Any, list[Sink]]:
        if self._sinks is None:
            traced = self._traced()
            try:
                read = self._reading(traced, self._wanted)
            except FailedBatchError as failed:
                raise traced.explain(failed) from failed
            empty = {dataset: [make() for _, make in wanted] for dataset, wanted in self._wanted.items()}
            self._sinks = {**empty, **read}
        return self._sinks


@dataclass(frozen=True)
class Pass:
    """Part of a phase that reads one dataset."""

    phase: Phase
    dataset: Any

    def want(self, keys: Sequence[str], make: Callable[[], Sink]) -> Value:
        """Register a sink for the arrays of these keys, and return its elements."""
        return self.phase.want(self.dataset, keys, make)


@dataclass(frozen=True)
class Extracted:
    """Arrays of a pass, by their keys."""

    rows: Pass
    keys: Sequence[str]


@dataclass
class Combined:
    """Sink that adds up all values by a combiner of tft."""

    combiner: Any
    accumulator: Any = None
    started: bool = False

    def add(self, values: Arrays) -> None:
        if not self.started:
            self.accumulator, self.started = self.combiner.create_accumulator(), True
        self.accumulator = self.combiner.add_input(self.accumulator, values)

    def merge(self, other: Combined) -> None:
        if not self.started:
            self.accumulator, self.started = other.accumulator, other.started
        elif other.started:
            self.accumulator = self.combiner.merge_accumulators([self.accumulator, other.accumulator])

    def elements(self) -> Elements:
        if not self.started:  # there are no rows
            self.accumulator = self.combiner.create_accumulator()
        return [self.combiner.compact(self.accumulator)]


@dataclass
class CombinedByKey:
    """Sink that adds up the values of each key by a combiner of tft; the first array holds the keys."""

    combiner: Any
    accumulators: KeyedRuns[Any]

    @classmethod
    def of(cls, combiner: Any, scratch: Scratch) -> CombinedByKey:
        return cls(combiner, scratch.keyed(partial(_merge_two, combiner)))

    def add(self, values: Arrays) -> None:
        for key, row in tft_seam.rows_by_key(values):
            before = self.accumulators.get(key)
            before = self.combiner.create_accumulator() if before is None else before
            self.accumulators.put(key, self.combiner.add_input(before, row))

    def merge(self, other: CombinedByKey) -> None:
        self.accumulators.merge(other.accumulators)

    def elements(self) -> Elements:
        return Repeatable(lambda: ((key, self.combiner.compact(one)) for key, one in self.accumulators.items()))


def _merge_two(combiner: Any, accumulator: Any, later: Any) -> Any:
    return combiner.merge_accumulators([accumulator, later])
