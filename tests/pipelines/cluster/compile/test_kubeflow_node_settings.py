from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.training_job import TrainingJob
from infeed.pipelines.cluster.compile.kubeflow import apply_settings, relative_function_paths, train_on_machines
from infeed.pipelines.cluster.job.compiled import Task, leaves, read_tasks
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import EphemeralVolume


def spec() -> dict[str, Any]:
    """An ExampleGen with a driver, a Trainer inside of a nested DAG, and a resolver."""
    driver = {"preCacheCheck": {"command": ["driver"]}}
    return {
        "root": {"dag": {"tasks": {"Gen": task("Gen"), "inner": task("inner"), "resolver": task("resolver")}}},
        "components": {
            "Gen": {"executorLabel": "Gen_executor"},
            "inner": {"dag": {"tasks": {"Trainer": task("Trainer")}}},
            "Trainer": {"executorLabel": "Trainer_executor"},
            "resolver": {"executorLabel": "resolver_executor"},
        },
        "deploymentSpec": {
            "executors": {
                "Gen_executor": {"container": {"image": "i", "lifecycle": driver}},
                "Trainer_executor": {"container": {"image": "i"}},
                "resolver_executor": {"resolver": {}},
            }
        },
    }


def task(name: str) -> dict[str, Any]:
    return {"componentRef": {"name": name}, "cachingOptions": {"enableCache": True}}


def applied(resources: dict[str, Resources]) -> dict[str, Any]:
    changed = spec()
    apply_settings(changed, Deploy(resources=resources))
    return changed


def node(changed: dict[str, Any], name: str) -> Task:
    return next(task for task in leaves(read_tasks(changed)) if task.name == name)


def container(changed: dict[str, Any], name: str) -> dict[str, Any]:
    return node(changed, name).container or {}


def node_task(changed: dict[str, Any], name: str) -> dict[str, Any]:
    return node(changed, name).spec


def test_without_options_nothing_changes() -> None:
    assert applied({}) == spec()


def test_the_limits_are_cores_and_units_of_a_thousand_million_bytes() -> None:
    changed = applied({"Trainer": Resources("500m", "2G", "nvidia.com/gpu", 4)})
    assert container(changed, "Trainer")["resources"] == {
        "cpuLimit": 0.5,
        "memoryLimit": 2.0,
        "accelerator": {"type": "nvidia.com/gpu", "count": "4"},
    }
    assert "resources" not in container(changed, "Gen")


def test_retries_wait_longer_each_time() -> None:
    changed = applied({"default": Resources(retries=3), "Trainer": Resources(retries=0)})
    assert node_task(changed, "Gen")["retryPolicy"] == {
        "maxRetryCount": 3,
        "backoffDuration": "30s",
        "backoffFactor": 2.0,
        "backoffMaxDuration": "600s",
    }
    assert "retryPolicy" not in node_task(changed, "Trainer")


def test_one_node_alone_can_be_kept_from_the_cache() -> None:
    changed = applied({"Trainer": Resources(cache=False)})
    assert node_task(changed, "Trainer")["cachingOptions"] == {}
    assert node_task(changed, "Gen")["cachingOptions"] == {"enableCache": True}


def test_variables_reach_the_container() -> None:
    changed = applied({"default": Resources(env={"A": "1"}), "Trainer": Resources(env={"B": "2"})})
    assert container(changed, "Trainer")["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert container(changed, "Gen")["env"] == [{"name": "A", "value": "1"}]


def test_requests_stand_beside_the_limits() -> None:
    changed = applied({"Trainer": Resources(cpu="4", memory="8G", cpu_request="500m", memory_request="2G")})
    found = container(changed, "Trainer")["resources"]
    assert (found["cpuRequest"], found["memoryRequest"]) == (0.5, 2.0)


@pytest.mark.parametrize("name", ["Trianer", "resolver"])
def test_a_name_that_runs_in_no_container_is_told_with_those_that_do(name: str) -> None:
    with pytest.raises(InfeedError, match=rf"no node '{name}'(.|\n)*use default or one of Gen, Trainer$"):
        applied({name: Resources(cpu="1")})


def test_a_trainer_on_several_machines_starts_their_job_and_waits_with_the_resources_of_all_steps() -> None:
    changed = spec()
    changed["deploymentSpec"]["executors"]["Trainer_executor"]["container"]["args"] = ["--executor_class_path", "x"]
    resources = {"default": Resources(cpu="1"), "Trainer": Resources(cpu="8", accelerator="nvidia.com/gpu", retries=2)}
    deploy = Deploy(image="i", resources=resources, training=TrainingJob(2, restarts=1))
    train_on_machines(changed, deploy, "i")
    apply_settings(changed, deploy)
    found = container(changed, "Trainer")
    option, job, *executor = found["args"]
    assert (option, executor) == ("--job", ["--executor_class_path", "x"])
    assert json.loads(job)["options"]["machines"] == 2
    [machine] = json.loads(job)["pod"]["spec"]["containers"]
    assert machine["resources"]["limits"] == {"cpu": "8", "nvidia.com/gpu": "1"}
    assert found["resources"] == {"cpuLimit": 1.0}
    assert node_task(changed, "Trainer")["retryPolicy"]["maxRetryCount"] == 2
    assert "args" not in container(changed, "Gen")


def test_the_disk_of_a_pod_is_limited_as_kubeflow_limits_accelerators() -> None:
    """Kubeflow's messages have no ephemeral storage; its driver limits whatever the accelerator is called."""
    disk, volume = Resources(ephemeral_storage="1Gi"), EphemeralVolume("/s3", "9Gi")
    changed = applied({"Gen": disk, "Trainer": dataclasses.replace(disk, ephemeral_volumes=(volume,))})
    limit = {"accelerator": {"type": "ephemeral-storage", "count": str(1 << 30)}}
    assert [container(changed, name)["resources"] for name in ("Gen", "Trainer")] == [limit, limit]
    assert node(changed, "Gen").variables == {"INFEED_EPHEMERAL_STORAGE": str(1 << 30)}
    assert node(changed, "Trainer").variables == {}  # the launcher's downloads go to the volume


def test_functions_of_the_projects_files_are_named_relative_to_its_folder() -> None:
    assert relative_function_paths(["/p/model.py:build", {"a": "/p/deep/x.py:f"}], "/p") == [
        "model.py:build",
        {"a": "deep/x.py:f"},
    ]


def test_also_inside_of_json_and_in_any_script() -> None:
    options = {"model_fn": "/café/model.py:build"}
    assert json.loads(relative_function_paths(json.dumps(options), "/café")) == {"model_fn": "model.py:build"}


def test_data_in_the_folder_and_files_elsewhere_stay() -> None:
    kept = {"data": "/p/data.csv", "other": "/q/model.py:build", "module": "package.model:build", "number": 3}
    assert relative_function_paths(kept, "/p") == kept
