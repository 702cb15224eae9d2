"""Runs the tasks of a job, with conditions, nested DAGs, exit handlers and failures as on a cluster.

The inputs of a task are constants, inputs of its DAG, and outputs of upstream tasks. Independent tasks run
concurrently. Each has a thread that waits for the process of its step.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import mapped
from infeed.pipelines.cluster.job import parameters as values
from infeed.pipelines.cluster.job.compiled import Spec, Task, leaves
from infeed.pipelines.cluster.job.parameters import Value
from infeed.pipelines.cluster.rehearse.executor_io import Artifact, TaskIO, TaskResult, fill, inputs_view
from infeed.pipelines.cluster.rehearse.step import OnProgress, RunContext, run_step
from infeed.pipelines.cluster.rehearse.store import Execution, import_artifact, resolve
from infeed.pipelines.console.nodes import NodeReport, NodeState, OnChange, RunTracker


@dataclass(frozen=True)
class Scope:
    """State of a running DAG."""

    job: Mapping[str, Any]  # values of the whole job for placeholders and runtime parameters
    inputs: TaskIO  # inputs of the DAG
    results: Mapping[str, TaskResult]  # results of the finished tasks, by name


def gather_inputs(task: Task, scope: Scope) -> TaskIO:
    """Return the inputs of a task that have a value. Raises InfeedError if a required input has none."""
    given = task.spec.get("inputs", {})
    declared = task.component.get("inputDefinitions", {})
    artifacts = {key: _artifacts(source, scope) for key, source in given.get("artifacts", {}).items()}
    parameters = {
        **{key: spec.get("defaultValue") for key, spec in declared.get("parameters", {}).items()},
        **{k: v for k, source in given.get("parameters", {}).items() if (v := _parameter(source, scope)) is not None},
    }
    found: dict[str, Mapping[str, Any]] = {"parameters": parameters, "artifacts": artifacts}
    for kind, values_by_key in found.items():
        for key in given.get(kind, {}):
            if values_by_key.get(key) is None and not declared.get(kind, {}).get(key, {}).get("isOptional"):
                do = "mark the input as optional, or check the upstream task that should set it"
                raise InfeedError(f"the input {key!r} has no value", where=f"task {task.node}", do=do)
    known = TaskIO(_present(parameters), _present(artifacts))
    view = {**scope.job, "inputs": inputs_view(known)}
    filled, known_types = dict(known.parameters), declared.get("parameters", {})
    for key, value in known.parameters.items():
        if isinstance(value, str) and "runtimeValue" in given.get("parameters", {}).get(key, {}):
            filled[key] = fill(value, view)  # placeholders for other inputs
        elif isinstance(value, dict) and values.declared_type(known_types.get(key, {})) == "STRING":
            filled[key] = json.dumps(value)  # TFX's exit handlers declare the final status as a string
    return TaskIO(filled, known.artifacts)


def dag_outputs(task: Task, results: Mapping[str, TaskResult]) -> TaskIO:
    """Return the outputs of a DAG from the results of its tasks. `OneOf` takes the branch that ran."""
    outputs = task.component["dag"].get("outputs", {})
    parameters = {key: _selected(spec, results) for key, spec in outputs.get("parameters", {}).items()}
    artifacts: dict[str, list[Artifact]] = {}
    for key, spec in outputs.get("artifacts", {}).items():
        for selector in spec.get("artifactSelectors", ()):
            made = results[selector["producerSubtask"]].outputs.artifacts
            artifacts.setdefault(key, []).extend(made.get(selector["outputArtifactKey"], ()))
    return TaskIO(_present(parameters), artifacts)


def _parameter(source: Spec, scope: Scope) -> Value:
    if "componentInputParameter" in source:
        return scope.inputs.parameters.get(source["componentInputParameter"])
    if "taskOutputParameter" in source:
        output = source["taskOutputParameter"]
        return scope.results[output["producerTask"]].outputs.parameters.get(output["outputParameterKey"])
    if "taskFinalStatus" in source:
        producer = source["taskFinalStatus"]["producerTask"]
        result = scope.results[producer]
        return {  # the PipelineTaskFinalStatus of a DAG for its exit handler
            "state": "SUCCEEDED" if result.succeeded else "FAILED",
            "error": {"code": 0 if result.succeeded else 9, "message": result.error},  # 9: gRPC's FAILED_PRECONDITION
            "pipelineJobResourceName": scope.job["pipeline_job_resource_name"],
            "pipelineTaskName": producer,
        }
    runtime = source["runtimeValue"]
    if "runtimeParameter" in runtime:
        return scope.job["parameters"].get(runtime["runtimeParameter"])
    return values.constant(runtime)


def _artifacts(source: Spec, scope: Scope) -> Sequence[Artifact] | None:
    if "componentInputArtifact" in source:
        return scope.inputs.artifacts.get(source["componentInputArtifact"])
    output = source["taskOutputArtifact"]
    return scope.results[output["producerTask"]].outputs.artifacts.get(output["outputArtifactKey"])


def _selected(spec: Spec, results: Mapping[str, TaskResult]) -> Value:
    several = spec.get("valueFromOneof", {}).get("parameterSelectors", ())
    for selector in several or (spec["valueFromParameter"],):
        result = results[selector["producerSubtask"]]
        if result.succeeded:
            return result.outputs.parameters.get(selector["outputParameterKey"])
    return None


def _present(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}


class DagExecutor:
    """Executes the tasks of a job, at most `workers` steps at a time."""

    def __init__(self, context: RunContext, tasks: tuple[Task, ...], on_change: OnChange, workers: int = 1) -> None:
        self._context, self._tasks = context, tasks
        self._slots = threading.Semaphore(workers)
        self.tracker = RunTracker([NodeReport(task.node) for task in leaves(tasks)], on_change)
        self.outputs: dict[str, Mapping[str, Sequence[Artifact]]] = {}  # of the succeeded steps by node and key

    def run(self, inputs: TaskIO) -> None:
        """Execute all tasks with the values of the job's parameters."""
        self._dag(self._tasks, inputs)

    def _dag(self, tasks: tuple[Task, ...], inputs: TaskIO) -> dict[str, TaskResult]:
        results: dict[str, TaskResult] = {}
        waiting = list(tasks)
        running: set[Future[None]] = set()

        def in_slot(task: Task) -> None:
            # A nested DAG would deadlock if it held a slot while its steps wait for one.
            with nullcontext() if task.executor is None else self._slots:
                results[task.name] = self._task(task, Scope(self._context.job, inputs, dict(results)))

        with ThreadPoolExecutor(len(tasks) or 1) as pool:
            try:
                while waiting or running:
                    for task in [task for task in waiting if task.upstream <= results.keys()]:
                        waiting.remove(task)
                        running.add(pool.submit(in_slot, task))
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()  # raises the error of the task
            except BaseException:  # the pool waits for its threads, which end only when their processes do
                self._context.stop.set()
                raise
        return results

    def _task(self, task: Task, scope: Scope) -> TaskResult:
        # As on a cluster, only exit handlers run after a failed or skipped task.
        failed = next((name for name, result in scope.results.items() if result.state is NodeState.FAILED), None)
        if failed and not task.runs_after_failures:
            return self._skip(task, f"after {failed} failed")
        skipped = next((name for name in task.upstream if scope.results[name].state is NodeState.SKIPPED), None)
        if skipped and not task.runs_after_failures:
            return self._skip(task, f"as {skipped} is")
        try:
            inputs = gather_inputs(task, scope)
            expression = task.spec.get("triggerPolicy", {}).get("condition")
            if expression and not holds(expression, inputs):
                return self._skip(task, "its condition is false")
            if task.executor is not None:
                return self._leaf(task, inputs)
            results = self._dag(task.subtasks, inputs)
            broken = [result for result in results.values() if result.state is NodeState.FAILED]
            state = NodeState.FAILED if broken else NodeState.DONE
            return TaskResult(state, dag_outputs(task, results), broken[0].error if broken else "")
        except InfeedError as error:
            return self._fail(task, str(error))

    def _leaf(self, task: Task, inputs: TaskIO) -> TaskResult:
        started = time.monotonic()

        def tell(note: str) -> None:
            self.tracker.post(NodeReport(task.node, NodeState.RUNNING, time.monotonic() - started, note=note))

        tell("")
        try:
            result = self._run(task, inputs, tell)
        except InfeedError as error:
            result = TaskResult(NodeState.FAILED, error=str(error))
        seconds = time.monotonic() - started
        self.tracker.post(NodeReport(task.node, result.state, seconds, result.error or None, result.note))
        if result.succeeded:
            self.outputs[task.node] = result.outputs.artifacts
        return result

    def _run(self, task: Task, inputs: TaskIO, tell: OnProgress) -> TaskResult:
        assert task.executor is not None
        context = self._context
        if "container" in task.executor:
            names = {"pipeline_task_name": task.name, "pipeline_task_uuid": f"{context.run}/{task.node}"}
            return run_step(task, inputs, dataclasses.replace(context, job={**context.job, **names}), tell)
        if "resolver" in task.executor:
            found = resolve(task, inputs, context.store, context.pipeline, context.job)
            return TaskResult(NodeState.DONE, found, note="" if any(found.artifacts.values()) else "found nothing")
        name = f"{context.run}/{task.node}/"
        imported = import_artifact(task, inputs, context.store, context.pipeline, context.job, name)
        artifacts = [artifact for found in imported.artifacts.values() for artifact in found]
        context.store.record(Execution(context.pipeline, context.run, task.node, "", 0.0), artifacts)
        return TaskResult(NodeState.DONE, imported)

    def _skip(self, task: Task, why: str) -> TaskResult:
        for leaf in (task,) if task.executor else leaves(task.subtasks):
            self.tracker.post(NodeReport(leaf.node, NodeState.SKIPPED, note=why))
        return TaskResult(NodeState.SKIPPED)

    def _fail(self, task: Task, error: str) -> TaskResult:
        """Report a task that cannot start. For a DAG, report its first step as failed."""
        first, *others = (task,) if task.executor else leaves(task.subtasks)
        self.tracker.post(NodeReport(first.node, NodeState.FAILED, error=error))
        for leaf in others:
            self.tracker.post(NodeReport(leaf.node, NodeState.SKIPPED))
        return TaskResult(NodeState.FAILED, error=error)


def holds(condition: str, inputs: TaskIO) -> bool:
    """Evaluate the condition of a task.

    Numbers are doubles, as in the protobuf messages on a cluster. Raises InfeedError if the condition is not a Boolean
    expression, or uses inputs that the task does not have.
    """
    from celpy import Environment  # the import takes a second, and most jobs have no conditions
    from celpy.adapter import json_to_cel
    from celpy.celparser import CELParseError
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError

    artifacts = {key: {"artifacts": [a.to_json() for a in found]} for key, found in inputs.artifacts.items()}
    known = {"parameter_values": dict(inputs.parameters), "artifacts": artifacts}
    environment, problem = Environment(), "it is neither true nor false"
    try:
        program = environment.program(environment.compile(condition))
        doubles = mapped(known, lambda one: float(one) if type(one) is int else one)
        result = program.evaluate({"inputs": json_to_cel(doubles)})
    except (CELParseError, CELEvalError) as error:
        result, problem = None, str(error.args[0])
    if not isinstance(result, BoolType):
        raise InfeedError(f"cannot evaluate the condition: {problem}", where=condition, do="correct it in the pipeline")
    return bool(result)
