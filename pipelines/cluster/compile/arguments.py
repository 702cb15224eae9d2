"""Compression of long parameters of a compiled step, because Linux limits the length of an argument."""

from __future__ import annotations

import json

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.kubeflow.message import ARGUMENT, is_packed, pack
from infeed.pipelines.cluster.job.compiled import IN_PLACE, STEP, Task

LIMIT = 128 << 10
"""Bytes of one argument, with its final zero byte: MAX_ARG_STRLEN, https://man7.org/linux/man-pages/man2/execve.2.html."""
_LONG = 8 << 10  # bytes of a parameter; shorter ones stay readable
_ARTIFACTS = 16 << 10  # bytes reserved in the message for artifacts with their types and metadata


def shorten(task: Task, *, launcher: bool) -> None:
    """Compress the long parameters of a step in place, and select the entry point that decompresses them.

    The parameters of a step with a driver stay as they are, because TFX's driver reads them too. Without Kubeflow's
    launcher (`launcher`), artifacts keep their URIs. Raises InfeedError if an argument is still too long.
    """
    container = task.container
    assert container is not None, "only a container has arguments"
    given = task.spec.get("inputs", {}).get("parameters", {})
    expands = task.driver is None and ARGUMENT in container.get("args", ())  # only TFX's steps have this argument
    constants = [value.get("runtimeValue", {}) for value in given.values() if expands]
    texts = [value for value in constants if isinstance(value.get("constant"), str)]
    long = [value for value in texts if len(value["constant"]) > _LONG]
    for value in long:
        value["constant"] = pack(value["constant"])
    if long:
        container["command"] = [*STEP, *(() if launcher else (IN_PLACE,))]
    words = [*container.get("command", ()), *container.get("args", ())]
    lengths = {f"parameter {name}": len(json.dumps(value).encode()) for name, value in given.items()}
    lengths |= {"the config" if is_packed(word) else f"argument {word[:40]}": len(word.encode()) for word in words}
    # The launcher passes all parameters in one argument, so their sum counts, and each word of the command by itself.
    message = sum(length for name, length in lengths.items() if name.startswith("parameter")) + _ARTIFACTS
    name, longest = max(lengths.items(), key=lambda item: item[1], default=("", 0))
    if max(message, longest) >= LIMIT:
        what = f"{name} has {size(longest)}, and a step takes {size(LIMIT)} in one argument"
        do = "use fewer columns (--columns), or shorter names of columns"
        raise InfeedError(what, where=f"step {task.node}", do=do)
