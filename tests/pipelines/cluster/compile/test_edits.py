"""Steps that inspect an ExampleGen's input, in the compiled template; `test_launch_tfx` runs them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine.project_archive import OPTION, VARIABLE, digest
from infeed.components.kubeflow.message import ARGUMENT, unpack
from infeed.pipelines.cluster.compile.edits import LIMIT, resources_of, ship_project, shorten_parameters
from infeed.pipelines.cluster.job.compiled import IN_PLACE, STEP, CompiledJob, Task, archive_beside, read_tasks
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import KeySource

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return {task.name: task for task in CompiledJob.read(GOLDEN / "kubeflow.yaml").tasks}


def test_the_step_runs_first_and_is_never_cached(tasks: dict[str, Task]) -> None:
    assert next(iter(tasks)) == "CsvExampleGen-input"
    assert not tasks["CsvExampleGen-input"].cacheable
    assert tasks["CsvExampleGen"].upstream == {"CsvExampleGen-input"}


def test_its_outputs_are_parameters_of_a_cached_example_gen_without_a_driver(tasks: dict[str, Task]) -> None:
    example_gen = tasks["CsvExampleGen"]
    assert example_gen.cacheable
    assert example_gen.driver is None
    parameters = example_gen.spec["inputs"]["parameters"]
    taken = {key for key, source in parameters.items() if "taskOutputParameter" in source}
    assert (
        taken
        == {"input_config", "input_fingerprint", "span"}
        == tasks["CsvExampleGen-input"].outputs("parameters").keys()
    )
    assert taken <= example_gen.component["inputDefinitions"]["parameters"].keys()


def test_the_folder_stays_a_parameter_of_the_pipeline(tasks: dict[str, Task]) -> None:
    given = tasks["CsvExampleGen-input"].spec["inputs"]["parameters"]
    assert given["input_base"] == {"componentInputParameter": "data"}


def test_vertex_ai_keeps_the_driver() -> None:
    tasks = {task.name: task for task in CompiledJob.read(GOLDEN / "vertex-2.1.json").tasks}
    assert "CsvExampleGen-input" not in tasks
    assert tasks["CsvExampleGen"].driver is not None


def test_the_step_has_the_secrets_of_its_example_gen_and_no_machine() -> None:
    secrets = (KeySource("store", {"key": "KEY"}),)
    deploy = Deploy(resources={"default": Resources(cpu="4"), "Gen": Resources(memory="8Gi", secrets=secrets)})
    assert resources_of(deploy, "Gen-input") == Resources(secrets=secrets, cache=False)
    assert resources_of(deploy, "Gen").cpu == "4"


WIDE = json.dumps([{"column": f"sensor_{number:04d}", "kind": "z_score"} for number in range(3_000)])
TFX = ["python", "-m", "tfx.entry"]


def step(driver: bool = False, **constants: Any) -> Task:
    """A step with constants as parameters, behind TFX's entry point."""
    parameters = {name: {"runtimeValue": {"constant": value}} for name, value in constants.items()}
    container: dict[str, Any] = {"image": "i", "command": [*TFX], "args": [ARGUMENT, "{{$}}"]}
    if driver:
        container["lifecycle"] = {"preCacheCheck": {"command": ["driver"]}}
    spec = {
        "components": {"Transform": {"executorLabel": "e"}},
        "deploymentSpec": {"executors": {"e": {"container": container}}},
        "root": {
            "dag": {
                "tasks": {
                    "Transform": {
                        "taskInfo": {"name": "Transform"},
                        "componentRef": {"name": "Transform"},
                        "inputs": {"parameters": parameters},
                    }
                }
            }
        },
    }
    [task] = read_tasks(spec)
    return task


def constant(task: Task, name: str) -> Any:
    return task.spec["inputs"]["parameters"][name]["runtimeValue"]["constant"]


def test_the_features_of_three_thousand_columns_fit() -> None:
    task = step(features=WIDE, label="kind", epochs=3.0)
    assert len(WIDE) > LIMIT
    shorten_parameters(task, launcher=True)
    assert len(constant(task, "features")) < LIMIT // 4
    assert unpack(constant(task, "features")) == WIDE
    assert (constant(task, "label"), constant(task, "epochs")) == ("kind", 3.0)
    assert task.container is not None
    assert task.container["command"] == [*STEP]


def test_without_a_launcher_the_artifacts_keep_their_uris() -> None:
    task = step(features=WIDE)
    shorten_parameters(task, launcher=False)
    assert task.container is not None
    assert task.container["command"] == [*STEP, "--in-place"]


def test_short_parameters_stay_readable() -> None:
    task = step(features=WIDE[:1_000])
    shorten_parameters(task, launcher=True)
    assert constant(task, "features") == WIDE[:1_000]
    assert task.container is not None
    assert task.container["command"] == TFX


@pytest.mark.parametrize("driver", [False, True])
def test_what_is_still_too_long_is_refused(driver: bool) -> None:
    noise = random.Random(0)
    text = WIDE if driver else "".join(noise.choices("0123456789abcdef", k=4 * LIMIT))
    with pytest.raises(InfeedError, match="parameter features") as error:
        shorten_parameters(step(driver, features=text), launcher=True)
    assert error.value.where == "step Transform"


OF_TFX = ["python", "-m", "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"]


def prepared(name: str, command: list[str], args: list[str] | None = None, **parameters: str) -> Task:
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
    ship_project(tasks, project, exclude, root="gs://bucket/taxi", job_file=str(project / "job.json"))
    return archive_beside(str(project / "job.json")).read_bytes()


def test_the_step_names_the_archive_by_its_digest(project: Path) -> None:
    task = prepared("Trainer", [*STEP])
    archive = shipped(project, task)
    place = f"gs://bucket/taxi/project/{digest(archive)}.tar.gz"
    assert task.project_archive == place
    assert task.container is not None
    assert task.container["env"] == [{"name": "A", "value": "b"}, {"name": VARIABLE, "value": place}]
    assert task.container["command"] == [*STEP]
    assert task.container["args"] == [f"{OPTION}{place}"]  # Kubeflow's cache ignores variables


def test_on_vertex_ai_the_step_gets_the_entry_point_that_unpacks(project: Path) -> None:
    task = prepared("Trainer", OF_TFX)
    shipped(project, task)
    assert task.container is not None
    assert task.container["command"] == [*STEP, IN_PLACE]


def test_machines_of_a_custom_job_get_the_archive_as_well(project: Path) -> None:
    pools = [{"container_spec": {"image_uri": "i"}}, {"container_spec": {"image_uri": "i", "env": [{"name": "C"}]}}]
    config = {"ai_platform_training_args": {"job_spec": {"worker_pool_specs": pools}}, "infeed": {"epochs": 3}}
    task = prepared("Trainer", OF_TFX, custom_config=json.dumps(config))
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
        shipped(project, prepared("Transform", [*STEP], ["--runner=FlinkRunner"]))
    assert error.value.where == "deploy.project"
    shipped(
        project, prepared("Transform", [*STEP], ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"])
    )
