"""Runs one step: its driver, the cache lookup, and attempts until one succeeds or no retries are left."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.kubeflow import disk
from infeed.pipelines.cluster.job.compiled import JOB, STEP, Spec, Task
from infeed.pipelines.cluster.rehearse import executor_io, launch
from infeed.pipelines.cluster.rehearse.executor_io import (
    Artifact,
    AttemptDir,
    Kfp,
    TaskIO,
    TaskResult,
    View,
    fill_arguments,
)
from infeed.pipelines.cluster.rehearse.launch import Faults, Launcher, Pod, describe_exit, has_begun, pod_below
from infeed.pipelines.cluster.rehearse.store import Execution, Store
from infeed.pipelines.console.nodes import NodeState

_ON_PURPOSE = "killed on purpose"
# A rehearsal trains in the step itself, even if the job would start machines or a service.
NOTE = "trained as one process"
"""Remark in the report of a step that would start machines."""
ENTRY_POINT = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_HERE = {  # executor that starts a custom job of Vertex AI -> executor that the machines of the job run
    "infeed.components.trainer.vertex_executor.VertexExecutor": "infeed.components.trainer.executor.TrainerExecutor",
    "tfx.extensions.google_cloud_ai_platform.trainer.executor.GenericExecutor": (
        "tfx.components.trainer.executor.GenericExecutor"
    ),
}

OnProgress = Callable[[str], None]
"""Callback for a short note on the progress of the step."""


@dataclass(frozen=True)
class RunContext:
    """Settings that all steps of a rehearsal share."""

    root: Path  # folder of all outputs
    run: str  # name of this rehearsal
    pipeline: str  # name of the pipeline: the scope of the cache and of resolvers
    project: str  # folder of the user's files, and working directory of the steps
    legacy: bool  # whether the job has schema 2.0
    use_cache: bool
    kfp: Kfp | None  # version of Kubeflow Pipelines, which runs no drivers; None for Vertex AI
    job: Mapping[str, Any]  # values of the whole job for placeholders
    launcher: Launcher
    faults: Faults
    store: Store
    artifacts: str = ""  # folder of all artifacts in a store, if Kubeflow's launcher is imitated
    stop: threading.Event = field(default_factory=threading.Event)  # ends all steps

    @property
    def runs_drivers(self) -> bool:
        """Whether drivers of ExampleGens run before the cache lookup."""
        return self.kfp is None

    def attempt_dir(self, task: Task, name: str, attempt: int = 1) -> AttemptDir:
        """Return the output folder `name` of an attempt."""
        below = f"{self.run}/{task.node}/{name}"
        here = str(self.root / "artifacts")
        return AttemptDir(
            os.path.join(here, below),
            f"{self.run}/{task.node}",
            files.join(self.artifacts, below) if self.artifacts else "",
            kfp=self.kfp,
            pod=str(self.pod(task) or ""),
            root=files.join(self.artifacts or here, self.run),
            attempt=attempt,
        )

    def pod(self, task: Task) -> Path | None:
        """Return the folder for the disk of a step's pod, if the artifacts are in a store."""
        return self.root / "pods" / task.node if self.artifacts else None

    def log(self, node: str) -> Path:
        """Return the log file of a step. A file next to it, with `.sh`, holds the last command line."""
        return self.root / "logs" / self.run / f"{node}.log"


def run_step(task: Task, inputs: TaskIO, context: RunContext, tell: OnProgress) -> TaskResult:
    """Run a container task as a cluster does.

    Raises InfeedError if the job is invalid, for example because a placeholder names a missing input.
    """
    path = context.log(task.node)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="replace") as log:
        step = _StepRunner(task, context, log, tell)
        try:
            return step.run(inputs)
        except _StepError as error:
            return TaskResult(NodeState.FAILED, error=str(error))


class _StepError(Exception):
    """A process of the step failed."""


class _StepRunner:
    def __init__(self, task: Task, context: RunContext, log: IO[str], tell: OnProgress) -> None:
        assert task.executor is not None
        self._task, self._context, self._log, self._report = task, context, log, tell
        self._container: Spec = task.executor["container"]
        self._env = task.variables
        self._kills = context.faults.kills.get(task.node, 0)
        words = [*self._container.get("command", ()), *self._container.get("args", ())]
        self._remark = NOTE if in_one_process(words) != words else ""

    def run(self, inputs: TaskIO) -> TaskResult:
        said = self._drive(inputs)
        inputs = replace(inputs, parameters={**inputs.parameters, **executor_io.output_values(said)})
        image = self._context.launcher.image(self._container["image"])
        variables = self._container.get("env", []) if self._context.runs_drivers else []
        key = fingerprint(self._task, inputs, self._planned(said, self._attempt_dir(1)), image, variables)
        store = self._context.store
        may_reuse = self._context.use_cache and self._task.cacheable
        if may_reuse and (hit := store.cached(self._context.pipeline, key)):
            artifacts = {k: [store.artifact(name) for name in names] for k, names in hit.artifacts.items()}
            return TaskResult(NodeState.CACHED, TaskIO(hit.parameters, artifacts), note=f"made in {hit.run}")
        return self._execute(inputs, said, key)

    def _drive(self, inputs: TaskIO) -> Any:
        """Run the driver and return its output parameters and artifact metadata, without URIs."""
        driver = self._task.driver
        if not (driver and self._context.runs_drivers):
            return {}
        self._report("driver")
        attempt_dir = self._context.attempt_dir(self._task, "driver")
        try:
            self._start("driver", driver, inputs, self._planned({}, attempt_dir), attempt_dir, Pod())
        except _StepError as error:
            raise _StepError(f"the driver failed: {error}") from error
        said = executor_io.read_output(attempt_dir)
        # The artifacts get the folder of an attempt of the step, not that of the driver.
        for found in said.get("artifacts", {}).values():
            for artifact in found["artifacts"]:
                artifact.pop("uri", None)
        return said

    def _execute(self, inputs: TaskIO, said: Any, key: str) -> TaskResult:
        """Run attempts until one succeeds. Do not wait between attempts as a cluster does."""
        allowed = (self._task.retries or 0) + 1
        for attempt in range(1, allowed + 1):
            killed = min(attempt - 1, self._kills)
            attempts = f"attempt {attempt} of {allowed}" if attempt > 1 else ""
            note = ", ".join(filter(None, [attempts, f"{killed} {_ON_PURPOSE}" if killed else "", self._remark]))
            self._report(note)
            started = time.monotonic()
            try:
                outputs = self._attempt(attempt, inputs, said)
            except _StepError as error:
                reason = str(error)
                # An interrupt has ended the process, so no other attempt may start.
                if self._context.stop.is_set():
                    break
                continue
            context, seconds = self._context, time.monotonic() - started
            artifacts = [artifact for found in outputs.artifacts.values() for artifact in found]
            names = {k: [artifact.name for artifact in found] for k, found in outputs.artifacts.items()}
            execution = Execution(
                context.pipeline, context.run, self._task.node, key, seconds, names, dict(outputs.parameters)
            )
            context.store.record(execution, artifacts)
            return TaskResult(NodeState.DONE, outputs, note=note)
        retries = f"the job allows {allowed} attempts" if allowed > 1 else "the job gives it no retries"
        return TaskResult(NodeState.FAILED, error=f"{reason}; {retries}" if self._kills else reason, note=note)

    def _attempt(self, number: int, inputs: TaskIO, said: Any) -> TaskIO:
        attempt_dir = self._attempt_dir(number)
        planned = self._planned(said, attempt_dir)
        file = Path(attempt_dir.output_file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        if said:  # the driver's output, which the step reads and completes
            file.write_text(json.dumps(said), encoding="utf-8")
        dies = number <= self._kills
        places = [artifact.uri for found in inputs.artifacts.values() for artifact in found[:1]]
        where = f"deploy.resources.{self._task.node}.ephemeral_storage"
        could = self._task.could_read_directly
        self._move(lambda: disk.check_inputs(places, disk.limit_of(self._env), where, direct=could))
        kfp = self._context.kfp
        downloads_all = kfp is None or executor_io.since(kfp, "2.14")
        with pod_below(self._context.pod(self._task), downloads_all=downloads_all) as pod:
            self._move(lambda: pod.download(inputs.artifacts))
            self._start(f"attempt {number}", self._container, inputs, planned, attempt_dir, pod, dies=dies)
            output = executor_io.read_output(attempt_dir)
            outputs = executor_io.finished_outputs(planned, output, self._task, attempt_dir)
            self._move(lambda: pod.upload(outputs.artifacts))
        return outputs

    def _move(self, transfer: Callable[[], None]) -> None:
        try:
            transfer()
        except (InfeedError, OSError) as error:
            self._say(f"--- {error}")
            raise _StepError(str(error)) from error

    def _attempt_dir(self, attempt: int) -> AttemptDir:
        is_shared = self._task.node in self._context.faults.dirty_retries
        return self._context.attempt_dir(self._task, str(1 if is_shared else attempt), attempt)

    def _planned(self, said: Any, attempt_dir: AttemptDir) -> dict[str, Artifact]:
        return executor_io.updated(executor_io.planned_outputs(self._task, attempt_dir), said)

    def _start(
        self,
        what: str,
        command: Spec,
        inputs: TaskIO,
        outputs: Mapping[str, Artifact],
        attempt_dir: AttemptDir,
        pod: Pod,
        dies: bool = False,
    ) -> None:
        """Run the command of the container or of its driver once."""
        message = executor_io.executor_input(inputs, outputs, self._task, attempt_dir, self._context.legacy)
        if kfp := self._context.kfp:
            message = executor_io.handed(message, kfp, attempt_dir.logs, self._context.store.number)
        view = executor_io.view(message, inputs, outputs, self._context.job, pod.path)
        places = [pod.path(artifact.uri) for artifact in outputs.values()]
        written = [spec["outputFile"] for spec in message["outputs"].get("parameters", {}).values()]
        for path in (*places, *written, message["outputs"]["outputFile"]):
            os.makedirs(os.path.dirname(path), exist_ok=True)  # as Kubeflow's launcher does
        logs = Path(pod.path(attempt_dir.logs)) if kfp else None
        if logs:  # the driver creates this file before the step starts
            logs.parent.mkdir(parents=True, exist_ok=True)
            logs.write_bytes(b"")
        env = {**self._context.launcher.environment, **self._env, **pod.environment}
        argv = self._command_line([*command.get("command", ()), *command.get("args", ())], view, env)
        script = ["#!/bin/sh", f"cd {shlex.quote(self._context.project)}"]
        script += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        script += [f"exec {shlex.join(argv)}", ""]
        log = self._context.log(self._task.node)
        log.with_suffix(".sh").write_text("\n".join(script), encoding="utf-8")  # for users who repeat the command
        self._say(f"--- {what}")
        begun = os.fstat(self._log.fileno()).st_size
        status = self._run(argv, env, (lambda: has_begun(places)) if dies else None)
        if logs:
            logs.write_bytes(log.read_bytes()[begun:])
            self._move(lambda: pod.upload({executor_io.LOGS: [Artifact(executor_io.LOGS, {}, attempt_dir.logs)]}))
        if dies:
            self._say(f"--- {_ON_PURPOSE}")
            raise _StepError(_ON_PURPOSE)
        if status:
            raise _StepError(describe_exit(status, log, begun))

    def _command_line(self, arguments: Sequence[str], view: View, env: Mapping[str, str]) -> list[str]:
        if not arguments:
            do = "set the command in the component, or in KubeflowV2DagRunnerConfig's default_commands"
            raise InfeedError("the job leaves the command to the image's entry point", where=self._task.node, do=do)
        words = fill_arguments(arguments, view)
        return self._context.launcher.command(in_one_process(words), env)

    def _run(self, argv: Sequence[str], env: Mapping[str, str], dies_when: Callable[[], bool] | None) -> int:
        context = self._context
        try:
            return launch.run_process(
                argv,
                cwd=context.project,
                env=env,
                log=self._log,
                lock=context.store.lock,
                stop=context.stop,
                dies_when=dies_when,
            )
        except OSError as error:
            if error.errno == errno.E2BIG:
                what = f"the longest argument has {size(max(map(len, argv)))}, more than Linux allows"
                raise InfeedError(what, where=self._task.node, do="use fewer columns, and compile again") from error
            do = "rehearse in an image that has the program: --image NAME"
            raise InfeedError(f"cannot start {argv[0]!r}: {error.strerror}", where=self._task.node, do=do) from error

    def _say(self, line: str) -> None:
        self._log.write(f"{line}\n")
        self._log.flush()


def in_one_process(words: Sequence[str]) -> list[str]:
    """Return the command line of a step, changed so that the step trains by itself and starts no machines."""
    found = [*words]
    if STEP[-1] in found and JOB in found:
        place = found.index(JOB)
        del found[place : place + 2]  # with its value
    if {ENTRY_POINT, STEP[-1]}.isdisjoint(found):
        return found
    return [_HERE.get(word, word) for word in found]


def fingerprint(
    task: Task, inputs: TaskIO, planned: Mapping[str, Artifact], image: str, variables: Sequence[Spec] = ()
) -> str:
    """Return a digest of the inputs, the planned outputs and the container.

    The parts are those of GenerateCacheKey in Kubeflow's backend/src/v2/cacheutils/cache.go: names of input artifacts,
    output artifacts without URIs, and the command line with its placeholders. The digests differ from Kubeflow's.

    `variables` are the environment variables of the container, which only Vertex AI compares.
    """
    assert task.executor is not None
    container = task.executor["container"]
    key = {
        "inputArtifactNames": {k: [artifact.name for artifact in found] for k, found in inputs.artifacts.items()},
        "inputParameterValues": dict(inputs.parameters),
        "outputArtifactsSpec": {k: [dict(a.type), dict(a.metadata)] for k, a in planned.items()},
        "outputParametersSpec": task.outputs("parameters"),
        "containerSpec": [image, [*container.get("command", []), *container.get("args", [])], *variables],
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
