"""Runs of compiled jobs on a platform: the request, the status with its steps, the outcome, and schedules.

This module imports no platform's client, because each import takes seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Protocol

from rich.text import Text

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import CompiledJob, Task
from infeed.pipelines.console.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LOST, LostError
from infeed.pipelines.console.nodes import NodeReport, NodeState
from infeed.pipelines.console.terminal import command_line

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 300.0
# Errors of Python, Kubernetes and Vertex AI if an image is missing, or has other packages than the job expects.
_IMAGE = re.compile(
    r"No module named|ImportError|cannot import name|ErrImagePull|ImagePullBackOff|InvalidImageName"
    r"|executable file not found|failed to pull|unexpected keyword argument|unrecognized arguments",
    re.IGNORECASE,
)
# Form of a field of a cron expression, and bounds of minute, hour, day, month and day of week.
_FIELD = re.compile(r"[\w*/,-]+")
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_TO_7 = re.compile(r"(?:(?P<first>\d)-)?7(?:/(?P<step>[1-9]))?")
_KUBEFLOW_STATES = {
    "PENDING": NodeState.WAITING,
    "RUNNING": NodeState.RUNNING,
    "CANCELING": NodeState.RUNNING,
    "PAUSED": NodeState.RUNNING,
    "SUCCEEDED": NodeState.DONE,
    "SKIPPED": NodeState.SKIPPED,
    "FAILED": NodeState.FAILED,
    "CANCELED": NodeState.SKIPPED,
}
_VERTEX_STATES = {
    "STATE_UNSPECIFIED": NodeState.WAITING,
    "PENDING": NodeState.WAITING,
    "SUCCEEDED": NodeState.DONE,
    "FAILED": NodeState.FAILED,
    "CANCELLED": NodeState.SKIPPED,
    "SKIPPED": NodeState.CACHED,  # the API documents it as "due to cache hit"
    "NOT_TRIGGERED": NodeState.SKIPPED,
}
_ENDINGS = {
    "finished": Text("finished", style="green"),
    "cancelled": Text("cancelled", style="bold red"),
    "started": Text("the run continues on the cluster; see its page for progress, or use --wait to follow a run"),
    "left": Text("stopped waiting; the run continues on the cluster, and its page can stop it"),
    "unknown": Text("lost contact with the run, which continues on the cluster", style="bold yellow"),
}
_EXITS = {"failed": EXIT_FAILED, "cancelled": EXIT_FAILED, "unknown": EXIT_LOST, "left": EXIT_INTERRUPTED}


@dataclass(frozen=True)
class SubmitRequest:
    """Request to start a run."""

    job: CompiledJob
    name: str  # displayed name of the run
    parameters: Mapping[str, Any]  # values of runtime parameters, as `read_parameters` returns them
    experiment: str | None = None  # experiment that lists the run. None for the platform's default
    service_account: str | None = None  # service account of the steps. None for the platform's default
    cache: bool = True  # whether steps may reuse outputs of earlier runs if the job allows caching


class SilentError(InfeedError):
    """The platform does not answer. A later request may succeed."""


class RunState(str, Enum):
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class RunStatus:
    """Status of a run: its steps in the order of execution, and the platform's error message after a failure."""

    state: RunState
    steps: tuple[NodeReport, ...]
    error: str | None = None
    look: Mapping[str, str] = field(default_factory=dict)  # commands that show logs and cause, after a failure

    @property
    def failed(self) -> NodeReport | None:
        return next((step for step in self.steps if step.state is NodeState.FAILED), None)


class Run(Protocol):
    """A started run. The methods raise InfeedError if the platform does not answer."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def link(self) -> str:
        """URL of the run in the platform's user interface."""

    @property
    def warning(self) -> str | None:
        """Problem that does not affect the run itself, if any."""

    def status(self) -> RunStatus: ...


@contextlib.contextmanager
def starting(
    translated: contextlib.AbstractContextManager[None], may_have_begun: Callable[[BaseException | None], bool]
) -> Iterator[None]:
    """Wrap the request that starts a run, because the platform may start the run and its answer may get lost.

    The context `translated` converts errors of the platform's client to InfeedErrors. `may_have_begun` reports whether
    the run may have started despite an error of the client. Raises LostError if the run may have started.
    """
    try:
        with translated:
            yield
    except InfeedError as error:
        if not may_have_begun(error.__cause__):
            raise
        what = f"the run may have started: {error.what}"
        raise LostError(what, where=error.where, do="check the list of runs before you submit again") from error


def last_words(error: BaseException | None) -> str:
    """Return the cause in an error message: `Connection refused` for `<HTTPConnection object at 0x7f...>: ...`."""
    words = re.sub(r"^\[Errno -?\d+\] ", "", str(error).rpartition(": ")[2])
    return words.strip(" ')\"") or type(error).__name__


def follow(run: Run) -> Iterator[RunStatus]:
    """Yield the status of the run every few seconds, until the run has ended.

    Raises InfeedError if the platform has not answered for some minutes, or the run no longer exists.
    """
    answered = time.monotonic()
    while True:
        try:
            status = run.status()
        except SilentError:  # the network may change, and the server may restart
            if time.monotonic() - answered > PATIENCE_SECONDS:
                raise
        else:
            answered = time.monotonic()
            yield status
            if status.state is not RunState.RUNNING:
                return
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class SubmissionOutcome:
    """Outcome of a submission.

    The state is a `RunState`, or `started` without waiting, `left` after an interrupt, `unknown` if the platform
    stopped answering. In the last three states the run continues on the cluster.
    """

    run: Run
    state: str
    status: RunStatus | None = None  # last known status
    reason: str | None = None  # why the state is unknown

    @property
    def exit_code(self) -> int:
        return _EXITS.get(self.state, 0)

    def advice(self, images: Sequence[str]) -> str | None:
        """Return advice on the job's images if the error messages point to an image."""
        failed = self.status.failed if self.status else None
        said = [self.status.error if self.status else None, failed.error if failed else None]
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
            "look": dict(self.status.look) if self.status else {},
            "advice": self.advice(images),
        }

    def as_text(self, images: Sequence[str]) -> Text:
        """Return the outcome as lines rather than a table, so that a user can copy whole commands."""
        if self.state == RunState.FAILED.value and self.status is not None:
            step = self.status.failed
            lines = [Text(f"failed at {step.name}" if step else "failed", style="bold red")]
            if error := (step and step.error) or self.status.error:
                lines.append(Text(error))
            shown = {"page": self.run.link, **self.status.look}
            lines += [Text(f"{name:<5} {where}") for name, where in shown.items()]
        else:
            lines = [_ENDINGS[self.state], *([Text(self.reason)] if self.reason else [])]
        if self.run.warning:
            lines.append(Text(self.run.warning, style="bold yellow"))
        if advice := self.advice(images):
            lines.append(Text(f"next  {advice}", style="bold"))
        return Text("\n").join(lines)


def blames_image(texts: Iterable[str | None]) -> bool:
    """Report whether error messages point to the container image."""
    return any(_IMAGE.search(text) for text in texts if text)


@dataclass(frozen=True)
class RunSchedule:
    """A schedule on the platform; `link` is its page in the platform's user interface."""

    id: str
    name: str
    link: str
    warning: str | None = None  # problem that does not affect the schedule itself


def kubeflow_steps(planned: Sequence[Task], tasks: Sequence[Any]) -> tuple[NodeReport, ...]:
    """Return a report for each planned task, from kfp's `V2beta1PipelineTaskDetail`s.

    The server lists the nodes of an Argo workflow by display name. A step `Trainer` has a node of that name and a node
    `Trainer-driver`, which reads the cache.

    Source: toApiPipelineTaskDetail in backend/src/apiserver/server/api_converter.go of
    https://github.com/kubeflow/pipelines.
    """
    named = {task.display_name: task for task in tasks}
    steps = []
    for each in planned:
        own, driver = named.get(each.name), named.get(f"{each.name}-driver")
        error = next((task.error.message for task in (driver, own) if task is not None and task.error), None)
        steps.append(NodeReport(each.name, _kubeflow_state(own, driver), _seconds(own or driver), error=error))
    return tuple(steps)


def _kubeflow_state(own: Any, driver: Any) -> NodeState:
    if driver is not None and driver.state == "FAILED":
        return NodeState.FAILED
    if own is None:
        return NodeState.WAITING if driver is None else NodeState.RUNNING
    # Argo omits the state of a task if an upstream task failed.
    return _KUBEFLOW_STATES.get(own.state, NodeState.WAITING)


def _seconds(task: Any) -> float:
    began = task and task.start_time
    if not began or began.year < 2000:  # a task that has not started has the year 1 or 1970
        return 0.0
    ended = task.end_time if task.end_time and task.end_time >= began else datetime.now(timezone.utc)
    return float((ended - began).total_seconds())


def vertex_steps(names: Sequence[str], tasks: Iterable[Any]) -> tuple[NodeReport, ...]:
    """Return a report for each name, from `PipelineTaskDetail`s of google-cloud-aiplatform."""
    found = {task.task_name: task for task in tasks}
    steps = []
    for name in names:
        if (task := found.get(name)) is None:
            steps.append(NodeReport(name))
            continue
        state = _VERTEX_STATES.get(task.state.name, NodeState.RUNNING)
        steps.append(NodeReport(name, state, _seconds(task), error=task.error.message or None))
    return tuple(steps)


def check_cron(expression: str) -> str:
    """Return a cron expression with single spaces.

    Raises InfeedError if the expression does not have five fields, minute, hour, day, month and day of week, or a
    number is out of range.
    """
    fields = expression.split()
    fits = len(fields) == 5
    for text, (least, most) in zip(fields, _BOUNDS, strict=False):
        numbers = map(int, re.findall(r"(?<![/\w])\d+", text))  # a number after / is a step
        fits = fits and bool(_FIELD.fullmatch(text)) and all(least <= number <= most for number in numbers)
    if not fits:
        what = f"{expression!r} is not a cron expression of five fields, each in its range"
        do = "give minute, hour, day, month and day of week, for example '0 6 * * 1-5' for 6:00 on weekdays"
        raise InfeedError(what, where="--cron", do=do)
    return " ".join(fields)


def sundays_as_0(expression: str) -> str:
    """Return a cron expression of five fields whose days of the week are 0 to 6. Kubeflow's server accepts no 7."""
    *fields, days = expression.split()
    return " ".join((*fields, ",".join(map(_without_7, days.split(",")))))


def _without_7(days: str) -> str:
    """Return an item of the field, such as `5-7`, or if it contains day 7, its days: `5,6,0`."""
    found = _TO_7.fullmatch(days)
    if not found:
        return days
    numbers = range(int(found["first"] or 7), 8, int(found["step"] or 1))
    return ",".join(dict.fromkeys(str(day % 7) for day in numbers))
