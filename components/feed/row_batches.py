"""Batches that each step gathers itself, where the rows of a split lie beside the step.

To hand over a batch of twenty features costs a small step more than to compute it. So what is handed over is row
numbers, those of all steps of a call in one element, and the step gathers its rows in its own graph. The numbers are
those that `columns.training_rows` gives, so the batches are the same as those of the dataset that gathers for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import tensorflow as tf

from infeed.components.feed.columns import Batch, Columns, endless, mapped, reading_options

_CALLS_AHEAD = 2  # a call's numbers are made in microseconds


class CallRows(NamedTuple):
    """The rows of each step of a call.

    Attributes:
      numbers: int64 [steps, batch].
    """

    numbers: tf.Tensor


@dataclass(frozen=True)
class RowBatches:
    """Endless batches of training; a step makes its own from row numbers.

    Attributes:
      columns: all rows of the split; every feature is dense.
      calls: steps of a call -> row numbers of one call after the other, int64 [steps, batch of this worker]. The last
        call of an epoch is shorter where the numbers do not divide.
      finish: what is done with a batch that was gathered, in this order.
    """

    columns: Columns
    calls: Callable[[int], tf.data.Dataset]
    finish: tuple[Callable[..., Batch], ...] = ()

    def map(self, function: Callable[..., Batch]) -> RowBatches:
        """The same, where each step also applies `function` to its batch."""
        return replace(self, finish=(*self.finish, function))

    def handed(self, steps: int) -> tf.data.Dataset:
        """What is handed over to calls of so many steps: `CallRows`, without end."""
        rows = self.calls(steps).map(CallRows).prefetch(_CALLS_AHEAD)
        options = reading_options(rewrite=False)
        options.autotune.enabled = False  # there is nothing to tune
        return endless(rows).with_options(options)

    def take(self, numbers: tf.Tensor) -> Batch:
        """The batch of these rows, int64 [batch]."""
        batch = self.columns.take(numbers)
        for function in self.finish:
            batch = function(*batch)
        return batch

    def dataset(self) -> tf.data.Dataset:
        """The same batches, gathered beforehand, for a loop that takes nothing else."""
        rows = self.calls(1).map(lambda numbers: numbers[0])
        batches = mapped(rows, self.take).prefetch(tf.data.AUTOTUNE)
        return endless(batches).with_options(reading_options(rewrite=False))

    @cached_property
    def element_spec(self) -> Any:
        """TypeSpecs of a batch, [batch, ...] each."""
        return self.dataset().element_spec


def deal_rows(calls: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """`CallRows` [steps, batch] -> those of each replica, one after the other, [steps, batch / replicas]."""

    def parts(call: CallRows) -> tf.data.Dataset:
        batch = call.numbers.shape[1]
        by_replica = tf.reshape(call.numbers, [-1, replicas, batch // replicas])
        return tf.data.Dataset.from_tensor_slices(CallRows(tf.transpose(by_replica, [1, 0, 2])))

    return endless(calls.flat_map(parts))
