"""A Python that has imported large modules once, and forks for each command line: `server.py SOCKET PROCESS NAME`.

Tests that start many processes would import TensorFlow, TFX and JAX in each, for six to ten seconds. Where it forks
nothing has run yet, and so TensorFlow, JAX and gRPC have started no thread. `sitecustomize.py` says what is to be run,
and `serve` returns in the process that is to do it. What TensorFlow and JAX read from the environment while they are
imported is the server's. It ends with the process whose number it was given.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import types
import warnings
from typing import Any

MODULES = {
    "tfx": (
        "tensorflow",
        "tfx.components",
        "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor",
        "tfx.orchestration.kubeflow.v2.file_based_example_gen.driver",
        "tfx.orchestration.local.local_dag_runner",
        "infeed.components",
        "infeed.components.trainer.run_fn",
        "infeed.pipelines.cli",
    ),
    "jax": (
        "infeed.components.trainer.on_jax.devices",
        "infeed.components.trainer.on_jax.training",
        "keras.src.export",
    ),
}
_FILES_MOST = 16  # open files that a process is handed


def warm_up(name: str) -> None:
    """Imports, and keeps the garbage collector away from what was imported."""
    for module in MODULES[name]:
        importlib.import_module(module)
    from tensorflow.python.eager import context

    assert context.context()._context_handle is None, "TensorFlow has started: a fork would be without its threads"
    if name == "jax":
        from jax._src import xla_bridge

        assert not xla_bridge.backends_are_initialized(), "JAX has started: a fork would be without its threads"
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def serve(address: str, owner: int) -> dict[str, Any]:
    """Forks for each command line until `owner`, a pidfd, ends; returns it in the process that is to run it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, owner], [], [])
            if owner in ready:
                os._exit(0)
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                os.close(owner)
                return watch(connection)
            connection.close()


def watch(connection: socket.socket) -> dict[str, Any]:
    """Watches over a process until it ends, or the one that asked for it; returns the command line in that process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(connection, 1, _FILES_MOST)
    order: dict[str, Any] = json.loads(connection.makefile().readline())
    if not (process := os.fork()):
        connection.close()
        os.setsid()
        place(files, order["files"])
        return order
    for file in files:
        os.close(file)
    connection.sendall(b"%d\n" % process)
    ended = os.pidfd_open(process)
    ready, _, _ = select.select([ended, connection], [], [])
    if ended in ready:
        connection.sendall(b"%d\n" % os.waitpid(process, 0)[1])
    else:  # the one that asked for it has been killed
        os.killpg(process, signal.SIGKILL)
    os._exit(0)


def place(files: list[int], numbers: list[int]) -> None:
    """Gives open files the numbers that they had in the process that was started."""
    above = max(*files, *numbers) + 1
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, above) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def run(order: dict[str, Any]) -> None:
    """As Python runs such a command line."""
    warnings.filterwarnings("ignore", module="runpy")  # that what it runs has been imported
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    if "INFEED_TEST_WITHOUT_GRAPPLER" in os.environ:  # as in the tests' own process, with which some compare
        sys.modules["tensorflow"].config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    first, *rest = order["argv"]
    if first == "-c":
        sys.path, sys.argv = ["", *order["path"]], ["-c", *rest[1:]]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
    elif first == "-m":
        sys.path, sys.argv = [order["cwd"], *order["path"]], rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path, sys.argv = [os.path.dirname(os.path.realpath(first)), *order["path"]], order["argv"]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    warm_up(sys.argv[3])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who watch
    run(serve(sys.argv[1], os.pidfd_open(int(sys.argv[2]))))
