"""Conversion of NumPy batches to PyTorch, JAX and TensorFlow, without a copy if possible.

A batch is {name: array} or a tuple that begins with it. PyTorch and JAX have no type for bytes, so bytes stay object
arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from infeed.components.base.errors import InfeedError, required
from infeed.components.feed.user_maps import Ragged
from infeed.components.load.ahead import in_background
from infeed.components.load.columns import Features
from infeed.components.load.delivery import ZERO, Recipe, split
from infeed.components.load.devices import CudaCopies, JaxCopies, batches_a_split, mapped
from infeed.components.load.options import whole_number
from infeed.components.load.order import BatchOrder
from infeed.components.load.spill import Kind

if TYPE_CHECKING:
    import tensorflow as tf

_CALLS_AHEAD = 2  # calls gathered in advance
_AHEAD = 2  # batches copied to a CUDA device in advance


def _unchanged(batch: Any) -> Any:
    return batch


@dataclass(frozen=True)
class Convert:
    """Conversion of batches. With `ahead`, a thread reads and copies this many batches in advance."""

    send: Callable[[Any], Any]
    ahead: int
    receive: Callable[[Any], Any] = _unchanged
    send_several: Callable[[Any, int], Iterable[Any]] | None = None  # of several batches that are one

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return map(self.receive, in_background(map(self.send, batches), self.ahead))

    def batches_a_call(self, batches: int, arrays: int) -> int:
        """Return the number of batches to convert as one, of the `batches` that one take gathers."""
        most = min(batches, batches_a_split(arrays)) if self.send_several else 1
        return batches // most * most

    def together(self, calls: Iterator[tuple[Any, int]], most: int) -> Iterator[Any]:
        """Convert batches that come as one, `most` at once except at an end."""
        sent = chain.from_iterable(in_background(self._sent(calls, most), -(-self.ahead // most)))
        return sent if self.receive is _unchanged else map(self.receive, sent)

    def _sent(self, calls: Iterator[tuple[Any, int]], most: int) -> Iterator[list[Any]]:
        for batch, batches in calls:
            # The number of batches at an end may be any, and a new number would compile again.
            several = self.send_several if batches == most > 1 else None
            sent = list[Any]()
            try:
                sent.extend(several(batch, batches) if several else map(self.send, split(batch, batches)))
            except InfeedError:  # raised in place of its batch
                yield sent
                raise
            yield sent
            del batch, sent


def to_numpy(ahead: int) -> Convert:
    """Return batches as they are. Raises InfeedError if `ahead` is not an integer of 0 or more."""
    whole_number(ahead, 0, "infeed.load(...).numpy, ahead")
    return Convert(_unchanged, ahead)


def to_torch(device: Any = None, ahead: int | None = None, *, nested: bool = False) -> Convert:
    """Convert batches to contiguous tensors on `device`, or else to tensors that share the arrays' memory if possible.

    With `nested`, ragged numbers become nested tensors.

    Raises InfeedError if `ahead` is not an integer of 0 or more.
    """
    torch = required("torch")
    on = torch.device("cpu" if device is None else device)
    ahead = ahead if ahead is not None else _AHEAD * (on.type == "cuda")
    whole_number(ahead, 0, "infeed.load(...).torch, ahead")
    received = partial(_nested, torch) if nested else _unchanged
    if on.type == "cuda":
        copies = CudaCopies(torch, on)
        return Convert(copies.send, ahead, lambda sent: received(copies.receive(sent)))

    def tensor(array: Any, _: str) -> Any:
        # Arrow's arrays are read-only, and the columns of packed arrays are not contiguous.
        contiguous = np.ascontiguousarray(array) if array.flags.writeable else array.copy()
        shared = torch.from_numpy(contiguous)
        return shared if device is None else shared.to(on, non_blocking=True)

    return Convert(lambda batch: mapped(batch, tensor), ahead, received)


def _nested(torch: Any, batch: Any) -> Any:
    """Return a batch with nested tensors in place of ragged numbers."""
    if isinstance(batch, Ragged):
        is_tensor = isinstance(batch.values, torch.Tensor)
        return torch.nested.nested_tensor_from_jagged(batch.values, batch.row_splits) if is_tensor else batch
    if isinstance(batch, dict):
        return {name: _nested(torch, one) for name, one in batch.items()}
    return tuple(_nested(torch, one) for one in batch) if isinstance(batch, tuple) else batch


def to_jax(device: Any = None, ahead: int = 2) -> Convert:
    """Convert batches to arrays on a JAX device or sharding, copied `ahead` batches in advance.

    If the sharding covers several processes, the loop's thread copies the batches.

    Raises InfeedError if `ahead` is not an integer of 0 or more.
    """
    jax = required("jax")
    whole_number(ahead, 0, "infeed.load(...).jax, ahead")
    copies = JaxCopies(jax, device)
    if not copies.is_local:
        return Convert(_unchanged, ahead, copies.send)
    return Convert(copies.send, ahead, send_several=copies.send_several if copies.splits else None)


def to_tensorflow(features: Features, order: BatchOrder, recipe: Recipe) -> tf.data.Dataset:
    """Return the batches of `order` as a dataset. TensorFlow's threads gather them from the files, without Python."""
    required("tensorflow")
    import tensorflow as tf

    from infeed.components.feed import columns
    from infeed.components.feed.disk import MappedColumn

    mapped_columns = [MappedColumn(stem, column) for stem, column in features.files]

    def gather(rows: tf.Tensor) -> Any:  # int64 [rows]
        arrays = TensorFlowArrays(rows.shape[0])
        batch = recipe.batch([column(rows) for column in mapped_columns], arrays)
        return recipe.targets.split(batch, arrays.weight)

    def gather_several(rows: tf.Tensor) -> Any:  # int64 [batches, batch]
        together = gather(tf.reshape(rows, [-1]))
        return tf.nest.map_structure(lambda one: tf.reshape(one, [-1, order.batch.part, *one.shape[1:]]), together)

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False  # a rewrite would copy the columns
    several = features.batches_a_call(order.batch.part)
    if several > 1 and order.shuffled and recipe.is_dense:  # without a shuffle, the last batch may be short
        # For small batches, passing each between threads costs more than gathering, so pass several at once.
        calls = columns.training_calls(order.rows, order.batch, several, start_step=order.start_step)
        calls = calls.map(tf.autograph.experimental.do_not_convert(gather_several))
        batches = _ended(columns, calls.prefetch(_CALLS_AHEAD).unbatch(), order)
    else:
        if order.shuffled:
            rows = _ended(columns, columns.training_rows(order.rows, order.batch, start_step=order.start_step), order)
        else:
            rows = columns.evaluation_rows(order.rows, order.batch)
            rows = rows.take(order.steps_per_epoch).repeat(order.epochs or 1).skip(order.start_step)
        batches = columns.mapped(rows, gather).prefetch(tf.data.AUTOTUNE)
    return batches.with_options(options)


@dataclass(frozen=True)
class TensorFlowArrays:
    """Operations on TensorFlow tensors. TensorFlow has no None, so a missing text is an empty string.

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

    def weight(self, values: Any) -> Any:
        import tensorflow as tf

        return tf.cast(values, tf.float32)

    def reshape(self, values: Any, shape: Sequence[int]) -> Any:
        import tensorflow as tf

        return tf.reshape(values, [-1 if self.rows is None else self.rows, *shape])

    def steps(self, values: Any, shape: Sequence[int]) -> Any:
        import tensorflow as tf

        steps = tf.reshape(values.values, [-1, *shape])
        return tf.RaggedTensor.from_row_splits(steps, values.row_splits // math.prod(shape), validate=False)

    def pad(self, values: Any, kind: Kind, lengths: Sequence[int], step: Sequence[int]) -> Any:
        import tensorflow as tf

        if len(lengths) == 1:
            return values.to_tensor(ZERO[kind], shape=[None, *lengths, *step])
        place = tf.searchsorted(tf.constant(lengths, tf.int64), [tf.reduce_max(values.row_lengths())])[0]
        width = tf.gather(tf.constant(lengths, tf.int64), tf.minimum(place, len(lengths) - 1))
        sizes = [tf.constant(size, tf.int64) for size in (-1, *step)]
        return values.to_tensor(ZERO[kind], shape=tf.stack([sizes[0], width, *sizes[1:]]))


def _ended(columns: Any, batches: tf.data.Dataset, order: BatchOrder) -> tf.data.Dataset:
    """Set the cardinality of the batches from the order. Keras requires it."""
    endless = columns.endless(batches)
    return endless if order.epochs is None else endless.take(len(order))
