"""Batches that each training step gathers from rows in host memory or on its own device.

For a small step, passing a batch of twenty features to the step costs more than the computation. The feed therefore
passes only row numbers, for several steps in one element. The graph gathers the rows of all these steps at once, and
each step takes its slice. The host computes the row numbers with `columns.training_rows`, so the batches equal those
of a dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import tensorflow as tf

from infeed.components.base import machine
from infeed.components.feed.columns import Batch, Columns, HeldColumn, endless, mapped, reading_options

_CALLS_AHEAD = 2  # computing the numbers of a call takes microseconds
_AT_ONCE_BYTES = 4 << 20  # bytes of rows gathered at once. They stay in the processor's cache until the steps use them


class CallRows(NamedTuple):
    """Row numbers of several steps, int64 [steps, batch], and the number of the first of these steps, int64 []."""

    numbers: tf.Tensor
    first: tf.Tensor


@dataclass(frozen=True)
class RowBatches:
    """Endless training batches that each step gathers by row number."""

    columns: Columns  # all rows of the split. Every feature is dense
    # Steps per call -> row numbers of each call, int64 [steps, batch of this worker]. The last call of an epoch is
    # shorter if the steps do not divide evenly.
    calls: Callable[[int], tf.data.Dataset]
    start_step: int = 0  # number of the first step
    # Functions (step number, batch) -> batch, applied to each gathered batch in order.
    finish: tuple[Callable[[tf.Tensor, Batch], Batch], ...] = ()

    def map(self, function: Callable[..., Batch]) -> RowBatches:
        """Apply `function` to each gathered batch."""
        return self.map_numbered(lambda _, batch: function(*batch))

    def map_numbered(self, function: Callable[[tf.Tensor, Batch], Batch]) -> RowBatches:
        """Apply `function` to the number of each step, int64 [], and its gathered batch."""
        return replace(self, finish=(*self.finish, function))

    def on_devices(self, devices: Sequence[str]) -> RowBatches:
        """Copy the columns to each device. Each step gathers from the copy on its device."""
        placed = []
        for values in (column.values for column in self.columns.columns if isinstance(column, HeldColumn)):
            copies = {}
            for device in devices:
                with tf.device(device):
                    copies[_place(device)] = tf.identity(values)
            placed.append(PlacedColumn(copies))
        return replace(self, columns=replace(self.columns, columns=tuple(placed)))

    def handed(self, steps: int) -> tf.data.Dataset:
        """Return endless `CallRows` for calls of `steps` steps. The steps of an element are a divisor of `steps`."""
        specs = tf.nest.flatten(self.columns.layout.spec)
        row_bytes = sum(spec.dtype.size * spec.shape[1:].num_elements() for spec in specs)
        most = max(1, _AT_ONCE_BYTES // (self._batch_size * row_bytes))
        # A divisor, so that every call begins with a new element.
        at_once = max(one for one in range(1, steps + 1) if steps % one == 0 and one <= most)
        rows = self._numbered(at_once).prefetch(_CALLS_AHEAD)
        return endless(rows).with_options(reading_options(streams=False))

    def gather(self, numbers: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Gather the rows of several steps for `batch_of`: int64 [steps, batch] -> [steps, batch, width] each."""
        rows = tf.reshape(numbers, [-1])
        gathered = [column(rows) for column in self.columns.columns]
        return tuple(tf.reshape(one, [-1, numbers.shape[1], one.shape[1]]) for one in gathered)

    def batch_of(self, gathered: Sequence[tf.Tensor], step: tf.Tensor, first: tf.Tensor | int = 0) -> Batch:
        """Return the batch of one step from the output of `gather`. `first` is the number of the first step."""
        size, number = gathered[0].shape[1], first + tf.cast(step, tf.int64)
        return self._finished(self.columns.layout.batch_of([one[step] for one in gathered], size), number)

    def take(self, numbers: tf.Tensor, step: tf.Tensor | int = 0) -> Batch:
        """Return the batch of these rows, int64 [batch], in the step with this number."""
        return self._finished(self.columns.take(numbers), step)

    def dataset(self) -> tf.data.Dataset:
        """Return the same batches as a dataset, for a loop that accepts only batches."""
        batches = mapped(self._numbered(1), lambda call: self.take(call.numbers[0], call.first), calls=machine.cpus())
        batches = batches.prefetch(tf.data.AUTOTUNE)
        return endless(batches).with_options(reading_options(streams=False))

    @cached_property
    def element_spec(self) -> Any:
        """TypeSpecs of a batch, [batch, ...] each."""
        specs: list[Any] = []

        @tf.autograph.experimental.do_not_convert
        def trace(numbers: tf.Tensor) -> None:  # a dataset would copy the columns from the device to the host
            batch = self.take(numbers)
            specs.append(tf.nest.map_structure(tf.type_spec_from_value, batch))

        tf.function(trace).get_concrete_function(tf.TensorSpec([self._batch_size], tf.int64))
        return specs[0]

    @property
    def _batch_size(self) -> int:
        """Rows of a batch of this worker."""
        return int(self.calls(1).element_spec.shape[1])

    def _numbered(self, steps: int) -> tf.data.Dataset:
        """Return endless `CallRows` of up to `steps` steps."""

        def number(first: tf.Tensor, numbers: tf.Tensor) -> tuple[tf.Tensor, CallRows]:
            return first + tf.shape(numbers, tf.int64)[0], CallRows(numbers, first)

        return self.calls(steps).scan(tf.constant(self.start_step, tf.int64), number)

    def _finished(self, batch: Batch, step: tf.Tensor | int) -> Batch:
        for function in self.finish:
            batch = function(tf.cast(step, tf.int64), batch)
        return batch


@dataclass(frozen=True)
class PlacedColumn:
    """A column with a copy, [rows, width], on every device, by device type and index, for example `("GPU", 0)`."""

    copies: dict[tuple[str | None, int | None], tf.Tensor]

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        # A strategy traces the step of each replica on its device. Without a strategy, any copy works.
        here = _place(tf.identity(rows).device)
        copy = self.copies.get(here, next(iter(self.copies.values())))
        with tf.device(copy.device):  # otherwise TensorFlow may copy the column to the device of the rows
            return tf.gather(copy, rows)


def _place(device: str) -> tuple[str | None, int | None]:
    spec = tf.DeviceSpec.from_string(device)
    return spec.device_type, spec.device_index


def deal_rows(calls: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """Split `CallRows` [steps, batch] into one element per replica, [steps, batch / replicas]."""

    def parts(call: CallRows) -> tf.data.Dataset:
        batch = call.numbers.shape[1]
        by_replica = tf.reshape(call.numbers, [-1, replicas, batch // replicas])
        return tf.data.Dataset.from_tensor_slices(
            CallRows(tf.transpose(by_replica, [1, 0, 2]), tf.fill([replicas], call.first))
        )

    return endless(calls.flat_map(parts))
