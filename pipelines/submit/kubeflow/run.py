"""A compiled job as a run on Kubeflow Pipelines (v2), through the kfp client."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import kfp
import kfp_server_api
import urllib3
import yaml
from google.protobuf import json_format

from infeed.components.errors import InfeedError
from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.job.compiled import CompiledJob, Task, leaves
from infeed.pipelines.submit.kubeflow.client import (
    ONCE,
    PATIENT,
    Client,
    get,
    may_have_begun,
    translate_errors,
    without_secrets,
)
from infeed.pipelines.submit.run import RunState, RunStatus, Step, SubmitRequest, starting

# The tasks of a run, as Kubeflow Pipelines lists them, gathered into one step a node.
#
# The server lists the nodes of an Argo workflow by their display names, and leaves out which pod belongs to which. A
# step `Trainer` is a node of that name, and `Trainer-driver` beside it, which looks into the cache; its pod is that of
# the node `executor` below, or `executor(0)`, `executor(1)` where it may be retried.
#
# Sources: toApiPipelineTaskDetail in backend/src/apiserver/server/api_converter.go and the templates in
# backend/src/v2/compiler/argocompiler/container.go of https://github.com/kubeflow/pipelines; GeneratePodName in
# workflow/util/pod_name.go of https://github.com/argoproj/argo-workflows.


_STATES = {
    "PENDING": NodeState.WAITING,
    "RUNNING": NodeState.RUNNING,
    "CANCELING": NodeState.RUNNING,
    "PAUSED": NodeState.RUNNING,
    "SUCCEEDED": NodeState.DONE,
    "SKIPPED": NodeState.SKIPPED,
    "FAILED": NodeState.FAILED,
    "CANCELED": NodeState.SKIPPED,
}


def gather_steps(planned: Sequence[Task], tasks: Sequence[Any]) -> tuple[Step, ...]:
    """A step for each that is planned, out of `V2beta1PipelineTaskDetail`s."""
    named = {task.display_name: task for task in tasks}
    workflow = _workflow(tasks)
    return tuple(_step(each, named.get(each.name), named.get(f"{each.name}-driver"), workflow) for each in planned)


def pods(planned: Task, workflow: str) -> tuple[str, ...]:
    """Names of the pods that a step of `workflow` has or may get, the first attempt first."""
    node = ".".join((workflow, "root", *planned.path, "executor"))
    if planned.retries is None:
        return (_pod(workflow, "system-container-impl", node),)
    return tuple(
        _pod(workflow, "retry-system-container-impl", f"{node}({attempt})") for attempt in range(planned.retries + 1)
    )


def _step(planned: Task, own: Any, driver: Any, workflow: str | None) -> Step:
    state = _state(own, driver)
    jobs = _jobs(planned, state, driver, workflow) if workflow else ()
    error = next((task.error.message for task in (driver, own) if task is not None and task.error), None)
    return Step(planned.name, state, _seconds(own or driver), error=error, jobs=jobs)


def _jobs(planned: Task, state: NodeState, driver: Any, workflow: str) -> tuple[str, ...]:
    if driver is not None and driver.state == "FAILED":
        node = ".".join((workflow, "root", *planned.path))
        return (_pod(workflow, "system-container-driver", f"{node}-driver"),)
    return pods(planned, workflow) if state in {NodeState.RUNNING, NodeState.DONE, NodeState.FAILED} else ()


def _state(own: Any, driver: Any) -> NodeState:
    if driver is not None and driver.state == "FAILED":
        return NodeState.FAILED
    if own is None:
        return NodeState.WAITING if driver is None else NodeState.RUNNING
    return _STATES.get(own.state, NodeState.WAITING)  # without a state: Argo left it out, for what came before failed


def _seconds(task: Any) -> float:
    began = task and task.start_time
    if not began or began.year < 2000:  # what has not begun comes as the year 1 or 1970
        return 0.0
    ended = task.end_time if task.end_time and task.end_time >= began else datetime.now(timezone.utc)
    return float((ended - began).total_seconds())


def _workflow(tasks: Sequence[Any]) -> str | None:
    """Argo's name of the run: a child is named by its node's id, which is that name and a number."""
    children = (child.pod_name for task in tasks for child in task.child_tasks or () if child.pod_name)
    first = next(children, None)
    return first and str(first).rpartition("-")[0]


def _pod(workflow: str, template: str, node: str) -> str:
    return f"{workflow}-{template}-{_fnv1a(node)}"


def _fnv1a(text: str) -> int:
    """The hash of 32 bits by Fowler, Noll and Vo: https://datatracker.ietf.org/doc/html/rfc9923"""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


_RUN_STATES = {
    "SUCCEEDED": RunState.FINISHED,
    "SKIPPED": RunState.FINISHED,
    "FAILED": RunState.FAILED,
    "CANCELED": RunState.CANCELLED,
}
_COMPILE = "compile it for Kubeflow: infeed compile PROJECT --target kubeflow --output job.yaml"


def submit_kubeflow(request: SubmitRequest, *, host: str, namespace: str | None = None) -> KubeflowRun:
    """Starts a run on the Kubeflow Pipelines that answer at `host`.

    Args:
      namespace: the profile to run in, where several users share the installation.

    Raises:
      InfeedError: the job was not compiled for Kubeflow, the server is not there or not that, or it refuses.
      LostError: the server did not say whether the run was started.
    """
    _check(request.job)
    steps = list(leaves(request.job.tasks))
    host = (host if "://" in host else f"https://{host}").rstrip("/")
    with translate_errors(host):
        client = Client(host)
        namespace = namespace or client.get_user_namespace()
        if client.get_kfp_healthz().multi_user and not namespace:
            do = "add --namespace PROFILE, the name of your profile"
            raise InfeedError("several users share these pipelines, so a run needs a namespace", where=host, do=do)
    with starting(translate_errors(host), may_have_begun):
        run_id = _create(client, request, namespace)
    return KubeflowRun(client, namespace or "kubeflow", run_id, request.name, steps)


def _create(client: Client, request: SubmitRequest, namespace: str | None) -> str:
    with _package(request) as path:
        run = client.create_run_from_pipeline_package(
            path,
            arguments=dict(request.parameters),
            run_name=request.name,
            experiment_name=request.experiment,
            namespace=namespace,
            pipeline_root=request.job.root or None,
            service_account=request.service_account,
        )
    if not run.run_id:
        raise client.no_api()
    return str(run.run_id)


@contextlib.contextmanager
def _package(request: SubmitRequest) -> Iterator[str]:
    """The job as a file that kfp reads: one YAML document or two. kfp takes no PipelineJob, and no other ending."""
    spec = request.job.spec if request.cache else request.job.without_cache()
    documents = [spec] if request.job.platform is None else [spec, request.job.platform]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        path.write_text(yaml.safe_dump_all(json.loads(json.dumps(documents))), encoding="utf-8")
        try:
            yield str(path)
        except json_format.ParseError as error:
            do = "compile it again in this environment, or submit from the one that compiled it"
            raise InfeedError(f"kfp {kfp.__version__} cannot read the job: {error}", do=do) from error


def _check(job: CompiledJob) -> None:
    """What the server would refuse, or fail on later, in words of its own."""
    if job.schema_version != "2.1.0":
        what = f"a job of schema {job.schema_version}: Kubeflow Pipelines reads 2.1.0 only"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    kinds = {kind for executor in job.executors for kind in executor}
    if foreign := sorted(kinds - {"container", "importer"}):
        what = f"executors that Kubeflow Pipelines does not have: {', '.join(foreign)}"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    if foreign := sorted(kind for kind in job.accelerators if "/" not in kind):
        what = f"accelerator {foreign[0]!r}: Kubernetes has names such as nvidia.com/gpu"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    root = job.root
    if root and "://" not in root:
        what = f"the pipeline's root {root!r} is a folder of this machine, and no pod can write there"
        raise InfeedError(what, where=f"job {job.name!r}", do=f"{_COMPILE}, with a root such as s3://bucket/folder")


class KubeflowRun:
    """A run on Kubeflow Pipelines; a `submit.run.Run`."""

    def __init__(self, client: Client, namespace: str, run_id: str, name: str, steps: Sequence[Task]) -> None:
        self._host = client.api.configuration.host
        self.id = run_id
        self.name = name
        self.warning = None
        page = os.environ.get("KF_PIPELINES_UI_ENDPOINT") or without_secrets(self._host)
        self.link = f"{page.rstrip('/')}/#/runs/details/{run_id}"
        self._patient, self._unrepeated = client.api_with(PATIENT), client.api_with(ONCE)
        # By the label that the API server gives to every pod of a run.
        self._command = (
            f"kubectl logs --namespace {namespace} --selector pipeline/runid={run_id} --prefix --tail 100 -c main"
        )
        self._steps = steps
        self._lines_seen: dict[str, int] = {}

    def status(self) -> RunStatus:
        with translate_errors(self._host):
            run = get(self._patient, f"/apis/v2beta1/runs/{self.id}", "V2beta1Run")
        tasks = (run.run_details and run.run_details.task_details) or []
        steps = tuple(dataclasses.replace(step, log=self._command) for step in gather_steps(self._steps, tasks))
        return RunStatus(_RUN_STATES.get(run.state, RunState.RUNNING), steps, run.error and run.error.message)

    def new_lines(self, step: Step) -> Sequence[str]:
        return [line for pod in step.jobs for line in self._new_lines(pod, step.state is NodeState.RUNNING)]

    def log_tail(self, step: Step, lines: int) -> Sequence[str]:
        logs = (self._log(pod) for pod in reversed(step.jobs))  # of the last attempt that there is
        return [line.rstrip() for line in next(filter(None, logs), ())[-lines:]]

    def _new_lines(self, pod: str, running: bool) -> Sequence[str]:
        lines, seen = self._log(pod), self._lines_seen.get(pod, 0)
        if running and lines and not lines[-1].endswith("\n"):
            lines.pop()  # still being written
        self._lines_seen[pod] = max(seen, len(lines))
        return [line.rstrip() for line in lines[seen:]]

    def _log(self, pod: str) -> list[str]:
        """All of it, from the API server, which has none before the pod runs, nor when it is gone and not archived."""
        try:
            log = get(self._unrepeated, f"/apis/v1alpha1/runs/{self.id}/nodes/{pod}/log", "str")
        except (kfp_server_api.ApiException, urllib3.exceptions.HTTPError):
            return []
        return str(log).splitlines(keepends=True)
