"""Reads a compiled pipeline, a PipelineJob in JSON or a PipelineSpec in YAML, and sorts its tasks.

The formats are those of `kfp` and Vertex AI. In YAML, a second document is the platform spec of `kfp-kubernetes`.
References to functions in the project's files are relative to the project's folder (`model.py:build_model`), which is
the working directory of each step.
"""

from __future__ import annotations

import graphlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine.project_archive import SUFFIX, VARIABLE, digest
from infeed.components.kubeflow import disk
from infeed.components.kubeflow.message import FOLDERS
from infeed.pipelines.cluster.job.parameters import Parameter, Value, declared_type, legacy_value

Target = Literal["kubeflow", "vertex"]  # platform that runs a compiled pipeline
Schema = Literal["2.0", "2.1"]  # version of the PipelineSpec
Spec = dict[str, Any]  # a message of the pipeline spec as JSON; `compile` and `without_cache` change it in place

_TFX_STEP = "kubeflow_v2_run_executor"  # TFX's own entry point
STEP = ("python", "-m", "infeed.components.kubeflow.step")  # entry point that `compile` writes for Kubeflow
WITHOUT_TFX = ("infeed",)  # command of the steps that `compile --target kfp` writes
JOB = "--job"  # option of the entry point: the machines of a training job
IN_PLACE = "--in-place"  # option of the entry point: artifacts keep their URIs
_DEEPEST = 200
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times as fast
_RUN_METADATA = ("labels", "serviceAccount", "network", "encryptionSpec")
_PRODUCERS = ("taskOutputParameter", "taskOutputArtifact", "taskFinalStatus")


@dataclass(frozen=True)
class CompiledJob:
    """A compiled pipeline."""

    spec: Mapping[str, Any]  # the PipelineSpec
    platform: Mapping[str, Any] | None = None  # the platform spec, if any
    runtime: Mapping[str, Any] = field(default_factory=dict)  # the runtimeConfig of a PipelineJob; empty in YAML
    run_metadata: Mapping[str, Any] = field(default_factory=dict)  # of a PipelineJob: labels, account, network, key
    target: Target = "vertex"  # YAML and steps with the command `STEP` are for Kubeflow
    file: str = ""  # path of the job file

    @classmethod
    def read(cls, path: str | Path) -> CompiledJob:
        """Read a job file of `infeed compile`, TFX or kfp.

        Raises InfeedError if the file does not exist, or holds no compiled pipeline.
        """
        documents = _documents(Path(path))
        first, platform = documents[0], documents[1] if len(documents) > 1 else None
        job = first if isinstance(first, dict) and "pipelineSpec" in first else {"pipelineSpec": first}
        spec = job["pipelineSpec"]
        if not isinstance(spec, dict) or not {"pipelineInfo", "deploymentSpec", "root"} <= spec.keys():
            raise _no_job(path, "it has no pipelineInfo, deploymentSpec and root")
        run_metadata = {name: job[name] for name in _RUN_METADATA if name in job}
        read = cls(spec, platform, job.get("runtimeConfig", {}), run_metadata, file=str(path))
        return replace(read, target="kubeflow") if job is not first or read.uses_launcher else read

    @property
    def name(self) -> str:
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def schema_version(self) -> str:
        """Version of the schema: 2.0.0 or 2.1.0."""
        return str(self.spec.get("schemaVersion", ""))

    @property
    def tasks(self) -> tuple[Task, ...]:
        return read_tasks(self.spec)

    @property
    def executors(self) -> tuple[Mapping[str, Any], ...]:
        """Every ExecutorSpec: a container, a resolver or an importer."""
        return tuple(self.spec["deploymentSpec"].get("executors", {}).values())

    @property
    def images(self) -> tuple[str, ...]:
        return tuple(sorted({container["image"] for container in self._containers}))

    @property
    def accelerators(self) -> frozenset[str]:
        """GPU and TPU types that the containers request, by the platform's names."""
        wanted = (container.get("resources", {}).get("accelerator", {}) for container in self._containers)
        named = {each.get("resourceType") or each.get("type") for each in wanted}
        return frozenset(kind for kind in named if kind not in (None, disk.RESOURCE))

    @property
    def uses_launcher(self) -> bool:
        """Whether the steps work on the local paths of Kubeflow's launcher."""
        return any(tuple(container.get("command", ())) in (STEP, WITHOUT_TFX) for container in self._containers)

    @property
    def project_archive(self) -> str:
        """Place from which steps fetch the user's project, or an empty string."""
        return next(filter(None, (task.project_archive for task in leaves(self.tasks))), "")

    def check_store(self, target: Target = "kubeflow") -> None:
        """Check that the steps can open the job's root on a platform, before any path is mapped.

        Raises InfeedError if the platform does not support the scheme, or if TFX's own entry point would open the root
        with TensorFlow, which has no S3 support.
        """
        scheme, is_uri, _ = self.root.partition("://")
        if not is_uri:
            return
        where = f"job {self.name!r}, pipeline root"
        title, known = ("Kubeflow", FOLDERS) if target == "kubeflow" else ("Vertex AI", ("gs",))
        if scheme not in known:
            do = f"use a root on {', '.join(f'{one}://' for one in known)}"
            raise InfeedError(f"{title} cannot store artifacts on {scheme}://", where=where, do=do)
        commands = [" ".join(container.get("command", ())) for container in self._containers]
        if scheme != "gs" and any(_TFX_STEP in command for command in commands):
            do = "compile the job with infeed compile --target kubeflow, or use a root on gs://"
            raise InfeedError(f"the steps open {self.root} by TensorFlow, which has no S3", where=where, do=do)

    @property
    def _containers(self) -> list[Mapping[str, Any]]:
        return [executor["container"] for executor in self.executors if "container" in executor]

    @property
    def root(self) -> str:
        """Folder of all artifacts. Empty if the platform chooses the folder."""
        return str(self.runtime.get("gcsOutputDirectory") or self.spec.get("defaultPipelineRoot") or "")

    @property
    def parameters(self) -> dict[str, Parameter]:
        declared = self.spec["root"].get("inputDefinitions", {}).get("parameters", {})
        return {
            name: Parameter(declared_type(definition), self._default(name, definition))
            for name, definition in declared.items()
        }

    def _default(self, name: str, definition: Mapping[str, Any]) -> Value:
        """Return the default in runtimeConfig, else in the spec. Protobuf's JSON may write an integer as 5.0."""
        default = self.runtime.get("parameterValues", {}).get(name, definition.get("defaultValue"))
        typed = self.runtime.get("parameters", {}).get(name)  # schema 2.0: {"intValue": "3"}
        default = legacy_value(typed) if typed else default
        is_whole = declared_type(definition) == "NUMBER_INTEGER" and default is not None
        return int(default) if is_whole else default

    def without_cache(self) -> dict[str, Any]:
        """Return the PipelineSpec with caching disabled for every task, including nested tasks."""
        changed: dict[str, Any] = json.loads(json.dumps(self.spec))
        for task in walk(read_tasks(changed)):
            task.spec["cachingOptions"] = {"enableCache": False}
        return changed


def _documents(path: Path) -> list[Any]:
    if not path.is_file():
        raise InfeedError(f"no compiled pipeline at {path}", do="create it: infeed compile PROJECT --output FILE")
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(text)] if text.lstrip().startswith("{") else _yaml(text) or [None]
    except (ValueError, yaml.YAMLError) as error:
        raise _no_job(path, str(error)) from error
    except RecursionError as error:
        raise _no_job(path, "too deeply nested") from error


def _yaml(text: str) -> list[Any]:
    """Parse YAML without aliases. No compiler writes aliases, and a few lines of them can expand beyond all memory."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise ValueError(f"line {line} holds an alias, or is nested too deeply")
    return list(yaml.load_all(text, _LOADER))


def _no_job(path: str | Path, reason: str) -> InfeedError:
    return InfeedError(
        f"not a compiled pipeline: {reason}", where=str(path), do="create one: infeed compile PROJECT --output FILE"
    )


@dataclass(frozen=True)
class Task:
    """A task of a DAG."""

    path: tuple[str, ...]  # names of the enclosing DAGs, the outermost first, and of the task
    node: str  # displayed name: `name`, or the whole path if other tasks have the same name
    spec: Spec  # PipelineTaskSpec: inputs, dependencies, policies
    component: Spec  # ComponentSpec: declared inputs and outputs
    executor: Spec | None = None  # ExecutorSpec: a container, a resolver or an importer; None for a DAG
    subtasks: tuple[Task, ...] = ()  # of a DAG, in the order of execution

    @property
    def name(self) -> str:
        """Name of the task in its DAG."""
        return self.path[-1]

    def outputs(self, kind: Literal["parameters", "artifacts"]) -> Spec:
        """Return the declared outputs by key."""
        found: Spec = self.component.get("outputDefinitions", {}).get(kind, {})
        return found

    @property
    def container(self) -> Spec | None:
        """PipelineContainerSpec of the task. None if it runs no container."""
        return (self.executor or {}).get("container")

    @property
    def project_archive(self) -> str:
        """Place from which the step fetches the user's project, or an empty string."""
        return self.variables.get(VARIABLE, "")

    @property
    def variables(self) -> dict[str, str]:
        return {one["name"]: one["value"] for one in (self.container or {}).get("env", ())}

    @property
    def could_read_directly(self) -> bool:
        """Whether `deploy.reading: direct` would avoid the download of Examples to the step's disk."""
        container = self.container or {}
        return tuple(container.get("command", ())[: len(STEP)]) == STEP and disk.READING_VARIABLE not in self.variables

    @property
    def driver(self) -> Spec | None:
        """Driver of a file-based ExampleGen, which inspects the input before the cache lookup."""
        found: Spec | None = (self.container or {}).get("lifecycle", {}).get("preCacheCheck")
        return found

    @property
    def upstream(self) -> frozenset[str]:
        """Names of the tasks in the same DAG that must end first."""
        return _upstream(self.spec)

    @property
    def runs_after_failures(self) -> bool:
        """Whether the task runs after failed upstream tasks, as exit handlers do."""
        return bool(self.spec.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED")

    @property
    def retries(self) -> int | None:
        """Number of restarts after a failure, or None if the job does not set it."""
        policy = self.spec.get("retryPolicy")
        return None if policy is None else int(policy.get("maxRetryCount", 0))

    @property
    def cacheable(self) -> bool:
        """Whether the task may reuse cached outputs."""
        return bool(self.spec.get("cachingOptions", {}).get("enableCache"))

    @property
    def is_loop(self) -> bool:
        """Whether the task is a loop, or takes one item of a loop."""
        sources = self.spec.get("inputs", {}).get("parameters", {}).values()
        selects = any("parameterExpressionSelector" in source for source in sources)
        return selects or not self.spec.keys().isdisjoint({"parameterIterator", "artifactIterator"})


def read_tasks(spec: Mapping[str, Any]) -> tuple[Task, ...]:
    """Return the tasks of the root DAG, sorted by `in_order`. Raises InfeedError for an unknown task or a cycle."""
    tasks = _read_dag(spec["root"]["dag"], spec, path=())
    names = Counter(leaf.name for leaf in leaves(tasks))
    return tuple(_short_names(task, names) for task in tasks)


def walk(tasks: tuple[Task, ...]) -> Iterator[Task]:
    """Yield every task, each DAG before its subtasks."""
    for task in tasks:
        yield task
        yield from walk(task.subtasks)


def leaves(tasks: tuple[Task, ...]) -> Iterator[Task]:
    """Yield the tasks that have an executor, including the tasks in nested DAGs."""
    return (task for task in walk(tasks) if task.executor is not None)


def in_order(tasks: Mapping[str, Any], where: str = "") -> list[str]:
    """Sort the names of the tasks of a DAG topologically, and alphabetically among equals.

    Errors name the tasks with the prefix `where`. Raises InfeedError if a task needs an unknown task, or tasks form a
    cycle.
    """
    needs = {name: _upstream(tasks[name]) for name in sorted(tasks)}
    for name, producers in needs.items():
        if unknown := sorted(producers - needs.keys()):
            do = f"use one of the tasks {', '.join(needs)}"
            raise InfeedError(f"the job has no upstream task {unknown[0]!r}", where=f"task {where}{name}", do=do)
    sorter = graphlib.TopologicalSorter(needs)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise InfeedError(f"the tasks form a cycle: {cycle}", do="compile the job again") from error
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += ready
        sorter.done(*ready)
    return ordered


def _upstream(task: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of declared upstream tasks and of the producers of all inputs."""
    inputs = task.get("inputs", {})
    sources = [*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()]
    producers = {source[kind]["producerTask"] for source in sources for kind in _PRODUCERS if kind in source}
    return frozenset(task.get("dependentTasks", ())) | producers


def _read_dag(dag: Spec, spec: Mapping[str, Any], path: tuple[str, ...]) -> tuple[Task, ...]:
    read, tasks, executors = [], dag["tasks"], spec["deploymentSpec"].get("executors", {})
    for name in in_order(tasks, where="".join(f"{one}/" for one in path)):
        task, place = tasks[name], (*path, name)
        component = spec["components"][task["componentRef"]["name"]]
        is_dag = "dag" in component
        executor = None if is_dag else executors.get(component.get("executorLabel"), {})
        subtasks = _read_dag(component["dag"], spec, place) if is_dag else ()
        read.append(Task(place, "/".join(place), task, component, executor, subtasks))
    return tuple(read)


def _short_names(task: Task, names: Counter[str]) -> Task:
    if task.executor is None:
        return replace(task, subtasks=tuple(_short_names(subtask, names) for subtask in task.subtasks))
    return replace(task, node=task.name) if names[task.name] == 1 else task


def archive_beside(job_file: str) -> Path:
    """Return the path of the archive that belongs to a job file: taxi.project.tar.gz for taxi.json."""
    return Path(job_file).with_suffix(f".project{SUFFIX}")


def publish(job: CompiledJob) -> None:
    """Upload the archive of the project to the URI in the job, unless the object exists.

    Raises InfeedError if the archive beside the job file is missing or from another compilation, or the upload fails.
    """
    place = job.project_archive
    try:
        if place and not files.exists(place):
            archive, do = archive_beside(job.file), "compile the job again: infeed compile writes both files"
            if not archive.is_file():
                raise InfeedError(f"the archive of the project, {archive}, is missing", where=job.file, do=do)
            content = archive.read_bytes()
            if f"{digest(content)}{SUFFIX}" != files.name(place):
                raise InfeedError(f"{archive} belongs to another compilation of the job", where=job.file, do=do)
            files.write_bytes(place, content)
    except InfeedError as error:
        # Errors about the archive beside the job file are clear as they are.
        if error.where != place:
            raise
        do = "check that this machine reaches the store, and its credentials there"
        raise InfeedError(f"cannot upload the project: {error.what}", where=place, do=do) from error
