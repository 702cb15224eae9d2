"""Distribution strategies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.components.errors import InfeedError

if TYPE_CHECKING:
    import tensorflow as tf

NAMES = ("auto", "one_device", "mirrored")


def check_name(name: str) -> None:
    """Raises InfeedError unless there is a strategy of that name; needs no TensorFlow."""
    if name not in NAMES:
        raise InfeedError(
            f"there is no strategy {name!r}", where="option strategy", do=f"Use one of {', '.join(NAMES)}."
        )


def make_strategy(name: str) -> tf.distribute.Strategy:
    """The strategy of that name on this machine.

    `auto` is `mirrored` where there are several GPUs (or, without any, several logical CPUs, as tests set them), else
    `one_device`. `one_device` is TensorFlow's default strategy: the first GPU, or the CPU.

    Raises:
      InfeedError: there is no strategy of that name.
    """
    import tensorflow as tf

    check_name(name)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()


def describe(strategy: tf.distribute.Strategy) -> str:
    """`mirrored` or `one_device`, whatever name it was asked for by."""
    import tensorflow as tf

    return "mirrored" if isinstance(strategy, tf.distribute.MirroredStrategy) else "one_device"
