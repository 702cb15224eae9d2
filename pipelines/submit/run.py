"""A compiled job as a run on a platform: what is asked for, what the platform says of it, and what became of it.

It imports no client of a platform: each takes seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from rich.text import Text

from infeed.components.errors import InfeedError
from infeed.pipelines.console.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LOST, LostError
from infeed.pipelines.console.nodes import NodeReport, NodeState
from infeed.pipelines.console.terminal import command_line
from infeed.pipelines.job.compiled import CompiledJob

POLL_SECONDS = 5.0
_WRITE = {NodeState.RUNNING, NodeState.DONE, NodeState.FAILED}
# What Python, Kubernetes and Vertex AI say when an image is not there, or holds other packages than the job expects.
_IMAGE = re.compile(
    r"No module named|ImportError|cannot import name|ErrImagePull|ImagePullBackOff|InvalidImageName"
    r"|executable file not found|failed to pull|unexpected keyword argument|unrecognized arguments",
    re.IGNORECASE,
)
_ENDINGS = {
    "finished": Text("finished", style="green"),
    "cancelled": Text("cancelled", style="bold red"),
    "started": Text("it runs by itself now; its page shows how far it is, and --wait would have stayed with it"),
    "left": Text("not waiting any more; the run goes on by itself, and is stopped on its page"),
    "unknown": Text("lost sight of the run, which goes on by itself", style="bold yellow"),
}
_EXITS = {"failed": EXIT_FAILED, "cancelled": EXIT_FAILED, "unknown": EXIT_LOST, "left": EXIT_INTERRUPTED}


@dataclass(frozen=True)
class SubmitRequest:
    """What to start.

    Attributes:
      job: as compiled.
      name: of the run, as people see it.
      parameters: values for this run, as `read_parameters` makes them.
      experiment: what the platform shall list the run under; its default by default.
      service_account: whose rights the steps have; the platform's default by default.
      cache: whether steps may take the outputs of an earlier run, where the job itself allows it.
    """

    job: CompiledJob
    name: str
    parameters: Mapping[str, Any]
    experiment: str | None = None
    service_account: str | None = None
    cache: bool = True


class RunState(str, Enum):
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Step(NodeReport):
    """A node as the platform shows it; of one that runs, `seconds` is how long it has.

    Attributes:
      jobs: what executes it, an attempt each: pods, or custom jobs.
      log: where its log is: a link, or a command that prints it.
    """

    jobs: tuple[str, ...] = ()
    log: str | None = None


@dataclass(frozen=True)
class RunStatus:
    """A run at one moment: its steps in the order of execution, and the platform's own words if it failed."""

    state: RunState
    steps: tuple[Step, ...]
    error: str | None = None

    @property
    def failed(self) -> Step | None:
        return next((step for step in self.steps if step.state is NodeState.FAILED), None)


class Run(Protocol):
    """A run that was started. Its methods raise InfeedError where the platform cannot be asked."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def link(self) -> str:
        """Its page in the platform's user interface."""

    @property
    def warning(self) -> str | None:
        """What did not work beside it."""

    def status(self) -> RunStatus: ...
    def new_lines(self, step: Step) -> Sequence[str]:
        """What the step has written since the last call; nothing where its log cannot be had, or not yet."""

    def log_tail(self, step: Step, lines: int) -> Sequence[str]:
        """The last lines of a step's log; fewer, or none, where it cannot be had."""


@contextlib.contextmanager
def starting(
    translated: contextlib.AbstractContextManager[None], may_have_begun: Callable[[BaseException | None], bool]
) -> Iterator[None]:
    """Round the request that starts a run: the platform may have done it, and its answer been lost.

    Args:
      translated: makes InfeedErrors of what the platform's client raises.
      may_have_begun: whether that error of the client leaves it open.

    Raises:
      LostError: it is open.
    """
    try:
        with translated:
            yield
    except InfeedError as error:
        if not may_have_begun(error.__cause__):
            raise
        what = f"it is not known whether the run was started: {error.what}"
        raise LostError(what, where=error.where, do="look at the list of runs before you submit again") from error


def last_words(error: BaseException | None) -> str:
    """`Connection refused` out of `<HTTPConnection object at 0x7f...>: Failed to establish a new connection: ...`."""
    words = re.sub(r"^\[Errno -?\d+\] ", "", str(error).rpartition(": ")[2])
    return words.strip(" ')\"") or type(error).__name__


def follow(run: Run) -> Iterator[RunStatus]:
    """The run's state every few seconds, at last the one it ended in. Raises what `run.status` raises."""
    while True:
        status = run.status()
        yield status
        if status.state is not RunState.RUNNING:
            return
        time.sleep(POLL_SECONDS)


class NewLines:
    """What the steps of a run write, each line once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ended: set[str] = set()

    def __call__(self, steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
        """Pairs of a step's name and a line, of those that run and, once more, of those that have ended."""
        for step in steps:
            if step.state not in _WRITE or step.name in self._ended:
                continue
            if step.state is not NodeState.RUNNING:
                self._ended.add(step.name)
            for line in self._run.new_lines(step):
                yield step.name, line


@dataclass(frozen=True)
class SubmissionOutcome:
    """A run as far as it was followed.

    Attributes:
      state: a `RunState`; or `started` where nobody waited, `left` where waiting was stopped, and `unknown` where the
        platform could not be asked any more. In these three the run goes on by itself.
      status: the last one that was seen.
      log_tail: the last lines of the failed step's log, where the platform gives them.
      reason: why the state is unknown.
    """

    run: Run
    state: str
    status: RunStatus | None = None
    log_tail: Sequence[str] = ()
    reason: str | None = None

    @property
    def exit_code(self) -> int:
        return _EXITS.get(self.state, 0)

    def advice(self, images: Sequence[str]) -> str | None:
        """What to look at first after a failure, where what was said points to one of the job's `images`."""
        failed = self.status.failed if self.status else None
        said = [self.status.error if self.status else None, failed.error if failed else None, *self.log_tail]
        if self.state != RunState.FAILED.value or not images or not blames_image(said):
            return None
        return f"compare the image with this machine: {command_line('doctor', '--image', images[0])}"

    def as_json(self, images: Sequence[str]) -> dict[str, Any]:
        return {
            "run": {"id": self.run.id, "name": self.run.name, "link": self.run.link},
            "state": self.state,
            "error": self.reason or (self.status.error if self.status else None),
            "warning": self.run.warning,
            "steps": [dataclasses.asdict(step) for step in self.status.steps] if self.status else [],
            "log_tail": list(self.log_tail),
            "advice": self.advice(images),
        }

    def as_text(self, images: Sequence[str]) -> Text:
        """How it ended, line by line and not as a table, so that a command can be copied whole."""
        if self.state == RunState.FAILED.value and self.status is not None:
            lines = self._failure(self.status)
        else:
            lines = [_ENDINGS[self.state], *([Text(self.reason)] if self.reason else [])]
        if self.run.warning:
            lines.append(Text(self.run.warning, style="bold yellow"))
        if advice := self.advice(images):
            lines.append(Text(f"next  {advice}", style="bold"))
        return Text("\n").join(lines)

    def _failure(self, status: RunStatus) -> list[Text]:
        step = status.failed
        lines = [Text(f"failed at {step.name}" if step else "failed", style="bold red")]
        if error := (step and step.error) or status.error:
            lines.append(Text(error))
        lines += [Text(f"  {line}", style="dim") for line in self.log_tail]
        return [*lines, Text(f"log   {step.log}")] if step and step.log else lines


def blames_image(texts: Iterable[str | None]) -> bool:
    """Whether what a failed step said points to its container image rather than to its work."""
    return any(_IMAGE.search(text) for text in texts if text)
