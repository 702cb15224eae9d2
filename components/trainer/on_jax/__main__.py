"""Training on JAX: the first module of its process. The argument is the number of the open connection to the parent."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from contextlib import closing
from functools import partial
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from infeed.components.base import progress, user_code
from infeed.components.base.errors import infeed_error


class Link:
    """Connection to the process of the Trainer's step. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, kind: str, given: Any) -> None:
        with self._lock:
            self._connection.send((kind, given))

    def receive(self) -> Any:
        return self._connection.recv()

    def exit_with_parent(self) -> None:
        """End this process as soon as the other one ends, which sends nothing more."""

        def wait() -> None:
            try:
                self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)

        threading.Thread(target=wait, daemon=True).start()


def main(link: Link) -> int:
    # The other process handles the records, as if training ran there.
    logger = logging.getLogger("infeed")
    logger.setLevel(logging.INFO)
    logger.addHandler(QueueHandler(SimpleNamespace(put_nowait=partial(link.send, "log"))))
    logger.propagate = False
    try:
        with user_code.translate_errors(), progress.listening(lambda *report: link.send("progress", report)):
            _train(SimpleNamespace(**link.receive()), link)
    except BaseException as error:
        told = infeed_error(error)
        if told is None:
            traceback.print_exc()
            return 1
        link.send("error", told)
    return 0


def _train(fn_args: Any, link: Link) -> None:
    from infeed.components.feed.shards import corrupt_record_context
    from infeed.components.feed.user_maps import map_error_context
    from infeed.components.trainer.cluster import chief_writes
    from infeed.components.trainer.on_jax.devices import Devices
    from infeed.components.trainer.on_jax.training import fit, profile_of
    from infeed.components.trainer.profile import write_profile_of
    from infeed.components.trainer.training import prepare, read_options

    devices = Devices.start(read_options(fn_args))
    training = prepare(fn_args, backend="jax")
    with (
        closing(training.train),
        closing(training.evaluation),
        chief_writes(training.places, training.workers) as places,
        corrupt_record_context([*training.train.plan.shards, *training.evaluation.plan.shards]),
        map_error_context(),
    ):

        def weights(*spec: Any) -> Any:
            link.send("build", spec)
            given = link.receive()
            # From here on, the other process sends nothing, so a thread may wait for its end.
            link.exit_with_parent()
            return given

        loop = fit(training, places, devices, weights)
        link.send("trained", loop.model.get_weights())
        write_profile_of(training, profile_of(loop, training.train.plan), places.run)


if __name__ == "__main__":
    sys.exit(main(Link(Connection(int(sys.argv[1])))))
