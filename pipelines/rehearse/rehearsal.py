"""A compiled job and how to rehearse it in, what came of it out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from infeed.pipelines.deploy.compiled import CompiledJob
from infeed.pipelines.image.containers import find_engine
from infeed.pipelines.local.nodes import OnChange, RunReport
from infeed.pipelines.rehearse.dag import leaves, read_tasks
from infeed.pipelines.rehearse.faults import Faults
from infeed.pipelines.rehearse.launch import Here, InImage, Launcher
from infeed.pipelines.rehearse.locations import Locations, Map
from infeed.pipelines.rehearse.platform import Platform, check_platform
from infeed.pipelines.rehearse.scope import Bundle
from infeed.pipelines.rehearse.step import Stage
from infeed.pipelines.rehearse.store import Artifact, Store, open_store
from infeed.pipelines.rehearse.walk import Walk
from infeed.pipelines.submit.parameters import read_parameters


@dataclass(frozen=True)
class RehearseOptions:
    """How to rehearse.

    Attributes:
      root: folder of everything that is written.
      project: folder of the user's own files, in which steps run.
      image: runs the steps inside of this image; on this machine by default.
      parameters: `NAME=VALUE` of runtime parameters.
      maps: what stands for the buckets and mounted folders that the job names.
      platform: kubeflow runs no drivers and refuses resolvers, as its own backend does.
      use_cache: take outputs of earlier rehearsals.
    """

    root: str
    project: str = "."
    image: str | None = None
    parameters: tuple[str, ...] = ()
    maps: tuple[Map, ...] = ()
    faults: Faults = field(default_factory=Faults)
    platform: Platform = "vertex"
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
    tasks = read_tasks(job.spec)
    options.faults.check(list(leaves(tasks)))
    check_platform(leaves(tasks), options.platform)
    locations.check_no_others([job.spec["deploymentSpec"], _dags(job.spec), inputs])
    root = Path(options.root).resolve()
    launcher = _launcher(options, root, locations)
    if isinstance(launcher, InImage):
        locations.check_seen([_dags(job.spec), inputs], launcher.folders)
        find_engine()
    with open_store(root) as store:
        stage = _stage(job, options, root, store, launcher, inputs)
        walk = Walk(stage, tasks, on_change)
        walk.run(Bundle(inputs))
        return Rehearsal(stage.run, walk.board.report(), walk.outputs)


def _root_parameters(job: CompiledJob, given: Sequence[str]) -> dict[str, Any]:
    defaults = {name: known.default for name, known in job.parameters.items() if known.default is not None}
    return {**defaults, **read_parameters(given, job)}


def _dags(spec: Mapping[str, Any]) -> list[Any]:
    """The parts of a job that name values; where it keeps its artifacts does not matter here."""
    return [spec["root"].get("dag"), [component.get("dag") for component in spec.get("components", {}).values()]]


def _launcher(options: RehearseOptions, root: Path, locations: Locations) -> Launcher:
    if not options.image:
        return Here(str(root / "packages"))
    return InImage(options.image, (str(root), *locations.folders))


def _stage(
    job: CompiledJob,
    options: RehearseOptions,
    root: Path,
    store: Store,
    launcher: Launcher,
    parameters: Mapping[str, Any],
) -> Stage:
    run = _new_name(root)
    (root / "logs" / run).mkdir(parents=True)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Stage(
        root=root,
        run=run,
        pipeline=job.name,
        project=os.path.abspath(options.project),
        legacy=job.schema_version.startswith("2.0"),
        use_cache=options.use_cache,
        runs_drivers=options.platform == "vertex",
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
