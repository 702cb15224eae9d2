"""Joint computation of the features of similar columns, with one set of operations.

TensorFlow takes about 0.1 ms to trace, save and load an operation, so a graph of a thousand columns must not have
twenty operations per column. Values of similar columns are stacked to [columns, rows], computed at once,
and split again.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

import tensorflow as tf

from infeed.components.transform.columns import BatchColumns, Found, Raw, scattered, several_values, without_infinite
from infeed.components.transform.feature import Feature, FlatColumn, Tables

# In the graph, features that are computed together depend on all of their columns. Small groups are computed
# separately, because grouping them saves no time.
FEWEST = 32
MOST = 128  # maximum number of columns, because tft traverses all inputs of every output


def outputs_of(
    features: Sequence[Feature], raw: Mapping[str, Raw], found: Found, tables: Tables, *, alone: bool = False
) -> dict[str, Raw]:
    """Return the transformed features by name.

    `alone` computes each separately, so that the graph shows its columns.
    """
    columns = BatchColumns(raw, found)
    outputs: dict[str, Raw] = {}
    for group in groups_of(features, raw):
        if alone or len(group) < FEWEST:
            outputs |= {feature.output_name: columns.output(feature, tables) for feature in group}
        else:
            outputs |= _together(group, raw, columns, tables)
    return {feature.output_name: outputs[feature.output_name] for feature in features}


def groups_of(features: Sequence[Feature], raw: Mapping[str, Raw]) -> Iterator[list[Feature]]:
    """Yield groups of at most `MOST` features to compute together. All other features are groups of one."""
    alike: dict[Hashable, list[Feature]] = {}
    for feature in features:
        column = raw[feature.column]
        if isinstance(column, tf.SparseTensor):
            stacks = column.shape.rank == 2
        else:
            stacks = not isinstance(column, tf.RaggedTensor) and column.shape[1:].num_elements() == 1
        form = (type(column), column.dtype, column.shape.rank)
        key = (feature.alike, form) if feature.alike and stacks else feature.output_name
        alike.setdefault(key, []).append(feature)
    for group in alike.values():
        size = math.ceil(len(group) / math.ceil(len(group) / MOST))
        yield from (group[start : start + size] for start in range(0, len(group), size))


def _together(
    features: Sequence[Feature], raw: Mapping[str, Raw], columns: BatchColumns, tables: Tables
) -> dict[str, Raw]:
    first = features[0]
    names = [feature.column for feature in features]
    column = without_infinite(_stacked(names, [raw[name] for name in names]))
    for step in first.steps:
        column = step.apply(column, ())
    shape = [len(names), -1]
    column = column._replace(values=tf.reshape(column.values, shape), present=tf.reshape(column.present, shape))
    outputs = first.apply_together(features, column, [columns.found(feature) for feature in features], tables)
    return {feature.output_name: output for feature, output in zip(features, outputs, strict=True)}


def _stacked(names: Sequence[str], raws: Sequence[Raw]) -> FlatColumn:
    name = ", ".join(names[:2])
    if not isinstance(raws[0], tf.SparseTensor):
        values = tf.reshape(tf.stack(raws), [-1])
        return FlatColumn(name, values, tf.ones_like(values, tf.bool))
    shapes = tf.stack([raw.dense_shape for raw in raws])
    several = tf.boolean_mask([several_values(column) for column in names], shapes[:, 1] > 1)
    tf.raw_ops.Assert(condition=tf.equal(tf.size(several), 0), data=[several[:1]])
    rows, values = shapes[0, 0], tf.concat([raw.values for raw in raws], 0)
    counts = tf.stack(tf.raw_ops.ShapeN(input=[raw.values for raw in raws], out_type=tf.int64))[:, 0]
    before = tf.repeat(tf.range(len(raws), dtype=tf.int64) * rows, counts)
    places = (before + tf.concat([raw.indices for raw in raws], 0)[:, 0])[:, tf.newaxis]
    return scattered(name, places, values, len(raws) * rows)
