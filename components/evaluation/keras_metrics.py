"""Metrics of Keras, such as SparseCategoricalAccuracy, which TFMA calls with rows that it has gathered.

TFMA's combiner makes the metrics and reads their results; here it is given whole batches. What Keras keeps of rows, its
weights, is added up from batch to batch as TFMA does, but in float64: a float32 counts no further than 16,777,216.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.components.evaluation.leaves import Batch, Leaf, Terms
from infeed.components.evaluation.pairs import BeyondError, Pairs, dense_labels

_ROWS = 1_024  # rows of a slice wait for one another up to here: a call of Keras takes a millisecond


@dataclass
class _Gathered:
    """What Keras has kept of some rows, metric by metric, and rows that it has not seen yet."""

    kept: list[list[Any]]
    waiting: list[Terms] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(len(terms[0]) for terms in self.waiting)


class KerasMetrics(Leaf):
    """All the metrics of Keras that are of one model and one choice of classes."""

    def __init__(self, combiner: Any) -> None:
        super().__init__(combiner)
        if combiner._output_names != [""]:
            raise BeyondError(f"metrics are of the outputs {', '.join(combiner._output_names)}")
        combiner.setup()
        self._metrics = combiner._metrics[""]

    def terms(self, batch: Batch) -> Terms:
        """Labels, predictions and weights; a metric that chooses classes itself, by its top_k, gets all of them."""
        chooses = bool(self.combiner._sub_key_in_config)
        pairs = self.subject.pairs(batch, whole=chooses)
        labels = dense_labels(pairs) if chooses else pairs.labels
        return _checked(Pairs(labels, pairs.predictions, pairs.weights))

    def total(self, terms: Terms) -> Any:
        return self._flushed(_Gathered([[] for _ in self._metrics], [terms]), _ROWS)

    def merge(self, one: Any, other: Any) -> Any:
        kept = [mine if not its else its if not mine else _added(mine, its) for mine, its in self._both(one, other)]
        return self._flushed(_Gathered(kept, one.waiting + other.waiting), _ROWS)

    def _both(self, one: _Gathered, other: _Gathered) -> Any:
        return zip(one.kept, other.kept, strict=True)

    def _flushed(self, gathered: _Gathered, rows: int) -> _Gathered:
        """With the waiting rows given to Keras, if there are so many of them."""
        if not gathered.waiting or gathered.rows < rows:
            return gathered
        given = [np.concatenate(parts) for parts in zip(*gathered.waiting, strict=True)]
        for metric, kept in zip(self._metrics, gathered.kept, strict=True):
            metric.reset_states()
            metric.update_state(*given)
            fresh = [np.asarray(weight, np.float64) for weight in metric.get_weights()]
            kept[:] = _added(kept, fresh) if kept else fresh
        return _Gathered(gathered.kept)

    def results(self, total: Any) -> dict[Any, Any]:
        done = self._flushed(total, 0)
        found = self.combiner.create_accumulator()
        for place, kept in enumerate(done.kept):
            if kept:
                found.add_weights(0, place, kept)
        return dict(self.combiner.extract_output(found))


def _checked(pairs: Pairs) -> Terms:
    if pairs.labels.dtype.kind not in "iufb":
        raise BeyondError(f"labels are of type {pairs.labels.dtype}")
    return pairs.labels, pairs.predictions, pairs.weights


def _added(one: list[Any], other: list[Any]) -> list[Any]:
    return [mine + its for mine, its in zip(one, other, strict=True)]
