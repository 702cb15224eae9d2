"""The walk alone, with steps that run nothing; whole jobs are in test_rehearsal.py, and those of kfp in test_kfp.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import read_tasks
from infeed.pipelines.cluster.rehearse import dag_executor
from infeed.pipelines.cluster.rehearse.dag_executor import DagExecutor, holds
from infeed.pipelines.cluster.rehearse.executor_io import Artifact, TaskIO, TaskResult
from infeed.pipelines.console.nodes import NodeState

Walked = Callable[..., dict[str, str]]


@dataclasses.dataclass(frozen=True)
class Context:
    """As much of a `RunContext` as a walk looks at."""

    run: str = "run-1"
    job: Any = dataclasses.field(default_factory=lambda: {"parameters": {}, "pipeline_job_resource_name": "job-1"})


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> Walked:
    """State of each node after a walk in which the steps of `failing` fail."""

    def walk(spec: Any, failing: tuple[str, ...] = ()) -> dict[str, str]:
        def run_step(task: Any, inputs: TaskIO, context: Any, tell: Any) -> TaskResult:
            assert context.job["pipeline_task_name"] == task.name
            tell("at work")
            return TaskResult(NodeState.FAILED, error="no data") if task.name in failing else TaskResult(NodeState.DONE)

        monkeypatch.setattr(dag_executor, "run_step", run_step)
        executor = DagExecutor(Context(), read_tasks(spec), lambda nodes: None)  # type: ignore[arg-type]
        executor.run(TaskIO())
        return {node.name: node.state.value for node in executor.tracker.report().nodes}

    return walk


def test_what_comes_after_a_failure_is_skipped(jobs: ModuleType, walked: Walked) -> None:
    steps = {"a": jobs.step(), "b": jobs.step(dependentTasks=["a"]), "c": jobs.step(dependentTasks=["b"])}
    assert walked(jobs.job(steps).spec, ("b",)) == {"a": "done", "b": "failed", "c": "skipped"}


def test_an_exit_handler_runs_after_a_failure(jobs: ModuleType, walked: Walked) -> None:
    policy = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    steps = {"a": jobs.step(), "z": jobs.step(dependentTasks=["a"], triggerPolicy=policy)}
    assert walked(jobs.job(steps).spec, ("a",)) == {"a": "failed", "z": "done"}


def test_a_false_condition_skips_the_task_and_what_needs_it(jobs: ModuleType, walked: Walked) -> None:
    steps = {
        "a": jobs.step(triggerPolicy={"condition": "1 > 2"}),
        "b": jobs.step(dependentTasks=["a"]),
        "c": jobs.step(triggerPolicy={"condition": "2 > 1"}),
    }
    assert walked(jobs.job(steps).spec) == {"a": "skipped", "c": "done", "b": "skipped"}


def nested(jobs: ModuleType) -> Any:
    """A dag `inner` of two steps, and a step after it."""
    spec = jobs.job({"a": jobs.step(), "b": jobs.step(dependentTasks=["a"]), "c": jobs.step()}).spec
    tasks = spec["root"]["dag"]["tasks"]
    spec["components"]["comp-inner"] = {"dag": {"tasks": {name: tasks.pop(name) for name in ("a", "b")}}}
    tasks["inner"] = {"componentRef": {"name": "comp-inner"}}
    tasks["c"]["dependentTasks"] = ["inner"]
    return spec


def test_a_dag_fails_where_a_step_of_it_does(jobs: ModuleType, walked: Walked) -> None:
    assert walked(nested(jobs)) == {"a": "done", "b": "done", "c": "done"}
    assert walked(nested(jobs), ("a",)) == {"a": "failed", "b": "skipped", "c": "skipped"}


def test_a_dag_that_cannot_be_started_is_told_at_its_first_step(jobs: ModuleType, walked: Walked) -> None:
    spec = nested(jobs)
    spec["root"]["dag"]["tasks"]["inner"]["triggerPolicy"] = {"condition": "1 +"}
    assert walked(spec) == {"a": "failed", "b": "skipped", "c": "skipped"}


def test_only_what_succeeded_has_outputs(jobs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"a": TaskResult(NodeState.DONE, TaskIO(artifacts={"x": []})), "b": TaskResult(NodeState.FAILED)}
    monkeypatch.setattr(dag_executor, "run_step", lambda task, *_: results[task.name])
    tasks = read_tasks(jobs.job({name: jobs.step() for name in results}).spec)
    executor = DagExecutor(Context(), tasks, lambda nodes: None)  # type: ignore[arg-type]
    executor.run(TaskIO())
    assert executor.outputs == {"a": {"x": []}}


BLESSED = Artifact("1", {}, "/m", {"blessed": 1})


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        ("inputs.parameter_values['s'] == 'a'", True),
        ("!(inputs.parameter_values['s'] == 'a') && true", False),
        ("int(inputs.parameter_values['n']) > 2", True),
        ("inputs.parameter_values['n'] == 3.0", True),
        ("inputs.parameter_values['b'] == true", True),
        # As TFX compiles conditions on the output `x` of a node `p`.
        ("(inputs.artifacts['_p.x'].artifacts[0].metadata['blessed'] == 1.0)", True),
        ("!((inputs.artifacts['_p.x'].artifacts[0].uri == '/m')) && (1.0 > 0.0)", False),
    ],
)
def test_conditions_see_what_the_cluster_shows_them(condition: str, result: bool) -> None:
    assert holds(condition, TaskIO({"s": "a", "n": 3, "b": True}, {"_p.x": [BLESSED]})) is result


@pytest.mark.parametrize("condition", ["1 +", "inputs.parameter_values['none'] == 1.0", "1 + 1"])
def test_what_is_no_condition_is_told_with_its_text(condition: str) -> None:
    with pytest.raises(InfeedError, match="cannot evaluate the condition") as caught:
        holds(condition, TaskIO())
    assert caught.value.where == condition
