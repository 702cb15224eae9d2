"""A split as columns: decoded once, then every batch is gathered from them by row number.

Only row numbers are shuffled, so a full shuffle costs a few bytes a row, and a batch is one vectorised gather a column.
Columns lie in memory (here) or in files (`disk`). Which rows make up which batch follows from (seed, epoch, step,
worker) alone, so any batch can be made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.feed.capacity import Window
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext
from infeed.components.feed.sampling import Group, sample

Batch = Any  # nested tensors, [batch, ...] each
Take = Callable[[tf.Tensor], Any]  # row numbers, int64 [batch] -> the values of one column, [batch, ...]


@dataclass(frozen=True)
class Layout:
    """How features become columns: dense ones of one type and width side by side, so that one call gathers them.

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
        alike: dict[tuple[tf.DType, int], list[int]] = {}
        others = []
        for place, one in enumerate(tf.nest.flatten(spec)):
            if is_static(one):
                alike.setdefault((one.dtype, _width(one)), []).append(place)
            else:
                others.append(place)
        return cls(spec, tuple(map(tuple, alike.values())), tuple(others))

    def columns_of(self, *batch: Batch) -> tuple[Any, ...]:
        """The dense [batch, width] and ragged [batch, ...] tensors that a batch adds to the columns."""
        tensors = tf.nest.flatten(batch)
        packs = [tf.concat([_packed(tensors[place]) for place in pack], axis=1) for pack in self.packs]
        return (*packs, *(part for place in self.others for part in _gatherable(tensors[place])))

    def batch_of(self, columns: Sequence[Any], size: int | None = None) -> Batch:
        """The opposite of `columns_of`, for a batch of so many rows; None where nobody knows that beforehand."""
        specs, rest = tf.nest.flatten(self.spec), iter(columns)
        taken: dict[int, Any] = {}
        for pack in self.packs:
            parts = _parted(next(rest), len(pack), _width(specs[pack[0]]))
            taken |= {place: _unpacked(part, specs[place]) for place, part in zip(pack, parts, strict=True)}
        taken |= {place: _as_fed(rest, specs[place], size) for place in self.others}
        return tf.nest.pack_sequence_as(self.spec, [taken[place] for place in range(len(specs))])


@dataclass(frozen=True)
class Columns:
    """All rows of a split."""

    rows: int
    layout: Layout
    columns: tuple[Take, ...]

    def take(self, rows: tf.Tensor) -> Batch:
        """The rows of the given numbers, int64 [batch], in their order."""
        return self.layout.batch_of([column(rows) for column in self.columns], rows.shape[0])


@dataclass(frozen=True)
class HeldColumn:
    """A column in memory. `values` are a dense tensor [rows, width] or a ragged one [rows, ...]."""

    values: Any

    def __call__(self, rows: tf.Tensor) -> Any:
        if isinstance(self.values, tf.RaggedTensor):
            return tf.gather(self.values, rows)
        # `tf.gather` deals a thousand short rows out to threads, which then wait for each other longer than they copy.
        return tf.gather_nd(self.values, rows[:, tf.newaxis])


def can_split(spec: Any) -> bool:
    """Whether batches may be made several at once: sparse and padded ones are as wide as their values need."""
    return all(isinstance(one, tf.RaggedTensorSpec) or is_static(one) for one in tf.nest.flatten(spec))


def can_keep(spec: Any) -> bool:
    """Whether rows can be kept decoded: nobody knows what of a dense feature of no fixed shape is padding."""
    return all(not isinstance(one, tf.TensorSpec) or is_static(one) for one in tf.nest.flatten(spec))


def split_batches(rows: Batch, batches: int, size: int) -> Batch:
    """[batches * size, ...] each -> [batches, size, ...]."""

    def one(tensor: Any) -> Any:
        if isinstance(tensor, tf.RaggedTensor):
            return tf.RaggedTensor.from_uniform_row_length(tensor, size, nrows=batches)
        return tf.reshape(tensor, [batches, size, *tensor.shape[1:]])

    return tf.nest.map_structure(one, rows)


def pad_batch(batch: Batch, size: int) -> Batch:
    """(features, label) or (features, label, weight), at most [size, ...] each -> the three, [size, ...] each.

    What is added weighs 0.
    """
    features, label, *weight = batch

    def padded(tensor: tf.Tensor) -> tf.Tensor:
        missing = size - tf.shape(tensor)[0]
        filled = tf.pad(tensor, [[0, missing], *([0, 0] for _ in tensor.shape[1:])])
        return tf.ensure_shape(filled, [size, *tensor.shape[1:]])

    given = weight[0] if weight else tf.ones(tf.shape(label)[:1])
    return tf.nest.map_structure(padded, (features, label, given))


def load_columns(batches: tf.data.Dataset) -> Columns:
    """Reads `batches` of nested tensors to their end, into memory; the last batch may be short."""
    layout = Layout.of(batches.element_spec)
    parts = list(mapped(batches, layout.columns_of))
    with tf.device("cpu:0"):  # where input is made; a GPU's memory is for the model
        columns = [tf.concat(column, axis=0) for column in zip(*parts, strict=True)]
    return Columns(int(columns[0].shape[0]), layout, tuple(HeldColumn(column) for column in columns))


def training_rows(
    rows: int,
    batch_size: int,
    seed: int,
    *,
    workers: WorkerContext = SINGLE_WORKER,
    start_step: int = 0,
    window: Window | None = None,
    groups: Sequence[Group] = (),
) -> tf.data.Dataset:
    """Row numbers of endless full batches, from step `start_step` on: int64 [batch_size / workers.count].

    An epoch is a new permutation; what does not fill its last batch is left out, other rows each time. Where there are
    fewer rows than a batch, rows are repeated. All workers' parts of a step, end to end, are the batch that one worker
    alone would make.

    Where there are `groups`, an epoch is of just as many batches, and its rows are those that `sampling.sample` gives.
    """
    steps, windows = max(1, rows // batch_size), -(-rows // window.rows) if window else 1
    orders = _orders(rows, batch_size, seed, workers, start_step // steps * windows, window, groups)
    batches = orders.flat_map(tf.data.Dataset.from_tensor_slices).skip(start_step % steps)
    return endless(batches)


def training_calls(
    rows: int,
    batch_size: int,
    seed: int,
    steps_per_call: int,
    *,
    workers: WorkerContext = SINGLE_WORKER,
    start_step: int = 0,
    groups: Sequence[Group] = (),
) -> tf.data.Dataset:
    """The row numbers of `training_rows`, those of all steps of a call together: int64 [steps, batch].

    An epoch's last call is shorter where `steps_per_call` does not divide its steps, so every epoch begins with a call;
    so does training, at `start_step`.
    """
    steps = max(1, rows // batch_size)
    epoch, done = divmod(start_step, steps)
    orders = _orders(rows, batch_size, seed, workers, epoch, None, groups)

    def calls_of(number: tf.Tensor, order: tf.Tensor) -> tf.data.Dataset:
        left = order[tf.where(number == 0, tf.constant(done, tf.int64), 0) :]
        return tf.data.Dataset.from_tensor_slices(left).batch(steps_per_call)

    return endless(orders.enumerate().flat_map(calls_of))


def _orders(
    rows: int,
    batch_size: int,
    seed: int,
    workers: WorkerContext,
    first: int,
    window: Window | None,
    groups: Sequence[Group],
) -> tf.data.Dataset:
    """What a worker takes of one epoch after the other, or of one window after the other: int64 [steps, batch].

    They are counted through all epochs; the one of number `first` is the first.
    """
    part, steps = workers.per_worker_batch_size(batch_size), max(1, rows // batch_size)
    windows = -(-rows // window.rows) if window else 1

    @tf.autograph.experimental.do_not_convert
    def batches_of(place: tf.Tensor) -> tf.Tensor:
        epoch, number = tf.stack([seed, place // windows]), place % windows
        if groups:
            some = sample(groups, steps * batch_size, seed, place)
        else:
            some = _rows_of_window(rows, window, epoch, number) if window else tf.range(rows, dtype=tf.int64)
        # `_rows_of_window` uses the epoch's seeds 0 and 1.
        order = tf.random.experimental.stateless_shuffle(some, _derive(epoch, 2 + number))
        if not groups:
            order = tf.tile(order, [-(-batch_size // rows)])  # once, unless a batch is larger than the split
        # What does not fill a batch is left out, so all have one shape.
        full = tf.size(order) // batch_size * batch_size
        return tf.reshape(order[:full], [-1, workers.count, part])[:, workers.index]

    return tf.data.Dataset.counter(first).map(batches_of).prefetch(1)  # the next order is made during this one


def endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same, which is known to have no end."""
    return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))


def reading_options(*, rewrite: bool) -> tf.data.Options:
    """Of every dataset that the feed makes.

    Args:
      rewrite: whether TensorFlow may rewrite the graph. It copies every tensor in it, columns included.
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = rewrite
    options.deterministic = True
    # Records are dealt out by us; a second sharding by TensorFlow would drop some of them.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _rows_of_window(rows: int, window: Window, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Rows of one window of a permutation of all blocks, int64 [rows].

    Blocks begin at another row each epoch, counted round the end, and the short one that is left over comes last: every
    window before it is full, and which rows an epoch leaves out is left to chance.
    """
    begin = tf.random.stateless_uniform([], _derive(epoch, 0), 0, rows, tf.int64)
    whole = tf.random.experimental.stateless_shuffle(tf.range(rows // window.block, dtype=tf.int64), _derive(epoch, 1))
    order = tf.concat([whole, [rows // window.block]], axis=0)
    blocks = order[number * window.blocks : (number + 1) * window.blocks]
    places = tf.reshape(blocks[:, tf.newaxis] * window.block + tf.range(window.block, dtype=tf.int64), [-1])
    return (begin + places[places < rows]) % rows


def _derive(epoch: tf.Tensor, stream: tf.Tensor | int) -> tf.Tensor:
    """A seed for one use of many, from (seed, epoch)."""
    return tf.random.experimental.stateless_fold_in(epoch, tf.cast(stream, tf.int64))


def evaluation_rows(rows: int, batch_size: int, workers: WorkerContext = SINGLE_WORKER) -> tf.data.Dataset:
    """Row numbers in order, int64 [batch]; the last batch may be short, and empty on some of the workers."""
    index, count = workers.index, workers.count

    def part(start: tf.Tensor) -> tf.Tensor:
        size = tf.minimum(tf.constant(batch_size, tf.int64), rows - start)
        return tf.range(start + size * index // count, start + size * (index + 1) // count)

    return tf.data.Dataset.range(0, rows, batch_size).map(part)


def mapped(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Applies a function in parallel, without AutoGraph, which would take longer than tracing does."""
    plain = tf.autograph.experimental.do_not_convert(function)
    return dataset.map(plain, num_parallel_calls=tf.data.AUTOTUNE)


def with_known_widths(batches: tf.data.Dataset, decode: Callable[[tf.Tensor], Batch]) -> tf.data.Dataset:
    """The same batches, where the spec of a sparse feature says how wide it is, if each batch is equally wide.

    Args:
      batches: nested tensors, [batch, ...] each.
      decode: serialized records, string [batch] -> one of them. A feature that has a width in a batch of no record has
        it in every one; of others it is that of their longest row.
    """
    if all(not isinstance(one, tf.SparseTensorSpec) or _is_sized(one) for one in tf.nest.flatten(batches.element_spec)):
        return batches
    with tf.init_scope():  # a dataset may be built within a function, for another process
        empty = next(iter(mapped(tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)), decode)))
        shapes = [
            one.dense_shape.numpy().tolist() if isinstance(one, tf.SparseTensor) else None
            for one in tf.nest.flatten(empty)
        ]

    def sized(*batch: Any) -> Batch:
        pairs = zip(tf.nest.flatten(batch), shapes, strict=True)
        return tf.nest.pack_sequence_as(batch, [_sized(tensor, shape) if shape else tensor for tensor, shape in pairs])

    return mapped(batches, sized)


def _is_sized(spec: tf.SparseTensorSpec) -> bool:
    return bool(spec.shape[1:].is_fully_defined())


def _sized(tensor: tf.SparseTensor, shape: Sequence[int]) -> tf.SparseTensor:
    """The same, whose shape says the widths that are not 0."""
    wide = [tf.constant(size, tf.int64) if size else tensor.dense_shape[i + 1] for i, size in enumerate(shape[1:])]
    return tf.SparseTensor(tensor.indices, tensor.values, tf.stack([tensor.dense_shape[0], *wide]))


def is_static(spec: Any) -> bool:
    """Whether rows are dense and of a shape known beforehand."""
    return isinstance(spec, tf.TensorSpec) and spec.shape[1:].is_fully_defined()


def is_static_number(spec: Any) -> bool:
    """Whether a device that compiles for fixed shapes, as a TPU does, takes the rows."""
    return is_static(spec) and spec.dtype != tf.string


def _width(spec: tf.TensorSpec) -> int:
    """Values a row."""
    return int(spec.shape[1:].num_elements())


def _parted(tensor: tf.Tensor, count: int, width: int) -> list[tf.Tensor]:
    """[batch, count * width] -> [batch, width], so many of them."""
    if count == 1:
        return [tensor]
    batch = tensor.shape[0] or tf.shape(tensor)[0]
    # Costs a third less than `tf.split`, which also copies with strides.
    return tf.unstack(tf.reshape(tensor, [batch, count, width]), axis=1)  # type: ignore[no-any-return]


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
    """Rows of a sparse tensor cannot be gathered, so its positions and values are held as ragged rows."""
    if isinstance(tensor, tf.RaggedTensor):  # the columns of a split may hold more values than int32 can count
        return (tensor.with_row_splits_dtype(tf.int64),)
    rows, count = tensor.indices[:, 0], tensor.dense_shape[0]
    return tuple(
        tf.RaggedTensor.from_value_rowids(part, rows, count) for part in (tensor.indices[:, 1:], tensor.values)
    )


def _as_fed(columns: Iterator[Any], spec: Any, size: int | None) -> Any:
    """The opposite of `_gatherable`; takes as many columns as that gave."""
    if isinstance(spec, tf.SparseTensorSpec):
        return _sparse(next(columns), next(columns), spec.shape)
    return _ragged(next(columns), spec.shape, size).with_row_splits_dtype(spec.row_splits_dtype)


def _ragged(tensor: tf.RaggedTensor, shape: tf.TensorShape, size: int | None = None) -> tf.RaggedTensor:
    """The same with what gathering forgets: the number of rows, and where `shape` says that all are of one length."""
    within = tensor.values
    if isinstance(within, tf.RaggedTensor):
        within = _ragged(within, shape[1:])
    if shape[1] is None:
        splits = tf.ensure_shape(tensor.row_splits, [None if size is None else size + 1])
        return tf.RaggedTensor.from_row_splits(within, splits, validate=False)
    return tf.RaggedTensor.from_uniform_row_length(within, shape[1], nrows=tensor.nrows())


def _sparse(positions: tf.RaggedTensor, values: tf.RaggedTensor, shape: tf.TensorShape) -> tf.SparseTensor:
    """As wide as `shape` says, and where it does not, as the values need."""
    within = positions.values  # [values, rank - 1]
    indices = tf.concat([positions.value_rowids()[:, tf.newaxis], within], axis=1)
    extent = tf.reduce_max(tf.pad(within + 1, [[1, 0], [0, 0]]), axis=0)  # of nothing it is 0
    wide = [extent[place] if size is None else tf.constant(size, tf.int64) for place, size in enumerate(shape[1:])]
    return tf.SparseTensor(indices, values.values, tf.stack([positions.nrows(), *wide]))
