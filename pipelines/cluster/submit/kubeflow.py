"""Submits a compiled job to Kubeflow Pipelines v2 with kfp's client, and follows the run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import kfp
import kfp_server_api
import requests
import urllib3
import yaml
from google.auth.exceptions import GoogleAuthError
from google.protobuf import json_format
from kfp import client as kfp_client
from kfp.client import auth

from infeed.components.base.errors import InfeedError
from infeed.components.seams import kfp as kfp_seam
from infeed.pipelines.cluster.job.compiled import CompiledJob, Task, leaves
from infeed.pipelines.cluster.submit.run import (
    RunSchedule,
    RunState,
    RunStatus,
    SilentError,
    SubmitRequest,
    kubeflow_steps,
    last_words,
    starting,
    sundays_as_0,
)
from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.console.terminal import command_line

_CREDENTIALS = (
    "inside the cluster, mount a service account token for the audience pipelines.kubeflow.org; elsewhere, set "
    "KF_PIPELINES_SA_TOKEN_PATH to a token file; behind Identity-Aware Proxy, set KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"
)
_ADDRESS = (
    "use the address that serves /apis/v2beta1/healthz: http://localhost:8888 after `kubectl port-forward -n "
    "kubeflow svc/ml-pipeline 8888`; a full Kubeflow installation serves it under /pipeline"
)
_LONGEST = 600  # characters of a message, because the server nests messages
_RUN_STATES = {
    "SUCCEEDED": RunState.FINISHED,
    "SKIPPED": RunState.FINISHED,
    "FAILED": RunState.FAILED,
    "CANCELED": RunState.CANCELLED,
}
# Prints the messages of all nodes of a workflow, which Kubeflow's API does not return.
_MESSAGES = """jsonpath={range .items[*].status.nodes.*}{.displayName}{": "}{.message}{"\\n"}{end}"""
_COMPILE = "compile it for Kubeflow: infeed compile PROJECT --target kubeflow --output job.yaml"


class Client(kfp_client.Client):
    """kfp's client, which also uses the service account token of a pod."""

    def __init__(self, host: str) -> None:
        kfp_seam.CLIENT.require("install a kfp of docs/compatibility.md")
        if "KF_PIPELINES_APP_OAUTH2_CLIENT_ID" in os.environ and not os.path.exists(auth.LOCAL_KFP_CREDENTIAL):
            raise no_login(host)
        # The token of the pod, or of the file that the user configured for kfp.
        path = os.environ.get(kfp_client.KF_PIPELINES_SA_TOKEN_ENV, kfp_client.KF_PIPELINES_SA_TOKEN_PATH)
        credentials = kfp_client.ServiceAccountTokenVolumeCredentials(path) if os.path.exists(path) else None
        super().__init__(host=host, credentials=credentials)

    def get_kfp_healthz(self, sleep_duration: int = 0) -> kfp_server_api.V2beta1GetHealthzResponse:
        """Query the server once. kfp's method tries five times, 5 s apart, and hides the cause."""
        health = self.api.call_api(
            "/apis/v2beta1/healthz",
            "GET",
            response_type="object",
            auth_settings=["Bearer"],
            _return_http_data_only=True,
        )
        if not isinstance(health, dict) or "multi_user" not in health:
            raise self.no_api()
        return kfp_server_api.V2beta1GetHealthzResponse(multi_user=health["multi_user"])

    def no_api(self) -> Exception:
        """Return the error for the last answer, which did not come from the API."""
        host = self.api.configuration.host
        return no_api(host, urljoin(host, self.api.last_response.urllib3_response.geturl()))

    @property
    def address(self) -> str:
        return str(self.api.configuration.host)

    @property
    def api(self) -> kfp_server_api.ApiClient:
        return kfp_seam.api_client(self)


@contextlib.contextmanager
def translate_errors(host: str) -> Iterator[None]:
    """Convert errors of kfp and its HTTP library to InfeedErrors."""
    try:
        yield
    except kfp_server_api.ApiException as error:
        raise _refused(error, without_secrets(host)) from error
    except urllib3.exceptions.HTTPError as error:
        raise _unreachable(error, without_secrets(host)) from error
    except (GoogleAuthError, requests.RequestException) as error:  # raised by fetching tokens for a proxy
        raise InfeedError(f"no Google credentials: {error}", where=without_secrets(host), do=_CREDENTIALS) from error


@contextlib.contextmanager
def _translate_schedule_errors(host: str, cron: str) -> Iterator[None]:
    with translate_errors(host):
        try:
            yield
        except kfp_server_api.ApiException as error:
            if error.status != 400 or "cron" not in _message(error):
                raise
            what = f"the server rejected the schedule {cron!r}: {_message(error)}"
            do = "give each range in ascending order, and numbers for days and months"
            raise InfeedError(what, where="--cron", do=do) from error


def may_have_begun(error: BaseException | None) -> bool:
    """Report whether the server may have started the run: an internal error, or a broken connection."""
    cause = getattr(error, "reason", None) or error
    broke_off = isinstance(cause, (urllib3.exceptions.ProtocolError, urllib3.exceptions.ReadTimeoutError))
    return broke_off or getattr(error, "status", 0) >= 500


def no_api(host: str, answered: str) -> InfeedError:
    """Return the error for an answer that is not the API's. `answered` is the address after redirects from `host`."""
    asked = without_secrets(host)
    if urlsplit(answered).netloc != urlsplit(host).netloc:
        return InfeedError(f"redirected to a login at {without_secrets(answered)}", where=asked, do=_CREDENTIALS)
    what = "the server returned a web page instead of the API of Kubeflow Pipelines: a login, or the user interface"
    return InfeedError(what, where=asked, do=f"{_ADDRESS}; if the page is a login, {_CREDENTIALS}")


def no_login(host: str) -> InfeedError:
    """Return the error for a missing login. kfp would prompt for it, but its output is hidden."""
    what = "kfp needs an interactive login at Identity-Aware Proxy"
    do = f"log in once: kfp --endpoint {without_secrets(host)} run list"
    return InfeedError(what, where=without_secrets(host), do=do)


def without_secrets(url: str) -> str:
    """Remove user, password, query and fragment from a URL."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _refused(error: kfp_server_api.ApiException, host: str) -> InfeedError:
    said = _message(error)
    if error.status == 401:
        return InfeedError(f"no valid credentials: {said}", where=host, do=_CREDENTIALS)
    if error.status == 403:
        do = "request the role kubeflow-edit in the namespace, or use your own namespace with --namespace"
        return InfeedError(f"permission denied: {said}", where=host, do=do)
    if error.status in (404, 405, 501):
        return InfeedError(f"no API of Kubeflow Pipelines 2 here: {said}", where=host, do=_ADDRESS)
    if error.status == 429 or error.status >= 500:
        return SilentError(f"the server is unavailable ({error.status}): {said}", where=host, do="try again later")
    do = "if the server cannot read the job, compile it again with a kfp that is no newer than the server"
    return InfeedError(f"the server rejected the run ({error.status}): {said}", where=host, do=do)


def _message(error: kfp_server_api.ApiException) -> str:
    """Return the server's message, or the HTTP reason if a proxy returned a web page."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
    try:
        answer = json.loads(body)
        said = answer.get("message") or answer.get("error_message") or answer.get("error")
    except (ValueError, AttributeError):
        said = body if body and "<" not in body else None
    return " ".join(str(said or error.reason).split())[:_LONGEST]


def _unreachable(error: urllib3.exceptions.HTTPError, host: str) -> InfeedError:
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, urllib3.exceptions.SSLError):
        do = "check whether --host needs http:// or https://, and that this machine trusts the server's certificate"
    elif isinstance(cause, urllib3.exceptions.ProxyError):
        do = "check HTTPS_PROXY and NO_PROXY"
    else:
        do = f"check that the server runs, and {_ADDRESS}"
    return SilentError(f"cannot reach the server: {last_words(cause)}", where=host, do=do)


def submit_kubeflow(request: SubmitRequest, *, host: str, namespace: str | None = None) -> KubeflowRun:
    """Start a run on Kubeflow Pipelines at `host`; if several users share it, in the profile `namespace`.

    Raises:
      InfeedError: the job was not compiled for Kubeflow, or the server is not available or rejects the run.
      LostError: the run may have started, but the answer was lost.
    """
    _check(request.job)
    # Raises for tasks that form a cycle, before anything is sent.
    steps = list(leaves(request.job.tasks))
    client, profile = _open(host, namespace)
    with starting(translate_errors(client.address), may_have_begun):
        with _package(request) as path:
            run = client.create_run_from_pipeline_package(
                path,
                arguments=dict(request.parameters),
                run_name=request.name,
                experiment_name=request.experiment,
                namespace=profile,
                pipeline_root=request.job.root or None,
                service_account=request.service_account,
            )
        if not run.run_id:
            raise client.no_api()
    return KubeflowRun(client, profile, str(run.run_id), request.name, steps, _unused(namespace, profile))


def schedule_kubeflow(request: SubmitRequest, cron: str, *, host: str, namespace: str | None = None) -> RunSchedule:
    """Create a recurring run, which starts runs of the job by a cron expression of five fields, one at a time.

    Raises:
      InfeedError: as for `submit_kubeflow`.
      LostError: the recurring run may exist, but the answer was lost.
    """
    _check(request.job)
    client, profile = _open(host, namespace)
    with starting(_translate_schedule_errors(client.address, cron), may_have_begun), _package(request) as path:
        experiment = client.create_experiment(request.experiment or "Default", namespace=profile)
        made = client.create_recurring_run(
            experiment.experiment_id,
            request.name,
            cron_expression=f"0 {sundays_as_0(cron)}",  # Kubeflow's first field is the second
            no_catchup=True,
            params=dict(request.parameters),
            pipeline_package_path=path,
            pipeline_root=request.job.root or None,
            service_account=request.service_account,
        )
    page = f"{page_of(client.address)}/#/recurringrun/details/{made.recurring_run_id}"
    return RunSchedule(str(made.recurring_run_id), request.name, page, _unused(namespace, profile))


def cancel_kubeflow(run: str, *, host: str, namespace: str | None = None) -> None:
    """Stop a run. Raises InfeedError if the run does not exist or has ended, or the server is not available."""
    client, _ = _open(host, namespace)
    with translate_errors(client.address):
        try:
            client.terminate_run(run)
        except kfp_server_api.ApiException as error:
            what, do = f"the run {run} does not exist", "look up the id on the page of the run"
            if error.status == 400 and "Row not found" in _message(error):
                what, do = f"the run {run} has ended, or is being cancelled already", "see the page of the run"
            elif error.status != 404:
                raise
            raise InfeedError(what, where=without_secrets(client.address), do=do) from error


def _open(host: str, namespace: str | None) -> tuple[Client, str | None]:
    """Connect to the server, and return the client and the profile to use: None if the server has a single user."""
    host = (host if "://" in host else f"https://{host}").rstrip("/")
    with translate_errors(host):
        client = Client(host)
        if not client.get_kfp_healthz().multi_user:
            return client, None
        namespace = namespace or client.get_user_namespace()
        if not namespace:
            do = "add --namespace PROFILE, the name of your profile"
            raise InfeedError("a run needs a namespace, because several users share this server", where=host, do=do)
    return client, namespace


def _unused(namespace: str | None, profile: str | None) -> str | None:
    """Return a warning if the namespace of the command line has no effect."""
    if not namespace or profile:
        return None
    return f"--namespace {namespace} has no effect, because the server has a single user"


def page_of(host: str) -> str:
    """Return the address of the user interface."""
    return (os.environ.get("KF_PIPELINES_UI_ENDPOINT") or without_secrets(host)).rstrip("/")


@contextlib.contextmanager
def _package(request: SubmitRequest) -> Iterator[str]:
    """Write the job to a temporary YAML file. kfp reads no PipelineJob, and no other file name extension."""
    spec = request.job.spec if request.cache else request.job.without_cache()
    documents = [spec] if request.job.platform is None else [spec, request.job.platform]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        path.write_text(yaml.safe_dump_all(json.loads(json.dumps(documents))), encoding="utf-8")
        try:
            yield str(path)
        except json_format.ParseError as error:
            do = "compile the job again in this environment, or submit it from the environment that compiled it"
            raise InfeedError(f"kfp {kfp.__version__} cannot read the job: {error}", do=do) from error


def _check(job: CompiledJob) -> None:
    """Reject a job that the server would reject, or that would fail later."""
    if job.schema_version != "2.1.0":
        what = f"the job has schema {job.schema_version}, but Kubeflow Pipelines reads only 2.1.0"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    kinds = {kind for executor in job.executors for kind in executor}
    if foreign := sorted(kinds - {"container", "importer"}):
        what = f"Kubeflow Pipelines does not support the executors {', '.join(foreign)}"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    if foreign := sorted(kind for kind in job.accelerators if "/" not in kind):
        what = f"accelerator is {foreign[0]!r}, but Kubernetes uses names such as nvidia.com/gpu"
        raise InfeedError(what, where=f"job {job.name!r}", do=_COMPILE)
    job.check_store()
    root = job.root
    if root and "://" not in root:
        what = f"the pipeline's root {root!r} is a local folder, where no pod can write"
        raise InfeedError(what, where=f"job {job.name!r}", do=f"{_COMPILE}, with a root such as s3://bucket/folder")


class KubeflowRun:
    """A run on Kubeflow Pipelines; a `submit.run.Run`."""

    def __init__(
        self,
        client: Client,
        profile: str | None,
        run_id: str,
        name: str,
        steps: Sequence[Task],
        warning: str | None = None,
    ) -> None:
        self.id = run_id
        self.name = name
        self.warning = warning
        self.link = f"{page_of(client.address)}/#/runs/details/{run_id}"
        self._client = client
        # The API returns neither logs nor messages, but the server labels the workflow and every pod of a run.
        selected = ("--namespace", profile or "kubeflow", "--selector", f"pipeline/runid={run_id}")
        log = ("--container", "main", "--prefix", "--ignore-errors", "--tail", 100)
        self._look = {
            "log": command_line("logs", *selected, *log, program="kubectl"),
            "why": command_line("get", "workflows", *selected, "-o", _MESSAGES, program="kubectl"),
        }
        self._steps = steps

    def status(self) -> RunStatus:
        with translate_errors(self._client.address):
            try:
                run = self._client.get_run(self.id)
            except kfp_server_api.ApiException as error:
                if error.status != 404:
                    raise
                do = "somebody deleted the run; submit the job again"
                raise InfeedError(f"the run {self.id} no longer exists", where=self.link, do=do) from error
        if not run.run_id:
            raise self._client.no_api()
        tasks = (run.run_details and run.run_details.task_details) or []
        status = RunStatus(_state(run), kubeflow_steps(self._steps, tasks), run.error and run.error.message)
        if status.state is RunState.CANCELLED:  # Argo lists the steps that it stops as failed
            stopped = {NodeState.FAILED: NodeState.SKIPPED}
            steps = (dataclasses.replace(one, state=stopped.get(one.state, one.state)) for one in status.steps)
            return dataclasses.replace(status, steps=tuple(steps))
        return dataclasses.replace(status, look=self._look if status.state is RunState.FAILED else {})


def _state(run: Any) -> RunState:
    """Return the state of a run. The server ends a run that it cancels as FAILED."""
    state = _RUN_STATES.get(run.state, RunState.RUNNING)
    if state is RunState.FAILED and any(entry.state == "CANCELING" for entry in run.state_history or ()):
        return RunState.CANCELLED
    return state
