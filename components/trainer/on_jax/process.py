"""The process that trains on JAX, seen from the process of the Trainer's step."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from typing import Any

import keras

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError
from infeed.components.trainer.model_inputs import ModelInputs

ARGUMENTS = (
    *("train_files", "eval_files", "train_steps", "eval_steps", "transform_graph_path", "schema_path"),
    *("serving_model_dir", "model_run_dir", "base_model", "custom_config", "hyperparameters"),
)
Built = tuple[keras.Model, ModelInputs]


def train(fn_args: Any, build: Callable[..., Built]) -> Built:
    """Train in another process, which also writes `input_profile.json`. Return the trained model and its inputs.

    Args:
      fn_args: TFX's FnArgs.
      build: (ModelSpec, features {name: TypeSpec [batch, ...]}, whether training resumes) -> the model on TensorFlow.

    Raises:
      InfeedError: training failed, or its process died.
    """
    if importlib.util.find_spec("jax") is None:
        do = "pip install 'tfx-infeed[jax]'"
        raise InfeedError("the package jax is not installed", where="option backend", do=do)
    built: Built | None = None
    with _process() as (process, connection):
        connection.send({name: getattr(fn_args, name) for name in ARGUMENTS})
        while True:
            try:
                kind, given = connection.recv()
            except (EOFError, ConnectionResetError):  # the process has ended
                break
            # The model is built on TensorFlow, too, for the export. Both start with the same weights.
            if kind == "build":
                built = build(*given)
                connection.send(built[0].get_weights())
            elif kind == "trained":
                assert built, "a model is trained after it is built"
                built[0].set_weights(given)
            elif kind == "progress":
                progress.report(given[0], is_result=given[1])
            elif kind == "log":
                logging.getLogger(given.name).handle(given)
            else:
                raise given
        if status := process.wait():
            died = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            do = "read its output above; after a lost process or machine, start again: training resumes"
            raise InfeedError(f"the process that trains on JAX has ended ({died})", where="option backend", do=do)
    assert built, "a process that ends well has trained"
    return built


@contextmanager
def _process() -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """Yield the process and the connection to it. The process does not outlive the body."""
    here, there = Pipe()
    # Functions of the user must be importable there, as they are here.
    added = {"KERAS_BACKEND": "jax", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-m", "infeed.components.trainer.on_jax", str(there.fileno())],
        env={**os.environ, **added},
        pass_fds=[there.fileno()],
    )
    there.close()
    try:
        yield process, here
    finally:
        here.close()
        process.kill()
        process.wait()
