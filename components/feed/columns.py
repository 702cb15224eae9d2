"""Columns of a split, decoded once. Batches are gathered from them by row number.

A full shuffle only permutes row numbers, so it costs a few bytes per row. A batch takes one vectorized gather per
column. Columns are in memory (this module) or in files (`disk`). The rows of a batch depend only on (seed, epoch, step,
worker), so any batch is reproducible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from infeed.components.feed.capacity import Window
from infeed.components.feed.options import GlobalBatch
from infeed.components.feed.sampling import Group, sample

Batch = Any  # nested tensors, [batch, ...] each
_POOL = 100  # batches in a pool of rows that are sorted by length, as in torchtext's BucketIterator
Take = Callable[[tf.Tensor], Any]  # row numbers, int64 [batch] -> the values of one column, [batch, ...]


@dataclass(frozen=True)
class Layout:
    """Layout of features in columns. Dense features of one type and width share a column, so one call gathers them.

    `packs` and `others` are positions in the flattened spec.
    """

    spec: Any  # nested specs of the features, [batch, ...] each
    packs: tuple[tuple[int, ...], ...]  # positions of the dense features that share a column
    others: tuple[int, ...]  # positions of the features with separate columns

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
        """Convert a batch to columns: dense [batch, width] and ragged [batch, ...] tensors."""
        tensors = tf.nest.flatten(batch)
        columns = []
        for pack in self.packs:  # [batch, ...] -> [batch, width]
            dense = [tensors[place] for place in pack]
            flat = [one if one.shape.rank == 2 else tf.reshape(one, [tf.shape(one)[0], _width(one)]) for one in dense]
            columns.append(tf.concat(flat, axis=1))
        for one in (tensors[place] for place in self.others):
            if isinstance(one, tf.RaggedTensor):  # a column may hold more values than int32 can index
                columns.append(one.with_row_splits_dtype(tf.int64))
            else:  # ragged rows of positions and of values, because sparse tensors cannot be gathered
                parts, rows, count = (one.indices[:, 1:], one.values), one.indices[:, 0], one.dense_shape[0]
                columns += [tf.RaggedTensor.from_value_rowids(part, rows, count) for part in parts]
        return tuple(columns)

    def batch_of(self, columns: Sequence[Any], size: int | None = None) -> Batch:
        """Convert columns back to a batch of `size` rows. None is an unknown size."""
        specs, rest = tf.nest.flatten(self.spec), iter(columns)
        taken: dict[int, Any] = {}
        for pack in self.packs:
            packed = next(rest)  # [batch, width]
            parts, rows = [packed], packed.shape[0] or tf.shape(packed)[0]
            if len(pack) > 1:  # `tf.split` copies with strides, which costs a third more
                parts = tf.unstack(tf.reshape(packed, [rows, len(pack), _width(specs[pack[0]])]), axis=1)
            for place, part in zip(pack, parts, strict=True):
                shape = specs[place].shape
                taken[place] = part if shape.rank == 2 else tf.reshape(part, [rows, *shape[1:]])
        for place in self.others:
            spec = specs[place]
            if isinstance(spec, tf.SparseTensorSpec):
                taken[place] = _sparse(next(rest), next(rest), spec.shape)
            else:
                taken[place] = _ragged(next(rest), spec.shape, size).with_row_splits_dtype(spec.row_splits_dtype)
        return tf.nest.pack_sequence_as(self.spec, [taken[place] for place in range(len(specs))])


@dataclass(frozen=True)
class Columns:
    """All rows of a split, as columns."""

    rows: int
    layout: Layout
    columns: tuple[Take, ...]

    def take(self, rows: tf.Tensor) -> Batch:
        """Gather rows by number, int64 [batch], in the given order."""
        return self.layout.batch_of([column(rows) for column in self.columns], rows.shape[0])


@dataclass(frozen=True)
class HeldColumn:
    """Column in memory. `values` is a dense tensor [rows, width] or a ragged one [rows, ...]."""

    values: Any

    def __call__(self, rows: tf.Tensor) -> Any:
        if isinstance(self.values, tf.RaggedTensor):
            return tf.gather(self.values, rows)
        # For a thousand short rows, `tf.gather` starts threads that wait longer than they work.
        return tf.gather_nd(self.values, rows[:, tf.newaxis])


def can_split(spec: Any) -> bool:
    """Return whether one call can prepare several batches. The width of sparse and padded batches varies by batch."""
    return all(isinstance(one, tf.RaggedTensorSpec) or is_static(one) for one in tf.nest.flatten(spec))


def can_keep(spec: Any) -> bool:
    """Return whether decoded rows can be kept. The padding of a dense feature without a fixed shape is unknown."""
    return all(not isinstance(one, tf.TensorSpec) or is_static(one) for one in tf.nest.flatten(spec))


def split_batches(rows: Batch, batches: int, size: int) -> Batch:
    """Reshape tensors: [batches * size, ...] each -> [batches, size, ...]."""

    def one(tensor: Any) -> Any:
        if isinstance(tensor, tf.RaggedTensor):
            return tf.RaggedTensor.from_uniform_row_length(tensor, size, nrows=batches)
        return tf.reshape(tensor, [batches, size, *tensor.shape[1:]])

    return tf.nest.map_structure(one, rows)


def pad_batch(batch: Batch, size: int) -> Batch:
    """Pad a batch to `size` rows with weight 0: (features, label[, weight]) -> (features, label, weight)."""
    features, label, *weight = batch

    def padded(tensor: tf.Tensor) -> tf.Tensor:
        missing = size - tf.shape(tensor)[0]
        filled = tf.pad(tensor, [[0, missing], *([0, 0] for _ in tensor.shape[1:])])
        return tf.ensure_shape(filled, [size, *tensor.shape[1:]])

    given = weight[0] if weight else tf.ones(tf.shape(tf.nest.flatten(label)[0])[:1])
    return tf.nest.map_structure(padded, (features, label, given))


def load_columns(batches: tf.data.Dataset) -> Columns:
    """Read all `batches` of nested tensors into memory. The last batch may be short."""
    layout = Layout.of(batches.element_spec)
    parts = list(without_rewrites(mapped(batches, layout.columns_of)))
    with tf.device("cpu:0"):  # input stays on the host; GPU memory is for the model
        columns = [tf.concat(column, axis=0) for column in zip(*parts, strict=True)]
    return Columns(int(columns[0].shape[0]), layout, tuple(HeldColumn(column) for column in columns))


def training_rows(
    rows: int,
    batch: GlobalBatch,
    *,
    start_step: int = 0,
    window: Window | None = None,
    groups: Sequence[Group] = (),
    lengths: tf.Tensor | None = None,
) -> tf.data.Dataset:
    """Return the row numbers of endless full batches, starting at step `start_step`: int64 [batch.part].

    Each epoch is a new permutation. It omits the rows that do not fill its last batch. If the split is smaller than a
    batch, rows repeat. The concatenated parts of all workers equal the batch of a single worker.

    With `groups`, an epoch has the same number of batches, and `sampling.sample` chooses its rows.

    With `lengths`, int64 [rows], an epoch has the same rows, but rows of a batch have similar lengths.
    """
    steps, windows = batch.steps(rows), -(-rows // window.rows) if window else 1
    # Start with the epoch of `start_step`, and skip its earlier steps: only row numbers are computed for them.
    orders = _orders(rows, batch, start_step // steps * windows, window, groups, lengths)
    return endless(orders.flat_map(tf.data.Dataset.from_tensor_slices).skip(start_step % steps))


def training_calls(
    rows: int, batch: GlobalBatch, steps_per_call: int, *, start_step: int = 0, groups: Sequence[Group] = ()
) -> tf.data.Dataset:
    """Return the row numbers of `training_rows` for all steps of a call: int64 [steps, batch].

    Every epoch begins with a new call. So does training at `start_step`. The last call of an epoch is shorter if
    `steps_per_call` does not divide the steps.
    """
    epoch, done = divmod(start_step, batch.steps(rows))
    orders = _orders(rows, batch, epoch, None, groups)

    def calls_of(number: tf.Tensor, order: tf.Tensor) -> tf.data.Dataset:
        # Only the first epoch after a resume has steps that are already done.
        left = order[tf.where(number == 0, tf.constant(done, tf.int64), 0) :]
        return tf.data.Dataset.from_tensor_slices(left).batch(steps_per_call)

    return endless(orders.enumerate().flat_map(calls_of))


def _orders(
    rows: int,
    batch: GlobalBatch,
    first: int,
    window: Window | None,
    groups: Sequence[Group],
    lengths: tf.Tensor | None = None,
) -> tf.data.Dataset:
    """Yield the worker's row numbers of each epoch or window, int64 [steps, batch], starting at number `first`."""
    part, workers = batch.part, batch.workers
    windows = -(-rows // window.rows) if window else 1

    @tf.autograph.experimental.do_not_convert
    def batches_of(place: tf.Tensor) -> tf.Tensor:
        epoch, number = tf.stack([batch.seed, place // windows]), place % windows
        if groups:
            some = sample(groups, batch.steps(rows) * batch.size, batch.seed, place)
        else:
            some = _rows_of_window(rows, window, epoch, number) if window else tf.range(rows, dtype=tf.int64)
        # `_rows_of_window` uses seeds 0 and 1 of the epoch.
        order = tf.random.experimental.stateless_shuffle(some, _derive(epoch, 2 + number))
        if not groups:
            order = tf.tile(order, [-(-batch.size // rows)])  # a single copy, unless a batch is larger than the split
        # Drop the rows that do not fill a batch, so that all batches have one shape.
        order = order[: tf.size(order) // batch.size * batch.size]
        if lengths is not None:
            order = _by_length(order, lengths, batch.size, _derive(epoch, 2 + windows + number))
        # Every worker computes the same order and takes its part of each batch, so no communication is needed.
        return tf.reshape(order, [-1, workers.count, part])[:, workers.index]

    return tf.data.Dataset.counter(first).map(batches_of).prefetch(1)  # compute the next order while this one is in use


def _by_length(order: tf.Tensor, lengths: tf.Tensor, size: int, seed: tf.Tensor) -> tf.Tensor:
    """Sort the rows of each pool of batches by length, then shuffle its batches: int64 [batches * size] each."""
    # Sorting within pools keeps an epoch random: sorting all rows would give almost the same batches each time.
    pool = tf.range(tf.size(order, tf.int64), dtype=tf.int64) // (size * _POOL)
    places = tf.argsort(pool * (tf.reduce_max(lengths) + 1) + tf.gather(lengths, order), stable=True)
    batches = tf.reshape(tf.gather(order, places), [-1, size])
    return tf.reshape(tf.random.experimental.stateless_shuffle(batches, seed), [-1])


def row_lengths(feature: Any) -> tf.Tensor:
    """Return the number of values in each row of a feature [batch, ...], int64 [batch].

    In a dense tensor, zeros and empty strings at the end of a row count as padding.
    """
    if isinstance(feature, tf.RaggedTensor):
        return tf.cast(feature.row_lengths(), tf.int64)
    if isinstance(feature, tf.SparseTensor):
        rows, count = feature.indices[:, 0], feature.dense_shape[0]
        return tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, count)
    values = tf.reshape(feature, [tf.shape(feature)[0], -1])
    empty = "" if feature.dtype == tf.string else tf.zeros([], feature.dtype)
    places = tf.range(1, tf.shape(values, tf.int64)[1] + 1, dtype=tf.int64)
    return tf.reduce_max(tf.where(values == empty, tf.zeros([], tf.int64), places), axis=1)


def endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Set the cardinality of an endless dataset to infinite."""
    return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))


def reading_options(*, streams: bool) -> tf.data.Options:
    """Return the tf.data options of the feed. `streams` is whether each epoch reads files.

    If not, rewrites are off, because they copy every column in the graph. Tuning is off as well, for the reason in
    `seams.tensorflow.untuned`.
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = streams
    options.autotune.enabled = streams
    options.deterministic = True
    # The feed shards the records itself. Sharding again by TensorFlow would drop records.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _rows_of_window(rows: int, window: Window, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return the rows of one window of a permutation of all blocks, int64 [rows].

    Blocks begin at a random row in each epoch and wrap around. The short remaining block comes last, so all earlier
    windows are full. The omitted rows are random.
    """
    begin = tf.random.stateless_uniform([], _derive(epoch, 0), 0, rows, tf.int64)
    whole = tf.random.experimental.stateless_shuffle(tf.range(rows // window.block, dtype=tf.int64), _derive(epoch, 1))
    order = tf.concat([whole, [rows // window.block]], axis=0)
    blocks = order[number * window.blocks : (number + 1) * window.blocks]
    places = tf.reshape(blocks[:, tf.newaxis] * window.block + tf.range(window.block, dtype=tf.int64), [-1])
    return (begin + places[places < rows]) % rows


def _derive(epoch: tf.Tensor, stream: tf.Tensor | int) -> tf.Tensor:
    """Derive a seed from (seed, epoch) for one purpose."""
    return tf.random.experimental.stateless_fold_in(epoch, tf.cast(stream, tf.int64))


def evaluation_rows(rows: int, batch: GlobalBatch) -> tf.data.Dataset:
    """Return row numbers in order, int64 [batch]. The last batch may be short, or empty on some workers."""
    index, count = batch.workers.index, batch.workers.count

    def part(start: tf.Tensor) -> tf.Tensor:
        size = tf.minimum(tf.constant(batch.size, tf.int64), rows - start)
        return tf.range(start + size * index // count, start + size * (index + 1) // count)

    return tf.data.Dataset.range(0, rows, batch.size).map(part)


def mapped(
    dataset: tf.data.Dataset, function: Callable[..., Any], *, calls: int | None = tf.data.AUTOTUNE
) -> tf.data.Dataset:
    """Apply a function without AutoGraph, which takes longer than tracing.

    If `calls` is None, the consuming thread runs the function.
    """
    return dataset.map(tf.autograph.experimental.do_not_convert(function), num_parallel_calls=calls)


def without_rewrites(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keep TensorFlow from rewriting the graph, which is slow for functions of thousands of columns."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def with_known_widths(batches: tf.data.Dataset, decode: Callable[[tf.Tensor], Batch]) -> tf.data.Dataset:
    """Set the width of each sparse feature in the spec of batches if it is the same in all batches.

    `decode` decodes serialized records, string [batch]. An empty batch shows the fixed width of a feature. Width 0
    means that the longest row determines the width.
    """
    sparse = (one for one in tf.nest.flatten(batches.element_spec) if isinstance(one, tf.SparseTensorSpec))
    if all(one.shape[1:].is_fully_defined() for one in sparse):
        return batches
    with tf.init_scope():  # a function that builds the dataset may be traced for another process
        nothing = tf.data.Dataset.from_tensors(tf.zeros([0], tf.string))
        empty = next(iter(without_rewrites(mapped(nothing, decode))))
        shapes = [
            one.dense_shape.numpy().tolist() if isinstance(one, tf.SparseTensor) else None
            for one in tf.nest.flatten(empty)
        ]

    def sized(*batch: Any) -> Batch:
        tensors = tf.nest.flatten(batch)
        for place, shape in enumerate(shapes):
            if shape:  # an empty batch has 0 rows, and width 0 if the longest row determines the width
                one = tensors[place]
                wide = [tf.constant(size, tf.int64) if size else one.dense_shape[i] for i, size in enumerate(shape)]
                tensors[place] = tf.SparseTensor(one.indices, one.values, tf.stack(wide))
        return tf.nest.pack_sequence_as(batch, tensors)

    return mapped(batches, sized)


def is_static(spec: Any) -> bool:
    """Return whether rows are dense with a fixed shape."""
    return isinstance(spec, tf.TensorSpec) and spec.shape[1:].is_fully_defined()


def is_static_number(spec: Any) -> bool:
    """Return whether devices that require fixed shapes, such as TPUs, accept the rows."""
    return is_static(spec) and spec.dtype != tf.string


def _width(spec: tf.TensorSpec | tf.Tensor) -> int:
    return int(spec.shape[1:].num_elements())


def _ragged(tensor: tf.RaggedTensor, shape: tf.TensorShape, size: int | None = None) -> tf.RaggedTensor:
    """Restore the static shape that a gather loses: number of rows, and uniform row lengths."""
    within = tensor.values
    if isinstance(within, tf.RaggedTensor):
        within = _ragged(within, shape[1:])
    if shape[1] is None:
        splits = tf.ensure_shape(tensor.row_splits, [None if size is None else size + 1])
        return tf.RaggedTensor.from_row_splits(within, splits, validate=False)
    return tf.RaggedTensor.from_uniform_row_length(within, shape[1], nrows=tensor.nrows())


def _sparse(positions: tf.RaggedTensor, values: tf.RaggedTensor, shape: tf.TensorShape) -> tf.SparseTensor:
    """Build a sparse tensor with the widths in `shape`, or as wide as the longest row."""
    within = positions.values  # [values, rank - 1]
    indices = tf.concat([positions.value_rowids()[:, tf.newaxis], within], axis=1)
    extent = tf.reduce_max(tf.pad(within + 1, [[1, 0], [0, 0]]), axis=0)  # 0 without values
    wide = [extent[place] if size is None else tf.constant(size, tf.int64) for place, size in enumerate(shape[1:])]
    return tf.SparseTensor(indices, values.values, tf.stack([positions.nrows(), *wide]))
