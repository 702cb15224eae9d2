"""TensorFlow: device memory, stages of datasets, iterators at exit, names in checkpoints, and texts of errors."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from infeed.components.seams.seam import Seam

_VERSIONS = ("2.16.2", "2.21.0")
DEVICE_MEMORY = Seam(
    "tensorflow",
    "memory limit of each GPU",
    ("tensorflow.python.client.device_lib:list_local_devices",),
    _VERSIONS,
    "the memory of GPUs is unknown, so the tier auto keeps columns in host memory",
)
ITERATORS = Seam(
    "tensorflow",
    "an exit that does not destroy iterators of devices",
    ("tensorflow:distribute.DistributedIterator",),
    _VERSIONS,
    "the process may wait up to a minute for each device when it ends",
)
ROW_SPECS = Seam(
    "tensorflow",
    "types of a row of a batch",
    tuple(f"tensorflow:{kind}TensorSpec._unbatch()" for kind in ("Ragged", "Sparse", "")),
    _VERSIONS,
    "map_examples fails; map_batches works",
)
DATASETS = Seam(
    "tensorflow",
    "transformations of a dataset",
    ("tensorflow:data.Dataset._inputs()",),
    _VERSIONS,
    "infeed measure reports the dataset of a user's function as one stage",
)
_OPERATION = re.compile(r"^(\{\{.*?\}\} *)+| \[Op:.*")
_NODE = re.compile(r"\{\{(?:function_)?node ([^}]+)\}\}")


def memory_limits() -> Mapping[str, int]:
    """Return the memory limit of each device in bytes, by TensorFlow's device name."""
    from tensorflow.python.client import device_lib  # the only module that reports limits

    return {device.name: device.memory_limit for device in device_lib.list_local_devices()}


def row_spec(spec: Any) -> Any:
    """Return the spec of a row, [...], from the spec of a batch, [batch, ...]."""
    ROW_SPECS.require("use map_batches, or install a tensorflow of docs/compatibility.md")
    return spec._unbatch()


def inputs_of(dataset: Any) -> list[Any]:
    """Return the input datasets of a dataset. Empty for a source."""
    return list(dataset._inputs()) if DATASETS.usable() else []


def mapped_graph(dataset: Any) -> Any | None:
    """Return the graph of a map dataset's function. None for any other dataset."""
    function = getattr(getattr(dataset, "_map_func", None), "function", None)
    return None if function is None else function.graph


def untuned(dataset: Any) -> Any:
    """Return the dataset without autotuning. AUTOTUNE then means one parallel call per CPU, at most 16.

    Destroying an iterator wakes its tuning thread before it sets the flag that ends the thread. The thread may go back
    to sleep, and the process then waits for it up to a minute. On a busy machine this happens often.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@functools.cache
def leave_iterators_at_exit() -> None:
    """End the process without destroying the iterators over batches on devices. `untuned` gives the reason."""
    if ITERATORS.usable():
        atexit.register(_keep_iterators)


def _keep_iterators() -> None:
    import tensorflow as tf

    for one in gc.get_objects():
        if issubclass(type(one), tf.distribute.DistributedIterator):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def name_in_checkpoint(path: str) -> str:
    """Return the name in a `tf.train.Checkpoint` of the variable at a path such as `weights/0`."""
    return f"{path}/.ATTRIBUTES/VARIABLE_VALUE"


def is_unregistered_operation(error: Exception) -> bool:
    """Report whether a graph needs an operation of a library that is not imported, such as tensorflow-text."""
    return "Op type not registered" in str(error)


def reason_of(text: str) -> str:
    """Return the first line of an error's text without the operation that failed."""
    return _OPERATION.sub("", text.partition("\n")[0])


def failed_operation(text: str, graph: Any) -> Any | None:
    """Return the innermost operation of a graph that an error's text names. None if the text names no operation."""
    for name in reversed(_NODE.findall(text)):
        parts = name.split("/")
        paths = ((begin, end) for begin in range(len(parts)) for end in range(len(parts), begin, -1))
        for begin, end in paths:  # the text may wrap the name in names of the calling graphs
            with suppress(KeyError, ValueError):
                return graph.get_operation_by_name("/".join(parts[begin:end]))
    return None


def message_of(text: str) -> str:
    """Return the message in an error's text: the line after the stack and before the node's name."""
    before = _NODE.sub("", text.partition("\n\t [[")[0]).strip()
    return before.splitlines()[-1].strip() if before else "no reason is given"
