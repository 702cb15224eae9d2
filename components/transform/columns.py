"""Raw columns, sparse, ragged or dense as the schema has it, to one dense value a row with a flag for the missing ones.

Columns of one type are handled together as one matrix: tft traces the whole graph about nine times, so that each op a
column costs is paid nine times a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from infeed.components.errors import InfeedError

Raw: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor


class Column(NamedTuple):
    """One value a row; where `present` is False, `values` holds zero or the empty string."""

    name: str
    values: tf.Tensor  # [batch], int64, float32 or string
    present: tf.Tensor  # [batch], bool

    def only_present(self) -> tf.Tensor:
        """[n]: the values of the rows that have one, for analysis."""
        return tf.boolean_mask(self.values, self.present)


def dense_columns(raw: Mapping[str, Raw]) -> dict[str, Column]:
    """Each column as one value a row. NaN and infinite numbers count as missing.

    Raises:
      InfeedError: the schema gives a column a fixed shape of several values.
      tf.errors.InvalidArgumentError: at run time, a row holds several values; names the columns.
    """
    flat = {name: tensor.to_sparse() if isinstance(tensor, tf.RaggedTensor) else tensor for name, tensor in raw.items()}
    columns: dict[str, Column] = {}
    for names in _of_one_type(flat):
        values, present = _matrix({name: flat[name] for name in names})
        if values.dtype.is_floating:
            present = present & tf.math.is_finite(values)
            values = tf.where(present, values, tf.zeros_like(values))
        parts = zip(names, tf.unstack(values, len(names), 1), tf.unstack(present, len(names), 1), strict=True)
        columns.update({name: Column(name, *part) for name, *part in parts})
    return columns


def _of_one_type(tensors: Mapping[str, Raw]) -> Iterable[list[str]]:
    groups: dict[tuple[bool, tf.DType], list[str]] = {}
    for name in sorted(tensors):
        groups.setdefault((isinstance(tensors[name], tf.SparseTensor), tensors[name].dtype), []).append(name)
    return groups.values()


def _matrix(tensors: Mapping[str, Raw]) -> tuple[tf.Tensor, tf.Tensor]:
    """Values and presence of columns of one type, both [batch, columns]."""
    sparse = isinstance(next(iter(tensors.values())), tf.SparseTensor)
    return _from_sparse(tensors) if sparse else _from_dense(tensors)


def _from_sparse(tensors: Mapping[str, tf.SparseTensor]) -> tuple[tf.Tensor, tf.Tensor]:
    shapes = tf.stack([tensor.dense_shape for tensor in tensors.values()])  # [columns, 2]
    several = shapes[:, 1] > 1
    culprits = tf.boolean_mask(tf.constant(list(tensors)), several)
    check = tf.debugging.Assert(~tf.reduce_any(several), ["rows of several values, one is expected, in", culprits])
    with tf.control_dependencies([check]):
        shape = tf.stack([shapes[0, 0], 1])
    # A column without any value in this batch has width 0; each is widened to 1 so that it keeps its place.
    joined = tf.sparse.concat(1, [tf.SparseTensor(one.indices, one.values, shape) for one in tensors.values()])
    return tf.sparse.to_dense(joined), tf.sparse.to_dense(joined.with_values(tf.ones_like(joined.values, tf.bool)))


def _from_dense(tensors: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    for name, tensor in tensors.items():
        if tensor.shape[1:].num_elements() != 1:
            raise InfeedError(
                f"column {name!r} holds {tensor.shape[1:]} values a row, not one",
                where="the schema",
                do="split it into columns of one value, or handle it in a preprocessing_fn of your own",
            )
    # [batch] and [batch, 1] both occur: TFX's schemas give [1], others no dimension at all.
    values = tf.stack([tensor if tensor.shape.rank == 1 else tf.squeeze(tensor, 1) for tensor in tensors.values()], 1)
    return values, tf.ones_like(values, tf.bool)
