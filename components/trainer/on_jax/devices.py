"""Devices that train together, all of this process or of a cluster, and their batches, made ahead by a thread."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.meter import Meter
from infeed.components.feed.options import WorkerContext, share_of_batch
from infeed.components.trainer import cluster
from infeed.components.trainer.options import TrainOptions

_AHEAD = 2  # batches that are on the devices before a step takes them
_INT32 = np.iinfo(np.int32)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Devices:
    """JAX's devices, and how Keras distributes batches to them."""

    distribution: keras.distribution.DataParallel
    workers: WorkerContext

    @classmethod
    def start(cls, options: TrainOptions) -> Devices:
        """Join the cluster, if there is one, and choose the devices. Must run before any computation of JAX.

        Raise InfeedError if the devices cannot share a batch equally, or `one_device` would leave processes unused.
        """
        import jax

        workers = cluster.jax_workers()
        if workers.count > 1 and options.strategy == "one_device":
            what = f"strategy is 'one_device', but there are {workers.count} processes"
            raise InfeedError(what, where="option strategy", do="use auto, or start one process")
        if workers.count > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")  # none by default before JAX 0.5
            # Processes on CPUs could otherwise start the collectives of several steps in different orders, and hang.
            jax.config.update("jax_cpu_enable_async_dispatch", False)
            machines, _ = cluster.cluster_here()
            first = [machines[task][0] for task in cluster.TRAINING_TASKS if machines.get(task)]
            # Without an address, JAX knows the first process, as on a TPU pod.
            address = first[0] if first else os.environ.get("JAX_COORDINATOR_ADDRESS")
            keras.distribution.initialize(address, workers.count, workers.index)
        found = jax.local_devices()[:1] if options.strategy == "one_device" else jax.devices()
        share_of_batch(options.feed.batch_size, len(found), "devices")
        _log.info("training on JAX %s: %s x %s", jax.__version__, len(found), found[0].device_kind)
        names = [f"{one.platform}:{one.id}" for one in found]
        return cls(keras.distribution.DataParallel(devices=names, auto_shard_dataset=False), workers)

    @property
    def count(self) -> int:
        return int(self.distribution.device_mesh.devices.size)

    def gather(self, values: Sequence[float]) -> list[float]:
        """Return this worker's values, followed or preceded by those of the others, in the order of the workers."""
        if self.workers.count == 1:
            return list(values)
        return [float(one) for one in self.gather_rows(np.asarray(values, np.float32))]

    def gather_rows(self, batch: Any) -> Any:
        """Return the arrays [rows, ...] of all workers, joined to [workers x rows, ...]. Shapes must be equal."""
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(batch, tiled=True) if self.workers.count > 1 else batch

    def place(self, batch: Any, *, whole: bool = False) -> Any:
        """Copy NumPy arrays [batch of this worker, ...] to the devices: an equal share to each, or the whole to all."""
        import jax

        mesh = self.distribution.device_mesh.backend_mesh
        spec = jax.sharding.PartitionSpec() if whole else jax.sharding.PartitionSpec(self.distribution.batch_dim_name)
        sharding = jax.sharding.NamedSharding(mesh, spec)
        return jax.tree.map(lambda one: jax.make_array_from_process_local_data(sharding, one), batch)


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
        yield devices.place(tf.nest.map_structure(_narrowed, batch))


def evaluation_batches(dataset: tf.data.Dataset, devices: Devices, size: int) -> Iterator[Any]:
    """Yield the same number of global batches on each worker. Batches of fewer than `size` rows are whole everywhere.

    Every metric counts each row once, because the batches are not padded.
    """

    def no_rows(one: tf.TensorSpec) -> Any:
        return np.zeros((0, *one.shape[1:]), one.dtype.as_numpy_dtype)

    def padded(one: Any) -> Any:
        return np.concatenate([one, np.zeros((size - len(one), *one.shape[1:]), one.dtype)])

    batches = dataset.as_numpy_iterator()
    while True:
        batch = next(batches, None)
        rows = 0 if batch is None else len(tf.nest.flatten(batch)[-1])  # the label or the weight, which are dense
        of_workers = [int(one) for one in devices.gather([rows])]
        if not any(of_workers):
            return
        batch = tf.nest.map_structure(no_rows, dataset.element_spec) if batch is None else batch
        batch = tf.nest.map_structure(_narrowed, batch)
        if min(of_workers) == size:
            yield devices.place(batch)
        else:
            kept = np.concatenate([worker * size + np.arange(count) for worker, count in enumerate(of_workers)])
            joined = devices.gather_rows(tf.nest.map_structure(padded, batch))
            yield devices.place(tf.nest.map_structure(partial(np.take, indices=kept, axis=0), joined), whole=True)


def _narrowed(values: Any) -> Any:
    """Return int64 as int32, JAX's widest type by default. Raise InfeedError if a value does not fit."""
    if values.dtype != np.int64:
        return values
    if values.size and not (_INT32.min <= values.min() and values.max() <= _INT32.max):
        what = f"a feature has {max(values.min(), values.max(), key=abs)}, but JAX takes whole numbers of 32 bits"
        do = "number the values in Transform with a Vocabulary or Hash feature, or use the backend tensorflow"
        raise InfeedError(what, where="option backend", do=do)
    return values.astype(np.int32)


_log = logging.getLogger(__name__)
