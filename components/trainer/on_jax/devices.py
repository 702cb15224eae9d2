"""Devices that train together: all of this process or, in a cluster, of all processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import WorkerContext, share_of_batch
from infeed.components.trainer import cluster
from infeed.components.trainer.options import TrainOptions

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
            keras.distribution.initialize(_coordinator(), workers.count, workers.index)
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


def _coordinator() -> str | None:
    """Return the address of the first process. None if JAX knows the address, as on a TPU pod."""
    machines, _ = cluster.cluster_here()
    first = [machines[task][0] for task in cluster.TRAINING_TASKS if machines.get(task)]
    return first[0] if first else os.environ.get("JAX_COORDINATOR_ADDRESS")
