"""Analysis of a user's `preprocessing_fn`: tft traces it, and our engine reads the rows. Does not use TFX.

tft plans the analysis as a graph of nodes, which `GraphEvaluator` computes on values of `phases.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_transform import analyzer_nodes, annotators, nodes, tf_utils
from tensorflow_transform.beam import analysis_graph_builder, analyzer_cache, beam_nodes, common

from infeed.components.dataset import files
from infeed.components.dataset.reading import ShardRange
from infeed.components.engine.engine import Engine, WithSetUp
from infeed.components.seams import tft as tft_seam
from infeed.components.transform.in_process import cache, vocabularies
from infeed.components.transform.in_process.graphs import Apply, Graph, Traced, saved
from infeed.components.transform.in_process.phases import (
    Combined,
    CombinedByKey,
    Elements,
    Pass,
    Phase,
    Reading,
    Repeatable,
    Scratch,
    Sink,
    Value,
    Wanted,
    fill,
    merge_sinks,
)
from infeed.components.transform.rows import ColumnReader


class UnknownNodesError(Exception):
    """Some nodes of the analysis require tft on Beam. The message names them."""


@dataclass(frozen=True)
class Plan:
    """Planned analysis, before the rows are read."""

    graph: Graph  # traced function
    assets: Mapping[str, str]  # file name of each asset, by asset name
    phases: int  # maximum number of passes over the rows
    analyzed: Sequence[str]  # columns that the analysis depends on
    _save_options: Any
    _model: Any
    _encoded: Mapping[Any, Mapping[bytes, Any]]
    _cached: Mapping[Any, cache.Entries]

    @classmethod
    def of(
        cls,
        graph: Graph,
        save_options: Any = None,
        datasets: Collection[Any] = (),
        cached: Mapping[Any, cache.Entries] | None = None,
    ) -> Plan:
        """Plan the analysis of a traced function. Raise UnknownNodesError if only tft on Beam can compute it.

        Args:
          datasets: DatasetKeys of the datasets that the cache distinguishes.
          cached: entries of an earlier analysis. None if this analysis writes no cache.
        """
        graph.check()
        analyzed = graph.analyzed  # tft's planning removes the analyzers from the graph
        assets = annotators.get_asset_annotations(graph.traced)
        annotators.clear_asset_annotations(graph.traced)
        kept: dict[Any, Any] | None = None
        if cached is not None:
            kept = {dataset: analyzer_cache.DatasetCache(entries, None) for dataset, entries in cached.items()}
        model, encoded, _ = analysis_graph_builder.build(graph.traced, graph.inputs, graph.outputs, datasets, kept)
        unknown = Unknown()
        nodes.Traverser(unknown).visit_value_node(model)
        if unknown.labels:
            raise UnknownNodesError(", ".join(unknown.labels))
        phases = unknown.graphs - 1  # the last graph computes the features
        return cls(graph, assets, phases, analyzed, save_options, model, encoded or {}, cached or {})

    def run(self, reading: Reading, output: str) -> dict[Any, cache.Encoded]:
        """Read the rows once for each phase, write the transform graph, and return new entries for the cache."""
        context = AnalysisContext(self.graph, reading, self._cached, Scratch(self.graph.folder))
        traverser = nodes.Traverser(GraphEvaluator(context))
        final = traverser.visit_value_node(self._model)
        kept = {
            dataset: {key: traverser.visit_value_node(node) for key, node in entries.items()}
            for dataset, entries in self._encoded.items()
        }
        self.graph.write(constants_of(final), output, self.assets, self._save_options)
        return {dataset: {key: one.elements() for key, one in entries.items()} for dataset, entries in kept.items()}


@dataclass(frozen=True)
class OnEngine:
    """`Reading` that reads datasets on an engine."""

    analyzed: Mapping[Any, Sequence[ShardRange]]  # by DatasetKey
    reader: Callable[[Sequence[str]], ColumnReader]  # names of columns -> their reader
    engine: Engine
    folder: str  # folder for graphs that all workers can read

    def __call__(self, traced: Traced, wanted: Mapping[Any, Sequence[Wanted]]) -> Mapping[Any, list[Sink]]:
        everything = [part.rows for part in self.all_parts]
        parts = [
            _Part(number, shard)
            for number, key in enumerate(wanted)
            for shard in (everything if key.is_flattened_dataset_key() else self.analyzed[key])
        ]
        if not parts:
            return {}
        folder = common.get_unique_temp_path(self.folder)
        graph = PhaseGraph(self.reader(traced.inputs), folder, traced.keys, traced)
        task = WithSetUp(partial(_fill_part, list(wanted.values())), graph.load)
        found: dict[int, list[Sink]] = self.engine.reduce(task, parts, _merge_parts)
        return {key: found[number] for number, key in enumerate(wanted) if number in found}

    @property
    def all_parts(self) -> list[_Part]:
        """Return the input of a phase whose analyzers all need all rows, as without a cache."""
        return [_Part(0, shard) for ranges in self.analyzed.values() for shard in ranges]


@dataclass(frozen=True)
class _Part:
    """Rows of a dataset, which is identified by its number."""

    dataset: int
    rows: ShardRange

    @property
    def place(self) -> str:
        return self.rows.place


@dataclass
class PhaseGraph:
    """Graph of a phase with the reader of its columns. Workers receive it as a SavedModel."""

    reader: ColumnReader
    folder: str  # folder of the SavedModel, which is written when the first worker needs it
    keys: Sequence[str]
    traced: Traced | None

    def __getstate__(self) -> dict[str, Any]:
        # Pickling means that another process needs the graph. In this process, a SavedModel is never written.
        if self.traced and not files.exists(self.folder):
            self.traced.save(self.folder)
        return {**self.__dict__, "traced": None}

    def load(self) -> tuple[Apply, ColumnReader]:
        return self.traced or saved(self.folder, self.reader.columns, self.keys), self.reader


def _fill_part(
    wanted: Sequence[Sequence[Wanted]], graph: tuple[Apply, ColumnReader], part: _Part
) -> dict[int, list[Sink]]:
    apply, reader = graph
    return {part.dataset: fill(apply, wanted[part.dataset], reader.batches(part.rows))}


def _merge_parts(some: dict[int, list[Sink]], others: dict[int, list[Sink]]) -> dict[int, list[Sink]]:
    for number, sinks in others.items():
        some[number] = merge_sinks(some[number], sinks) if number in some else sinks
    return some


@dataclass(frozen=True)
class AnalysisContext:
    """Inputs of all nodes: the traced function, and access to the rows of each dataset."""

    graph: Graph
    reading: Reading  # reads datasets by their DatasetKeys
    cached: Mapping[Any, cache.Entries]  # by DatasetKey
    scratch: Scratch  # its folder also contains vocabularies


class GraphEvaluator(nodes.Visitor):
    """Visitor that computes the values of each node of an analysis graph."""

    def __init__(self, context: AnalysisContext) -> None:
        self._context = context

    def visit(self, operation: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        does: Callable[..., Any] = _DOES[_name(operation)]
        made = does(operation, self._context, *inputs)
        return made if isinstance(made, tuple) else (made,)

    def validate_value(self, value: Any) -> None:
        assert isinstance(value, Value | Pass | _Rows | _Bound), value


class Unknown(nodes.Visitor):
    """Visitor that collects the unsupported nodes of a graph, and counts the TensorFlow graphs it needs."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.graphs = 0

    def visit(self, operation: Any, inputs: tuple[Any, ...]) -> tuple[None, ...]:
        name = _name(operation)
        self.graphs += name == "CreateSavedModel"
        is_ordered = name in ("VocabularyAccumulate", "VocabularyMerge")
        if name not in _DOES or (is_ordered and not tft_seam.vocabulary_order(operation.vocab_ordering_type)):
            self.labels.append(f"{type(operation).__name__} of {operation.label}")
        return (None,) * int(operation.num_outputs)

    def validate_value(self, value: None) -> None:
        """Accept any value, because a visit returns none."""


def _name(operation: Any) -> str:
    """Return the name of a kind of node. Empty for a kind that tft does not define."""
    kind = type(operation)
    return kind.__name__ if kind.__module__ in (analyzer_nodes.__name__, beam_nodes.__name__) else ""


@dataclass(frozen=True)
class _Rows:
    dataset: Any


@dataclass(frozen=True)
class _Bound:
    """A graph with the results of some analyzers as constants."""

    graph: Graph
    bindings: Sequence[Value]
    outputs: Mapping[str, Any]
    reading: Reading

    def constants(self) -> dict[str, tf.Tensor] | None:
        return dict(binding.sole() for binding in self.bindings) or None

    @cached_property
    def phase(self) -> Phase:
        return Phase(lambda: self.graph.trace(self.constants(), self.outputs), self.reading)


def constants_of(value: Any) -> dict[str, tf.Tensor] | None:
    """Return the constants of the last graph of an analysis: the results of analyzers by placeholder."""
    assert isinstance(value, _Bound)
    return value.constants()


def _extract(operation: Any, context: AnalysisContext, value: Pass | Value) -> Pass | Value:
    if isinstance(value, Pass):
        return replace(value, keys=operation.keys)
    return Value(lambda: [element[operation.keys] for element in value.elements()])


def _combine_packed(operation: Any, context: AnalysisContext, rows: Pass) -> Value:
    made = {
        packed.label: replace(rows, keys=packed.keys).want(partial(Combined, packed.combiner))
        for packed in operation.combiners
    }
    return Value(lambda: [{label: value.sole() for label, value in made.items()}])


def _merge_packed(operation: Any, context: AnalysisContext, value: Value) -> Value:
    def merge() -> Elements:
        parts: dict[Any, list[Any]] = {}
        for key, part in value.elements():
            parts.setdefault(key, []).append(part)
        # For a combiner that is packed with others, the key is the label of its accumulators.
        return [{one.label: _merged(one.combiner, parts[one.keys[0]]) for one in operation.combiners}]

    return Value(merge)


def _merge_by_key(operation: Any, context: AnalysisContext, value: Value) -> Value:
    combiner = operation.combiner

    def merge() -> Elements:
        # There may be more keys than memory holds, so the accumulators spill to disk.
        merged = context.scratch.keyed(lambda one, later: combiner.merge_accumulators([one, later]))
        for key, part in value.elements():
            before = merged.get(key, combiner.create_accumulator)
            merged.put(key, combiner.merge_accumulators([before, part]))
        return Repeatable(lambda: ((key, combiner.extract_output(one)) for key, one in merged.items()))

    return Value(merge)


def _merged(combiner: Any, accumulators: Iterable[Any]) -> Any:
    merged = combiner.create_accumulator()
    for accumulator in accumulators:
        merged = combiner.merge_accumulators([one for one in (merged, accumulator) if one is not None])
    return combiner.extract_output(merged)


def _items(value: Value, keys: Iterable[Any]) -> tuple[Value, ...]:
    """Return each item of the only element as a value."""

    def item(key: Any) -> Value:
        return Value(lambda: [value.sole()[key]])

    return tuple(map(item, keys))


def _outputs_by_key(operation: Any, context: AnalysisContext, value: Value) -> tuple[Value, ...]:
    dtypes = [info.dtype for info in operation.combiner.output_tensor_infos()]
    tagged = Value(lambda: [tft_seam.outputs_by_tag(value.elements(), dtypes)])
    return _items(tagged, ["key", *map(str, range(len(dtypes)))])


def _lines_by_key(operation: Any, context: AnalysisContext, value: Value) -> Value:
    text = tf.compat.as_str_any
    return _repeated(lambda: ((text(",".join(map(text, row))), key) for key, row in value.elements()))


def _scaled_boundaries(operation: Any, context: AnalysisContext, value: Value) -> tuple[Value, ...]:
    return _items(Value(lambda: [tft_seam.joined_boundaries(value.sole())]), range(operation.num_outputs))


def _write_tokens(operation: Any, context: AnalysisContext, value: Value, reserved: Value | None = None) -> Value:
    def write() -> Elements:
        taken = None if reserved is None else reserved.sole()
        return [np.array(vocabularies.write(operation, context.scratch, value.elements(), taken))]

    return Value(write)


def _repeated(make: Callable[[], Iterator[Any]]) -> Value:
    return Value(lambda: Repeatable(make))


# By name. If tft renames a kind of node, analyses with that node run on Beam, and all others still run here.
_DOES: Mapping[str, Callable[..., Any]] = {
    "ExtractInputForSavedModel": lambda node, context: _Rows(node.dataset_key),
    "CreateTensorBinding": lambda node, context, value: Value(
        lambda: [(node.tensor_name, tf.constant(value.sole(), tf.dtypes.as_dtype(node.dtype_enum)))]
    ),
    "CreateSavedModel": lambda node, context, *bindings: _Bound(
        context.graph, bindings, node.output_signature, context.reading
    ),
    "ApplySavedModel": lambda node, context, bound, rows: Pass(bound.phase, rows.dataset, ()),
    "ExtractFromDict": _extract,
    "Flatten": lambda node, context, *values: _repeated(
        lambda: itertools.chain.from_iterable(value.elements() for value in values)
    ),
    "FlattenLists": lambda node, context, value: Value(lambda: itertools.chain.from_iterable(value.elements())),
    "AddKey": lambda node, context, value: Value(lambda: [(node.key, one) for one in value.elements()]),
    "CacheableCombineAccumulate": lambda node, context, rows: rows.want(partial(Combined, node.combiner)),
    "CacheableCombineMerge": lambda node, context, value: Value(lambda: [_merged(node.combiner, value.elements())]),
    "PackedCombineAccumulate": _combine_packed,
    "PackedCombineMerge": _merge_packed,
    "CacheableCombinePerKeyAccumulate": lambda node, context, rows: rows.want(
        partial(CombinedByKey.of, node.combiner, context.scratch)
    ),
    "CacheableCombinePerKeyMerge": _merge_by_key,
    "CacheableCombinePerKeyFormatKeys": _outputs_by_key,
    "CacheableCombinePerKeyFormatLarge": _lines_by_key,
    "ScaleAndFlattenPerKeyBucketBouandaries": _scaled_boundaries,  # the misspelling is tft's
    "ScaleAndFlattenPerKeyBucketBoundaries": _scaled_boundaries,
    "ExtractCombineMergeOutputs": lambda node, context, value: _items(value, range(node.num_outputs)),
    "ExtractPackedCombineMergeOutputs": lambda node, context, value: _items(value, range(node.num_outputs)),
    "VocabularyAccumulate": lambda node, context, rows: rows.want(vocabularies.counter_of(node, context.scratch)),
    "VocabularyMerge": lambda node, context, value: Value(
        lambda: vocabularies.merge(node, context.scratch, value.elements())
    ),
    "VocabularyPrune": lambda node, context, value: Value(
        lambda: vocabularies.prune(node, context.scratch, value.elements())
    ),
    "VocabularyOrderAndWrite": _write_tokens,
    # The file of an empty vocabulary has one entry, because TensorFlow's tables must not be empty.
    "VocabularyCount": lambda node, context, value: Value(
        lambda: [np.int64(max(vocabularies.number_of(value.elements()), 1))]
    ),
    "ExtractVocabularyReservedTokens": lambda node, context: Value(
        lambda: [tf_utils.fetch_vocabulary_reserved_tokens(context.graph.traced, node.name)]
    ),
    "EncodeCache": lambda node, context, value: _repeated(lambda: map(node.coder.encode_cache, value.elements())),
    "DecodeCache": lambda node, context: _repeated(
        lambda: map(node.coder.decode_cache, cache.read(context.cached[node.dataset_key][node.cache_key]))
    ),
}
