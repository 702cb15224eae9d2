"""What an example of each class weighs in the loss of training: by the class's name, or as much less as it is frequent.

`balanced` is scikit-learn's: rows / (classes x rows of the class), as `sklearn.utils.class_weight.compute_class_weight`
has it after King and Zeng, "Logistic Regression in Rare Events Data" (2001). The rows of a class come from the counts
that ingest leaves beside the manifest. What is counted there are raw values: each different one goes once through the
transform graph, which says what class it is.
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

from infeed.components.dataset import names
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import statistics_of
from infeed.components.errors import InfeedError
from infeed.components.feed.build import Batches
from infeed.components.feed.row_batches import RowBatches
from infeed.components.trainer.data import label_of
from infeed.components.trainer.graph import Graph
from infeed.components.trainer.options import TrainOptions

Ints = npt.NDArray[np.int64]
_OPTION = "option class_weight"
_BY_NAME = "give a weight for each class by its name: class_weight={'rare': 5.0}"
_MOST_CLASSES = 1 << 16
_log = logging.getLogger(__name__)


def class_weights(options: TrainOptions, graph: Graph, patterns: Sequence[str]) -> tuple[float, ...]:
    """The weight of each class, in the order of their indices; empty where none is asked for.

    Args:
      patterns: TFX's file patterns of the Examples that are trained on.

    Raises:
      InfeedError: a class that does not exist, or one that has no row; labels that nobody has counted.
    """
    if options.class_weight != "balanced":
        return _named(options.class_weight, graph.classes)
    weights = balanced(rows_of_classes(options, graph, patterns), graph.classes)
    told = ", ".join(f"{_name(graph.classes, index)} {weight:.4g}" for index, weight in enumerate(weights[:10]))
    _log.info("weights of classes: %s%s", told, ", ..." if len(weights) > 10 else "")
    return weights


def with_class_weights(batches: Batches, weights: Sequence[float]) -> Batches:
    """(features, label [batch]) -> (features, label, weight float32 [batch]), as Keras takes them.

    Weights that the batches have already are multiplied by those of the classes.

    Args:
      batches: labels are class indices.
      weights: of the classes, by index. Empty leaves the batches as they are.
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
    """Weights by which every class weighs as much as any other, and all rows together as much as without.

    Args:
      rows: int64 [classes], of each class.
      classes: names in index order; empty for labels that are numbers: their classes are the numbers that occur.

    Raises:
      InfeedError: a class has no row.
    """
    if classes and not rows.all():
        raise InfeedError(
            f"class {classes[int(np.argmin(rows))]!r} has no row to train on, so that no weight balances it",
            where=_OPTION,
            do=f"take it out of the label's vocabulary, train on rows of it, or {_BY_NAME}",
        )
    there = np.maximum(rows, 1)
    return tuple(np.where(rows > 0, rows.sum() / (np.count_nonzero(rows) * there), 1.0).tolist())


def rows_of_classes(options: TrainOptions, graph: Graph, patterns: Sequence[str]) -> Ints:
    """int64 [classes]: how many of the Examples are of each class, by the statistics of the label's column.

    Examples that carry none are read once, see `statistics_of`.

    Raises:
      InfeedError: a label that is made of several columns, has too many values, or is no number of a class.
    """
    is_index = options.examples_are == "transformed"
    spec = {graph.label: graph.transformed_spec[graph.label]} if is_index else graph.raw_spec_of([graph.label])
    column = _counted(_label_column(graph.label, spec), patterns)
    records, counts = _examples(column)
    given: dict[str, Any] = tf.io.parse_example(records, spec)
    index = label_of((given if is_index else graph.transform(given))[graph.label], options).numpy()
    _check_indices(index, graph)
    usable = index >= 0  # the others are examples without a label
    rows: Ints = np.zeros(len(graph.classes) or int(index.max(initial=-1)) + 1, np.int64)
    np.add.at(rows, index[usable], counts[usable])
    return rows


def _named(class_weight: Mapping[str, float], classes: Sequence[str]) -> tuple[float, ...]:
    """By class name; classes left out weigh 1."""
    if unknown := sorted(set(class_weight) - set(classes)):
        do = f"name one of the classes: {', '.join(classes)}" if classes else "number them in a Transform: Label(...)"
        raise InfeedError(f"there is no class {unknown[0]!r}", where=_OPTION, do=do)
    return tuple(class_weight.get(name, 1.0) for name in classes) if class_weight else ()


def _label_column(label: str, spec: Mapping[str, Any]) -> str:
    """The column of the Examples that the label is."""
    if len(spec) != 1:
        made = f"is made of the columns {', '.join(sorted(spec))}" if spec else "is made of no column"
        raise InfeedError(f"the label {label!r} {made}, and nobody has counted it", where=_OPTION, do=_BY_NAME)
    [column] = spec
    return column


def _counted(column: str, patterns: Sequence[str]) -> ColumnStatistics:
    """What is known of it in all of the splits, its counts exact and one for each row."""
    places = [pattern.rpartition("/")[0] for pattern in patterns]
    parts = [_statistics(place, column) for place in places]
    found = functools.reduce(operator.add, parts)
    if not found.counts.exact:
        what = f"column {column!r} has some {found.counts.distinct:,} different values, too many to be classes"
        raise InfeedError(what, where=", ".join(places), do=_BY_NAME)
    if found.lengths.maximum > 1:
        what = f"column {column!r} has up to {found.lengths.maximum} values in a row, and a label has one"
        raise InfeedError(what, where=", ".join(places), do=_BY_NAME)
    return found


def _statistics(folder: str, column: str) -> ColumnStatistics:
    root, _, name = folder.rpartition("/")
    if not name.startswith(names.SPLIT_FOLDER):
        do = f"train on a dataset with {names.SPLIT_FOLDER} folders, or {_BY_NAME}"
        raise InfeedError("nobody has counted the labels of these files", where=folder, do=do)
    return statistics_of(root, name.removeprefix(names.SPLIT_FOLDER), [column])[column]


def _examples(column: ColumnStatistics) -> tuple[list[bytes], Ints]:
    """A tf.Example for each different value, and how many rows have it."""
    values = column.counts.values
    values = values if isinstance(values, pa.Array) else pa.array(values)
    batch = pa.RecordBatch.from_arrays([values], [column.name])
    return encode_examples(batch).to_pylist(), column.counts.counts


def _check_indices(index: npt.NDArray[Any], graph: Graph) -> None:
    """Raises InfeedError unless these are numbers of classes; -1 is none."""
    most = len(graph.classes) or _MOST_CLASSES
    wrong = index[index >= most] if index.dtype.kind in "iu" else index
    if wrong.size:
        named = f", and it has {most} classes" if graph.classes else ""
        raise InfeedError(
            f"label {graph.label!r} is {wrong[0]}, which is no number of a class{named}",
            where=_OPTION,
            do="number the classes in a Transform: Transform(..., features=[..., Label('...')])",
        )


def _name(classes: Sequence[str], index: int) -> str:
    return classes[index] if classes else str(index)
