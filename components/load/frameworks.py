"""Conversion of NumPy batches to PyTorch, JAX and TensorFlow, without a copy if possible.

A batch is {name: array} or ({name: array}, label). PyTorch and JAX have no type for bytes, which stay object arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from infeed.components.errors import InfeedError, required
from infeed.components.feed.user_maps import Ragged
from infeed.components.load.columns import Features
from infeed.components.load.delivery import Recipe
from infeed.components.load.order import BatchOrder
from infeed.components.load.spill import Kind

if TYPE_CHECKING:
    import tensorflow as tf

Convert = Callable[[Iterator[Any]], Iterator[Any]]
_INT32 = np.iinfo(np.int32)
_WIDE = 8  # bytes of a number that JAX cuts to 32 bits unless it is allowed 64
_CALLS_AHEAD = 2  # calls gathered ahead of use


def mapped(batch: Any, convert: Callable[[Any, str], Any], name: str = "the label") -> Any:
    """Convert each array of a batch by `convert(array, name)`, except object arrays."""
    if isinstance(batch, dict):
        return {name: mapped(values, convert, name) for name, values in batch.items()}
    if isinstance(batch, Ragged):
        return Ragged(*(mapped(part, convert, name) for part in batch))
    if isinstance(batch, tuple):
        return tuple(mapped(part, convert) for part in batch)
    return batch if batch.dtype == object else convert(batch, name)


def to_torch(device: Any = None) -> Convert:
    """Convert batches to contiguous tensors, which share the arrays' memory if possible, or to copies on `device`."""
    torch = required("torch")

    def tensor(array: Any, _: str) -> Any:
        # Arrow's arrays are read-only, and the columns of packed arrays are not contiguous.
        contiguous = np.ascontiguousarray(array) if array.flags.writeable else array.copy()
        shared = torch.from_numpy(contiguous)
        return shared if device is None else shared.to(device, non_blocking=True)

    return lambda batches: (mapped(batch, tensor) for batch in batches)


def to_jax(device: Any = None, ahead: int = 2) -> Convert:
    """Convert batches to arrays on a device or sharding of JAX, None for its default, sent `ahead` batches in advance.

    uint64 and float64, which only a map makes, keep their 64 bits: JAX itself would cut them without a word. An array
    that the sharding cannot divide, such as that of a short last batch, is copied to each of its devices.

    Raises InfeedError if an int64 does not fit into 32 bits, the only size that JAX has.
    """
    jax = required("jax")
    narrow = not jax.config.jax_enable_x64

    def put(array: Any, name: str) -> Any:
        array = _as_int32(array, name) if narrow else array
        with jax.enable_x64(True) if narrow and array.dtype.itemsize == _WIDE else nullcontext():
            return jax.device_put(array, _fitting(jax, device, array.shape))

    return lambda batches: made_ahead((mapped(batch, put) for batch in batches), ahead)


def made_ahead(batches: Iterator[Any], most: int) -> Iterator[Any]:
    """Make up to `most` batches before the first of them is asked for."""
    waiting: deque[Any] = deque()
    for batch in batches:
        waiting.append(batch)
        if len(waiting) > most:
            yield waiting.popleft()
    yield from waiting


def _fitting(jax: Any, device: Any, shape: tuple[int, ...]) -> Any:
    """Return the sharding, or the one that copies the array to all of its devices if `shape` cannot be divided."""
    if not isinstance(device, jax.sharding.NamedSharding):
        return device
    try:
        device.shard_shape(shape)
    except ValueError:
        return jax.sharding.NamedSharding(device.mesh, jax.sharding.PartitionSpec())
    return device


def _as_int32(array: Any, name: str) -> Any:
    """Narrow int64, the only whole numbers of tf.Examples. JAX itself would cut numbers off without a word."""
    if array.dtype != np.int64:
        return array
    if array.size and not (_INT32.min <= array.min() and array.max() <= _INT32.max):
        wrong = array[(array < _INT32.min) | (array > _INT32.max)].flat[0]
        what = f"{wrong} of {name!r} does not fit into 32 bits, and JAX has no larger integers"
        do = "set jax_enable_x64, or leave the column out: columns=[...]"
        raise InfeedError(what, where=f"infeed.load(...).jax(), {name}", do=do)
    return array.astype(np.int32)


def to_tensorflow(features: Features, order: BatchOrder, recipe: Recipe, label: str | None) -> tf.data.Dataset:
    """Return the batches of `order` as a dataset. TensorFlow's threads gather them from the files without Python."""
    required("tensorflow")
    import tensorflow as tf

    from infeed.components.feed import columns
    from infeed.components.feed.disk import MappedColumn

    mapped_columns = [MappedColumn(stem, column) for stem, column in features.files]

    def gather(rows: tf.Tensor) -> Any:  # int64 [rows]
        batch = recipe.batch([column(rows) for column in mapped_columns], TensorFlowArrays(rows.shape[0]))
        return batch if label is None else (batch, batch.pop(label))

    def gather_several(rows: tf.Tensor) -> Any:  # int64 [batches, batch]
        together = gather(tf.reshape(rows, [-1]))
        return tf.nest.map_structure(lambda one: tf.reshape(one, [-1, order.batch.part, *one.shape[1:]]), together)

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False  # a rewrite would copy the columns
    several = features.batches_a_call(order.batch.part)
    if several > 1 and order.shuffled and recipe.is_dense:  # without a shuffle, the last batch may be short
        # For small batches, passing each from thread to thread costs more than the gather, so pass several at a time.
        calls = columns.training_calls(order.rows, order.batch, several, start_step=order.start_step)
        calls = calls.map(tf.autograph.experimental.do_not_convert(gather_several))
        batches = _ended(columns, calls.prefetch(_CALLS_AHEAD).unbatch(), order)
    else:
        if order.shuffled:
            rows = _ended(columns, columns.training_rows(order.rows, order.batch, start_step=order.start_step), order)
        else:
            rows = columns.evaluation_rows(order.rows, order.batch).skip(order.start_step)
        batches = columns.mapped(rows, gather).prefetch(tf.data.AUTOTUNE)
    return batches.with_options(options)


@dataclass(frozen=True)
class TensorFlowArrays:
    """Operations on TensorFlow's tensors. TensorFlow has no None, so a missing text is the empty string.

    `rows` is the number of rows of a batch; None if the last batch may be short.
    """

    rows: int | None

    def fill(self, values: Any, kind: Kind, fill: Any) -> Any:
        import tensorflow as tf

        if kind == "float32":
            return tf.where(tf.math.is_nan(values), tf.constant(fill, tf.float32), values)
        filled = values.to_tensor(b"" if fill is None else fill, shape=[None, 1])
        return tf.reshape(filled, [-1 if self.rows is None else self.rows])

    def join(self, parts: Sequence[Any]) -> Any:
        import tensorflow as tf

        columns = [part if len(part.shape) == 2 else part[:, tf.newaxis] for part in parts]
        return columns[0] if len(columns) == 1 else tf.concat(columns, axis=1)


def _ended(columns: Any, batches: tf.data.Dataset, order: BatchOrder) -> tf.data.Dataset:
    """Set the cardinality of the batches from the order, because Keras needs it."""
    endless = columns.endless(batches)
    return endless if order.epochs is None else endless.take(len(order))
