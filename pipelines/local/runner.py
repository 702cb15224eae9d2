"""Runs a pipeline on this machine, node by node, and tells of each one: TFX's LocalDagRunner made visible.

Compiling, drivers, executors, caching and publishing are TFX's own. This module walks the compiled nodes as
LocalDagRunner does, which has no place to listen at, and asks ML Metadata what became of each.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import launcher, runtime_parameter_utils, tfx_runner

from infeed.components.errors import InfeedError
from infeed.pipelines.local.failure import last_error, own_words
from infeed.pipelines.local.nodes import Board, NodeReport, NodeState, OnChange, RunReport
from infeed.pipelines.local.partial_run import start_from

_log = logging.getLogger(__name__)
_Execution = metadata_store_pb2.Execution
_STATES = {
    _Execution.COMPLETE: NodeState.DONE,
    _Execution.CACHED: NodeState.CACHED,
    _Execution.FAILED: NodeState.FAILED,
}


def run_local(pipeline: Pipeline, *, on_change: OnChange, from_node: str | None = None) -> RunReport:
    """Executes `pipeline` in this process; its first failing node ends the run and is named in the report.

    Args:
      pipeline: with a metadata connection; `sqlite_metadata_connection_config` makes one, and its file's folder.
      on_change: called with all nodes at the start and after every change of state.
      from_node: run this node, cache or not, and what comes after it; what lies upstream is taken from the newest run
        in which all of it succeeded, a run that failed later on included.

    Raises:
      InfeedError: `from_node` is not a node of the pipeline, or no earlier run has the outputs it needs.
    """
    _check_name(from_node, [component.id for component in pipeline.components])
    report: RunReport = _VisibleRunner(on_change, from_node).run(pipeline)
    return report


class _VisibleRunner(tfx_runner.IrBasedRunner):
    def __init__(self, on_change: OnChange, from_node: str | None) -> None:
        self._on_change = on_change
        self._from_node = from_node

    def run_with_ir(self, pipeline: Any, run_options: Any = None, **kwargs: Any) -> RunReport:
        run_id = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: datetime.now().isoformat()}
        runtime_parameter_utils.substitute_runtime_parameter(pipeline, run_id)
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        connection = deployment.metadata_connection_config
        store = metadata.Metadata(getattr(connection, connection.WhichOneof("connection_config")))
        if self._from_node:
            start_from(self._from_node, pipeline, store)
        return self._run_nodes(pipeline, deployment, store)

    def _run_nodes(self, pipeline: Any, deployment: Any, store: metadata.Metadata) -> RunReport:
        nodes = [node.pipeline_node for node in pipeline.nodes]
        board = Board([_before_the_run(node) for node in nodes], self._on_change)
        for node in nodes:
            if _is_skipped(node):
                continue
            board.post(NodeReport(node.node_info.id, NodeState.RUNNING))
            report = _run_node(node, pipeline, deployment, store)
            board.post(report)
            if report.state is NodeState.FAILED:
                break
        return board.report()


def _is_skipped(node: Any) -> bool:
    return bool(node.execution_options.HasField("skip"))


def _before_the_run(node: Any) -> NodeReport:
    return NodeReport(node.node_info.id, NodeState.SKIPPED if _is_skipped(node) else NodeState.WAITING)


def _run_node(node: Any, pipeline: Any, deployment: Any, store: metadata.Metadata) -> NodeReport:
    name, started = node.node_info.id, time.monotonic()
    try:
        report = _launch(node, pipeline, deployment, store)
    except Exception as error:  # whatever a component raises is the user's to read, not a crash of the runner
        _log.exception("%s failed", name)
        report = NodeReport(name, NodeState.FAILED, error=own_words(error))
    return replace(report, seconds=time.monotonic() - started)


def _launch(node: Any, pipeline: Any, deployment: Any, store: metadata.Metadata) -> NodeReport:
    """Driver, executor and publisher of one node, by TFX's launcher."""
    name = node.node_info.id
    info = launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=store,
        pipeline_info=pipeline.pipeline_info,
        pipeline_runtime_spec=pipeline.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, name),
        custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
    ).launch()
    if info is None or info.execution_id is None:  # a condition that does not hold registers nothing
        return NodeReport(name, NodeState.SKIPPED)
    return _outcome(name, info.execution_id, store)


def _outcome(name: str, execution_id: int, store: metadata.Metadata) -> NodeReport:
    """The launcher returns in the same way whether it ran, took the cache, or could not resolve the inputs."""
    with store:
        [execution] = store.store.get_executions_by_id([execution_id])
    state = _STATES[execution.last_known_state]
    return NodeReport(name, state, error=_recorded_error(execution) if state is NodeState.FAILED else None)


def _recorded_error(execution: Any) -> str:
    result = execution.custom_properties["__execution_result__"].string_value
    return last_error(json.loads(result)["resultMessage"]) if result else "failed before its executor started"


def _check_name(name: str | None, known: Sequence[str]) -> None:
    if name is not None and name not in known:
        raise InfeedError(f"there is no node {name!r} to start from", do=f"use one of: {', '.join(known)}")
