"""Rehearses a compiled job: runs every step on this machine as the target would.

A rehearsal rejects buckets and mounted folders that are not on this machine, unless a `PathMapping` replaces them.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from infeed.components.base import machine
from infeed.components.base.checks import at_least
from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import is_packed, local_path, mapped, pack, unpack
from infeed.pipelines.cluster.containers import find_engine
from infeed.pipelines.cluster.job.compiled import CompiledJob, Target, Task, leaves, publish, walk
from infeed.pipelines.cluster.job.parameters import read_parameters
from infeed.pipelines.cluster.rehearse.dag_executor import DagExecutor
from infeed.pipelines.cluster.rehearse.executor_io import Artifact, Kfp, TaskIO
from infeed.pipelines.cluster.rehearse.launch import ContainerLauncher, Faults, Launcher, LocalLauncher
from infeed.pipelines.cluster.rehearse.step import RunContext, in_one_process
from infeed.pipelines.cluster.rehearse.store import Store, open_store
from infeed.pipelines.console.nodes import OnChange, RunReport

# Prefixes of arguments of steps that start work on a service, which costs money.
_SERVICES = {
    "tfx.extensions.google_cloud_ai_platform.": "Vertex AI",
    "google_cloud_pipeline_components.": "Google Cloud",
    "--runner=DataflowRunner": "Dataflow",
    "DataflowRunner": "Dataflow",  # as a separate argument after `--runner`
}

_LOCAL = re.compile(r"(?<![\w:/.~-])(?:/[\w.-]+){2,}")
_OF_EVERY_IMAGE = ("/bin/", "/dev/", "/etc/", "/lib/", "/opt/", "/proc/", "/sys/", "/usr/")
_REMOTE = re.compile(r"\b(?:gs|s3|minio|hdfs|abfss?)://[\w.-][^\s\"'\\,;)}\]]*")


@dataclass(frozen=True)
class RehearseOptions:
    """Options of a rehearsal."""

    root: str  # folder of all outputs
    project: str = "."  # folder of the user's files, and working directory of the steps
    image: str | None = None  # image that runs the steps. None for local processes
    parameters: tuple[str, ...] = ()  # runtime parameters as `NAME=VALUE`
    maps: tuple[PathMapping, ...] = ()  # replacements of buckets and mounted folders
    faults: Faults = field(default_factory=Faults)  # failures to inject
    kfp: Kfp = "2.17"  # version of Kubeflow Pipelines whose messages the steps get
    target: Target | None = None  # platform to emulate. None for the job's; kubeflow has no drivers and no resolvers
    use_cache: bool = True  # whether to reuse outputs of earlier rehearsals
    workers: int | None = None  # maximum number of concurrent steps. Defaults to a number that fits cores and memory

    def __post_init__(self) -> None:
        at_least(self, 1, "workers")


@dataclass(frozen=True)
class Rehearsal:
    """Result of a rehearsal."""

    name: str  # name of the rehearsal and of its folders
    report: RunReport  # states of the steps
    artifacts: str = ""  # folder of all artifacts, on this machine or in a store
    outputs: Mapping[str, Mapping[str, Sequence[Artifact]]] = field(default_factory=dict)  # by node and key


def rehearse(job: CompiledJob, options: RehearseOptions, on_change: OnChange) -> Rehearsal:
    """Execute every step of `job`. Independent steps run concurrently.

    Raises:
      InfeedError: before any step starts, if the job is not supported, a parameter is invalid or missing, a location
        is not available, no container engine works, or another rehearsal uses the root.
    """
    locations = Locations(options.maps)
    options = dataclasses.replace(options, target=options.target or job.target)
    assert options.target, "set above"
    job.check_store(options.target)
    job = dataclasses.replace(job, spec=locations.apply(job.spec), runtime=locations.apply(job.runtime))
    defaults = {name: known.default for name, known in job.parameters.items() if known.default is not None}
    given = read_parameters(options.parameters, job.parameters, job.name)
    inputs, tasks = locations.apply({**defaults, **given}), job.tasks
    check_tasks(tasks, options.target)
    options.faults.check(list(leaves(tasks)))
    # Check the specs and not the whole job, whose root of artifacts the rehearsal replaces.
    values = [[task.spec for task in walk(tasks)], inputs]
    locations.check_no_others([job.spec["deploymentSpec"], *values])
    publish(job)
    root = Path(os.path.realpath(options.root))
    packages = LocalLauncher(str(root / "packages"))
    launcher = ContainerLauncher(options.image, (str(root), *locations.folders)) if options.image else packages
    if isinstance(launcher, ContainerLauncher):
        locations.check_seen(values, launcher.folders)
        find_engine()
    with open_store(root) as store:
        context = _context(job, options, root, store, launcher, inputs)
        workers = options.workers or min(machine.cpus(), max(1, machine.memory_bytes() // machine.STEP_MEMORY))
        executor = DagExecutor(context, tasks, on_change, workers)
        executor.run(TaskIO(inputs))
        artifacts = context.artifacts or str(root / "artifacts")
        return Rehearsal(context.run, executor.tracker.report(), artifacts, executor.outputs)


def _context(
    job: CompiledJob,
    options: RehearseOptions,
    root: Path,
    store: Store,
    launcher: Launcher,
    parameters: Mapping[str, Any],
) -> RunContext:
    time = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [time, *(f"{time}-{number}" for number in range(2, 1000))]
    run = next(name for name in names if not (root / "logs" / name).exists())
    (root / "logs" / run).mkdir(parents=True)
    # The artifacts are in the job's root if it stays in a store of Kubeflow's launcher.
    kept = any(map_.source == map_.target and job.root.startswith(map_.source) for map_ in options.maps)
    in_store = options.target == "kubeflow" and kept and local_path(job.root) is not None
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return RunContext(
        root=root,
        run=run,
        pipeline=job.name,
        project=os.path.abspath(options.project),
        legacy=job.schema_version.startswith("2.0"),
        use_cache=options.use_cache,
        kfp=options.kfp if options.target == "kubeflow" else None,
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
        artifacts=job.root if in_store else "",
    )


def check_tasks(tasks: tuple[Task, ...], target: Target) -> None:
    """Raise InfeedError if the target would reject the job, or a task cannot be rehearsed."""
    for task in walk(tasks):
        if task.is_loop:
            do = "rehearse a job without loops"
            raise InfeedError("a loop over items cannot be rehearsed", where=f"task {'/'.join(task.path)}", do=do)
    for task in leaves(tasks):
        executor = task.executor or {}
        if not executor.keys() & {"container", "importer", "resolver"}:
            what = f"executor {next(iter(executor), 'nothing')!r} cannot be rehearsed"
            do = "compile the job for Kubeflow, which runs the step in a container"
            raise InfeedError(what, where=f"task {'/'.join(task.path)}", do=do)
        if "resolver" in executor and target == "kubeflow":
            what = f"Kubeflow's backend runs no resolvers, and rejects the job because of {task.node}"
            do = "compile the job with --target kubeflow, which omits resolvers, or rehearse it for Vertex AI"
            raise InfeedError(what, do=do)
        container = task.container or {}
        # Training moves into the step, so only what is left would start work elsewhere.
        words = in_one_process([*container.get("command", ()), *container.get("args", ())])
        for sign, service in _SERVICES.items():
            if any(word.startswith(sign) for word in words):
                do = "compile without the service, for example without deploy.vertex.endpoint and DataflowRunner"
                what = f"{task.node} would start work on {service}, which a rehearsal does not support"
                raise InfeedError(what, do=do)


@dataclass(frozen=True)
class PathMapping:
    """Replacement of a path, and of all paths below it, in the job.

    If `source` and `target` are equal, the steps use the location itself, with the credentials of their environment.
    """

    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> PathMapping:
        """Parse `gs://bucket=/folder`, or `/folder` for a folder that keeps its path.

        Raises InfeedError if the source or the target is missing.
        """
        source, equals, target = text.partition("=")
        if source.startswith("/") and not equals:
            target = source
        if not source or not target:
            raise InfeedError(f"--map is {text!r}, which is not SOURCE=TARGET", do="use --map gs://bucket=/folder")
        there = target.rstrip("/") if "://" in target else os.path.abspath(target)
        return cls(source.rstrip("/") if not source.endswith("://") else source, there)


class Locations:
    """Path mappings of a rehearsal. The longest matching source wins."""

    def __init__(self, maps: Sequence[PathMapping]) -> None:
        ordered = sorted(maps, key=lambda map_: len(map_.source), reverse=True)
        self._targets = {map_.source: map_.target for map_ in ordered}
        ends = (re.escape(one) + ("" if one.endswith("://") else r"(?![\w.-])") for one in self._targets)
        self._pattern = re.compile("|".join(ends)) if maps else None

    @property
    def folders(self) -> list[str]:
        """Targets on this machine."""
        return [target for target in self._targets.values() if "://" not in target]

    def apply(self, value: Any) -> Any:
        """Return JSON data with the paths in every string replaced, including paths inside longer texts."""
        return mapped(value, self._in_text)

    def check_no_others(self, spec: Any) -> None:
        """Raise InfeedError if the mapped job still names a location that is not on this machine."""
        kept = tuple(target for source, target in self._targets.items() if source == target)
        remote = (location for text in _strings(spec) for location in _REMOTE.findall(text))
        found = sorted({location for location in remote if not location.startswith(kept)})
        if found:
            scheme, _, path = found[0].partition("://")
            bucket = f"{scheme}://{path.split('/')[0]}"
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            do = f"map it to a folder: --map {bucket}=FOLDER (or --map {bucket}={bucket} to use the bucket itself)"
            raise InfeedError(f"the job names {found[0]}{more}, not on this machine", do=do)

    def check_seen(self, values: Any, mounted: Sequence[str]) -> None:
        """Raise InfeedError if `values` of the mapped job name local paths outside the mounted folders.

        A step in an image cannot read such paths, and the files that it writes there are lost.
        """
        named = {path for text in _strings(values) for path in _LOCAL.findall(text) if _is_of_this_machine(path)}
        unseen = sorted(path for path in named if not any(_is_in(path, folder) for folder in mounted))
        if unseen:
            more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
            folders = sorted({path if os.path.isdir(path) else os.path.dirname(path) for path in unseen})
            outer = [one for one in folders if not any(_is_in(one, other) for other in folders if other != one)]
            maps = " ".join(f"--map {folder}" for folder in outer)
            raise InfeedError(f"the image cannot read {unseen[0]}{more} of this machine", do=f"add {maps}")

    def _in_text(self, value: Any) -> Any:
        if not (isinstance(value, str) and self._pattern):
            return value
        if is_packed(value):
            return pack(self._in_text(unpack(value)))
        return self._pattern.sub(lambda found: self._target(found[0]), value)

    def _target(self, source: str) -> str:
        target = self._targets[source]
        return f"{target}/" if source.endswith("://") and not target.endswith("://") else target


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a job except commands, because programs may contain any path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from () if key in ("command", "description", "instanceSchema") else _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield unpack(value)


def _is_of_this_machine(path: str) -> bool:
    """Report whether the path exists, or its parent folder does."""
    parent = os.path.dirname(path)
    here = os.path.exists(path) or (parent.count("/") > 1 and os.path.isdir(parent))
    return here and not path.startswith(_OF_EVERY_IMAGE)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
