from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.job.compiled import leaves, read_tasks


def nodes(spec: Any) -> list[str]:
    return [task.node for task in leaves(read_tasks(spec))]


def test_tasks_come_after_what_they_take_and_what_they_depend_on(jobs: ModuleType) -> None:
    steps = {
        "a": jobs.step(takes={"x": "b.x"}),
        "b": jobs.step(gives=["x"], dependentTasks=["d"]),
        "c": jobs.step(parameters={"status": {"taskFinalStatus": {"producerTask": "a"}}}),
        "d": jobs.step(),
    }
    assert nodes(jobs.job(steps).spec) == ["d", "b", "a", "c"]


def nested(jobs: ModuleType, *names: str) -> Any:
    """A job of dags `first` and `second`, each with one step, under the given names."""
    job = jobs.job({name: jobs.step() for name in {*names}})
    tasks = job.spec["root"]["dag"]["tasks"]
    root = {}
    for dag, name in zip(("first", "second"), names, strict=True):
        job.spec["components"][f"comp-{dag}"] = {"dag": {"tasks": {name: tasks[name]}}}
        root[dag] = {"componentRef": {"name": f"comp-{dag}"}}
    job.spec["root"]["dag"]["tasks"] = root
    return job.spec


def test_steps_inside_of_dags_go_by_their_own_names_where_those_differ(jobs: ModuleType) -> None:
    assert nodes(nested(jobs, "load", "learn")) == ["load", "learn"]
    assert nodes(nested(jobs, "load", "load")) == ["first/load", "second/load"]


def test_a_task_that_is_not_there_is_named(jobs: ModuleType) -> None:
    # TFX 1.16 and 1.21 compile a parameter taken from another node's output to a task of a name with `_task` added.
    with pytest.raises(InfeedError, match=r"'learn_task'\n.*task push"):
        read_tasks(jobs.job({"learn": jobs.step(), "push": jobs.step(takes={"x": "learn_task.x"})}).spec)


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["", "legacy"], ids=["2.1", "2.0"])
@pytest.mark.parametrize(
    ("golden", "order"),
    [
        ("two_step_pipeline_with_exit_handler", ["BigQueryExampleGen", "StatisticsGen", "ExitHandlerComponent"]),
        ("two_step_pipeline_with_task_only_dependency", ["Step 1", "Step 2"]),
        ("pipeline_with_one_container_spec_component", ["my_importer", "DummyContainerSpecComponent"]),
        ("consume_primitive_artifacts_by_value_pipeline", ["ProducePrimitives", "ConsumeByValue"]),
    ],
)
def test_the_jobs_of_tfxs_own_tests_are_read(golden: str, order: list[str], schema: str) -> None:
    from google.protobuf import json_format, text_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    tfx = find_spec("tfx")
    assert tfx
    assert tfx.submodule_search_locations
    folder = Path(tfx.submodule_search_locations[0], "orchestration", "kubeflow", "v2", "testdata", schema)
    text = (folder / f"expected_{golden}.pbtxt").read_text()
    spec = text_format.Parse(text, pipeline_spec_pb2.PipelineSpec())
    assert nodes(json_format.MessageToDict(spec)) == order
