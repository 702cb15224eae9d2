"""Class weights of the training loss, given by class name or inversely proportional to class frequency.

`balanced` follows `sklearn.utils.class_weight.compute_class_weight`: rows / (classes x rows of the class), after King
and Zeng, "Logistic Regression in Rare Events Data" (2001). Ingest stores counts of raw label values beside the
manifest. The transform graph maps each distinct value to its class.
"""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import names
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import statistics_of
from infeed.components.feed.build import Batches
from infeed.components.feed.row_batches import RowBatches
from infeed.components.trainer.data import label_of
from infeed.components.trainer.graph import Graph
from infeed.components.trainer.options import TrainOptions

Ints = npt.NDArray[np.int64]
_OPTION = "option class_weight"
_BY_NAME = "set a weight for each class by name: class_weight={'rare': 5.0}"
_MOST_CLASSES = 1 << 16
_log = logging.getLogger(__name__)


def class_weights(options: TrainOptions, graph: Graph, patterns: Sequence[str]) -> tuple[float, ...]:
    """Return the class weights in index order, or an empty tuple if the options set none.

    Raise InfeedError if a class does not exist or has no rows, or the label has no counts.
    """
    named, classes = options.class_weight, graph.classes
    if named != "balanced":
        if unknown := sorted(set(named) - set(classes)):
            by_index = "number the classes in Transform with Label(...)"
            do = f"use one of the classes: {', '.join(classes)}" if classes else by_index
            raise InfeedError(f"there is no class {unknown[0]!r}", where=_OPTION, do=do)
        return tuple(named.get(name, 1.0) for name in classes) if named else ()
    weights = balanced(rows_of_classes(options, graph, patterns), classes)
    told = ", ".join(f"{name} {weight:.4g}" for name, weight in zip(classes or range(10), weights[:10], strict=False))
    _log.info("class weights: %s%s", told, ", ..." if len(weights) > 10 else "")
    return weights


def with_class_weights(batches: Batches, weights: Sequence[float]) -> Batches:
    """Map (features, label [batch]) to (features, label, weight float32 [batch]), the form that Keras accepts.

    If the batches already have weights, multiply them by the class weights. Without class weights, change nothing.
    """
    if not weights:
        return batches
    by_class = tf.constant(weights, tf.float32)

    def with_weight(features: Any, label: tf.Tensor, *weight: tf.Tensor) -> tuple[Any, tf.Tensor, tf.Tensor]:
        return features, label, math.prod(weight, start=tf.gather(by_class, label))

    if isinstance(batches, RowBatches):
        return batches.map(with_weight)
    return batches.map(with_weight, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def balanced(rows: Ints, classes: Sequence[str]) -> tuple[float, ...]:
    """Return weights that give all classes the same total weight and keep the total weight of all rows.

    `rows` are counts, int64 [classes]. Without class names, labels are numbers, and each number that occurs is a class.
    Raise InfeedError if a named class has no rows.
    """
    if classes and not rows.all():
        what = f"class {classes[int(np.argmin(rows))]!r} has no training rows, so no weight can balance it"
        do = f"remove it from the label's vocabulary, add rows of it, or {_BY_NAME}"
        raise InfeedError(what, where=_OPTION, do=do)
    there = np.maximum(rows, 1)
    return tuple(np.where(rows > 0, rows.sum() / (np.count_nonzero(rows) * there), 1.0).tolist())


def rows_of_classes(options: TrainOptions, graph: Graph, patterns: Sequence[str]) -> Ints:
    """Count the Examples of each class, int64 [classes], from the statistics of the label's column.

    If the Examples have no statistics, `statistics_of` reads them once. Raise InfeedError if the label depends on
    several columns, has too many values, or is not a class index.
    """
    is_index = options.examples_are == "transformed"
    [label] = graph.labels
    spec = {label: graph.transformed_spec[label]} if is_index else graph.raw_spec_of([label])
    if len(spec) != 1:
        made = f"depends on the columns {', '.join(sorted(spec))}" if spec else "depends on no column"
        what = f"the label {label!r} {made}, so ingest has no counts of it"
        raise InfeedError(what, where=_OPTION, do=_BY_NAME)
    [name] = spec
    counts = _counted(name, patterns).counts
    values = counts.values if isinstance(counts.values, pa.Array) else pa.array(counts.values)
    distinct = encode_examples(pa.RecordBatch.from_arrays([values], [name])).to_pylist()
    given: dict[str, Any] = tf.io.parse_example(distinct, spec)
    index = label_of((given if is_index else graph.transform(given))[label], options.task).numpy()
    most = len(graph.classes) or _MOST_CLASSES
    wrong = index[index >= most] if index.dtype.kind in "iu" else index
    if wrong.size:
        named = f" (it has {most} classes)" if graph.classes else ""
        what = f"label {label!r} is {wrong[0]}, which is not a class index{named}"
        do = "number the classes in a Transform: Transform(..., features=[..., Label('...')])"
        raise InfeedError(what, where=_OPTION, do=do)
    usable = index >= 0  # -1 marks examples without a label
    rows: Ints = np.zeros(len(graph.classes) or int(index.max(initial=-1)) + 1, np.int64)
    np.add.at(rows, index[usable], counts.counts[usable])
    return rows


def _counted(column: str, patterns: Sequence[str]) -> ColumnStatistics:
    """Return the column's statistics over all splits, with exact counts and at most one value per row."""
    places, parts = [pattern.rpartition("/")[0] for pattern in patterns], []
    for place in places:
        root, _, name = place.rpartition("/")
        if not name.startswith(names.SPLIT_FOLDER):
            do = f"train on a dataset with {names.SPLIT_FOLDER} folders, or {_BY_NAME}"
            raise InfeedError("these files have no label counts", where=place, do=do)
        parts.append(statistics_of(root, name.removeprefix(names.SPLIT_FOLDER), [column])[column])
    found = functools.reduce(operator.add, parts)
    if not found.counts.exact:
        what = f"column {column!r} has about {found.counts.distinct:,} distinct values, too many for classes"
        raise InfeedError(what, where=", ".join(places), do=_BY_NAME)
    if found.lengths.maximum > 1:
        what = f"column {column!r} has up to {found.lengths.maximum} values per row, but a label has one"
        raise InfeedError(what, where=", ".join(places), do=_BY_NAME)
    return found
