"""Single steps with processes that are only pretended; whole jobs, with real ones, are in test_rehearsal.py."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import Task, read_tasks
from infeed.pipelines.cluster.rehearse import launch, step
from infeed.pipelines.cluster.rehearse.executor_io import Artifact, TaskIO
from infeed.pipelines.cluster.rehearse.launch import Faults, LocalLauncher
from infeed.pipelines.cluster.rehearse.step import (
    ENTRY_POINT,
    RunContext,
    TaskResult,
    fingerprint,
    in_one_process,
    run_step,
)
from infeed.pipelines.cluster.rehearse.store import open_store
from infeed.pipelines.console.nodes import NodeState

MODEL = {"schemaTitle": "tfx.Model"}
DATA = Artifact("run-0/load/data", MODEL, "/there")
Run = Callable[..., tuple[TaskResult, list[str]]]


def task(jobs: ModuleType, **changes: Any) -> Task:
    [found] = read_tasks(jobs.job({"learn": jobs.step(gives=["model"], **changes)}).spec)
    return found


@pytest.fixture
def context(tmp_path: Path) -> Iterator[RunContext]:
    with open_store(tmp_path) as store:
        yield RunContext(
            root=tmp_path,
            run="run-1",
            pipeline="small",
            project=str(tmp_path),
            legacy=False,
            use_cache=True,
            kfp=None,
            job={},
            launcher=LocalLauncher(str(tmp_path / "packages")),
            faults=Faults(),
            store=store,
        )


@pytest.fixture
def run(context: RunContext, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What came of a step whose processes end with `statuses`, one after the other, and what it told meanwhile."""
    (context.root / "logs").mkdir()

    def ran(one: Task, *statuses: int, **changes: Any) -> tuple[TaskResult, list[str]]:
        left, told = list(statuses), list[str]()
        monkeypatch.setattr(launch, "run_process", lambda argv, **_: left.pop(0))
        result = run_step(one, TaskIO(), dataclasses.replace(context, **changes), told.append)
        assert not left
        return result, told

    return ran


def test_a_step_that_succeeds_is_found_in_the_cache_while_its_outputs_are_there(
    jobs: ModuleType, run: Run, context: RunContext
) -> None:
    result, told = run(task(jobs), 0)
    [model] = result.outputs.artifacts["model"]
    assert (result.state, model.name, told) == (NodeState.DONE, "run-1/learn/model", [""])
    assert run(task(jobs), 0)[0].state is NodeState.DONE  # nothing was written, so there is nothing to take
    Path(model.uri).touch()
    again, told = run(task(jobs))
    assert (again.state, again.note, told) == (NodeState.CACHED, "made in run-1", [])
    assert run(task(jobs), 0, use_cache=False)[0].state is NodeState.DONE
    assert run(task(jobs, cache=False), 0)[0].state is NodeState.DONE


def test_attempts_end_with_the_first_that_succeeds(jobs: ModuleType, run: Run) -> None:
    result, told = run(task(jobs, retries=2), 1, 0)
    assert (result.state, result.note, told) == (NodeState.DONE, "attempt 2 of 3", ["", "attempt 2 of 3"])


def test_the_last_failure_is_the_one_that_is_told(jobs: ModuleType, run: Run) -> None:
    result, _ = run(task(jobs, retries=1), 1, 3)
    assert (result.state, result.error) == (NodeState.FAILED, "exit status 3")


def test_a_step_that_is_killed_on_purpose_says_how_many_attempts_the_job_allows(jobs: ModuleType, run: Run) -> None:
    result, _ = run(task(jobs), -15, faults=Faults({"learn": 1}))
    assert result.error == "killed on purpose; the job gives it no retries"
    result, _ = run(task(jobs, retries=1), -15, -15, faults=Faults({"learn": 2}))
    assert result.error == "killed on purpose; the job allows 2 attempts"
    result, told = run(task(jobs, retries=1), -15, 0, faults=Faults({"learn": 1}))
    assert (result.state, told[-1]) == (NodeState.DONE, "attempt 2 of 2, 1 killed on purpose")


def test_inputs_that_exceed_the_disk_of_the_pod_fail_the_step(
    jobs: ModuleType, context: RunContext, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(b"x" * 5)
    one, data = task(jobs), Artifact("run-0/load/data", MODEL, str(tmp_path / "data"))
    assert one.container is not None
    one.container["env"] = [{"name": "INFEED_EPHEMERAL_STORAGE", "value": "4"}]
    result = run_step(one, TaskIO({}, {"data": [data]}), context, lambda note: None)
    assert result.state is NodeState.FAILED
    assert "deploy.resources.learn.ephemeral_storage" in result.error


def test_only_vertex_ai_compares_the_variables_of_a_step(jobs: ModuleType, run: Run) -> None:
    def states(**context: Any) -> list[NodeState]:
        found = []
        for value in "12":
            one = task(jobs)
            assert one.container is not None
            one.container["env"] = [{"name": "LEVEL", "value": value}]
            result, _ = run(one, *([] if found and context["kfp"] is not None else [0]), **context)
            Path(result.outputs.artifacts["model"][0].uri).touch()
            found.append(result.state)
        return found

    assert states(kfp=None) == [NodeState.DONE, NodeState.DONE]
    assert states(kfp="2.17", run="run-2", pipeline="other") == [NodeState.DONE, NodeState.CACHED]


def test_a_driver_that_fails_ends_the_step(jobs: ModuleType, run: Run) -> None:
    result, told = run(task(jobs, driver="pass"), 1)
    assert (result.state, result.error, told) == (NodeState.FAILED, "the driver failed: exit status 1", ["driver"])
    assert run(task(jobs, driver="pass"), 0, kfp="2.17")[0].state is NodeState.DONE


def test_what_is_started_can_be_started_again_by_hand(jobs: ModuleType, run: Run, context: RunContext) -> None:
    run(task(jobs), 0)
    script = (context.root / "logs" / "run-1" / "learn.sh").read_text().splitlines()
    assert script[:2] == ["#!/bin/sh", f"cd {context.root}"]
    assert any(line.startswith("exec ") for line in script)


def test_a_container_that_leaves_the_command_to_its_image_is_refused(jobs: ModuleType, run: Run) -> None:
    one = task(jobs)
    assert one.container is not None
    one.container.update(command=[], args=[])
    with pytest.raises(InfeedError, match="leaves the command to the image's entry point"):
        run(one)


def test_a_fingerprint_is_of_inputs_container_and_image(jobs: ModuleType) -> None:
    inputs = TaskIO({"n": 3}, {"data": [DATA]})
    planned = {"model": Artifact("run-1/learn/model", MODEL, "/a/model")}
    of = fingerprint(task(jobs), inputs, planned, "image:1")
    other_place = {"model": Artifact("run-2/learn/model", MODEL, "/b/model")}
    assert fingerprint(task(jobs), inputs, other_place, "image:1") == of
    others = [
        fingerprint(task(jobs), TaskIO({"n": 4}, inputs.artifacts), planned, "image:1"),
        fingerprint(task(jobs), TaskIO({"n": 3}), planned, "image:1"),
        fingerprint(task(jobs), inputs, planned, "image:2"),
        fingerprint(task(jobs), inputs, {}, "image:1"),
        fingerprint(task(jobs, script="print()"), inputs, planned, "image:1"),
    ]
    assert len({of, *others}) == 6


def test_a_step_with_machines_trains_as_one_process_and_says_so(
    jobs: ModuleType, context: RunContext, run: Run
) -> None:
    one = task(jobs)
    assert one.container is not None
    one.container.update(command=["python", "-m", "infeed.components.kubeflow.step"], args=["--job", "{}", "--x", "y"])
    result, _ = run(one, 0)
    assert result.note == "trained as one process"
    script = context.log("learn").with_suffix(".sh").read_text()
    assert script.endswith("-m infeed.components.kubeflow.step --x y\n")


STEP = ("python", "-m", "infeed.components.kubeflow.step")
OF_VERTEX, OF_TFX = step._HERE


def test_a_step_with_machines_trains_itself() -> None:
    assert in_one_process([*STEP, "--job", '{"options": {}}', "--executor_class_path", "x"]) == [
        *STEP,
        "--executor_class_path",
        "x",
    ]


@pytest.mark.parametrize("executor", [OF_VERTEX, OF_TFX])
@pytest.mark.parametrize("entry_point", [ENTRY_POINT, STEP[-1]])
def test_a_step_that_asks_vertex_ai_for_machines_runs_the_executor_of_the_machines(
    executor: str, entry_point: str
) -> None:
    words = ["python", "-m", entry_point, "--executor_class_path", executor]
    assert in_one_process(words) == [*words[:-1], step._HERE[executor]]


@pytest.mark.parametrize(
    "words",
    [
        (*STEP, "--executor_class_path", "infeed.components.trainer.executor.TrainerExecutor"),
        ("python", "train.py", "--job", "7", OF_VERTEX),
    ],
)
def test_other_steps_keep_their_command_line(words: tuple[str, ...]) -> None:
    assert in_one_process(words) == [*words]


@pytest.mark.tfx
def test_the_executors_exist() -> None:
    for name in (name for pair in step._HERE.items() for name in pair):
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute)
