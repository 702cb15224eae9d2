"""Analysis of a user's `preprocessing_fn`: tft traces it, and our engine reads the rows. Does not use TFX.

tft plans the analysis as a graph of nodes; `nodes.py` computes each node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tensorflow_transform import annotators, nodes
from tensorflow_transform.beam import analysis_graph_builder, analyzer_cache, common

from infeed.components.dataset import files
from infeed.components.dataset.ranges import ShardRange
from infeed.components.engine.engine import Engine, WithSetUp
from infeed.components.transform.in_process import cache
from infeed.components.transform.in_process.graphs import Apply, Graph, Traced, saved
from infeed.components.transform.in_process.nodes import AnalysisContext, GraphEvaluator, Unknown, constants_of
from infeed.components.transform.in_process.phases import Reading, Scratch, Sink, Wanted, fill, merge_sinks
from infeed.components.transform.in_process.tft_rows import ColumnReader


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
