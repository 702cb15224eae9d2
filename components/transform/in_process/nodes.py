"""What each node of tft's analysis graph does, in this process.

A value of the graph is what Beam would call a collection: a list of elements, made when it is asked for. What depends
on rows is not a list but a `Pass` over them. The nodes of a phase all say what they want of a pass before the graph of
the next phase asks for the first result, so the rows are read once for each phase.

The names that begin with an underscore, and all of `analyzer_nodes`, are tft's own business: a test says of each
version that they exist.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow_transform import analyzer_nodes, nodes, tf_utils
from tensorflow_transform.beam import analyzer_impls, beam_nodes

from infeed.components.transform.in_process import cache, vocabularies
from infeed.components.transform.in_process.phases import Graph, Traced

Elements = list[Any]
Arrays = tuple[npt.NDArray[Any], ...]
Batches = Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]  # names of inputs -> tensors by name, for each batch


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


@dataclass(frozen=True)
class AnalysisContext:
    """Where the rows of a dataset come from, and the traced function that they go through."""

    graph: Graph
    batches: Callable[[Any], Batches]  # a DatasetKey -> its rows
    cached: Mapping[Any, cache.Entries]  # by DatasetKey
    folder: str  # for vocabularies


class GraphEvaluator(nodes.Visitor):
    """Gives each node of an analysis graph its values."""

    def __init__(self, context: AnalysisContext) -> None:
        self._context = context

    def visit(self, operation: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        does: Callable[..., Any] = _DOES[type(operation)]
        made = does(operation, self._context, *inputs)
        return made if isinstance(made, tuple) else (made,)

    def validate_value(self, value: Any) -> None:
        assert isinstance(value, Value | Pass | Extracted | Traced | _Rows | _Bound), value


class Unknown(nodes.Visitor):
    """Names the nodes of a graph that are not known here."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def visit(self, operation: Any, inputs: tuple[Any, ...]) -> tuple[None, ...]:
        if not _is_known(operation):
            self.labels.append(f"{type(operation).__name__} of {operation.label}")
        outputs: int = operation.num_outputs
        return (None,) * outputs

    def validate_value(self, value: None) -> None:
        """There are none."""


def _is_known(operation: Any) -> bool:
    if isinstance(operation, analyzer_nodes.VocabularyAccumulate | analyzer_nodes.VocabularyMerge):
        return vocabularies.is_known(operation.vocab_ordering_type)
    return type(operation) in _DOES


@dataclass(frozen=True)
class _Rows:
    batches: Batches


@dataclass(frozen=True)
class _Bound:
    """A graph in which the values of some analyzers are constants."""

    graph: Graph
    bindings: Sequence[Value]
    outputs: Mapping[str, Any]

    def constants(self) -> dict[str, tf.Tensor] | None:
        return dict(binding.sole() for binding in self.bindings) or None

    @functools.cached_property
    def traced(self) -> Traced:
        return self.graph.trace(self.constants(), self.outputs)


def constants_of(value: Any) -> dict[str, tf.Tensor] | None:
    """What the last graph of an analysis binds: the name of a placeholder -> the analyzer's value."""
    assert isinstance(value, _Bound)
    return value.constants()


def _input(operation: Any, context: AnalysisContext) -> _Rows:
    return _Rows(context.batches(operation.dataset_key))


def _bind(operation: Any, context: AnalysisContext, value: Value) -> Value:
    dtype = tf.dtypes.as_dtype(operation.dtype_enum)
    return Value(lambda: [(operation.tensor_name, tf.constant(value.sole(), dtype))])


def _create(operation: Any, context: AnalysisContext, *bindings: Value) -> _Bound:
    return _Bound(context.graph, bindings, operation.output_signature)


def _apply(operation: Any, context: AnalysisContext, bound: _Bound, rows: _Rows) -> Pass:
    return Pass(lambda: bound.traced, rows.batches)


def _extract(operation: Any, context: AnalysisContext, value: Pass | Value) -> Extracted | Value:
    if isinstance(value, Pass):
        return Extracted(value, operation.keys)
    return Value(lambda: [element[operation.keys] for element in value.elements()])


def _flatten(operation: Any, context: AnalysisContext, *values: Value) -> Value:
    return Value(lambda: itertools.chain.from_iterable(value.elements() for value in values))


def _flatten_lists(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(lambda: itertools.chain.from_iterable(value.elements()))


def _add_key(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(lambda: [(operation.key, element) for element in value.elements()])


def _combine(operation: Any, context: AnalysisContext, of: Extracted) -> Value:
    return of.rows.want(of.keys, Combined(operation.combiner))


def _combine_packed(operation: Any, context: AnalysisContext, rows: Pass) -> Value:
    made = {packed.label: rows.want(packed.keys, Combined(packed.combiner)) for packed in operation.combiners}
    return Value(lambda: [{label: value.sole() for label, value in made.items()}])


def _combine_by_key(operation: Any, context: AnalysisContext, of: Extracted) -> Value:
    return of.rows.want(of.keys, CombinedByKey(operation.combiner))


def _merge(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(lambda: [_merged(operation.combiner, value.elements())])


def _merge_packed(operation: Any, context: AnalysisContext, value: Value) -> Value:
    def merge() -> Elements:
        parts = _by_key(value.elements())
        # Of a combiner that is packed with others, the one key is the label under which its accumulators come.
        return [{one.label: _merged(one.combiner, parts[one.keys[0]]) for one in operation.combiners}]

    return Value(merge)


def _merge_by_key(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(
        lambda: [(key, _merged(operation.combiner, parts)) for key, parts in _by_key(value.elements()).items()]
    )


def _by_key(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Elements]:
    parts: dict[Any, Elements] = {}
    for key, part in pairs:
        parts.setdefault(key, []).append(part)
    return parts


def _merged(combiner: Any, accumulators: Iterable[Any]) -> Any:
    merged = combiner.create_accumulator()
    for accumulator in accumulators:
        merged = combiner.merge_accumulators([one for one in (merged, accumulator) if one is not None])
    return combiner.extract_output(merged)


def _outputs(operation: Any, context: AnalysisContext, value: Value) -> tuple[Value, ...]:
    return _items(value, range(operation.num_outputs))


def _items(value: Value, keys: Iterable[Any]) -> tuple[Value, ...]:
    """Each item of the one element, as a value of its own."""

    def item(key: Any) -> Value:
        return Value(lambda: [value.sole()[key]])

    return tuple(map(item, keys))


def _outputs_by_key(operation: Any, context: AnalysisContext, value: Value) -> tuple[Value, ...]:
    dtypes = [info.dtype for info in operation.combiner.output_tensor_infos()]
    tagged = Value(lambda: [_by_tag(analyzer_impls._merge_outputs_by_key(value.elements(), dtypes))])
    return _items(tagged, ["key", *map(str, range(len(dtypes)))])


def _by_tag(outputs: Iterable[Any]) -> dict[str, Any]:
    return {output.tag: output.value for output in outputs}


def _lines_by_key(operation: Any, context: AnalysisContext, value: Value) -> Value:
    text = tf.compat.as_str_any
    return Value(lambda: [(text(",".join(map(text, row))), key) for key, row in value.elements()])


def _scaled_boundaries(operation: Any, context: AnalysisContext, value: Value) -> tuple[Value, ...]:
    return _items(Value(lambda: [analyzer_impls._join_boundary_rows(value.sole())]), range(operation.num_outputs))


def _count_tokens(operation: Any, context: AnalysisContext, of: Extracted) -> Value:
    return of.rows.want(of.keys, vocabularies.counter_of(operation.vocab_ordering_type))


def _merge_tokens(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(lambda: vocabularies.merge(operation, value.elements()))


def _prune_tokens(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(lambda: vocabularies.prune(operation, value.elements()))


def _write_tokens(operation: Any, context: AnalysisContext, value: Value, reserved: Value | None = None) -> Value:
    def write() -> Elements:
        taken = None if reserved is None else reserved.sole()
        return [np.array(vocabularies.write(operation, context.folder, value.elements(), taken))]

    return Value(write)


def _number_of_tokens(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(lambda: [np.int64(max(len(value.elements()), 1))])  # an empty vocabulary is written with one entry


def _reserved_tokens(operation: Any, context: AnalysisContext) -> Value:
    return Value(lambda: [tf_utils.fetch_vocabulary_reserved_tokens(context.graph.traced, operation.name)])


def _encode(operation: Any, context: AnalysisContext, value: Value) -> Value:
    return Value(lambda: [operation.coder.encode_cache(element) for element in value.elements()])


def _decode(operation: Any, context: AnalysisContext) -> Value:
    paths = context.cached[operation.dataset_key][operation.cache_key]
    return Value(lambda: map(operation.coder.decode_cache, cache.read(paths)))


_DOES: dict[type, Callable[..., Any]] = {
    beam_nodes.ExtractInputForSavedModel: _input,
    beam_nodes.CreateTensorBinding: _bind,
    beam_nodes.CreateSavedModel: _create,
    beam_nodes.ApplySavedModel: _apply,
    beam_nodes.ExtractFromDict: _extract,
    beam_nodes.Flatten: _flatten,
    analyzer_nodes.FlattenLists: _flatten_lists,
    analyzer_nodes.AddKey: _add_key,
    analyzer_nodes.CacheableCombineAccumulate: _combine,
    analyzer_nodes.CacheableCombineMerge: _merge,
    analyzer_nodes.PackedCombineAccumulate: _combine_packed,
    analyzer_nodes.PackedCombineMerge: _merge_packed,
    analyzer_nodes.CacheableCombinePerKeyAccumulate: _combine_by_key,
    analyzer_nodes.CacheableCombinePerKeyMerge: _merge_by_key,
    analyzer_nodes.CacheableCombinePerKeyFormatKeys: _outputs_by_key,
    analyzer_nodes.CacheableCombinePerKeyFormatLarge: _lines_by_key,
    analyzer_nodes.ScaleAndFlattenPerKeyBucketBouandaries: _scaled_boundaries,
    analyzer_nodes.ExtractCombineMergeOutputs: _outputs,
    analyzer_nodes.ExtractPackedCombineMergeOutputs: _outputs,
    analyzer_nodes.VocabularyAccumulate: _count_tokens,
    analyzer_nodes.VocabularyMerge: _merge_tokens,
    analyzer_nodes.VocabularyPrune: _prune_tokens,
    analyzer_nodes.VocabularyOrderAndWrite: _write_tokens,
    analyzer_nodes.VocabularyCount: _number_of_tokens,
    analyzer_nodes.ExtractVocabularyReservedTokens: _reserved_tokens,
    analyzer_nodes.EncodeCache: _encode,
    analyzer_nodes.DecodeCache: _decode,
}
