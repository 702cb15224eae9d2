"""Imitates the API server of a Kubernetes cluster for the step of a Trainer on several machines.

`python -m` of this module replaces the entry point of the step and then runs it. The step's client of Kubernetes finds
the server by KUBECONFIG, and the machines of its job are processes.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from infeed.components.kubeflow import message, step
from infeed.components.kubeflow.packed import unpack
from infeed.components.kubeflow.training_job import APIS
from infeed.components.trainer.options import CUSTOM_CONFIG_KEY
from infeed.pipelines.job.compiled import JOB, STEP
from infeed.pipelines.rehearse.machines import Kills, LocalJob

KILLS = "INFEED_REHEARSE_KILLS"
"""Environment variable for the number of starts of the job in which a machine is killed."""
_NAMESPACE = "rehearsal"
_PODS = re.compile(r"/api/v1/namespaces/[^/]+/pods(?:/([^/]+)/log)?")
_JOBS = re.compile(
    rf"/apis/(?:{'|'.join(f'{api.group}/{api.version}' for api in APIS.values())})"
    rf"/namespaces/([^/]+)/(?:{'|'.join(api.plural for api in APIS.values())})(?:/([^/]+))?"
)
Answer = tuple[int, Any]
"""HTTP status, and a JSON value or text."""


def runs_job(words: Sequence[str]) -> bool:
    """Report whether the command line is a step that starts a training job."""
    return STEP[-1] in words and JOB in words


def with_local_cluster(words: Sequence[str]) -> list[str]:
    """Return the command line with this module as the entry point."""
    return [__name__ if word == STEP[-1] else word for word in words]


class Cluster:
    """Answers the requests of `cluster_job`. `check` raises ValueError for an object that the real one would refuse."""

    def __init__(self, kills: Kills | None = None, check: Callable[[Any], None] = lambda body: None) -> None:
        self.jobs: dict[str, LocalJob] = {}
        self._kills, self._check = kills or Kills(), check

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Answer:
        if found := _PODS.fullmatch(path):
            return self._log(found[1], query) if found[1] else (200, self._pods(query["labelSelector"]))
        if found := _JOBS.fullmatch(path):
            return self._create(found[1], body) if method == "POST" else self._find(found[2], method)
        return _refusal(404, "the server could not find the requested resource")

    def stop(self) -> None:
        for job in self.jobs.values():
            job.stop()

    def _create(self, namespace: str, body: Any) -> Answer:
        name = body["metadata"]["name"]
        if name in self.jobs:
            return _refusal(409, f"{name} already exists")
        try:
            self._check(body)
        except ValueError as error:
            return _refusal(422, str(error))
        self.jobs[name] = LocalJob({**body, "metadata": {**body["metadata"], "namespace": namespace}}, self._kills)
        return 201, self.jobs[name].object()

    def _find(self, name: str, method: str) -> Answer:
        if name not in self.jobs:
            return _refusal(404, f"{name} not found")
        if method == "DELETE":
            self.jobs.pop(name).stop()
            return 200, {"kind": "Status", "status": "Success"}
        return 200, self.jobs[name].object()

    def _pods(self, selector: str) -> Any:
        _, _, name = selector.partition("=")
        job = self.jobs.get(name)
        pods = [machine.pod(name) for machine in job.machines] if job else []
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}

    def _log(self, pod: str, query: Mapping[str, str]) -> Answer:
        found = [machine for job in self.jobs.values() for machine in job.machines if machine.name == pod]
        if not found:
            return _refusal(404, f'pods "{pod}" not found')
        since = time.time_ns() - int(query["sinceSeconds"]) * 10**9 if "sinceSeconds" in query else 0
        tail = int(query["tailLines"]) if "tailLines" in query else None
        return 200, found[0].log(since, tail, query.get("timestamps", "").lower() == "true")


def _refusal(code: int, message: str) -> Answer:
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """Serve the cluster on a free port, and yield the path of a kubeconfig for it. Stop all machines at the end."""
    token = secrets.token_urlsafe()  # the server runs commands, and others may reach the port
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster, f"Bearer {token}"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            context = {"cluster": _NAMESPACE, "user": _NAMESPACE, "namespace": _NAMESPACE}
            address = f"http://127.0.0.1:{server.server_port}"
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": _NAMESPACE, "cluster": {"server": address}}],
                "users": [{"name": _NAMESPACE, "user": {"token": token}}],
                "contexts": [{"name": _NAMESPACE, "context": context}],
                "current-context": _NAMESPACE,
            }
            path = Path(folder, "kubeconfig")
            path.write_text(json.dumps(config), encoding="utf-8")
            yield str(path)
    finally:
        server.shutdown()
        server.server_close()
        cluster.stop()


def _handler(cluster: Cluster, authorization: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            code, body = _refusal(401, "Unauthorized")
            if hmac.compare_digest(self.headers.get("Authorization") or "", authorization):
                code, body = cluster.answer(self.command, url.path, query, json.loads(sent) if sent else None)
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _reply  # noqa: N815 - names of http.server

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def main(arguments: Sequence[str]) -> None:
    """Run the step against a cluster of this process."""
    received, _ = message.read(arguments)
    config = json.loads(unpack(received["inputs"]["parameterValues"]["custom_config"]))
    kills = Kills(int(os.environ.get(KILLS, 0)), str(config[CUSTOM_CONFIG_KEY]["checkpoint_dir"]))
    with serving(Cluster(kills)) as kubeconfig:
        os.environ["KUBECONFIG"] = kubeconfig
        step.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
