"""The one place that knows strategies and devices: it makes a strategy by its name, checks what it can train, deals
batches out to its replicas and devices, and lets its workers talk to each other.

Which process this is, and of which cluster, `cluster` reads beforehand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.columns import is_static_number
from infeed.components.feed.options import SINGLE_WORKER, WorkerContext
from infeed.components.feed.row_batches import CallRows, deal_rows
from infeed.components.feed.stages.batches import PrefetchToDevice
from infeed.components.seams import tensorflow as tensorflow_seam
from infeed.components.trainer import cluster
from infeed.components.trainer.options import check_strategy

_OF_SEVERAL_PROCESSES = ("multi_worker_mirrored", "tpu", "parameter_server")
_TALK_WITHIN_A_STEP = ("mirrored", "multi_worker_mirrored", "parameter_server")


def make_strategy(name: str, workers: WorkerContext = SINGLE_WORKER) -> tf.distribute.Strategy:
    """The strategy of that name on this machine. Call it before TensorFlow has run anything.

    `auto` is `multi_worker_mirrored` where TF_CONFIG names several workers, else `mirrored` where there are several
    GPUs (or, without any, several logical CPUs, as tests set them), else `one_device`. `one_device` is TensorFlow's
    default strategy: the first GPU, or the CPU.

    Raises:
      InfeedError: there is no strategy of that name, it cannot train on several workers, there is no TPU, or TF_CONFIG
        names workers with several GPUs for parameter servers.
    """
    check_strategy(name)
    if workers.count > 1 and name not in ("auto", *_OF_SEVERAL_PROCESSES):
        raise InfeedError(
            f"strategy {name!r} trains in one process, and TF_CONFIG names {workers.count} workers",
            where="option strategy",
            do="use multi_worker_mirrored or auto, or start one process without TF_CONFIG",
        )
    if name == "tpu":
        return _tpu()
    if name == "parameter_server":
        return cluster.connect()
    if name == "multi_worker_mirrored" or workers.count > 1:
        if workers.count > 1:
            cluster.warn_of_open_port()
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """The strategy's name, whatever name it was asked for by."""
    kinds = {
        "tpu": tf.distribute.TPUStrategy,
        "parameter_server": tf.distribute.ParameterServerStrategy,
        "multi_worker_mirrored": tf.distribute.MultiWorkerMirroredStrategy,
        "mirrored": tf.distribute.MirroredStrategy,
    }
    return next((name for name, kind in kinds.items() if isinstance(strategy, kind)), "one_device")


def is_coordinated(strategy: tf.distribute.Strategy) -> bool:
    """Whether one process schedules what the others do, as with parameter servers."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def check_batch_size(batch_size: int, strategy: tf.distribute.Strategy) -> None:
    """Raises InfeedError unless every replica can get the same number of examples of a global batch."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise InfeedError(
            f"batch_size is {batch_size}, which {replicas} replicas cannot share equally",
            where="FeedOptions.batch_size",
            do=f"use a multiple of {replicas}, such as {max(1, batch_size // replicas) * replicas}",
        )


def check_xla(xla: bool | None, strategy: tf.distribute.Strategy) -> None:
    """Raises InfeedError where XLA is asked for and the step would have to talk to other replicas from inside of it."""
    if xla and strategy_name(strategy) in _TALK_WITHIN_A_STEP:
        raise InfeedError(
            f"xla is asked for under the strategy {strategy_name(strategy)}",
            where="option xla",
            do="use it with one_device, or leave it out",
        )


def check_for_tpu(inputs: dict[str, Any]) -> None:
    """Raises InfeedError unless a TPU can take the features: dense numbers of a shape that is known beforehand.

    Args:
      inputs: TypeSpec of each feature, [batch, ...].
    """
    for name, spec in inputs.items():
        if not is_static_number(spec):
            raise InfeedError(
                f"a TPU cannot take the feature {name!r}: {spec}",
                where="strategy tpu",
                do="let Transform make numbers of a fixed shape of it: look words up in a vocabulary, pad lists",
            )


def distribute(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy, batch_size: int) -> Any:
    """This worker's batches, each dealt out in equal parts to the replicas of this worker, and copied to their devices.

    So the next batch waits on the accelerators, where there are any, and no step waits for a copy.

    Args:
      dataset: [batch of this worker, ...]; in evaluation the last batch may be short. Or `CallRows`.
      strategy: the one that trains.
      batch_size: of the global batch, a multiple of the number of replicas.
    """

    def deal(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        if replicas == 1:
            return dataset
        if isinstance(dataset.element_spec, CallRows):
            return deal_rows(dataset, replicas)
        return dataset.rebatch(batch_size // context.num_replicas_in_sync)

    if is_coordinated(strategy):
        return tf.distribute.coordinator.ClusterCoordinator(strategy).create_per_worker_dataset(dataset)
    return distributing(strategy).distribute_datasets_from_function(deal)


def accelerators(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Names of the GPUs or TPU cores of this process that the strategy trains on; none where it trains on CPUs."""
    if strategy_name(strategy) == "parameter_server":
        return ()  # the other processes train
    if strategy_name(strategy) == "one_device":
        return tuple(device.name for device in tf.config.list_logical_devices("GPU")[:1])
    return tuple(device for device in strategy.extended.worker_devices if _kind(device) != "CPU")


def distributing(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """The strategy that deals out the batches.

    It is the one that trains, but for TensorFlow's default strategy, which leaves batches on the host.
    `prefetch_to_device` would do less: Keras asks such a dataset for its cardinality, which no GPU can tell, and of
    ragged text it does not say that it has to stay on the host.
    """
    given = accelerators(strategy)
    if strategy_name(strategy) == "one_device":
        if not given:
            return strategy
        strategy = tf.distribute.OneDeviceStrategy(given[0])
    tensorflow_seam.leave_iterators_at_exit()
    return strategy


def gathering_devices(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Names of the devices of this process whose steps can gather their rows themselves, one for each replica.

    None where other processes train, and on TPUs, where a step is compiled as a whole.
    """
    if is_coordinated(strategy) or strategy_name(strategy) == "tpu":
        return ()
    if strategy_name(strategy) == "one_device":
        return accelerators(strategy) or ("/device:CPU:0",)
    return tuple(strategy.extended.worker_devices)


def device_steps(strategy: tf.distribute.Strategy) -> tuple[PrefetchToDevice, ...]:
    """What the plan says of it."""
    devices = tuple(":".join(device.split(":")[-2:]) for device in accelerators(strategy))
    return (PrefetchToDevice(devices),) if devices else ()


def all_reduce_mean(value: float, strategy: tf.distribute.Strategy) -> float:
    """The mean of all replicas' values, the same on every worker; float32 on the way."""
    if is_coordinated(strategy):
        return value  # nobody else measures or decides

    @tf.function
    def mean(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(lambda: tf.identity(value)), axis=None)

    return float(mean(tf.constant(value, tf.float32)))


def all_gather(value: int, strategy: tf.distribute.Strategy) -> list[int]:
    """The values that the workers give, one for each replica, in the same order everywhere."""
    return [int(one) for one in _gathering(strategy)(tf.constant(value, tf.int64))]


def gather_seconds(measured: Sequence[float], strategy: tf.distribute.Strategy) -> list[float]:
    """What each worker measured, to a microsecond, in order of their numbers and the same on every one of them.

    Args:
      measured: by this process; already of all workers where it schedules what they do.
    """
    replicas = strategy.num_replicas_in_sync
    if is_coordinated(strategy) or replicas == 1:
        return list(measured)
    here = len(strategy.extended.worker_devices)
    if replicas == here:
        return list(measured)
    (own,) = measured
    return [one / 1e6 for one in all_gather(round(1e6 * own), strategy)[::here]]


@functools.cache  # traced once: it is called in every epoch
def _gathering(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function
    def gathered(value: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.reshape(value, [1])), axis=0)

    return gathered  # type: ignore[no-any-return]


def barrier(strategy: tf.distribute.Strategy) -> None:
    """Returns when every worker has called it."""
    all_reduce_mean(0.0, strategy)


def _tpu() -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect("local")
    except (TypeError, ValueError, tf.errors.OpError) as error:  # a TensorFlow without TPU support gives a TypeError
        raise InfeedError(
            "there is no TPU",
            where="strategy tpu",
            do="run on a TPU VM with a TensorFlow that was built for it, or use the strategy auto",
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _kind(device: str) -> str:
    return str(tf.DeviceSpec.from_string(device).device_type)
