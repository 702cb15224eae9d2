"""Batches that each step gathers itself, where the rows of a split lie beside the step.

To hand over a batch of twenty features costs a small step more than to compute it. So what is handed over is row
numbers, those of several steps in one element, and the graph of the steps gathers their rows at once: from the host's
memory, or from a copy that lies on the step's own device. A step takes its part of what was gathered. The numbers are
always made on the host. They are those that `columns.training_rows` gives, so the batches are the same as those of the
dataset that gathers for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import tensorflow as tf

from infeed.components.feed.columns import Batch, Columns, HeldColumn, endless, mapped, reading_options

_CALLS_AHEAD = 2  # a call's numbers are made in microseconds
_AT_ONCE_BYTES = 4 << 20  # of rows that are gathered together: what a processor's cache holds is at hand for the steps


class CallRows(NamedTuple):
    """The rows of each of some steps.

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

    def on_devices(self, devices: Sequence[str]) -> RowBatches:
        """The same, of which each of the devices holds a copy; a step gathers from that of its own."""
        held = [column for column in self.columns.columns if isinstance(column, HeldColumn)]
        placed = tuple(PlacedColumn.on(devices, column) for column in held)
        return replace(self, columns=replace(self.columns, columns=placed))

    def handed(self, steps: int) -> tf.data.Dataset:
        """What is handed over to calls of so many steps, without end: `CallRows` of all of them, or of an even part."""
        rows = self.calls(self._steps_at_once(steps)).map(CallRows).prefetch(_CALLS_AHEAD)
        options = reading_options(rewrite=False)
        options.autotune.enabled = False  # there is nothing to tune
        return endless(rows).with_options(options)

    def gather(self, numbers: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """int64 [steps, batch] -> what `batch_of` makes the batches of these steps of: [steps, batch, width] each."""
        rows = tf.reshape(numbers, [-1])
        gathered = [column(rows) for column in self.columns.columns]
        return tuple(tf.reshape(one, [-1, numbers.shape[1], one.shape[1]]) for one in gathered)

    def batch_of(self, gathered: Sequence[tf.Tensor], step: tf.Tensor) -> Batch:
        """The batch of one step of those whose rows were gathered."""
        size = gathered[0].shape[1]
        return self._finished(self.columns.layout.batch_of([one[step] for one in gathered], size))

    def take(self, numbers: tf.Tensor) -> Batch:
        """The batch of these rows, int64 [batch]."""
        return self._finished(self.columns.take(numbers))

    def dataset(self) -> tf.data.Dataset:
        """The same batches, gathered beforehand, for a loop that takes nothing else."""
        rows = self.calls(1).map(lambda numbers: numbers[0])
        batches = mapped(rows, self.take).prefetch(tf.data.AUTOTUNE)
        return endless(batches).with_options(reading_options(rewrite=False))

    @cached_property
    def element_spec(self) -> Any:
        """TypeSpecs of a batch, [batch, ...] each."""
        specs: list[Any] = []

        @tf.autograph.experimental.do_not_convert
        def trace(numbers: tf.Tensor) -> None:  # a dataset would copy the columns that lie on a device back to the host
            specs.append(tf.nest.map_structure(tf.type_spec_from_value, self.take(numbers)))

        tf.function(trace).get_concrete_function(tf.TensorSpec([self._batch_size], tf.int64))
        return specs[0]

    @property
    def _batch_size(self) -> int:
        """Rows of a batch of this worker."""
        return int(self.calls(1).element_spec.shape[1])

    def _finished(self, batch: Batch) -> Batch:
        for function in self.finish:
            batch = function(*batch)
        return batch

    def _steps_at_once(self, steps: int) -> int:
        """A divisor of `steps`, so that calls still begin with an element."""
        specs = tf.nest.flatten(self.columns.layout.spec)
        row_bytes = sum(spec.dtype.size * spec.shape[1:].num_elements() for spec in specs)
        most = _AT_ONCE_BYTES // (self._batch_size * row_bytes)
        return max(one for one in range(1, steps + 1) if steps % one == 0 and one <= max(1, most))


@dataclass(frozen=True)
class PlacedColumn:
    """A column of which every device holds a copy.

    Attributes:
      copies: [rows, width] each, by the type and the number of the device, such as `("GPU", 0)`.
    """

    copies: dict[tuple[str | None, int | None], tf.Tensor]

    @classmethod
    def on(cls, devices: Sequence[str], column: HeldColumn) -> PlacedColumn:
        """Copies the column to each of the devices."""
        copies = {}
        for device in devices:
            with tf.device(device):
                copies[_place(device)] = tf.identity(column.values)
        return cls(copies)

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        # A strategy traces the step of each replica where it places it. Where none does, each copy is as good.
        here = _place(tf.identity(rows).device)
        copy = self.copies.get(here, next(iter(self.copies.values())))
        with tf.device(copy.device):  # else the column may be copied to the rows
            return tf.gather(copy, rows)


def _place(device: str) -> tuple[str | None, int | None]:
    spec = tf.DeviceSpec.from_string(device)
    return spec.device_type, spec.device_index


def deal_rows(calls: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """`CallRows` [steps, batch] -> those of each replica, one after the other, [steps, batch / replicas]."""

    def parts(call: CallRows) -> tf.data.Dataset:
        batch = call.numbers.shape[1]
        by_replica = tf.reshape(call.numbers, [-1, replicas, batch // replicas])
        return tf.data.Dataset.from_tensor_slices(CallRows(tf.transpose(by_replica, [1, 0, 2])))

    return endless(calls.flat_map(parts))
