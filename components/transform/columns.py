"""The columns of one batch: raw tensors, sparse, ragged or dense as the schema has them, then what is made of them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.transform.analyses import Analysis
from infeed.components.transform.feature import Clean, Feature, FlatColumn, Tables, as_strings

Raw: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor
Need: TypeAlias = tuple[Hashable, type[Analysis]]  # which values, and what has to be known of them
Found: TypeAlias = Mapping[Need, Any]  # -> an analysis, or `ByKey` where the values have keys


_SEVERAL = re.compile(
    r"rows of several values[\s\S]*? on the features of column \\*'(.*?)\\*'"
)  # as TensorFlow escapes it


class BatchColumns:
    """What is made of the columns of a batch, each of it once.

    Args:
      raw: the batch: name -> [batch, ...].
      found: the analyses that are known.
    """

    def __init__(self, raw: Mapping[str, Raw], found: Found) -> None:
        self._raw = raw
        self._found = found
        self._made: dict[Hashable, FlatColumn] = {}

    def cleaned(self, column: str, steps: tuple[Clean, ...], many: bool) -> FlatColumn:
        """A column after some steps; `many`: rows hold lists."""
        key = cleaned_stream(column, steps, many)
        if key not in self._made:
            self._made[key] = self._clean(column, steps, many) if steps else as_column(column, self._raw[column], many)
        return self._made[key]

    def analysed(self, feature: Feature) -> FlatColumn:
        """What a feature's analyses count."""
        return feature.analysed(self._prepared(feature))

    def output(self, feature: Feature, tables: Tables) -> Raw:
        """The transformed feature."""
        column = self._prepared(feature)
        found = [self._found[feature.stream, need] for need in feature.needs]
        return feature.shape(column, feature.apply(column, found, tables))

    def _clean(self, column: str, steps: tuple[Clean, ...], many: bool) -> FlatColumn:
        stream = cleaned_stream(column, steps[:-1], many)
        found = [self._found[stream, need] for need in steps[-1].needs]
        return steps[-1].apply(self.cleaned(column, steps[:-1], many), found)

    def _prepared(self, feature: Feature) -> FlatColumn:
        key = ("prepared", feature.stream)
        if key not in self._made:
            many = feature.values != "one"
            columns = [self.cleaned(column, feature.steps, many) for column in feature.columns]
            column = feature.prepare(columns)
            self._made[key] = column._replace(keys=self._keys(feature, column))
        return self._made[key]

    def _keys(self, feature: Feature, column: FlatColumn) -> tf.Tensor | None:
        if feature.values == "by_position":
            return tf.strings.as_string(tf.ragged.range(tf.experimental.numpy.diff(column.splits)).flat_values)
        if not feature.key:
            return None
        keys = as_strings(as_column(feature.key, self._raw[feature.key], many=False))
        return keys if column.splits is None else tf.gather(keys, tf.ragged.row_splits_to_segment_ids(column.splits))


def cleaned_stream(column: str, steps: tuple[Clean, ...], many: bool) -> Hashable:
    """Like `Feature.stream`, of a column before all of its steps are done; these count all positions of lists."""
    return ((column,), steps, "all" if many else "one")


def as_column(name: str, raw: Raw, many: bool) -> FlatColumn:
    """The values of a raw column, one a row, or, with `many`, of lists.

    Raises:
      InfeedError: one value a row is expected, and the schema gives a column a fixed shape of several.
      tf.errors.InvalidArgumentError: at run time, the same of a row.
    """
    if isinstance(raw, tf.RaggedTensor) and not many:
        raw = raw.to_sparse()
    column = _list_of(name, raw) if many else _single_of(name, raw)
    if not column.values.dtype.is_floating:
        return column
    present = column.present & tf.math.is_finite(column.values)
    return column._replace(values=tf.where(present, column.values, tf.zeros_like(column.values)), present=present)


def _single_of(name: str, raw: tf.Tensor | tf.SparseTensor) -> FlatColumn:
    if isinstance(raw, tf.SparseTensor):
        return _single_of_sparse(name, raw)
    if raw.shape[1:].num_elements() != 1:
        raise InfeedError(
            f"column {name!r} holds {raw.shape[1:]} values a row, not one",
            where="the schema",
            do='set values="all" or values="by_position" on its features',
        )
    values = tf.reshape(raw, [-1])  # [batch] and [batch, 1] both occur: TFX's schemas give [1], others no dimension
    return FlatColumn(name, values, tf.ones_like(values, tf.bool))


def _single_of_sparse(name: str, raw: tf.SparseTensor) -> FlatColumn:
    problem = f'rows of several values, one is expected; set values="all" on the features of column {name!r}'
    # Not `tf.debugging.Assert`: that is a conditional of three functions for each column.
    tf.raw_ops.Assert(condition=raw.dense_shape[1] <= 1, data=[problem])
    rows = raw.dense_shape[:1]
    places = raw.indices[:, :1]
    values = tf.scatter_nd(places, raw.values, rows) if raw.dtype != tf.string else _scatter_strings(raw)
    present = tf.scatter_nd(places, tf.ones_like(raw.values, tf.bool), rows)
    return FlatColumn(name, values, present)


@contextmanager
def explained() -> Iterator[None]:
    """Inside, a row of several values where one is expected is an InfeedError, not one of the graph."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _SEVERAL.search(str(error))
        if not found:
            raise
        raise InfeedError(
            "rows of several values, one is expected",
            where=f"column {found[1]!r}",
            do='set values="all" or values="by_position" on its features',
        ) from None


def _scatter_strings(raw: tf.SparseTensor) -> tf.Tensor:
    return tf.raw_ops.SparseToDense(
        sparse_indices=raw.indices[:, :1],
        output_shape=raw.dense_shape[:1],
        sparse_values=raw.values,
        default_value="",
        validate_indices=False,
    )


def _list_of(name: str, raw: Raw) -> FlatColumn:
    if isinstance(raw, tf.SparseTensor):
        raw = tf.RaggedTensor.from_value_rowids(raw.values, raw.indices[:, 0], raw.dense_shape[0], validate=False)
    if isinstance(raw, tf.RaggedTensor):
        return FlatColumn(name, raw.flat_values, tf.ones_like(raw.flat_values, tf.bool), _outer_splits(raw))
    values = tf.reshape(raw, [-1])
    width = tf.size(raw, tf.int64) // tf.maximum(tf.shape(raw, tf.int64)[0], 1)
    splits = tf.range(tf.shape(raw, tf.int64)[0] + 1) * width
    return FlatColumn(name, values, tf.ones_like(values, tf.bool), splits)


def _outer_splits(raw: tf.RaggedTensor) -> tf.Tensor:
    """Where rows begin and end among the flat values: a list of lists counts as one."""
    splits = raw.row_splits
    while isinstance(raw.values, tf.RaggedTensor):
        raw = raw.values
        splits = tf.gather(raw.row_splits, splits)
    return splits


def outputs_of(features: Sequence[Feature], raw: Mapping[str, Raw], found: Found, tables: Tables) -> dict[str, Raw]:
    """Transformed features by name."""
    columns = BatchColumns(raw, found)
    return {feature.output_name: columns.output(feature, tables) for feature in features}
