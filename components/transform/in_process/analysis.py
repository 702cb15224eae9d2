"""Computes what a user's `preprocessing_fn` wants to know of the data, without Beam, and writes its transform graph.

tft traces the function and plans the analysis as a graph of nodes; `nodes.py` says what each of them does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow_transform import annotators, nodes
from tensorflow_transform.beam import analysis_graph_builder, analyzer_cache

from infeed.components.transform.in_process import cache
from infeed.components.transform.in_process.nodes import (
    AnalysisContext,
    GraphEvaluator,
    Unknown,
    constants_of,
)
from infeed.components.transform.in_process.passes import Batches
from infeed.components.transform.in_process.phases import Function, Graph


class UnknownNodesError(Exception):
    """The analysis has nodes that are known to tft on Beam alone; the text names them."""


@dataclass(frozen=True)
class Plan:
    """An analysis, of which all is known but the rows.

    Attributes:
      graph: the function, traced.
      assets: name of an asset -> its file's name.
    """

    graph: Graph
    assets: Mapping[str, str]
    _model: Any
    _encoded: Mapping[Any, Mapping[bytes, Any]]
    _cached: Mapping[Any, cache.Entries]

    @classmethod
    def of(
        cls,
        function: Function,
        specs: Mapping[str, tf.TypeSpec],
        folder: str,
        *,
        save_options: Any = None,
        datasets: Collection[Any] = (),
        cached: Mapping[Any, cache.Entries] | None = None,
    ) -> Plan:
        """Traces the function and plans its analysis.

        Args:
          function: takes a dict of columns, and gives a dict of features.
          specs: type of each column.
          folder: for what is written on the way, the vocabularies among it; the caller removes it.
          datasets: the DatasetKeys of what is analysed apart, so that it can be kept in the cache.
          cached: what an earlier analysis kept of them; None where none is kept of this one either.

        Raises:
          InfeedError: the function returns no features.
          UnknownNodesError: the analysis has nodes that are not known here.
        """
        graph = Graph.of(function, specs, folder, save_options)
        assets = annotators.get_asset_annotations(graph.traced)
        annotators.clear_asset_annotations(graph.traced)
        model, encoded, _ = analysis_graph_builder.build(
            graph.traced, graph.inputs, graph.outputs, datasets, None if cached is None else _by_dataset(cached)
        )
        _check_known(model)
        return cls(graph, assets, model, encoded or {}, cached or {})

    def run(self, batches: Callable[[Any], Batches], output: str) -> dict[Any, cache.Encoded]:
        """Reads the rows, once for each phase, and writes the transform graph.

        Args:
          batches: the rows of a DatasetKey.
          output: folder of the transform graph.

        Returns:
          what a cache is to keep of datasets that it did not have.
        """
        context = AnalysisContext(self.graph, batches, self._cached, self.graph.folder)
        traverser = nodes.Traverser(GraphEvaluator(context))
        final = traverser.visit_value_node(self._model)
        kept = {
            dataset: {key: traverser.visit_value_node(node) for key, node in entries.items()}
            for dataset, entries in self._encoded.items()
        }
        self.graph.write(constants_of(final), output, self.assets)
        return {dataset: {key: one.elements() for key, one in entries.items()} for dataset, entries in kept.items()}


def _by_dataset(cached: Mapping[Any, cache.Entries]) -> Mapping[Any, Any]:
    return {dataset: analyzer_cache.DatasetCache(entries, None) for dataset, entries in cached.items()}


def _check_known(model: Any) -> None:
    unknown = Unknown()
    nodes.Traverser(unknown).visit_value_node(model)
    if unknown.labels:
        raise UnknownNodesError(", ".join(unknown.labels))
