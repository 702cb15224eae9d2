"""A split as columns: decoded once, then every batch is gathered from them by row number.

Which rows a batch has is `order`'s business: only row numbers are shuffled, so a full shuffle costs a few bytes a row,
and a batch is one vectorised gather a column. Columns lie in memory (here) or in files (`disk`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

Batch = Any  # nested tensors, [batch, ...] each
Take = Callable[[tf.Tensor], Any]  # row numbers, int64 [batch] -> the values of one column, [batch, ...]


@dataclass(frozen=True)
class Layout:
    """How features become columns: dense ones of one type side by side, so that they are gathered in one call.

    Attributes:
      spec: nested specs of the features, [batch, ...] each.
      packs: places, in the flattened spec, of the dense features that share a column.
      others: places of the features that have columns of their own.
    """

    spec: Any
    packs: tuple[tuple[int, ...], ...]
    others: tuple[int, ...]

    @classmethod
    def of(cls, spec: Any) -> Layout:
        by_type: dict[tf.DType, list[int]] = {}
        others = []
        for place, one in enumerate(tf.nest.flatten(spec)):
            if is_static(one):
                by_type.setdefault(one.dtype, []).append(place)
            else:
                others.append(place)
        return cls(spec, tuple(map(tuple, by_type.values())), tuple(others))

    def columns_of(self, *batch: Batch) -> tuple[Any, ...]:
        """The dense [batch, width] and ragged [batch, ...] tensors that a batch adds to the columns."""
        tensors = tf.nest.flatten(batch)
        packs = [tf.concat([_packed(tensors[place]) for place in pack], axis=1) for pack in self.packs]
        return (*packs, *(part for place in self.others for part in _gatherable(tensors[place])))

    def batch_of(self, columns: Sequence[Any]) -> Batch:
        """The opposite of `columns_of`."""
        specs, rest = tf.nest.flatten(self.spec), iter(columns)
        taken: dict[int, Any] = {}
        for pack in self.packs:
            parts = tf.split(next(rest), [_width(specs[place]) for place in pack], axis=1)
            taken |= {place: _unpacked(part, specs[place]) for place, part in zip(pack, parts, strict=True)}
        taken |= {place: _as_fed(rest, specs[place]) for place in self.others}
        return tf.nest.pack_sequence_as(self.spec, [taken[place] for place in range(len(specs))])


@dataclass(frozen=True)
class Columns:
    """All rows of a split."""

    rows: int
    layout: Layout
    columns: tuple[Take, ...]

    def take(self, rows: tf.Tensor) -> Batch:
        """The rows of the given numbers, int64 [batch], in their order."""
        return self.layout.batch_of([column(rows) for column in self.columns])


def can_be_cut(spec: Any) -> bool:
    """Whether batches may be made several at once: sparse and padded ones are as wide as their values need."""
    return all(isinstance(one, tf.RaggedTensorSpec) or is_static(one) for one in tf.nest.flatten(spec))


def cut(rows: Batch, batches: int, size: int) -> Batch:
    """[batches * size, ...] each -> [batches, size, ...]."""

    def one(tensor: Any) -> Any:
        if isinstance(tensor, tf.RaggedTensor):
            return tf.RaggedTensor.from_uniform_row_length(tensor, size, nrows=batches)
        return tf.reshape(tensor, [batches, size, *tensor.shape[1:]])

    return tf.nest.map_structure(one, rows)


def hold(batches: tf.data.Dataset) -> Columns:
    """Reads `batches` of nested tensors to their end, into memory; the last batch may be short."""
    layout = Layout.of(batches.element_spec)
    parts = list(mapped(batches, layout.columns_of))
    with tf.device("cpu:0"):  # where input is made; a GPU's memory is for the model
        columns = [tf.concat(column, axis=0) for column in zip(*parts, strict=True)]
    return Columns(int(columns[0].shape[0]), layout, tuple(partial(tf.gather, column) for column in columns))


def mapped(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Applies a function in parallel, as it stands: AutoGraph, not needed here, would take longer than tracing does."""
    plain = tf.autograph.experimental.do_not_convert(function)
    return dataset.map(plain, num_parallel_calls=tf.data.AUTOTUNE)


def is_static(spec: Any) -> bool:
    """Whether rows are dense and of a shape known beforehand."""
    return isinstance(spec, tf.TensorSpec) and spec.shape[1:].is_fully_defined()


def _width(spec: tf.TensorSpec) -> int:
    """Values a row."""
    return int(spec.shape[1:].num_elements())


def _packed(tensor: tf.Tensor) -> tf.Tensor:
    """[batch, ...] -> [batch, width]."""
    if tensor.shape.rank == 2:
        return tensor
    return tf.reshape(tensor, [tf.shape(tensor)[0], tensor.shape[1:].num_elements()])


def _unpacked(tensor: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    """[batch, width] -> [batch, ...]."""
    if spec.shape.rank == tensor.shape.rank:
        return tensor
    return tf.reshape(tensor, [tensor.shape[0] or tf.shape(tensor)[0], *spec.shape[1:]])


def _gatherable(tensor: Any) -> tuple[Any, ...]:
    """Rows of a sparse tensor cannot be gathered, so its positions and values are held as ragged rows.

    A dense tensor of no fixed shape is held as a ragged one: batches are padded to lengths of their own.
    """
    if isinstance(tensor, tf.RaggedTensor):
        return (tensor,)
    if not isinstance(tensor, tf.SparseTensor):
        return (tf.RaggedTensor.from_tensor(tensor, ragged_rank=tensor.shape.rank - 1),)
    rows, count = tensor.indices[:, 0], tensor.dense_shape[0]
    return tuple(
        tf.RaggedTensor.from_value_rowids(part, rows, count) for part in (tensor.indices[:, 1:], tensor.values)
    )


def _as_fed(columns: Iterator[Any], spec: Any) -> Any:
    """The opposite of `_gatherable`; takes as many columns as that gave."""
    if isinstance(spec, tf.SparseTensorSpec):
        return _sparse(next(columns), next(columns))
    return next(columns) if isinstance(spec, tf.RaggedTensorSpec) else next(columns).to_tensor(shape=spec.shape)


def _sparse(positions: tf.RaggedTensor, values: tf.RaggedTensor) -> tf.SparseTensor:
    """No wider than its values need."""
    within = positions.values  # [values, rank - 1]
    indices = tf.concat([positions.value_rowids()[:, tf.newaxis], within], axis=1)
    extent = tf.reduce_max(tf.pad(within + 1, [[1, 0], [0, 0]]), axis=0)  # of nothing it is 0
    return tf.SparseTensor(indices, values.values, tf.concat([[positions.nrows()], extent], axis=0))
