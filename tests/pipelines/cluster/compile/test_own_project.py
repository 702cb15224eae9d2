from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine.project_archive import OPTION, VARIABLE, digest
from infeed.pipelines.cluster.compile.own_project import ship
from infeed.pipelines.cluster.job.compiled import IN_PLACE, STEP, Task
from infeed.pipelines.cluster.job.project import archive_beside

OF_TFX = ["python", "-m", "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"]


def step(name: str, command: list[str], args: list[str] | None = None, **parameters: str) -> Task:
    container = {"image": "i", "command": command, "args": args or [], "env": [{"name": "A", "value": "b"}]}
    given = {key: {"runtimeValue": {"constant": value}} for key, value in parameters.items()}
    return Task((name,), name, {"inputs": {"parameters": given}}, {}, {"container": container})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "taxi").mkdir()
    for name in ("model.py", "config.yaml", "data.csv", "job.json", "old.project.tar.gz"):
        (tmp_path / "taxi" / name).write_text(name)
    return tmp_path / "taxi"


def shipped(project: Path, *tasks: Task, exclude: tuple[str, ...] = ()) -> bytes:
    ship(tasks, project, exclude, root="gs://bucket/taxi", job_file=str(project / "job.json"))
    return archive_beside(str(project / "job.json")).read_bytes()


def test_the_step_names_the_archive_by_its_digest(project: Path) -> None:
    task = step("Trainer", [*STEP])
    archive = shipped(project, task)
    place = f"gs://bucket/taxi/project/{digest(archive)}.tar.gz"
    assert task.project_archive == place
    assert task.container is not None
    assert task.container["env"] == [{"name": "A", "value": "b"}, {"name": VARIABLE, "value": place}]
    assert task.container["command"] == [*STEP]
    assert task.container["args"] == [f"{OPTION}{place}"]  # Kubeflow's cache ignores variables


def test_on_vertex_ai_the_step_gets_the_entry_point_that_unpacks(project: Path) -> None:
    task = step("Trainer", OF_TFX)
    shipped(project, task)
    assert task.container is not None
    assert task.container["command"] == [*STEP, IN_PLACE]


def test_machines_of_a_custom_job_get_the_archive_as_well(project: Path) -> None:
    pools = [{"container_spec": {"image_uri": "i"}}, {"container_spec": {"image_uri": "i", "env": [{"name": "C"}]}}]
    config = {"ai_platform_training_args": {"job_spec": {"worker_pool_specs": pools}}, "infeed": {"epochs": 3}}
    task = step("Trainer", OF_TFX, custom_config=json.dumps(config))
    shipped(project, task)
    changed: Any = json.loads(task.spec["inputs"]["parameters"]["custom_config"]["runtimeValue"]["constant"])
    variable = {"name": VARIABLE, "value": task.project_archive}
    found = [
        pool["container_spec"]["env"] for pool in changed["ai_platform_training_args"]["job_spec"]["worker_pool_specs"]
    ]
    assert found == [[variable], [{"name": "C"}, variable]]
    assert changed["infeed"] == {"epochs": 3}


def test_a_changed_file_changes_the_place_and_what_no_step_reads_does_not(project: Path) -> None:
    exclude = ("config.yaml", "data.csv")
    first = shipped(project, exclude=exclude)
    for name in exclude:
        (project / name).write_text("changed")
    assert shipped(project, exclude=exclude) == first
    (project / "model.py").write_text("changed")
    assert shipped(project, exclude=exclude) != first


def test_data_does_not_travel_with_the_code(project: Path) -> None:
    with (project / "data.csv").open("wb") as file:
        file.truncate(30 << 20)
    with pytest.raises(InfeedError, match=r"31 MB(.|\n)*'data\.csv'") as error:
        shipped(project)
    assert "deploy.exclude" in error.value.do
    assert not (project / "job.project.tar.gz").exists()


def test_workers_of_a_cluster_do_not_fetch_the_project(project: Path) -> None:
    with pytest.raises(InfeedError, match=r"FlinkRunner(.|\n)*Transform") as error:
        shipped(project, step("Transform", [*STEP], ["--runner=FlinkRunner"]))
    assert error.value.where == "deploy.project"
    shipped(project, step("Transform", [*STEP], ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]))
