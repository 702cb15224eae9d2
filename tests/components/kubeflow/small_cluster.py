"""An API server for `cluster_job`, whose JobSets and TrainJobs run as processes of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from infeed.components.kubeflow.training_job import APIS, INDEX, INDEX_ANNOTATION, NODE

Answer = tuple[int, Any]
"""HTTP status, and a JSON value or text."""
_POD_LOG = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/]+)/log")
_JOB = re.compile(rf"/apis/[^/]+/[^/]+/namespaces/[^/]+/(?:{'|'.join(api.plural for api in APIS.values())})(?:/(.+))?")


class Machine:
    def __init__(self, job: str, number: int, start: int, command: list[str]) -> None:
        self.name, self.number, self.lines = f"{job}-{NODE}-0-{number}-{start}", number, list[tuple[float, str]]()
        env = {**os.environ, INDEX: str(number)}
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:  # the kubelet's times have nanoseconds, so no two lines have the same
            last = self.lines[-1][0] if self.lines else 0.0
            self.lines.append((max(time.time(), last + 2e-6), line))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join()

    def pod(self, job: str) -> Any:
        code = self.process.poll()
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        container = {"name": NODE, "image": "", "imageID": "", "ready": code is None, "restartCount": 0}
        state = {"running": {}} if code is None else {"terminated": ended}
        labels = {"jobset.sigs.k8s.io/jobset-name": job}
        return {
            "metadata": {"name": self.name, "labels": labels, "annotations": {INDEX_ANNOTATION: str(self.number)}},
            "spec": {"containers": [{"name": NODE}]},
            "status": {
                "phase": "Running" if code is None else "Failed" if code else "Succeeded",
                "containerStatuses": [{**container, "state": state}],
            },
        }


class Job:
    def __init__(self, body: Any) -> None:
        self.body, self.machines, self.restarts = body, list[Machine](), 0
        self.condition: str | None = None  # type of the last one; None while the job runs
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def object(self) -> Any:
        when = {"status": "True", "reason": "x", "lastTransitionTime": _time(time.time())}
        conditions = [{"type": self.condition, "message": "it has ended", **when}] if self.condition else []
        restarts = {"restarts": self.restarts} if self.body["kind"] == "JobSet" else {}
        return {**self.body, "status": {"conditions": conditions, **restarts}}

    def _run(self) -> None:
        spec = self.body["spec"]
        if self.body["kind"] == "TrainJob":
            count, command, allowed = spec["trainer"]["numNodes"], spec["trainer"]["command"], 0
        else:
            job, allowed = spec["replicatedJobs"][0]["template"]["spec"], spec["failurePolicy"]["maxRestarts"]
            count, command = job["completions"], job["template"]["spec"]["containers"][0]["command"]
        completed = next(api.completed for api in APIS.values() if api.kind == self.body["kind"])
        while not self._start(count, command):
            if self.restarts == allowed or self._stopped.is_set():
                self.condition = "Failed"
                return
            self.restarts += 1
        self.condition = completed

    def _start(self, count: int, command: list[str]) -> bool:
        name = self.body["metadata"]["name"]
        self.machines = [Machine(name, number, self.restarts, command) for number in range(count)]
        try:
            while not self._stopped.wait(0.02):
                codes = [machine.process.poll() for machine in self.machines]
                if any(codes) or None not in codes:
                    return not any(codes)
            return False
        finally:
            for machine in self.machines:
                machine.end()


class Cluster:
    """Knows the pod of the step, and fails where a test says so.

    `check` raises ValueError for an object that the real server refuses.
    """

    def __init__(self, check: Callable[[Any], None]) -> None:
        self.jobs: dict[str, Job] = {}
        self._check, self._lock = check, threading.Lock()
        self.asked: list[str] = []
        self.failing: dict[str, list[Answer]] = {}
        self.warnings: Mapping[str, list[str]] | None = None  # of the objects; None refuses to list events
        self.refuses_pods = False
        self.suspended = False

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Answer:
        self.asked.append(f"{method} {path}")
        with self._lock:  # each request is answered in a thread of its own
            if self.failing.get(method):
                return self.failing[method].pop(0)
        if path.endswith("/events"):
            return self._events(query["fieldSelector"])
        if path.endswith("/pods/the-step"):
            spec = {"serviceAccountName": "runner", "containers": [{"name": "main"}]}
            return 200, {"metadata": {"name": "the-step", "uid": "1-2-3"}, "spec": spec}
        if found := _POD_LOG.fullmatch(path):
            return self._log(found[1], query)
        if path.endswith("/pods"):
            name = query["labelSelector"].partition("=")[2]
            job = None if self.refuses_pods else self.jobs.get(name)
            pods = [machine.pod(name) for machine in job.machines] if job else []
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}
        found = _JOB.fullmatch(path)
        name = (found and found[1]) or (body or {"metadata": {"name": ""}})["metadata"]["name"]
        if method == "POST":
            self._check(body)
            job = self.jobs[name] = Job(body)  # a test may delete it before this is answered
        elif (job := self.jobs.pop(name, None) if method == "DELETE" else self.jobs.get(name)) is None:
            return 404, {"message": f"{name} not found"}
        if method == "DELETE":
            job.stop()
        if self.suspended and job.body["kind"] == "JobSet":
            suspended = {"type": "Suspended", "status": "True", "message": "jobset is suspended"}
            return 200, {**job.body, "status": {"conditions": [suspended]}}
        return 201 if method == "POST" else 200, job.object()

    def _events(self, selector: str) -> Answer:
        if self.warnings is None:
            return 403, {"message": "cannot list resource events"}
        name = selector.removeprefix("involvedObject.name=").removesuffix(",type=Warning")
        made = {"metadata": {"name": "e"}, "involvedObject": {"name": name}, "reason": "FailedCreate"}
        items = [
            {**made, "message": message, "lastTimestamp": f"2026-11-27T17:10:{second:02}Z"}
            for second, message in enumerate(self.warnings.get(name, []))
        ]
        return 200, {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items}

    def _log(self, pod: str, query: Mapping[str, str]) -> Answer:
        machine = next((one for job in [*self.jobs.values()] for one in job.machines if one.name == pod), None)
        if machine is None:  # somebody has deleted the job since the step listed its pods
            return 404, {"message": f'pods "{pod}" not found'}
        since = time.time() - float(query.get("sinceSeconds", "inf"))
        lines = [(when, line) for when, line in [*machine.lines] if when >= since]
        return 200, "".join(
            f"{_time(when)} {line}" if query.get("timestamps", "").lower() == "true" else line
            for when, line in lines[-int(query.get("tailLines", 0)) :]
        )


def _time(when: float) -> str:
    return datetime.fromtimestamp(when, timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


@contextmanager
def serving(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Serve the cluster, and yield the path of a kubeconfig for it."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            code, body = cluster.answer(self.command, url.path, query, json.loads(sent) if sent else None)
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = reply  # noqa: N815 - names of http.server

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "rehearsal"}}],
        "current-context": "x",
    }
    try:
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        yield str(path)
    finally:
        server.shutdown()
        server.server_close()
        for job in [*cluster.jobs.values()]:
            job.stop()
