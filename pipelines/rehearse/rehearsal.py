"""A compiled job and how to rehearse it in, what came of it out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.console.nodes import OnChange, RunReport
from infeed.pipelines.containers import find_engine
from infeed.pipelines.job.compiled import CompiledJob, Target, Task, leaves, walk
from infeed.pipelines.job.parameters import read_parameters
from infeed.pipelines.rehearse.custom_job import EXECUTORS, starts_custom_job
from infeed.pipelines.rehearse.dag_executor import DagExecutor
from infeed.pipelines.rehearse.executor_io import Artifact, TaskIO
from infeed.pipelines.rehearse.launch import ContainerLauncher, Faults, Launcher, LocalLauncher
from infeed.pipelines.rehearse.locations import Locations, PathMapping
from infeed.pipelines.rehearse.step import RunContext
from infeed.pipelines.rehearse.store import Store, open_store

# What a rehearsal refuses: what the target would refuse, what a step would start elsewhere, what has no stand-in.


# What a command line names when its step hands the work to a service: such a step costs money wherever it runs.
_SERVICES = {
    "tfx.extensions.google_cloud_ai_platform.": "Vertex AI",
    "google_cloud_pipeline_components.": "Google Cloud",
    "--runner=DataflowRunner": "Dataflow",
    "DataflowRunner": "Dataflow",  # after `--runner` as a word of its own
}


def check_tasks(tasks: tuple[Task, ...], target: Target) -> None:
    """Raises InfeedError where the target would refuse the job, or a task cannot be rehearsed here."""
    for task in walk(tasks):
        if task.is_loop:
            do = "rehearse a job without it"
            raise InfeedError("a loop over items cannot be rehearsed", where=_where(task), do=do)
    for task in leaves(tasks):
        _check_executor(task, target)
        for service in _services(task):
            raise InfeedError(
                f"{task.node} would hand its work to {service}, which is not rehearsed here",
                do="compile without it, such as deploy.vertex's endpoint and dataflow, and rehearse that",
            )


def _check_executor(task: Task, target: Target) -> None:
    executor = task.executor or {}
    if not executor.keys() & {"container", "importer", "resolver"}:
        kind = next(iter(executor), "nothing")
        do = "compile the job for Kubeflow: there it is a container"
        raise InfeedError(f"executor {kind!r} cannot be rehearsed", where=_where(task), do=do)
    if "resolver" in executor and target == "kubeflow":
        raise InfeedError(
            f"Kubeflow's backend runs no resolvers, and refuses the job for {task.node}",
            do="compile it with --target kubeflow, which leaves them out, or rehearse it for Vertex AI",
        )


def _where(task: Task) -> str:
    return f"task {'/'.join(task.path)}"


def _services(task: Task) -> Iterator[str]:
    container = task.container or {}
    words = [*container.get("command", ()), *container.get("args", ())]
    if starts_custom_job(words):
        words = [word for word in words if not word.startswith(EXECUTORS)]  # they have a stand-in
    yield from (service for sign, service in _SERVICES.items() if any(word.startswith(sign) for word in words))


@dataclass(frozen=True)
class RehearseOptions:
    """How to rehearse.

    Attributes:
      root: folder of everything that is written.
      project: folder of the user's own files, in which steps run.
      image: runs the steps inside of this image; on this machine by default.
      parameters: `NAME=VALUE` of runtime parameters.
      maps: what stands for the buckets and mounted folders that the job names.
      target: kubeflow runs no drivers and refuses resolvers, as its own backend does.
      use_cache: take outputs of earlier rehearsals.
    """

    root: str
    project: str = "."
    image: str | None = None
    parameters: tuple[str, ...] = ()
    maps: tuple[PathMapping, ...] = ()
    faults: Faults = field(default_factory=Faults)
    target: Target = "vertex"
    use_cache: bool = True


@dataclass(frozen=True)
class Rehearsal:
    """What came of it.

    Attributes:
      name: of this rehearsal, which is also that of its folders.
      outputs: artifacts by node and key, of the nodes that succeeded.
    """

    name: str
    report: RunReport
    outputs: Mapping[str, Mapping[str, Sequence[Artifact]]] = field(default_factory=dict)


def rehearse(job: CompiledJob, options: RehearseOptions, on_change: OnChange) -> Rehearsal:
    """Executes every step of `job`, one after the other.

    Raises:
      InfeedError: before anything has been started: the job cannot be rehearsed, a parameter is wrong or missing, a
        location is not on this machine, or not seen by the image, no container engine works, another rehearsal uses
        the root.
    """
    locations = Locations(options.maps)
    job = dataclasses.replace(job, spec=locations.apply(job.spec), runtime=locations.apply(job.runtime))
    inputs = locations.apply(_root_parameters(job, options.parameters))
    tasks = job.tasks
    check_tasks(tasks, options.target)
    options.faults.check(list(leaves(tasks)))
    locations.check_no_others([job.spec["deploymentSpec"], _task_specs(tasks), inputs])
    root = Path(os.path.realpath(options.root))
    launcher = _launcher(options, root, locations)
    if isinstance(launcher, ContainerLauncher):
        locations.check_seen([_task_specs(tasks), inputs], launcher.folders)
        find_engine()
    with open_store(root) as store:
        context = _context(job, options, root, store, launcher, inputs)
        executor = DagExecutor(context, tasks, on_change)
        executor.run(TaskIO(inputs))
        return Rehearsal(context.run, executor.tracker.report(), executor.outputs)


def _root_parameters(job: CompiledJob, given: Sequence[str]) -> dict[str, Any]:
    defaults = {name: known.default for name, known in job.parameters.items() if known.default is not None}
    return {**defaults, **read_parameters(given, job.parameters, job.name)}


def _task_specs(tasks: tuple[Task, ...]) -> list[Any]:
    """The parts of a job that name values; where it keeps its artifacts does not matter here."""
    return [task.spec for task in walk(tasks)]


def _launcher(options: RehearseOptions, root: Path, locations: Locations) -> Launcher:
    if not options.image:
        return LocalLauncher(str(root / "packages"))
    return ContainerLauncher(options.image, (str(root), *locations.folders))


def _context(
    job: CompiledJob,
    options: RehearseOptions,
    root: Path,
    store: Store,
    launcher: Launcher,
    parameters: Mapping[str, Any],
) -> RunContext:
    run = _new_name(root)
    (root / "logs" / run).mkdir(parents=True)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return RunContext(
        root=root,
        run=run,
        pipeline=job.name,
        project=os.path.abspath(options.project),
        legacy=job.schema_version.startswith("2.0"),
        use_cache=options.use_cache,
        runs_drivers=options.target == "vertex",
        job={
            "parameters": parameters,
            "pipeline_root": str(root / "artifacts"),
            "pipeline_job_name": f"{job.name}-{run}",
            "pipeline_job_resource_name": f"{job.name}-{run}",
            "pipeline_job_uuid": run,
            "pipeline_job_create_time_utc": now,
            "pipeline_job_schedule_time_utc": now,
        },
        launcher=launcher,
        faults=options.faults,
        store=store,
    )


def _new_name(root: Path) -> str:
    """The time, with a number where a second is not fine enough."""
    time_ = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [time_, *(f"{time_}-{number}" for number in range(2, 1000))]
    return next(name for name in names if not (root / "logs" / name).exists())
