"""Which rows make up which batch: functions of (seed, epoch, step, worker) alone, so any batch can be made anew."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from infeed.components.feed.capacity import Window
from infeed.components.feed.mix import Group, draw
from infeed.components.feed.options import ALONE, Workers


def training_rows(
    rows: int,
    batch_size: int,
    seed: int,
    *,
    workers: Workers = ALONE,
    start_step: int = 0,
    window: Window | None = None,
    groups: Sequence[Group] = (),
) -> tf.data.Dataset:
    """Row numbers of endless full batches, from step `start_step` on: int64 [batch_size / workers.count].

    An epoch is a new permutation; what does not fill its last batch is left out, other rows each time. Where there are
    fewer rows than a batch, rows are repeated. All workers' parts of a step, end to end, are the batch that one worker
    alone would make.

    Where there are `groups`, an epoch is of just as many batches, and its rows are those that `mix.draw` gives.
    """
    part, steps = workers.part_of(batch_size), max(1, rows // batch_size)
    windows = -(-rows // window.rows) if window else 1

    @tf.autograph.experimental.do_not_convert
    def batches_of(place: tf.Tensor) -> tf.Tensor:  # windows are counted through all epochs -> int64 [steps, part]
        epoch, number = tf.stack([seed, place // windows]), place % windows
        if groups:
            some = draw(groups, steps * batch_size, seed, place)
        else:
            some = _rows_of_window(rows, window, epoch, number) if window else tf.range(rows, dtype=tf.int64)
        order = tf.random.experimental.stateless_shuffle(some, _derive(epoch, 2 + number))
        if not groups:
            order = tf.tile(order, [-(-batch_size // rows)])  # once, unless a batch is larger than the split
        full = tf.size(order) // batch_size * batch_size
        return tf.reshape(order[:full], [-1, workers.count, part])[:, workers.index]

    places = tf.data.Dataset.counter(start_step // steps * windows)
    orders = places.map(batches_of).prefetch(1)  # the next order is made during this one
    batches = orders.flat_map(tf.data.Dataset.from_tensor_slices).skip(start_step % steps)
    return batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))


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


def evaluation_rows(rows: int, batch_size: int, workers: Workers = ALONE) -> tf.data.Dataset:
    """Row numbers in order, int64 [batch]; the last batch may be short, and empty on some of the workers."""
    index, count = workers.index, workers.count

    def part_of(start: tf.Tensor) -> tf.Tensor:
        size = tf.minimum(tf.constant(batch_size, tf.int64), rows - start)
        return tf.range(start + size * index // count, start + size * (index + 1) // count)

    return tf.data.Dataset.range(0, rows, batch_size).map(part_of)
