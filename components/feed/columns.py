"""The `columns` tier: a split decoded once and held in memory, batches gathered from it by row number.

An epoch's order is a permutation of all rows that depends on (seed, epoch) and on nothing else. Only row numbers are
shuffled, so a full shuffle costs a few bytes a row, and a batch is one vectorised gather a feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Batch = Any  # nested tensors, [batch, ...] each


class Columns:
    """A split in memory. Dense features of one type lie side by side, so that they are gathered in one call."""

    def __init__(self, batches: tf.data.Dataset) -> None:
        """Reads `batches` to their end.

        Args:
          batches: nested dense, ragged or sparse tensors, [batch, ...] each; the last batch may be short.
        """
        self._spec = batches.element_spec
        self._packs, self._others = _packs(tf.nest.flatten(self._spec))
        parts = [self._held(tf.nest.flatten(batch)) for batch in batches]
        with tf.device("cpu:0"):  # where input is made; a GPU's memory is for the model
            self._columns = tf.nest.map_structure(lambda *part: tf.concat(part, axis=0), *parts)
        self.rows = int(tf.nest.flatten(self._columns)[0].shape[0])

    def take(self, rows: tf.Tensor) -> Batch:
        """The rows of the given numbers, int64 [batch], in their order."""
        packs, others = tf.nest.map_structure(lambda column: tf.gather(column, rows), self._columns)
        specs = tf.nest.flatten(self._spec)
        taken = {place: _as_fed(one, specs[place]) for place, one in zip(self._others, others, strict=True)}
        for pack, columns in zip(self._packs, packs, strict=True):
            widths = [_width(specs[place]) for place in pack]
            parts = tf.split(columns, widths, axis=1)
            taken |= {place: _unpacked(part, specs[place]) for place, part in zip(pack, parts, strict=True)}
        return tf.nest.pack_sequence_as(self._spec, [taken[place] for place in range(len(specs))])

    def _held(self, tensors: Sequence[Any]) -> Any:
        packs = [tf.concat([_packed(tensors[place]) for place in pack], axis=1) for pack in self._packs]
        return packs, [_gatherable(tensors[place]) for place in self._others]


def _packs(specs: Sequence[Any]) -> tuple[list[list[int]], list[int]]:
    """Places of the dense features of fixed shape, grouped by type, and the places of all others."""
    by_type: dict[tf.DType, list[int]] = {}
    others = []
    for place, spec in enumerate(specs):
        if isinstance(spec, tf.TensorSpec) and spec.shape[1:].is_fully_defined():
            by_type.setdefault(spec.dtype, []).append(place)
        else:
            others.append(place)
    return list(by_type.values()), others


def _width(spec: tf.TensorSpec) -> int:
    """Values a row."""
    return int(spec.shape[1:].num_elements())


def _packed(tensor: tf.Tensor) -> tf.Tensor:
    """[batch, ...] -> [batch, width]."""
    return tf.reshape(tensor, [tensor.shape[0], tensor.shape[1:].num_elements()])


def _unpacked(tensor: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    """[batch, width] -> [batch, ...]."""
    return tf.reshape(tensor, [tensor.shape[0] or tf.shape(tensor)[0], *spec.shape[1:]])


def training_rows(rows: int, batch_size: int, seed: int) -> tf.data.Dataset:
    """Row numbers of endless full batches, int64 [batch_size].

    An epoch is a new permutation; what does not fill its last batch is left out, other rows each time. Where there are
    fewer rows than a batch, rows are repeated.
    """

    def batches_of(epoch: tf.Tensor) -> tf.Tensor:  # int64 [steps, batch_size]
        order = tf.random.experimental.stateless_shuffle(tf.range(rows, dtype=tf.int64), [seed, epoch])
        order = tf.tile(order, [-(-batch_size // rows)])  # once, unless a batch is larger than the split
        steps = max(1, rows // batch_size)
        return tf.reshape(order[: steps * batch_size], [steps, batch_size])

    orders = tf.data.Dataset.counter().map(batches_of).prefetch(1)  # the next epoch's order is made during this one
    return orders.flat_map(tf.data.Dataset.from_tensor_slices)


def evaluation_rows(rows: int, batch_size: int) -> tf.data.Dataset:
    """Row numbers in order, int64 [batch]; the last batch may be short."""
    starts = tf.data.Dataset.range(0, rows, batch_size)
    return starts.map(lambda start: tf.range(start, tf.minimum(start + batch_size, rows)))


def _gatherable(tensor: Any) -> Any:
    """Rows of a sparse tensor cannot be gathered, so its positions and values are held as ragged rows."""
    if not isinstance(tensor, tf.SparseTensor):
        return tensor
    rows, count = tensor.indices[:, 0], tensor.dense_shape[0]
    return tuple(
        tf.RaggedTensor.from_value_rowids(part, rows, count) for part in (tensor.indices[:, 1:], tensor.values)
    )


def _as_fed(taken: Any, spec: Any) -> Any:
    return _sparse(*taken) if isinstance(spec, tf.SparseTensorSpec) else taken


def _sparse(positions: tf.RaggedTensor, values: tf.RaggedTensor) -> tf.SparseTensor:
    """The opposite of `_gatherable`; no wider than its values need."""
    within = positions.values  # [values, rank - 1]
    indices = tf.concat([positions.value_rowids()[:, tf.newaxis], within], axis=1)
    extent = tf.reduce_max(tf.pad(within + 1, [[1, 0], [0, 0]]), axis=0)  # of nothing it is 0
    return tf.SparseTensor(indices, values.values, tf.concat([[positions.nrows()], extent], axis=0))
