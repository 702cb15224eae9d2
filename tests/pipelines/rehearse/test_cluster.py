"""`components/kubeflow/test_cluster_job.py` follows jobs by this server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from infeed.components.kubeflow import step
from infeed.components.kubeflow.message import ARGUMENT
from infeed.components.kubeflow.training_job import Place, TrainingJob, job_object
from infeed.pipelines.rehearse import cluster
from infeed.pipelines.rehearse.cluster import Cluster, runs_job, serving, with_local_cluster

STEP = ("python", "-m", "infeed.components.kubeflow.step", "--job", "{}", "--executor_class_path", "x")
JOBS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"


def job(*command: str) -> Any:
    pod = {"spec": {"containers": [{"name": "node", "image": "i:1"}]}}
    return job_object(TrainingJob(1), pod, Place("j", "team"), command)


def test_only_a_step_with_machines_has_a_cluster() -> None:
    assert runs_job(STEP)
    assert not runs_job([word for word in STEP if word != "--job"])
    assert with_local_cluster(STEP)[2] == "infeed.pipelines.rehearse.cluster"


def test_an_object_that_the_cluster_would_refuse_is_refused() -> None:
    def check(body: Any) -> None:
        raise ValueError("no such field")

    code, said = Cluster(check=check).answer("POST", JOBS, {}, job("python"))
    assert (code, said["message"]) == (422, "no such field")


@pytest.mark.slow
def test_a_name_can_be_taken_once_and_again_after_it_was_deleted() -> None:
    server, body = Cluster(), job("python", "-S", "-c", "import time; time.sleep(60)")
    codes = [server.answer("POST", JOBS, {}, body)[0] for _ in range(2)]
    codes += [server.answer("DELETE", f"{JOBS}/j", {}, None)[0] for _ in range(2)]
    codes.append(server.answer("GET", f"{JOBS}/j", {}, None)[0])
    assert codes == [201, 409, 200, 404, 404]


@pytest.mark.slow
def test_the_server_is_found_by_its_kubeconfig() -> None:
    with serving(Cluster()) as path:
        config = json.loads(Path(path).read_text())
        server, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
        pods = f"{server}/api/v1/namespaces/team/pods?labelSelector=a%3Dj"
        asking = urllib.request.Request(pods, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asking) as answer:
            assert json.load(answer)["items"] == []
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(pods)
    assert not Path(path).exists()


@pytest.mark.slow
def test_the_step_runs_against_a_cluster_that_kills_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv(cluster.KILLS, "2")
    monkeypatch.setattr(step, "main", lambda arguments: found.append(Path(cluster.os.environ["KUBECONFIG"]).exists()))
    monkeypatch.setattr(cluster, "Kills", lambda *given: found.append(given))
    config = json.dumps({"infeed": {"checkpoint_dir": "/checkpoints"}})
    message = {"inputs": {"parameterValues": {"custom_config": config}}, "outputs": {}}
    cluster.main([*STEP[3:], ARGUMENT, json.dumps(message)])
    assert (found[0], found[-1]) == ((2, "/checkpoints"), True)
