"""Where batches wait: on the accelerators, where there are any, so that no step waits for a copy."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc

import tensorflow as tf

from infeed.components.feed.steps import Step
from infeed.components.trainer.strategy import describe


def accelerators(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Names of the GPUs or TPU cores of this process that the strategy trains on; none where it trains on CPUs."""
    if describe(strategy) == "parameter_server":
        return ()  # the other processes train
    if describe(strategy) == "one_device":
        return tuple(device.name for device in tf.config.list_logical_devices("GPU")[:1])
    return tuple(device for device in strategy.extended.worker_devices if _kind(device) != "CPU")


def feeding(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """The strategy that deals out the batches.

    It is the one that trains, but for TensorFlow's default strategy, which leaves batches on the host.
    `prefetch_to_device` would do less: Keras asks such a dataset for its cardinality, which no GPU can tell, and of
    ragged text it does not say that it has to stay on the host.
    """
    given = accelerators(strategy)
    if describe(strategy) == "one_device":
        if not given:
            return strategy
        strategy = tf.distribute.OneDeviceStrategy(given[0])
    _leave_iterators_at_exit()
    return strategy


def steps(strategy: tf.distribute.Strategy) -> tuple[Step, ...]:
    """What the plan says of it."""
    given = [":".join(device.split(":")[-2:]) for device in accelerators(strategy)]
    if not given:
        return ()
    does = f"copies the next batch to {given[0]}"
    if len(given) > 1:
        does = f"deals the next batch out to {', '.join(given)}"
    return (Step("device", f"{does} while the step runs", "a step finds its batch there; text stays on the host"),)


@functools.cache
def _leave_iterators_at_exit() -> None:
    """Has Python end without destroying what iterates over the batches of devices.

    Destroying such an iterator wakes the thread by which tf.data tunes it before telling it to end, so the thread may
    sleep on, and the process waits for it: up to a minute for each device, the more often the busier the machine is.
    """
    atexit.register(_keep_iterators)


def _keep_iterators() -> None:
    for one in gc.get_objects():
        if issubclass(type(one), tf.distribute.DistributedIterator):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def _kind(device: str) -> str:
    return str(tf.DeviceSpec.from_string(device).device_type)
