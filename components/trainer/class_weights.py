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
from collections.abc import Mapping, Sequence
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
ClassWeights = Mapping[str, tuple[float, ...]]  # output -> weights in the order of its class indices
_OPTION = "option class_weight"
_MOST_CLASSES = 1 << 16
_log = logging.getLogger(__name__)


def class_weights(options: TrainOptions, graph: Graph, patterns: Sequence[str]) -> ClassWeights:
    """Return the class weights of each output that has any.

    Raise InfeedError if a class does not exist or has no rows, or the label has no counts.
    """
    weights = {}
    for output, named in options.class_weights.items():
        label = options.outputs[output].feature
        classes, where = graph.classes_of(label), f"{_OPTION}.{output}" if output else _OPTION
        if not isinstance(named, str):
            if unknown := sorted(set(named) - set(classes)):
                by_index = "number the classes in Transform with Label(...)"
                do = f"use one of the classes: {', '.join(classes)}" if classes else by_index
                raise InfeedError(f"there is no class {unknown[0]!r}", where=where, do=do)
            weights[output] = tuple(named.get(name, 1.0) for name in classes)
            continue
        example: object = {output: {"rare": 5.0}} if output else {"rare": 5.0}
        do = f"set a weight for each class by name: class_weight={example}"
        found = balanced(rows_of_classes(label, options, graph, patterns, where, do), classes, where, do)
        told = ", ".join(f"{name} {weight:.4g}" for name, weight in zip(classes or range(10), found[:10], strict=False))
        _log.info("class weights%s: %s%s", f" of {output}" if output else "", told, ", ..." if len(found) > 10 else "")
        weights[output] = found
    return weights


def with_class_weights(batches: Batches, weights: ClassWeights) -> Batches:
    """Map (features, label [batch]) to (features, label, weight float32 [batch]), the form that Keras accepts.

    If the model has several outputs, label and weight are dicts by output, and outputs without class weights have
    weight 1. If the batches already have weights, multiply them by the class weights. Without class weights, change
    nothing.
    """
    if not weights:
        return batches
    by_class = {name: tf.constant(given, tf.float32) for name, given in weights.items()}

    def weight_of(name: str, label: tf.Tensor, *before: Any) -> tf.Tensor:
        own = [one[name] if isinstance(one, Mapping) else one for one in before]
        given = tf.gather(by_class[name], label) if name in by_class else tf.ones(tf.shape(label)[:1])
        return math.prod(own, start=given)

    def with_weight(features: Any, label: Any, *weight: Any) -> tuple[Any, Any, Any]:
        if not isinstance(label, Mapping):
            return features, label, weight_of("", label, *weight)
        return features, label, {name: weight_of(name, one, *weight) for name, one in label.items()}

    if isinstance(batches, RowBatches):
        return batches.map(with_weight)
    return batches.map(with_weight, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def balanced(rows: Ints, classes: Sequence[str], where: str, do: str) -> tuple[float, ...]:
    """Return weights that give all classes the same total weight and keep the total weight of all rows.

    `rows` are counts, int64 [classes]. Without class names, labels are numbers, and each number that occurs is a class.
    Raise InfeedError if a named class has no rows: `where` is the option, and `do` says how to set weights by name.
    """
    if classes and not rows.all():
        what = f"class {classes[int(np.argmin(rows))]!r} has no training rows, so no weight can balance it"
        raise InfeedError(what, where=where, do=f"remove it from the label's vocabulary, add rows of it, or {do}")
    there = np.maximum(rows, 1)
    return tuple(np.where(rows > 0, rows.sum() / (np.count_nonzero(rows) * there), 1.0).tolist())


def rows_of_classes(
    label: str, options: TrainOptions, graph: Graph, patterns: Sequence[str], where: str, do: str
) -> Ints:
    """Count the Examples of each class of a label, int64 [classes], from the statistics of its column.

    If the Examples have no statistics, `statistics_of` reads them once. Raise InfeedError if the label depends on
    several columns, has too many values, or is not a class index.
    """
    is_index = options.examples_are == "transformed"
    spec = {label: graph.transformed_spec[label]} if is_index else graph.raw_spec_of([label])
    if len(spec) != 1:
        made = f"depends on the columns {', '.join(sorted(spec))}" if spec else "depends on no column"
        what = f"the label {label!r} {made}, so ingest has no counts of it"
        raise InfeedError(what, where=where, do=do)
    [name] = spec
    counts = _counted(name, patterns, do).counts
    values = counts.values if isinstance(counts.values, pa.Array) else pa.array(counts.values)
    # The graph numbers the classes, so transform one Example of each distinct value.
    distinct = encode_examples(pa.RecordBatch.from_arrays([values], [name])).to_pylist()
    given: dict[str, Any] = tf.io.parse_example(distinct, spec)
    index = label_of((given if is_index else graph.transform(given))[label], "classification").numpy()
    classes = graph.classes_of(label)
    most = len(classes) or _MOST_CLASSES
    wrong = index[index >= most] if index.dtype.kind in "iu" else index
    if wrong.size:
        named = f" (it has {most} classes)" if classes else ""
        what = f"label {label!r} is {wrong[0]}, which is not a class index{named}"
        number = "number the classes in a Transform: Transform(..., features=[..., Label('...')])"
        raise InfeedError(what, where=where, do=number)
    usable = index >= 0  # -1 marks examples without a label
    rows: Ints = np.zeros(len(classes) or int(index.max(initial=-1)) + 1, np.int64)
    np.add.at(rows, index[usable], counts.counts[usable])
    return rows


def _counted(column: str, patterns: Sequence[str], do: str) -> ColumnStatistics:
    """Return the column's statistics over all splits, with exact counts and at most one value per row."""
    places, parts = [pattern.rpartition("/")[0] for pattern in patterns], []
    for place in places:
        root, _, name = place.rpartition("/")
        if not name.startswith(names.SPLIT_FOLDER):
            do = f"train on a dataset with {names.SPLIT_FOLDER} folders, or {do}"
            raise InfeedError("these files have no label counts", where=place, do=do)
        parts.append(statistics_of(root, name.removeprefix(names.SPLIT_FOLDER), [column])[column])
    found = functools.reduce(operator.add, parts)
    if not found.counts.exact:
        what = f"column {column!r} has about {found.counts.distinct:,} distinct values, too many for classes"
        raise InfeedError(what, where=", ".join(places), do=do)
    if found.lengths.maximum > 1:
        what = f"column {column!r} has up to {found.lengths.maximum} values per row, but a label has one"
        raise InfeedError(what, where=", ".join(places), do=do)
    return found
