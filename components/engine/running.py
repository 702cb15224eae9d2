"""A Beam pipeline in a thread, with an error if no worker answers or works any more.

Runners may not notice that workers die at their start: Beam's worker pool starts a process, and its job service waits
for it forever. The first worker therefore writes a file into a folder that this process can read. Runners may also not
notice that another job of the pool has stopped a worker. This process therefore counts the files of finished items, and
a worker with a long item rewrites its file every minute.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infeed.components.base.errors import InfeedError
from infeed.components.base.machine import stopped_by_sigterm
from infeed.components.base.units import counted
from infeed.components.dataset import files
from infeed.components.engine.beam_runner import Named

if TYPE_CHECKING:
    import apache_beam as beam

_POLL = 0.2  # seconds
_LOOK = 5.0  # seconds between two checks for an answer. Each costs a request to the store and one to the runner
_REMIND = 300.0  # seconds until the first warning. The wait until the next one doubles
_CANCEL = 10.0  # seconds for a request to the runner
_BEAT = 60.0  # seconds between the signs of life of a worker with a long item, and between the checks for them
_MISSED = 3  # signs that may be missed, whatever the timeout
_SILENT = "the job runs, but no worker has answered"
_STANDS = "the job runs, but no worker has finished an item or shown activity"
_DEPTH = 3  # nested folders of results
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerAnswer:
    """File that shows that workers are alive.

    Attributes:
      folder: folder that this process and all workers can access.
    """

    folder: str

    def give(self) -> None:
        """Write the file. Called in a worker."""
        if not self.is_given():
            files.write_bytes(self._path, b"")

    def is_given(self) -> bool:
        return files.exists(self._path)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Write the file with new content every minute until the body ends. Called in a worker."""
        self.give()
        ended = threading.Event()
        beats = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        beats.start()
        try:
            yield
        finally:
            ended.set()
            beats.join()  # the folder may be removed next

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(_BEAT):
            with suppress(Exception):  # a store's client may raise anything, and the next write may succeed
                files.write_bytes(self._path, secrets.token_hex(8).encode())

    def signs(self) -> tuple[int, bytes]:
        """Return values that change while workers work: the number of files in the folder, and the answer."""
        return len(files.list_files(self.folder, depth=_DEPTH)), files.read_bytes(self._path)

    @property
    def _path(self) -> str:
        return files.join(self.folder, "worker-answers")


class Running:
    """Pipeline that runs in a thread.

    Args:
      pipeline: pipeline whose workers write the answer before their first item.
      named: runner, and how long to wait for the answer.
    """

    def __init__(self, pipeline: beam.Pipeline, named: Named, answer: WorkerAnswer) -> None:
        self._pipeline, self._named, self._answer = pipeline, named, answer
        self._result: Any = None  # Beam's PipelineResult, once the job has been submitted
        self._error: BaseException | None = None
        self._given_up = False
        self._since: float | None = None  # when the runner first reported that the job runs, or the last sign came
        self._signs: object = None
        self._looked = self._reminded = 0.0
        # The thread needs the context variables of this thread, such as the listener for progress.
        run = functools.partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until the pipeline or the condition is done. Workers without a condition may be idle.

        Raises:
          InfeedError: the job runs, but no worker has answered in time, or all have done nothing since.
          Exception: the error of the pipeline.
        """
        self._since = None
        try:
            with stopped_by_sigterm():
                while self._thread.is_alive() and not until():
                    self._thread.join(_POLL)
                    self._look()
        except BaseException:  # Ctrl-C and SIGTERM must not leave a job on the runner either
            self._cancel()
            raise
        if self._error:
            raise self._error

    def join(self) -> None:
        """Wait until the pipeline ends, unless it has failed or was given up."""
        if not (self._error or self._given_up):
            self._thread.join()

    def _run(self) -> None:
        try:
            self._result = self._pipeline.run()
            self._result.wait_until_finish()
        except BaseException as error:  # raised where the result is awaited
            self._error = error

    def _look(self) -> None:
        """Check for the answer until it exists, and then for activity."""
        now, limit = time.monotonic(), self._named.worker_timeout
        answered = self._signs is not None
        if not limit or now - self._looked < min(_BEAT if answered else _LOOK, limit / 4):
            return
        self._looked = now
        if answered or self._answer.is_given():
            self._look_for_signs(now)
        elif not self._job_runs():
            self._since = None  # a job in a queue or without machines has no workers yet, which is no error
        elif self._since is None:
            self._since, self._reminded = now, _REMIND
        elif now - self._since > limit:
            self._give_up(_SILENT, "If they only start slowly")
        elif now - self._since > self._reminded:
            _log.warning("%s for %d seconds: %s", _SILENT, now - self._since, _advice(self._named))
            self._reminded *= 2

    def _look_for_signs(self, now: float) -> None:
        signs = self._signs
        with suppress(OSError, InfeedError):  # the folder may change, or the store fail; the next check decides
            signs = self._answer.signs()
        if signs != self._signs or self._since is None or not self._job_runs():
            self._signs, self._since = signs, now
        elif now - self._since > max(self._named.worker_timeout, _MISSED * _BEAT):
            self._give_up(_STANDS, "If the runner only waits for machines")

    def _job_runs(self) -> bool:
        with suppress(Exception):  # if the request fails, the thread has the error, or the next check decides
            return str(self._result.state) == "RUNNING"
        return False

    def _cancel(self) -> None:
        self._given_up = True
        # In a thread, because a request to a dead runner may hang.
        cancel = threading.Thread(target=_cancel, args=(self._result,), daemon=True)
        cancel.start()
        cancel.join(_CANCEL)

    def _give_up(self, stands: str, but: str) -> None:
        what = f"{stands} for {counted(self._named.worker_timeout, 'second')}"
        do = f"{_advice(self._named)}. {but}, set --worker_timeout=SECONDS in Beam's options"
        raise InfeedError(what, where=self._named.place, do=do)


def _advice(named: Named) -> str:
    path = ", whose bin folder must come first in the pool's PATH" if named.pool else ""
    own = ", and each TaskManager needs a separate pool" if named.pool else ""
    return (
        f"read {named.logs}, where workers report why they ended: they need this package and the same Python "
        f"environment{path}{own}"
    )


def _cancel(result: Any) -> None:
    with suppress(Exception):  # the runner is gone, or cannot cancel
        result.cancel()
