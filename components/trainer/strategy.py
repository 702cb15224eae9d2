"""Distribution strategies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infeed.components.errors import InfeedError
from infeed.components.feed.options import ALONE, Workers

if TYPE_CHECKING:
    import tensorflow as tf

NAMES = ("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu", "parameter_server")
_OF_SEVERAL_PROCESSES = ("multi_worker_mirrored", "tpu", "parameter_server")


def check_name(name: str) -> None:
    """Raises InfeedError unless there is a strategy of that name; needs no TensorFlow."""
    if name not in NAMES:
        raise InfeedError(
            f"there is no strategy {name!r}", where="option strategy", do=f"Use one of {', '.join(NAMES)}."
        )


def make_strategy(name: str, workers: Workers = ALONE) -> tf.distribute.Strategy:
    """The strategy of that name on this machine. Call it before TensorFlow has run anything.

    `auto` is `multi_worker_mirrored` where TF_CONFIG names several workers, else `mirrored` where there are several
    GPUs (or, without any, several logical CPUs, as tests set them), else `one_device`. `one_device` is TensorFlow's
    default strategy: the first GPU, or the CPU.

    Raises:
      InfeedError: there is no strategy of that name, it cannot train on several workers, there is no TPU, or TF_CONFIG
        names workers with several GPUs for parameter servers.
    """
    import tensorflow as tf

    from infeed.components.trainer import parameter_server

    check_name(name)
    if workers.count > 1 and name not in ("auto", *_OF_SEVERAL_PROCESSES):
        raise InfeedError(
            f"strategy {name!r} trains in one process, and TF_CONFIG names {workers.count} workers",
            where="option strategy",
            do="Use multi_worker_mirrored or auto, or start one process without TF_CONFIG.",
        )
    if name == "tpu":
        return _tpu()
    if name == "parameter_server":
        return parameter_server.connect()
    if name == "multi_worker_mirrored" or workers.count > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()


def describe(strategy: tf.distribute.Strategy) -> str:
    """The strategy's name, whatever name it was asked for by."""
    import tensorflow as tf

    kinds = {
        "tpu": tf.distribute.TPUStrategy,
        "parameter_server": tf.distribute.ParameterServerStrategy,
        "multi_worker_mirrored": tf.distribute.MultiWorkerMirroredStrategy,
        "mirrored": tf.distribute.MirroredStrategy,
    }
    return next((name for name, kind in kinds.items() if isinstance(strategy, kind)), "one_device")


def check_batch_size(batch_size: int, strategy: tf.distribute.Strategy) -> None:
    """Raises InfeedError unless every replica can get the same number of examples of a global batch."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise InfeedError(
            f"a global batch of {batch_size} cannot be dealt out equally to {replicas} replicas",
            where="FeedOptions.batch_size",
            do=f"Use a multiple of {replicas}, such as {max(1, batch_size // replicas) * replicas}.",
        )


def check_xla(xla: bool | None, strategy: tf.distribute.Strategy) -> None:
    """Raises InfeedError where XLA is asked for and the step would have to talk to other replicas from inside of it."""
    if xla and describe(strategy) in ("mirrored", "multi_worker_mirrored", "parameter_server"):
        raise InfeedError(
            f"xla is asked for under the strategy {describe(strategy)}",
            where="option xla",
            do="Use it with one_device, or leave it out.",
        )


def check_for_tpu(inputs: dict[str, Any]) -> None:
    """Raises InfeedError unless a TPU can take the features: dense numbers of a shape that is known beforehand.

    Args:
      inputs: TypeSpec of each feature, [batch, ...].
    """
    import tensorflow as tf

    for name, spec in inputs.items():
        dense = isinstance(spec, tf.TensorSpec) and spec.shape[1:].is_fully_defined()
        if not dense or spec.dtype == tf.string:
            raise InfeedError(
                f"a TPU cannot take the feature {name!r}: {spec}",
                where="strategy tpu",
                do="Let Transform make numbers of a fixed shape of it: look words up in a vocabulary, pad lists.",
            )


def _tpu() -> tf.distribute.Strategy:
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect("local")
    except (TypeError, ValueError, tf.errors.OpError) as error:  # a TensorFlow without TPU support gives a TypeError
        raise InfeedError(
            "there is no TPU",
            where="strategy tpu",
            do="Run on a TPU VM with a TensorFlow that was built for it, or use the strategy auto.",
        ) from error
    return tf.distribute.TPUStrategy(resolver)
