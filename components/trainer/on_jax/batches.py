"""Batches on JAX's devices, made ahead of the steps by a thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.meter import Meter
from infeed.components.trainer.on_jax.devices import Devices

_AHEAD = 2  # batches that are on the devices before a step takes them
_INT32 = np.iinfo(np.int32)


class Ahead:
    """Iterator over batches that a thread makes, with the seconds that the devices waited for them."""

    def __init__(self, batches: Iterator[Any], meter: Meter) -> None:
        self._made: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(_AHEAD)
        self._meter, self._closed = meter, threading.Event()
        self._thread = threading.Thread(target=self._make, args=(batches,), daemon=True)
        self._thread.start()

    def next(self, running: Any) -> Any:
        """Return the next batch. The clock runs if there is none when the arrays `running` are computed."""
        import jax

        try:
            batch, error = self._made.get_nowait()
        except queue.Empty:
            jax.block_until_ready(running)
            asked = time.perf_counter()
            batch, error = self._made.get()
            self._meter.waited.assign_add([time.perf_counter() - asked])
        if error:
            raise error
        return batch

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        with suppress(queue.Empty):
            while True:
                self._made.get_nowait()
        self._thread.join()

    def _make(self, batches: Iterator[Any]) -> None:
        try:
            for batch in batches:
                self._put(batch, None)
                if self._closed.is_set():
                    return
        except BaseException as error:  # the loop raises it
            self._put(None, error)
        else:
            self._put(None, StopIteration())

    def _put(self, batch: Any, error: BaseException | None) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                return self._made.put((batch, error), timeout=0.1)


def training_batches(dataset: tf.data.Dataset, devices: Devices) -> Iterator[Any]:
    """Yield the batches of this worker as shares of global batches on the devices."""
    for batch in dataset.as_numpy_iterator():
        yield devices.place(_as_jax_takes_them(batch))


def evaluation_batches(dataset: tf.data.Dataset, devices: Devices, size: int) -> Iterator[Any]:
    """Yield the same number of global batches on each worker. Batches of fewer than `size` rows are whole everywhere.

    Every metric counts each row once, because the batches are not padded.
    """
    batches = dataset.as_numpy_iterator()
    while True:
        batch = next(batches, None)
        rows = 0 if batch is None else _rows(batch)
        of_workers = [int(one) for one in devices.gather([rows])]
        if not any(of_workers):
            return
        if min(of_workers) == size:
            yield devices.place(_as_jax_takes_them(batch))
        else:
            padded = _padded(batch, dataset.element_spec, size)
            kept = np.concatenate([worker * size + np.arange(count) for worker, count in enumerate(of_workers)])
            joined = devices.gather_rows(_as_jax_takes_them(padded))
            yield devices.place(tf.nest.map_structure(partial(np.take, indices=kept, axis=0), joined), whole=True)


def _padded(batch: Any, spec: Any, size: int) -> Any:
    """Return arrays [size, ...]: the rows of the batch, if there is one, and zeros."""

    def of_zeros(one: tf.TensorSpec) -> Any:
        return np.zeros((0, *one.shape[1:]), one.dtype.as_numpy_dtype)

    given = tf.nest.map_structure(of_zeros, spec) if batch is None else batch
    return tf.nest.map_structure(
        lambda one: np.concatenate([one, np.zeros((size - len(one), *one.shape[1:]), one.dtype)]), given
    )


def _rows(batch: Any) -> int:
    return len(tf.nest.flatten(batch)[-1])  # the label or the weight, which are dense


def _as_jax_takes_them(batch: Any) -> Any:
    return tf.nest.map_structure(_narrowed, batch)


def _narrowed(values: Any) -> Any:
    """Return int64 as int32, JAX's widest type by default. Raise InfeedError if a value does not fit."""
    if values.dtype != np.int64:
        return values
    if values.size and not (_INT32.min <= values.min() and values.max() <= _INT32.max):
        what = f"a feature has {max(values.min(), values.max(), key=abs)}, but JAX takes whole numbers of 32 bits"
        do = "number the values in Transform with a Vocabulary or Hash feature, or use the backend tensorflow"
        raise InfeedError(what, where="option backend", do=do)
    return values.astype(np.int32)
