"""Run a Beam pipeline beside other work, and end it if no worker answers.

A runner does not always notice that its workers die as they start: Beam's worker pool starts a process, and Beam's job
service waits for it without end. The first worker therefore writes a file into a folder that this process can read.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infeed.components.beam_runner import Named
from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.units import counted

if TYPE_CHECKING:
    import apache_beam as beam

_POLL = 0.2  # seconds
_LOOK = 5.0  # seconds between two looks for an answer. Each costs a request to the store and one to the runner
_REMIND = 300.0  # seconds until the first warning. The wait until the next one doubles
_CANCEL = 10.0  # seconds for a request to the runner
_SILENT = "the job runs, but no worker has answered"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerAnswer:
    """The file by which workers answer.

    Attributes:
      folder: folder that this process and all workers can access.
    """

    folder: str

    def give(self) -> None:
        """Leave the file, in a worker."""
        if not self.is_given():
            files.write_bytes(self._path, b"")

    def is_given(self) -> bool:
        return files.exists(self._path)

    @property
    def _path(self) -> str:
        return files.join(self.folder, "worker-answers")


class Running:
    """A pipeline that runs in a thread.

    Args:
      pipeline: its workers give the answer before their first item.
      named: runner, and how long to wait for the answer.
    """

    def __init__(self, pipeline: beam.Pipeline, named: Named, answer: WorkerAnswer) -> None:
        self._pipeline, self._named, self._answer = pipeline, named, answer
        self._result: Any = None  # of Beam, as soon as the job has been submitted
        self._error: BaseException | None = None
        self._given_up = False
        self._since: float | None = None  # when the runner first reported that the job runs
        self._looked = self._reminded = 0.0
        # The thread sees the context of this one, such as who listens to progress.
        run = functools.partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until the pipeline or the condition is done.

        Raises:
          InfeedError: the job runs, but no worker has answered in time.
          Exception: the error of the pipeline.
        """
        while self._thread.is_alive() and not until():
            self._thread.join(_POLL)
            self._look()
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
        """Look for the answer from time to time, until it is given."""
        now, limit = time.monotonic(), self._named.worker_timeout
        if not limit or now - self._looked < min(_LOOK, limit / 4):
            return
        self._looked = now
        if self._answer.is_given():
            self._looked = float("inf")
        elif not self._job_runs():
            self._since = None  # it waits for its turn, or for machines
        elif self._since is None:
            self._since, self._reminded = now, _REMIND
        elif now - self._since > limit:
            self._give_up()
        elif now - self._since > self._reminded:
            _log.warning("%s for %d seconds: %s", _SILENT, now - self._since, _advice(self._named))
            self._reminded *= 2

    def _job_runs(self) -> bool:
        with suppress(Exception):  # the request fails: the thread has the error, or the next look will know
            return str(self._result.state) == "RUNNING"
        return False

    def _give_up(self) -> None:
        self._given_up = True
        cancel = threading.Thread(target=_cancel, args=(self._result,), daemon=True)
        cancel.start()
        cancel.join(_CANCEL)
        what = f"{_SILENT} for {counted(self._named.worker_timeout, 'second')}"
        do = f"{_advice(self._named)}. If they only start slowly, set --worker_timeout=SECONDS in Beam's options"
        raise InfeedError(what, where=self._named.place, do=do)


def _advice(named: Named) -> str:
    log = "the log of the worker pool" if named.pool else "the logs of the workers"
    path = ", whose bin folder comes first in PATH of the pool" if named.pool else ""
    return (
        f"read {log}, where workers report why they end: they need this package and the same Python environment{path}"
    )


def _cancel(result: Any) -> None:
    with suppress(Exception):  # the runner is gone, or cannot cancel
        result.cancel()
