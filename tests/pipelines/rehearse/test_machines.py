from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infeed.components.kubeflow.training_job import Place, TrainingJob, job_object
from infeed.pipelines.rehearse.machines import Kills, LocalJob

pytestmark = pytest.mark.slow

Start = Callable[..., LocalJob]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    """start(script, machines, kills=..., **options) -> a job, whose disks are below tmp_path/pod."""
    monkeypatch.setenv("INFEED_LAUNCHER_ROOT", str(tmp_path / "pod"))
    jobs: list[LocalJob] = []

    def run(script: str, machines: int = 2, kills: Kills | None = None, **options: Any) -> LocalJob:
        secret = {"secretKeyRef": {"name": "store", "key": "accesskey"}}
        env = [{"name": "LEVEL", "value": "3"}, {"name": "KEY", "valueFrom": secret}]
        pod = {"spec": {"containers": [{"name": "node", "image": "i:1", "env": env}]}}
        command = ["python", "-S", "-c", f"import json, os, sys, time, pathlib\n{script}"]
        body = job_object(TrainingJob(machines, **options), pod, Place("j", "team"), command)
        jobs.append(LocalJob(body, kills or Kills()))
        return jobs[-1]

    yield run
    for job in jobs:
        job.stop()


def ended(job: LocalJob) -> str:
    until = time.monotonic() + 60
    while job.condition is None and time.monotonic() < until:
        time.sleep(0.01)
    assert job.condition is not None
    return job.condition[0]


def test_a_machine_has_the_variables_that_kubernetes_gives_to_its_pod(start: Start) -> None:
    names = "TF_CONFIG", "JOB_COMPLETION_INDEX", "LEVEL", "INFEED_LAUNCHER_ROOT"
    job = start(f"print(json.dumps([os.environ[name] for name in {names}])); print('$(LEVEL) $$')")
    assert ended(job) == "Completed"
    for number, machine in enumerate(job.machines):
        variables, literal = machine.log().splitlines()
        config, index, level, root = json.loads(variables)
        assert (index, level, root.rpartition("/")[2]) == (str(number), "3", str(number))
        assert json.loads(config)["task"] == {"type": "worker", "index": number}
        hosts = json.loads(config)["cluster"]["worker"]
        assert [host.startswith("127.0.0.") for host in hosts] == [True, True]
        assert literal == "$(LEVEL) $$"


def test_a_failure_ends_all_machines_and_a_restart_begins_all_again(start: Start, tmp_path: Path) -> None:
    script = f"folder = pathlib.Path({str(tmp_path)!r})\nnumber = os.environ['JOB_COMPLETION_INDEX']\n"
    script += "if (folder / 'failed').exists(): sys.exit()\n(folder / number).touch()\n"
    script += "while not (folder / '0').exists(): time.sleep(0.01)\nif number == '0': time.sleep(60)\n"
    script += "(folder / 'failed').touch(); sys.exit(5)"
    job = start(script, restarts=1)
    assert ended(job) == "Completed"
    assert job.object()["status"]["restarts"] == job.restarts == 1


def test_a_job_without_restarts_fails_and_its_pods_say_how(start: Start) -> None:
    job = start("os.environ['JOB_COMPLETION_INDEX'] == '1' and os.kill(os.getpid(), 9); time.sleep(60)", restarts=0)
    assert ended(job) == "Failed"
    status = job.machines[1].pod("j")["status"]
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_the_last_machine_is_killed_after_a_new_checkpoint(start: Start, tmp_path: Path) -> None:
    below = tmp_path / "checkpoints" / "a1"
    below.mkdir(parents=True)
    (below / "ckpt-1.index").touch()  # of an earlier attempt
    script = f"folder = pathlib.Path({str(below)!r}); again = (folder / 'ckpt-2.index').exists()\n"
    script += "(folder / 'ckpt-2.index').touch()\nif not again: time.sleep(60)"
    job = start(script, 1, Kills(1, str(tmp_path / "checkpoints")), restarts=1)
    assert ended(job) == "Completed"
    assert job.restarts == 1


def test_a_train_job_has_no_restarts_of_its_own(start: Start) -> None:
    job = start("sys.exit(1)", kind="trainjob", runtime="plain")
    assert ended(job) == "Failed"
    assert "restarts" not in job.object()["status"]


def test_a_command_that_does_not_exist_is_a_failure_of_the_job(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    job = start("pass")
    assert ended(job) == "Failed"
    assert job.condition
    assert "FileNotFoundError" in job.condition[1]
