"""Local runner that executes a pipeline node by node, like TFX's LocalDagRunner, and reports the state of each node.

TFX compiles, drives, executes, caches and publishes. LocalDagRunner has no listeners, so this module iterates over the
compiled nodes itself and reads each result from ML Metadata. A run may start at any node: it takes the upstream outputs
from the newest earlier run in which all upstream nodes succeeded.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from dataclasses import replace
from datetime import datetime
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import compiler_utils, constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import launcher, partial_run_utils, runtime_parameter_utils, tfx_runner
from tfx.orchestration.portable.mlmd import execution_lib

from infeed.components.base.errors import InfeedError, infeed_error
from infeed.components.engine.beam_runner import local_runner
from infeed.components.seams import tfx as tfx_seam
from infeed.pipelines.console.nodes import NodeReport, NodeState, OnChange, RunReport, RunTracker

_log = logging.getLogger(__name__)
_Execution = metadata_store_pb2.Execution
_STATES = {
    _Execution.COMPLETE: NodeState.DONE,
    _Execution.CACHED: NodeState.CACHED,
    _Execution.FAILED: NodeState.FAILED,
}
_STEP = re.compile(r" \[while running '[^\n]*'\]")
_FRAMES = re.compile(r'^ +File "[^\n]*", line \d+[^\n]*\n(?: {4}[^\n]*\n)*', re.MULTILINE)
_WRAPPER = re.compile(r"^RuntimeError: (?=[\w.]+(?:Error|Exception|Interrupt)\b)")
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?:: |$))")


def run_local(pipeline: Pipeline, *, on_change: OnChange, from_node: str | None = None) -> RunReport:
    """Execute `pipeline` in this process. The first failed node ends the run.

    Args:
      pipeline: pipeline with a metadata connection, for example from `sqlite_metadata_connection_config`.
      from_node: run this node, ignoring the cache, and the nodes after it. The upstream outputs come from the newest
        run in which all upstream nodes succeeded, even if that run failed later.

    Raises:
      InfeedError: `from_node` is not a node of the pipeline, or no earlier run has the required outputs.
    """
    known = [component.id for component in pipeline.components]
    if from_node is not None and from_node not in known:
        raise InfeedError(f"there is no node {from_node!r} to start from", do=f"use one of: {', '.join(known)}")
    with local_runner():
        report: RunReport = _VisibleRunner(on_change, from_node).run(pipeline)
    return report


class _VisibleRunner(tfx_runner.IrBasedRunner):
    def __init__(self, on_change: OnChange, from_node: str | None) -> None:
        self._on_change, self._from_node = on_change, from_node

    def run_with_ir(self, pipeline: Any, run_options: Any = None, **kwargs: Any) -> RunReport:
        run_id = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: datetime.now().isoformat()}
        runtime_parameter_utils.substitute_runtime_parameter(pipeline, run_id)
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        connection = deployment.metadata_connection_config
        store = metadata.Metadata(getattr(connection, connection.WhichOneof("connection_config")))
        if self._from_node:
            start_from(self._from_node, pipeline, store)
        nodes = {node.pipeline_node.node_info.id: node.pipeline_node for node in pipeline.nodes}
        skipped = {name for name, node in nodes.items() if node.execution_options.HasField("skip")}
        states = {name: NodeState.SKIPPED if name in skipped else NodeState.WAITING for name in nodes}
        tracker = RunTracker([NodeReport(name, state) for name, state in states.items()], self._on_change)
        for name, node in nodes.items():
            if name in skipped:
                continue
            with tracker.following(name) as progress:
                report = _run_node(node, pipeline, deployment, store)
            report = replace(report, note=progress.result)
            tracker.post(report)
            if report.state is NodeState.FAILED:
                break
        return tracker.report()


def _run_node(node: Any, pipeline: Any, deployment: Any, store: metadata.Metadata) -> NodeReport:
    name, started = node.node_info.id, time.monotonic()
    try:
        report = _launch(node, pipeline, deployment, store)
    except (Exception, SystemExit) as error:  # user code may raise anything: report the node as failed
        _log.exception("%s failed", name)
        report = NodeReport(name, NodeState.FAILED, error=root_cause(error))
    return replace(report, seconds=time.monotonic() - started)


def _launch(node: Any, pipeline: Any, deployment: Any, store: metadata.Metadata) -> NodeReport:
    """Run the driver, executor and publisher of one node with TFX's launcher."""
    name = node.node_info.id
    info = launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=store,
        pipeline_info=pipeline.pipeline_info,
        pipeline_runtime_spec=pipeline.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, name),
        custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
    ).launch()
    if info is None or info.execution_id is None:  # a false condition registers no execution
        return NodeReport(name, NodeState.SKIPPED)
    with store:  # the launcher does not report whether the node ran, was cached, or failed
        [execution] = store.store.get_executions_by_id([info.execution_id])
    state = _STATES[execution.last_known_state]
    if state is not NodeState.FAILED:
        return NodeReport(name, state)
    message = tfx_seam.result_message(execution)
    return NodeReport(name, state, error=last_error(message) if message else "failed before its executor started")


def start_from(name: str, pipeline: Any, store: metadata.Metadata) -> None:
    """Mark the compiled `pipeline` to skip all nodes upstream of `name` and to use their earlier outputs.

    Parallel nodes run too, because after a failure some of them have no outputs. The cache serves unchanged nodes.
    Raises InfeedError if no earlier run has all the outputs.
    """
    nodes = [node.pipeline_node for node in pipeline.nodes]
    upstream = set[str]()
    for node in reversed(nodes):  # the compiler sorts them topologically
        if node.node_info.id in {name, *upstream}:
            upstream.update(node.upstream_nodes)
    partial_run_utils.mark_pipeline(pipeline, [n.node_info.id for n in nodes if n.node_info.id not in upstream])
    for node in nodes:
        if node.node_info.id == name:  # the user names a node probably because of a change that the cache ignores
            node.execution_options.caching_options.enable_cache = False
    if upstream:
        with store:
            partial_run_utils.snapshot(store, pipeline, _lender(upstream, pipeline.pipeline_info.id, store.store))


def _lender(needed: set[str], pipeline_name: str, store: Any) -> str:
    """Return the newest run in which all of `needed` succeeded; TFX itself takes the newest run, even a failed one."""
    succeeded = {}
    for node in needed:
        name = compiler_utils.node_context_name(pipeline_name, node)
        context = store.get_context_by_type_and_name(constants.NODE_CONTEXT_TYPE_NAME, name)
        executions = store.get_executions_by_context(context.id) if context else []
        succeeded[node] = {one.id for one in executions if execution_lib.is_execution_successful(one)}
    runs = store.get_contexts_by_type(constants.PIPELINE_RUN_CONTEXT_TYPE_NAME)
    for run in sorted(runs, key=lambda run: run.id, reverse=True):
        executed = {execution.id for execution in store.get_executions_by_context(run.id)}
        if all(executed & successes for successes in succeeded.values()):
            return str(run.name)
    missing = [node for node, successes in succeeded.items() if not successes] or succeeded
    what = f"no earlier run has the outputs of {', '.join(sorted(missing))} to start from"
    do = "run the whole pipeline once, or start from an earlier node"
    raise InfeedError(what, where=f"pipeline {pipeline_name!r}", do=do)


def root_cause(error: BaseException) -> str:
    """Return the text of `error` for the user: the text of an InfeedError, or `Type: message`.

    Beam wraps an exception once per step, or raises an exception whose message is the traceback of a worker process.
    """
    ours = infeed_error(error)
    return str(ours) if ours else _last_error("".join(traceback.format_exception_only(type(error), error)))


def last_error(text: str) -> str:
    """Return the last error of a traceback in text form, or the text itself if it is a bare message."""
    ours = InfeedError.told_in(text)
    return str(ours) if ours else _last_error(text)


def _last_error(text: str) -> str:
    message = _FRAMES.split(text)[-1]
    message = _WRAPPER.sub("", _STEP.sub("", message).strip())
    return _MODULE.sub("", message)
