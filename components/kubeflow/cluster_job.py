"""Training job in the cluster of a step: create, follow and delete it.

The step deletes the job when the job ends or SIGTERM stops the step. Kubernetes deletes it with the step's pod. A
retried step first deletes the job of its earlier attempt.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from infeed.components.base.errors import InfeedError, required
from infeed.components.base.machine import stopped_by_sigterm
from infeed.components.kubeflow.training_job import APIS, INDEX_ANNOTATION, NODE, Api, Place, TrainingJob

_POLL = 2.0  # seconds between polls of the job
_SILENCE = 20.0  # seconds without all pods until the step reports why, and between reports
_PATIENCE = 300.0  # seconds to wait for the API server, which may restart
_GONE = 300.0  # seconds to wait for the deletion of an earlier job and its pods
_TAIL = 50  # last lines of a failed machine's log
_OF_JOBSET = "jobset.sigs.k8s.io/jobset-name"  # label of the pods; the JobSet of a TrainJob has the same name
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REMEDIES = {
    403: "give the step's service account the Role in docs/kubeflow.md",
    404: "install JobSet, or Kubeflow Trainer for a TrainJob, in the cluster",
}
_OTHER_REMEDY = "correct deploy.training, or the settings of the Trainer in deploy.resources"
_POD = re.compile(r'pods "[^"]*"')
_log = logging.getLogger(__name__)


def run(options: TrainingJob, name: str, make: Callable[[Place], Mapping[str, Any]]) -> None:
    """Run a job to its end. The chief's output becomes the output of this process.

    `name` is the same for all attempts of a step. `make` returns the manifest of the job. Raise InfeedError if the
    client is not installed, the cluster rejects the job, or the job fails.
    """
    cluster = _Cluster.connect()
    job = _Job(cluster, APIS[options.kind], cluster.place(options, name))
    _log.info("training on %s machines: %s %s in %s", options.machines, job.api.kind, name, job.place.namespace)
    with stopped_by_sigterm(), _deleted_at_the_end(job):
        job.delete()
        job.ask("create", make(job.place))
        _Follower(job, options.machines, options.timeout).follow()


@contextmanager
def _deleted_at_the_end(job: _Job) -> Iterator[None]:
    """Delete the job after the body. If both fail, raise the error of the body."""
    failed: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failed = error
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not stop the deletion
        try:
            job.delete(wait=False)
        except InfeedError as error:
            if failed is None:
                raise
            if str(error) != str(failed):
                _log.warning("cannot delete %s %s: %s", job.api.kind, job.place.name, error.what)


@dataclass(frozen=True)
class _Cluster:
    """Kubernetes client, and the namespace of this pod or of the kubeconfig."""

    client: Any
    namespace: str

    @classmethod
    def connect(cls) -> _Cluster:
        config, client = required("kubernetes.config"), required("kubernetes.client")
        given = os.environ.get("KUBECONFIG")
        try:
            if not given:
                config.load_incluster_config()
                return cls(client, (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip())
            config.load_kube_config(given)
            _, active = config.list_kube_config_contexts(given)
            return cls(client, active["context"].get("namespace", "default"))
        except (config.ConfigException, OSError) as error:
            do = "run the step in a pod with a service account, or set KUBECONFIG"
            raise InfeedError(f"cannot access a Kubernetes cluster: {error}", do=do) from error

    def place(self, options: TrainingJob, name: str) -> Place:
        """Return the location of a job, by default with the namespace and the service account of the step's pod."""
        pod = os.environ.get("KFP_POD_NAME")
        if options.namespace not in (None, self.namespace) or not pod:
            return Place(name, options.namespace or self.namespace, options.service_account)
        found = self.ask(lambda: self.client.CoreV1Api().read_namespaced_pod(pod, self.namespace), "get pods")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": found.metadata.uid}
        return Place(name, self.namespace, options.service_account or found.spec.service_account_name, owner)

    def ask(self, request: Callable[[], Any], what: str, *, missing: bool = False) -> Any:
        """Return the response of the API server. With `missing`, return None if the object does not exist.

        Raise InfeedError if the server rejects the request (`what`: verb and resource) or does not respond for minutes.
        """
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return request()
            except self.client.ApiException as error:
                if missing and error.status == 404:
                    return None
                if error.status not in (429, 500, 502, 503, 504) or time.monotonic() > until:
                    do = _REMEDIES.get(error.status, _OTHER_REMEDY)
                    said = error.reason
                    with suppress(TypeError, ValueError, KeyError):
                        said = json.loads(error.body)["message"]
                    # Not from the client's error, whose message is part of this one.
                    answer = f"the cluster responded with {error.status}: {said}"
                    raise InfeedError(answer, where=what, do=do) from None
            except required("urllib3").exceptions.HTTPError as error:
                if time.monotonic() > until:
                    do = "check the network of the cluster"
                    raise InfeedError(f"the API server does not respond: {error}", where=what, do=do) from error
            time.sleep(_POLL)


@dataclass(frozen=True)
class _Job:
    cluster: _Cluster
    api: Api
    place: Place

    def get(self) -> Any:
        return self.ask("get", self.place.name, missing=True)

    def delete(self, *, wait: bool = True) -> None:
        """Delete the job and its pods, if any. With `wait`, raise InfeedError if they still exist after minutes."""
        body = self.cluster.client.V1DeleteOptions(propagation_policy="Foreground")
        self.ask("delete", self.place.name, missing=True, body=body)
        until = time.monotonic() + _GONE
        while wait and self.get() is not None:
            if time.monotonic() > until:
                what = f"{self.api.kind} {self.place.name} of an earlier attempt is still there"
                raise InfeedError(what, where=f"namespace {self.place.namespace}", do="delete it with kubectl")
            time.sleep(_POLL)

    def pods(self) -> list[Any]:
        """Return the pods by machine number."""
        api, selector = self.cluster.client.CoreV1Api(), f"{_OF_JOBSET}={self.place.name}"
        found = self.cluster.ask(
            lambda: api.list_namespaced_pod(self.place.namespace, label_selector=selector), "list pods"
        )
        return sorted(found.items, key=_number)

    def events(self) -> list[Any] | None:
        """Return the warnings about the job and its Job. None if the cluster denies access."""
        list_events = self.cluster.client.CoreV1Api().list_namespaced_event
        found: list[Any] = []
        for name in _job_names(self.place):
            select = f"involvedObject.name={name},type=Warning"
            try:
                found += self.cluster.ask(
                    functools.partial(list_events, self.place.namespace, field_selector=select), "list events"
                ).items
            except InfeedError:  # the Role may not allow events
                return None
        return found

    def log_lines(self, pod: str, **options: Any) -> list[str]:
        """Return lines of the log of a pod. Empty if the pod is gone, or its container has not started."""
        api, bad_request = self.cluster.client.CoreV1Api(), 400

        def read() -> Any:
            try:
                return api.read_namespaced_pod_log(
                    pod, self.place.namespace, container=NODE, _preload_content=False, **options
                )
            except self.cluster.client.ApiException as error:
                if error.status == bad_request:  # the container is waiting to start
                    return None
                raise

        found = self.cluster.ask(read, "get pods/log", missing=True)
        return found.data.decode(errors="replace").splitlines() if found else []

    def ask(self, verb: str, *arguments: Any, missing: bool = False, **options: Any) -> Any:
        """Return the response to a request about the object. With `missing`, return None if it does not exist."""
        request = getattr(self.cluster.client.CustomObjectsApi(), f"{verb}_namespaced_custom_object")
        resource = self.api.group, self.api.version, self.place.namespace, self.api.plural
        what = f"{verb} {self.api.plural}.{self.api.group}"
        return self.cluster.ask(lambda: request(*resource, *arguments, **options), what, missing=missing)


@dataclass
class _Follower:
    """Follower of a job that prints its events until it ends."""

    job: _Job
    machines: int
    timeout: int | None
    _restarts: int = 0
    _states: dict[int, str] = field(default_factory=dict)
    _last: str = ""  # timestamp of the last printed line of the chief
    _looked: float = field(default_factory=time.monotonic)
    _missing: str = ""  # last printed reason for missing machines
    _explain_at: float = field(default_factory=lambda: time.monotonic() + _SILENCE)
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=4 * _TAIL))

    def follow(self) -> None:
        """Wait until the job has completed. Raise InfeedError if it failed, timed out, or was deleted."""
        until = time.monotonic() + (self.timeout or float("inf"))
        while True:
            found = self.job.get()
            if found is None:
                raise self._failed("was deleted", "start the step again")
            status, pods = found.get("status", {}), self.job.pods()
            # Print the logs before the end is noticed, so that their last lines are not lost.
            self._report(status, pods)
            true = {one["type"]: one for one in status.get("conditions", ()) if one["status"] == "True"}
            if self.job.api.completed in true:
                return
            if "Failed" in true:
                # The error of a machine says more than the condition of its job.
                told = InfeedError.told_in("\n".join(self._lines))
                do = told.do if told else "read the log above; the next attempt resumes from the checkpoint"
                raise self._failed(f"failed: {told.what if told else true['Failed'].get('message', '')}", do)
            self._report_missing(found, len(pods))
            if time.monotonic() > until:
                do = "raise deploy.training.timeout"
                do = f"fix the cause, or {do}" if self._missing else do
                raise self._failed(f"took longer than {self.timeout} s", do)
            time.sleep(_POLL)

    def _failed(self, what: str, do: str) -> InfeedError:
        states = "".join(f"; machine {number} is {state}" for number, state in self._states.items())
        states += f"; {self._missing}" if self._missing else ""
        where = f"{self.job.api.kind} {self.job.place.name} in {self.job.place.namespace}"
        return InfeedError(f"the training job {what}{states}", where=where, do=do)

    def _report(self, status: Mapping[str, Any], pods: list[Any]) -> None:
        if status.get("restarts", 0) > self._restarts:
            self._restarts = status["restarts"]
            _log.warning("restart %s of all machines", self._restarts)
        for pod in pods:
            number, state = _number(pod), _state(pod)
            if number == 0:
                self._print_chief(pod.metadata.name)
            if self._states.get(number) == state:
                continue
            self._states[number] = state
            _log.info("machine %s is %s", number, state)
            if pod.status.phase == "Failed" and number:
                for line in self.job.log_lines(pod.metadata.name, tail_lines=_TAIL):
                    self._lines.append(line)
                    print(f"machine {number}: {line}", flush=True)

    def _report_missing(self, found: Mapping[str, Any], there: int) -> None:
        """Print why machines have had no pod for some seconds. Print again if the reason changes."""
        now = time.monotonic()
        if there >= self.machines:
            self._missing = ""
        elif now < self._explain_at:
            return
        else:
            why = f"{there} of {self.machines} machines have a pod: "
            why += explain(self.job.api, self.job.place, found, self.job.events())
            if is_news(why, self._missing):
                _log.warning("%s", why)
            self._missing = why
        self._explain_at = now + _SILENCE

    def _print_chief(self, pod: str) -> None:
        """Print the chief's lines with a later timestamp than the last printed one, even after a restart."""
        since, self._looked = int(time.monotonic() - self._looked) + 60, time.monotonic()
        recent = {"since_seconds": since} if self._last else {}
        for line in self.job.log_lines(pod, timestamps=True, **recent):
            when, _, text = line.partition(" ")
            if when > self._last:
                self._last = when
                self._lines.append(text)
                print(text, flush=True)


def _number(pod: Any) -> int:
    return int((pod.metadata.annotations or {}).get(INDEX_ANNOTATION, 0))


def _state(pod: Any) -> str:
    """Return the phase of a pod and its reason: Pending (Unschedulable: ...), Failed (OOMKilled)."""
    for status in pod.status.container_statuses or ():
        if status.name == NODE and status.state and (ended := status.state.terminated):
            return f"{pod.status.phase} ({ended.reason or 'ended'}, exit code {ended.exit_code})"
        if status.name == NODE and status.state and (waits := status.state.waiting):
            return f"{pod.status.phase} ({waits.reason}{f': {waits.message}' if waits.message else ''})"
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{pod.status.phase} ({condition.reason}: {condition.message})"
    return str(pod.status.phase)


def _job_names(place: Place) -> tuple[str, ...]:
    """Return the names of the objects that create pods: the JobSet or TrainJob, and the Job of the machines."""
    return place.name, f"{place.name}-{NODE}-0"


def explain(api: Api, place: Place, found: Mapping[str, Any], events: Iterable[Any] | None) -> str:
    """Return why machines are missing, and a command that shows details.

    `found` is the job object. `events` are the warnings about `_job_names`, or None if the step may not list events.
    """
    conditions = (one for one in found.get("status", {}).get("conditions", ()) if one["status"] == "True")
    reasons = [f"{one['type']}: {one.get('message', '')}" for one in conditions]
    if events is None:
        reasons.append("the step may not list events")
    else:
        # The newest warning about each object. Older warnings may be about an earlier attempt.
        created = found.get("metadata", {}).get("creationTimestamp")
        begin = datetime.fromisoformat(created.replace("Z", "+00:00")) if created else None
        timed = [(event.last_timestamp or event.event_time, event) for event in events]
        newest: dict[str, str] = {}
        for when, event in sorted((one for one in timed if one[0]), key=itemgetter(0)):
            if begin is None or when >= begin:
                newest[event.involved_object.name] = f"{event.reason}: {event.message}"
        reasons += newest.values()
    job_set, job = _job_names(place)
    objects = " ".join(f"{kind}/{job_set}" for kind in dict.fromkeys((api.kind.lower(), "jobset")))
    command = f"kubectl describe --namespace {place.namespace} {objects} job/{job}"
    return f"{'; '.join(reasons) or 'the cluster gives no reason'}; see: {command}"


def is_news(why: str, before: str) -> bool:
    """Report whether two explanations differ in more than the pod name, which changes with each pod."""
    return _POD.sub("", why) != _POD.sub("", before)
