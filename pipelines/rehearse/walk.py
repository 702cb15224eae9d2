"""Walks through the tasks as the cluster would: conditions, nested dags, exit handlers, the first failure."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from infeed.components.errors import InfeedError
from infeed.pipelines.local.nodes import Board, NodeReport, NodeState, OnChange
from infeed.pipelines.rehearse import condition, queries
from infeed.pipelines.rehearse.dag import Task, leaves
from infeed.pipelines.rehearse.scope import Bundle, Result, Scope, dag_outputs, gather
from infeed.pipelines.rehearse.step import Stage, Tell, run_step
from infeed.pipelines.rehearse.store import Artifact, Execution


class Walk:
    """A rehearsal as it goes on.

    Attributes:
      board: the state of every step.
      outputs: artifacts by node and key, of the steps that have succeeded.
    """

    def __init__(self, stage: Stage, tasks: tuple[Task, ...], on_change: OnChange) -> None:
        self._stage, self._tasks = stage, tasks
        self.board = Board([NodeReport(task.node) for task in leaves(tasks)], on_change)
        self.outputs: dict[str, Mapping[str, Sequence[Artifact]]] = {}

    def run(self, inputs: Bundle) -> None:
        """Executes everything, with the values of the job's parameters."""
        self._dag(self._tasks, inputs)

    def _dag(self, tasks: tuple[Task, ...], inputs: Bundle) -> dict[str, Result]:
        results: dict[str, Result] = {}
        for task in tasks:
            results[task.name] = self._task(task, Scope(self._stage.job, inputs, results))
        return results

    def _task(self, task: Task, scope: Scope) -> Result:
        failed = next((name for name, result in scope.results.items() if result.state is NodeState.FAILED), None)
        if failed and not task.runs_after_failures:
            return self._skip(task, f"after {failed} failed")
        skipped = next((name for name in task.upstream if scope.results[name].state is NodeState.SKIPPED), None)
        if skipped and not task.runs_after_failures:
            return self._skip(task, f"as {skipped} is")
        try:
            inputs = gather(task, scope)
            expression = task.spec.get("triggerPolicy", {}).get("condition")
            if expression and not condition.holds(expression, inputs):
                return self._skip(task, "its condition is false")
            return self._nested(task, inputs) if task.executor is None else self._leaf(task, inputs)
        except InfeedError as error:
            return self._fail(task, str(error))

    def _nested(self, task: Task, inputs: Bundle) -> Result:
        results = self._dag(task.subtasks, inputs)
        failed = [result for result in results.values() if result.state is NodeState.FAILED]
        state = NodeState.FAILED if failed else NodeState.DONE
        return Result(state, dag_outputs(task, results), failed[0].error if failed else "")

    def _leaf(self, task: Task, inputs: Bundle) -> Result:
        started = time.monotonic()

        def tell(note: str) -> None:
            self.board.post(NodeReport(task.node, NodeState.RUNNING, time.monotonic() - started, note=note))

        tell("")
        try:
            result = self._run(task, inputs, tell)
        except InfeedError as error:
            result = Result(NodeState.FAILED, error=str(error))
        seconds = time.monotonic() - started
        self.board.post(NodeReport(task.node, result.state, seconds, result.error or None, result.note))
        if result.succeeded:
            self.outputs[task.node] = result.outputs.artifacts
        return result

    def _run(self, task: Task, inputs: Bundle, tell: Tell) -> Result:
        assert task.executor is not None
        stage = self._stage
        if "container" in task.executor:
            return run_step(task, inputs, _of_task(stage, task), tell)
        if "resolver" in task.executor:
            found = queries.resolve(task, inputs, stage.store, stage.pipeline, stage.job)
            return Result(NodeState.DONE, found, note="" if any(found.artifacts.values()) else "found nothing")
        name = f"{stage.run}/{task.node}"
        imported = queries.import_artifact(task, inputs, stage.store, stage.pipeline, stage.job, name)
        artifacts = [artifact for found in imported.artifacts.values() for artifact in found]
        stage.store.record(Execution(stage.pipeline, stage.run, task.node, "", 0.0), artifacts)
        return Result(NodeState.DONE, imported)

    def _skip(self, task: Task, why: str) -> Result:
        for leaf in (task,) if task.executor else leaves(task.subtasks):
            self.board.post(NodeReport(leaf.node, NodeState.SKIPPED, note=why))
        return Result(NodeState.SKIPPED)

    def _fail(self, task: Task, error: str) -> Result:
        """A task that could not be started; of a dag, its first step stands for it."""
        first, *others = (task,) if task.executor else leaves(task.subtasks)
        self.board.post(NodeReport(first.node, NodeState.FAILED, error=error))
        for leaf in others:
            self.board.post(NodeReport(leaf.node, NodeState.SKIPPED))
        return Result(NodeState.FAILED, error=error)


def _of_task(stage: Stage, task: Task) -> Stage:
    """Placeholders name the task as well."""
    names = {"pipeline_task_name": task.name, "pipeline_task_uuid": f"{stage.run}/{task.node}"}
    return dataclasses.replace(stage, job={**stage.job, **names})
