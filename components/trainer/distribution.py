"""Strategies and devices: create and check strategies, distribute batches, and exchange values between workers.

`cluster` first reads the cluster and the role of this process.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.capacity import short_name
from infeed.components.feed.columns import is_static_number
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext, share_of_batch
from infeed.components.feed.row_batches import CallRows, deal_rows
from infeed.components.feed.stages.batches import PrefetchToDevice
from infeed.components.seams import tensorflow as tensorflow_seam
from infeed.components.trainer import cluster
from infeed.components.trainer.options import check_strategy

_log = logging.getLogger(__name__)
_OF_SEVERAL_PROCESSES = ("multi_worker_mirrored", "tpu")
_TALK_WITHIN_A_STEP = ("mirrored", "multi_worker_mirrored")


def make_strategy(name: str, workers: WorkerContext = SINGLE_WORKER) -> tf.distribute.Strategy:
    """Create the strategy with this name. Must be called before TensorFlow runs an operation.

    `auto` is `multi_worker_mirrored` if TF_CONFIG names several workers, else `mirrored` if there are several GPUs (or
    no GPU and several logical CPUs, as in tests), else `one_device`. `one_device` is TensorFlow's default strategy: the
    first GPU, or the CPU.

    Raises:
      InfeedError: the strategy does not exist, or cannot train on several workers, or there is no TPU.
    """
    check_strategy(name)
    if workers.count > 1 and name not in ("auto", *_OF_SEVERAL_PROCESSES):
        what = f"strategy {name!r} trains in one process, but TF_CONFIG names {workers.count} workers"
        do = "use multi_worker_mirrored or auto, or start one process without TF_CONFIG"
        raise InfeedError(what, where="option strategy", do=do)
    if name == "tpu":
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect("local")
        except (TypeError, ValueError, tf.errors.OpError) as error:  # TypeError: TensorFlow without TPU support
            do = "run on a TPU VM with a TensorFlow built for TPUs, or use the strategy auto"
            raise InfeedError("there is no TPU", where="strategy tpu", do=do) from error
        return tf.distribute.TPUStrategy(resolver)
    if name == "multi_worker_mirrored" or workers.count > 1:
        if workers.count > 1:
            cluster.warn_of_open_port()
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()


def without_accelerators() -> tf.distribute.Strategy:
    """Leave the GPUs to JAX, and return TensorFlow's default strategy, for the feed on CPUs.

    TensorFlow cannot release the GPUs that it has already opened in this process.
    """
    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        _log.warning("TensorFlow opened the GPUs before JAX: set TF_FORCE_GPU_ALLOW_GROWTH=true")
    return tf.distribute.get_strategy()


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """Return the name of a strategy, which is never `auto`."""
    kinds = {
        "tpu": tf.distribute.TPUStrategy,
        "multi_worker_mirrored": tf.distribute.MultiWorkerMirroredStrategy,
        "mirrored": tf.distribute.MirroredStrategy,
    }
    return next((name for name, kind in kinds.items() if isinstance(strategy, kind)), "one_device")


def check_batch_size(batch_size: int, strategy: tf.distribute.Strategy) -> None:
    """Raise InfeedError unless every replica can get the same number of examples of a global batch."""
    share_of_batch(batch_size, strategy.num_replicas_in_sync, "replicas")


def check_xla(xla: bool | None, strategy: tf.distribute.Strategy) -> None:
    """Raise InfeedError if XLA is requested but the step must communicate with other replicas."""
    if xla and strategy_name(strategy) in _TALK_WITHIN_A_STEP:
        do = "use it with one_device, or leave it out"
        raise InfeedError(f"xla is set with the strategy {strategy_name(strategy)}", where="option xla", do=do)


def check_for_tpu(inputs: dict[str, Any]) -> None:
    """Raise InfeedError unless TPUs accept the features [batch, ...]: dense numbers of a static shape."""
    for name, spec in inputs.items():
        if not is_static_number(spec):
            do = "convert it to numbers of a fixed shape in Transform: apply a vocabulary to text, pad lists"
            raise InfeedError(f"a TPU does not accept the feature {name!r}: {spec}", where="strategy tpu", do=do)


def distribute(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy, batch_size: int) -> Any:
    """Distribute this worker's batches in equal parts to its replicas, and copy the parts to their devices.

    The next batch is already on the accelerators, so no step waits for a copy.

    Args:
      dataset: [batch of this worker, ...]; in evaluation the last batch may be short. Or `CallRows`.
      batch_size: size of the global batch, a multiple of the number of replicas.
    """

    def deal(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        if replicas == 1:
            return dataset
        if isinstance(dataset.element_spec, CallRows):
            return deal_rows(dataset, replicas)
        return dataset.rebatch(batch_size // context.num_replicas_in_sync)

    return distributing(strategy).distribute_datasets_from_function(deal)


def accelerators(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Return the names of this process's GPUs or TPU cores that the strategy trains on; none if it trains on CPUs."""
    if strategy_name(strategy) == "one_device":
        return tuple(device.name for device in tf.config.list_logical_devices("GPU")[:1])
    devices = strategy.extended.worker_devices
    return tuple(device for device in devices if tf.DeviceSpec.from_string(device).device_type != "CPU")


def distributing(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """Return the strategy that distributes the batches.

    It is the training strategy, unless that is TensorFlow's default strategy, which leaves batches on the host.
    `prefetch_to_device` is not used: Keras reads its cardinality, which fails on a GPU, and ragged text does not stay
    on the host.
    """
    given = accelerators(strategy)
    if strategy_name(strategy) == "one_device":
        if not given:
            return strategy
        strategy = tf.distribute.OneDeviceStrategy(given[0])
    tensorflow_seam.leave_iterators_at_exit()
    return strategy


def gathering_devices(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Return the names of this process's devices whose steps can gather their rows, one for each replica.

    The result is empty on TPUs, which compile a step as a whole.
    """
    if strategy_name(strategy) == "tpu":
        return ()
    if strategy_name(strategy) == "one_device":
        return accelerators(strategy) or ("/device:CPU:0",)
    return tuple(strategy.extended.worker_devices)


def device_steps(strategy: tf.distribute.Strategy) -> tuple[PrefetchToDevice, ...]:
    """Return the stages of the plan that copy batches to devices."""
    devices = tuple(map(short_name, accelerators(strategy)))
    return (PrefetchToDevice(devices),) if devices else ()


def all_reduce_mean(value: float, strategy: tf.distribute.Strategy) -> float:
    """Return the mean of all replicas' values, the same on every worker, computed in float32."""
    return float(_averaging(strategy)(tf.constant(value, tf.float32)))


def all_gather(value: int, strategy: tf.distribute.Strategy) -> list[int]:
    """Return the values of all replicas, in the same order on every worker."""
    return [int(one) for one in _gathering(strategy)(tf.constant(value, tf.int64))]


def gather_seconds(measured: Sequence[float], strategy: tf.distribute.Strategy) -> list[float]:
    """Return the measurement of each worker, to a microsecond, in the same order on every worker."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return list(measured)
    here = len(strategy.extended.worker_devices)  # fails under TensorFlow's default strategy
    if replicas == here:
        return list(measured)
    (own,) = measured
    return [one / 1e6 for one in all_gather(round(1e6 * own), strategy)[::here]]


@functools.cache  # traced once, because it is called at every checkpoint
def _averaging(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function
    def mean(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(lambda: tf.identity(value)), axis=None)

    return mean  # type: ignore[no-any-return]


@functools.cache  # traced once, because it is called in every epoch
def _gathering(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function
    def gathered(value: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.reshape(value, [1])), axis=0)

    return gathered  # type: ignore[no-any-return]


def barrier(strategy: tf.distribute.Strategy) -> None:
    """Return when every worker has called this function."""
    all_reduce_mean(0.0, strategy)
