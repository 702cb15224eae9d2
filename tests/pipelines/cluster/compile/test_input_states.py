"""Steps that inspect an ExampleGen's input, in the compiled template; `test_launcher_tfx` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.pipelines.cluster.compile.input_states import resources_of
from infeed.pipelines.cluster.job.compiled import CompiledJob, Task
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
