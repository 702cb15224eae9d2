"""One step: its driver, the look into the cache, and attempts until one succeeds or the job allows no more."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from infeed.components.errors import InfeedError
from infeed.pipelines.local.nodes import NodeState
from infeed.pipelines.rehearse import executor_io, placeholders, process
from infeed.pipelines.rehearse.dag import Spec, Task
from infeed.pipelines.rehearse.executor_io import Place
from infeed.pipelines.rehearse.faults import Faults, has_begun
from infeed.pipelines.rehearse.fingerprint import fingerprint
from infeed.pipelines.rehearse.launch import Launcher
from infeed.pipelines.rehearse.scope import Bundle, Result
from infeed.pipelines.rehearse.store import Artifact, Execution, Store
from infeed.pipelines.rehearse.vertex_training import trained_here, trains_elsewhere
from infeed.pipelines.rehearse.words import exit_in_words

_ON_PURPOSE = "killed on purpose"

Tell = Callable[[str], None]
"""Called with a few words on what the step does now."""


@dataclass(frozen=True)
class Stage:
    """What all steps of a rehearsal have in common.

    Attributes:
      root: of everything that is written.
      run: name of this rehearsal.
      pipeline: name of the pipeline; the cache and resolvers look no further.
      project: folder of the user's own files, in which the steps run.
      legacy: whether the job is of schema 2.0.
      use_cache: whether to look there at all.
      runs_drivers: whether ExampleGens look at their input before the cache is asked.
      job: values of the whole job that placeholders name.
    """

    root: Path
    run: str
    pipeline: str
    project: str
    legacy: bool
    use_cache: bool
    runs_drivers: bool
    job: Mapping[str, Any]
    launcher: Launcher
    faults: Faults
    store: Store

    def place(self, task: Task, attempt: str) -> Place:
        """A folder of its own for each attempt, so that none finds what another has left."""
        return Place(str(self.root / "artifacts" / self.run / task.node / attempt), name=f"{self.run}/{task.node}")

    def log(self, node: str) -> Path:
        """Everything that the attempts of a step print; beside it, with `.sh`, the command line of the last one."""
        return self.root / "logs" / self.run / f"{node}.log"


def run_step(task: Task, inputs: Bundle, stage: Stage, tell: Tell) -> Result:
    """Runs a container task as the cluster would.

    Raises:
      InfeedError: the job asks for something that cannot be, such as a placeholder for an input that is not there.
    """
    path = stage.log(task.node)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="replace") as log:
        step = _Step(task, stage, log, tell)
        try:
            return step.run(inputs)
        except _StepError as error:
            return Result(NodeState.FAILED, error=str(error))


class _StepError(Exception):
    """A process of the step failed; in words."""


class _Step:
    def __init__(self, task: Task, stage: Stage, log: IO[str], tell: Tell) -> None:
        assert task.executor is not None
        self._task, self._stage, self._log, self._tell = task, stage, log, tell
        self._container: Spec = task.executor["container"]
        self._env = {variable["name"]: variable["value"] for variable in self._container.get("env", ())}
        self._deaths = stage.faults.deaths.get(task.node, 0)

    def run(self, inputs: Bundle) -> Result:
        said = self._drive(inputs)
        inputs = replace(inputs, parameters={**inputs.parameters, **executor_io.output_values(said)})
        image = self._stage.launcher.image(self._container["image"])
        key = fingerprint(self._task, inputs, self._planned(said, self._place(1)), image)
        return self._cached(key) or self._execute(inputs, said, key)

    def _drive(self, inputs: Bundle) -> Any:
        """What the driver says: parameters, and metadata of the outputs; where those will be is not its to say."""
        driver = self._container.get("lifecycle", {}).get("preCacheCheck")
        if not (driver and self._stage.runs_drivers):
            return {}
        self._tell("driver")
        place = self._stage.place(self._task, "driver")
        try:
            self._start("driver", driver, inputs, self._planned({}, place), place)
        except _StepError as error:
            raise _StepError(f"the driver failed: {error}") from error
        said = executor_io.read_output(place)
        for found in said.get("artifacts", {}).values():
            for artifact in found["artifacts"]:
                artifact.pop("uri", None)
        return said

    def _cached(self, key: str) -> Result | None:
        if not (self._stage.use_cache and self._task.cacheable):
            return None
        hit = self._stage.store.cached(self._stage.pipeline, key)
        if not hit:
            return None
        artifacts = {k: [self._stage.store.artifact(name) for name in names] for k, names in hit.artifacts.items()}
        return Result(NodeState.CACHED, Bundle(hit.parameters, artifacts), note=f"made in {hit.run}")

    def _execute(self, inputs: Bundle, said: Any, key: str) -> Result:
        """Attempts until one succeeds; the job's pauses between them are left out."""
        allowed = self._task.retries + 1
        for attempt in range(1, allowed + 1):
            note = _of_attempts(attempt, allowed, self._deaths)
            self._tell(note)
            started = time.monotonic()
            try:
                outputs = self._attempt(attempt, inputs, said)
            except _StepError as error:
                reason = str(error)
                continue
            self._remember(outputs, key, time.monotonic() - started)
            return Result(NodeState.DONE, outputs, note=note)
        retries = f"the job allows {allowed} attempts" if allowed > 1 else "the job gives it no retries"
        return Result(NodeState.FAILED, error=f"{reason}; {retries}" if self._deaths else reason, note=note)

    def _attempt(self, number: int, inputs: Bundle, said: Any) -> Bundle:
        place = self._place(number)
        planned = self._planned(said, place)
        _put(place.output_file, said)
        dies = number <= self._deaths
        self._start(f"attempt {number}", self._container, inputs, planned, place, dies=dies)
        return executor_io.finished_outputs(planned, executor_io.read_output(place), self._task, place)

    def _place(self, attempt: int) -> Place:
        return self._stage.place(self._task, str(1 if self._task.node in self._stage.faults.leavings else attempt))

    def _planned(self, said: Any, place: Place) -> dict[str, Artifact]:
        return executor_io.updated(executor_io.planned_outputs(self._task, place), said)

    def _remember(self, outputs: Bundle, key: str, seconds: float) -> None:
        artifacts = [artifact for found in outputs.artifacts.values() for artifact in found]
        names = {k: [artifact.name for artifact in found] for k, found in outputs.artifacts.items()}
        stage = self._stage
        execution = Execution(stage.pipeline, stage.run, self._task.node, key, seconds, names, dict(outputs.parameters))
        stage.store.record(execution, artifacts)

    def _start(
        self,
        what: str,
        command: Spec,
        inputs: Bundle,
        outputs: Mapping[str, Artifact],
        place: Place,
        dies: bool = False,
    ) -> None:
        """Runs the container's command, or its driver's, once."""
        message = executor_io.executor_input(inputs, outputs, self._task, place, self._stage.legacy)
        view = executor_io.view(message, inputs, outputs, self._stage.job)
        uris = [artifact.uri for artifact in outputs.values()]
        _make_room(uris, message)
        argv = self._command_line([*command.get("command", ()), *command.get("args", ())], view)
        self._write_script(argv)
        self._say(f"--- {what}")
        begun = os.fstat(self._log.fileno()).st_size
        status = self._run(argv, (lambda: has_begun(uris)) if dies else None)
        if dies:
            self._say(f"--- {_ON_PURPOSE}")
            raise _StepError(_ON_PURPOSE)
        if status:
            raise _StepError(exit_in_words(status, self._stage.log(self._task.node), begun))

    def _command_line(self, arguments: Sequence[str], view: placeholders.View) -> list[str]:
        if not arguments:
            do = "name the command in the component, or in KubeflowV2DagRunnerConfig's default_commands"
            raise InfeedError("the job leaves the command to the image's entry point", where=self._task.node, do=do)
        words = placeholders.fill_arguments(arguments, view)
        return self._stage.launcher.command(trained_here(words) if trains_elsewhere(words) else words, self._env)

    def _run(self, argv: Sequence[str], dies_when: Callable[[], bool] | None) -> int:
        stage, env = self._stage, {**self._stage.launcher.environment, **self._env}
        try:
            return process.run(
                argv, cwd=stage.project, env=env, log=self._log, lock=stage.store.lock, dies_when=dies_when
            )
        except OSError as error:
            do = "rehearse inside the image that has it: --image NAME"
            raise InfeedError(f"cannot start {argv[0]!r}: {error.strerror}", where=self._task.node, do=do) from error

    def _write_script(self, argv: Sequence[str]) -> None:
        """What is started, so that it can be started again by hand."""
        env = {**self._stage.launcher.environment, **self._env}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        lines = ["#!/bin/sh", f"cd {shlex.quote(self._stage.project)}", *lines, f"exec {shlex.join(argv)}", ""]
        self._stage.log(self._task.node).with_suffix(".sh").write_text("\n".join(lines), encoding="utf-8")

    def _say(self, line: str) -> None:
        self._log.write(f"{line}\n")
        self._log.flush()


def _make_room(uris: Sequence[str], message: Any) -> None:
    """The folders that the launcher of Kubeflow makes: those round the outputs, not the outputs themselves."""
    files = [spec["outputFile"] for spec in message["outputs"]["parameters"].values()]
    for path in (*uris, *files, message["outputs"]["outputFile"]):
        os.makedirs(os.path.dirname(path), exist_ok=True)


def _put(path: str, said: Any) -> None:
    """Leaves what the driver said where the step looks for it, and nothing where there was no driver."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).unlink(missing_ok=True)
    if said:
        Path(path).write_text(json.dumps(said), encoding="utf-8")


def _of_attempts(attempt: int, allowed: int, deaths: int) -> str:
    if attempt == 1:
        return ""
    killed = min(attempt - 1, deaths)
    return f"attempt {attempt} of {allowed}" + (f", {killed} {_ON_PURPOSE}" if killed else "")
