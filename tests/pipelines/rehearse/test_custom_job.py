from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from infeed.pipelines.rehearse import custom_job
from infeed.pipelines.rehearse.custom_job import (
    ENTRY_POINT,
    JobService,
    cluster_environment,
    replicas,
    run_replicas,
    starts_custom_job,
    with_local_job_service,
)

TRAINER = ("python", "-m", ENTRY_POINT, "--executor_class_path", "infeed.components.trainer.vertex_executor.Executor")


def job_spec(*scripts: str, **container: Any) -> dict[str, Any]:
    """A pool of one machine for each script."""
    command = [sys.executable, "-S", "-c"]
    pools = [{"replica_count": 1, "container_spec": {"command": [*command, s], **container}} for s in scripts]
    return {"worker_pool_specs": pools}


def test_a_pool_of_replicas_is_as_many_machines() -> None:
    spec = {"worker_pool_specs": [{"replica_count": n, "container_spec": {"command": ["train"]}} for n in (1, 2)]}
    assert [machine.name for machine in replicas(spec)] == ["workerpool0-0", "workerpool1-0", "workerpool1-1"]


def test_each_machine_is_told_of_all_as_vertex_ai_does() -> None:
    chief, worker = replicas(job_spec("", ""))
    told = cluster_environment(worker, {chief: "localhost:1", worker: "localhost:2"})
    assert {name: json.loads(value) for name, value in told.items()} == {
        "CLUSTER_SPEC": {
            "cluster": {"workerpool0": ["localhost:1"], "workerpool1": ["localhost:2"]},
            "task": {"type": "workerpool1", "index": 0},
            "environment": "cloud",
        },
        "TF_CONFIG": {
            "cluster": {"chief": ["localhost:1"], "worker": ["localhost:2"]},
            "task": {"type": "worker", "index": 0},
            "environment": "cloud",
        },
    }
    assert cluster_environment(chief, {chief: "localhost:1"}).keys() == {"CLUSTER_SPEC"}


@pytest.mark.slow
def test_machines_run_side_by_side_with_what_the_job_gives_their_containers(tmp_path: Any) -> None:
    here, there = (tmp_path / name for name in ("here", "there"))
    meet = "import os, pathlib, sys, time\npathlib.Path(os.environ['MINE']).touch()\n"
    meet += "while not pathlib.Path(os.environ['THEIRS']).exists(): time.sleep(0.01)"
    spec = job_spec(meet, meet)
    for pool, (mine, theirs) in zip(spec["worker_pool_specs"], [(here, there), (there, here)], strict=True):
        env = {"MINE": str(mine), "THEIRS": str(theirs)}
        pool["container_spec"]["env"] = [{"name": name, "value": value} for name, value in env.items()]
    assert run_replicas(replicas(spec)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chief", "worker", "failure"),
    [
        ("pass", "import time; time.sleep(1000)", ""),  # the first machine speaks for the job
        ("import time; time.sleep(1000)", "raise SystemExit(3)", "workerpool1-0 exited with a non-zero status of 3"),
        ("raise SystemExit(4)", "import time; time.sleep(1000)", "workerpool0-0 exited with a non-zero status of 4"),
    ],
)
def test_the_job_ends_with_its_first_machine_or_with_any_that_fails(chief: str, worker: str, failure: str) -> None:
    assert failure in run_replicas(replicas(job_spec(chief, worker)))


@pytest.mark.tfx
@pytest.mark.parametrize(("script", "state"), [("pass", "SUCCEEDED"), ("raise SystemExit(1)", "FAILED")])
def test_the_client_sees_the_job_as_it_ended(script: str, state: str) -> None:
    service = JobService({})
    created = service.create_custom_job("projects/p/locations/r", {"display_name": "t", "job_spec": job_spec(script)})
    found = service.get_custom_job(created.name, retry=None)
    assert (created.name, found.state.name) == ("projects/p/locations/r/customJobs/1", f"JOB_STATE_{state}")
    assert ("workerpool0-0" in found.error.message) == (state == "FAILED")


@pytest.mark.tfx
def test_what_is_no_custom_job_is_refused_as_by_the_real_client() -> None:
    with pytest.raises(ValueError, match="worker_pools"):
        JobService({}).create_custom_job("p", {"job_spec": {"worker_pools": []}})


@pytest.mark.parametrize("entry_point", [ENTRY_POINT, "infeed.components.kubeflow.step"])
def test_the_entry_point_of_a_step_that_trains_elsewhere_runs_behind_another_one(entry_point: str) -> None:
    words = [entry_point if word == ENTRY_POINT else word for word in TRAINER]
    assert starts_custom_job(words)
    assert with_local_job_service(words) == ["python", "-m", custom_job.__name__, *words[2:]]


def test_other_steps_keep_their_entry_point() -> None:
    assert not starts_custom_job(("python", "-m", ENTRY_POINT, "infeed.components.trainer.executor.TrainerExecutor"))
    assert not starts_custom_job(("python", "train.py", *TRAINER[-1:]))  # nothing could take the place of that


def test_the_module_runs_as_a_program_once_all_of_it_is_defined() -> None:
    tree = ast.parse(Path(custom_job.__file__).read_text())
    assert ast.unparse(tree.body[-1]) == "if __name__ == '__main__':\n    main()"
