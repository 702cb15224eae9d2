"""A compiled job as a run on Kubeflow Pipelines (v2), through the kfp client."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import kfp
import kfp_server_api
import urllib3
import yaml
from google.protobuf import json_format

from infeed.components.errors import InfeedError
from infeed.pipelines.deploy.compiled import CompiledJob
from infeed.pipelines.local.nodes import NodeState
from infeed.pipelines.submit.kubeflow_client import ONCE, PATIENT, Client, get
from infeed.pipelines.submit.kubeflow_errors import told, told_when_starting, without_secrets
from infeed.pipelines.submit.kubeflow_steps import gather
from infeed.pipelines.submit.run import (
    Planned,
    Request,
    RunState,
    Status,
    Step,
    accelerators,
    pipeline_root,
    planned_steps,
    without_cache,
)

_RUN_STATES = {
    "SUCCEEDED": RunState.FINISHED,
    "SKIPPED": RunState.FINISHED,
    "FAILED": RunState.FAILED,
    "CANCELED": RunState.CANCELLED,
}
_COMPILE = "compile it for Kubeflow: infeed compile PROJECT --target kubeflow --output job.yaml"


def submit_kubeflow(request: Request, *, host: str, namespace: str | None = None) -> KubeflowRun:
    """Starts a run on the Kubeflow Pipelines that answer at `host`.

    Args:
      namespace: the profile to run in, where several users share the installation.

    Raises:
      InfeedError: the job was not compiled for Kubeflow, the server is not there or not that, or it refuses.
      LostError: the server did not say whether the run was started.
    """
    _check(request.job)
    steps = planned_steps(request.job.spec)
    host = (host if "://" in host else f"https://{host}").rstrip("/")
    with told(host):
        client = Client(host)
        namespace = namespace or client.get_user_namespace()
        if client.get_kfp_healthz().multi_user and not namespace:
            do = "add --namespace PROFILE, the name of your profile"
            raise InfeedError("several users share these pipelines, so a run needs a namespace", where=host, do=do)
    with told_when_starting(host):
        run_id = _create(client, request, namespace)
    return KubeflowRun(client, namespace or "kubeflow", run_id, request.name, steps)


def _create(client: Client, request: Request, namespace: str | None) -> str:
    with _package(request) as path:
        run = client.create_run_from_pipeline_package(
            path,
            arguments=dict(request.parameters),
            run_name=request.name,
            experiment_name=request.experiment,
            namespace=namespace,
            pipeline_root=pipeline_root(request.job) or None,
            service_account=request.service_account,
        )
    if not run.run_id:
        raise client.no_api()
    return str(run.run_id)


@contextlib.contextmanager
def _package(request: Request) -> Iterator[str]:
    """The job as a file that kfp reads: one YAML document or two. kfp takes no PipelineJob, and no other ending."""
    spec = request.job.spec if request.cache else without_cache(request.job.spec)
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
    kinds = {kind for executor in job.spec["deploymentSpec"].get("executors", {}).values() for kind in executor}
    if foreign := sorted(kinds - {"container", "importer"}):
        what = f"executors that Kubeflow Pipelines does not have: {', '.join(foreign)}"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    if foreign := sorted(kind for kind in accelerators(job) if "/" not in kind):
        what = f"accelerator {foreign[0]!r}: Kubernetes has names such as nvidia.com/gpu"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    root = pipeline_root(job)
    if root and "://" not in root:
        what = f"the pipeline's root {root!r} is a folder of this machine, and no pod can write there"
        raise InfeedError(what, where=f"job {job.name!r}", do=f"{_COMPILE}, with a root such as s3://bucket/folder")


class KubeflowRun:
    """A run on Kubeflow Pipelines; a `submit.run.Run`."""

    def __init__(self, client: Client, namespace: str, run_id: str, name: str, steps: Sequence[Planned]) -> None:
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

    def status(self) -> Status:
        with told(self._host):
            run = get(self._patient, f"/apis/v2beta1/runs/{self.id}", "V2beta1Run")
        tasks = (run.run_details and run.run_details.task_details) or []
        steps = tuple(dataclasses.replace(step, log=self._command) for step in gather(self._steps, tasks))
        return Status(_RUN_STATES.get(run.state, RunState.RUNNING), steps, run.error and run.error.message)

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
