"""A run from one node on: which nodes are left out, and which earlier run lends their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfx.dsl.compiler import compiler_utils, constants
from tfx.orchestration import metadata
from tfx.orchestration.portable import partial_run_utils
from tfx.orchestration.portable.mlmd import execution_lib

from infeed.components.errors import InfeedError


def start_from(name: str, pipeline: Any, store: metadata.Metadata) -> None:
    """Marks the compiled `pipeline` to skip everything upstream of node `name` and to use its earlier outputs.

    Nodes beside it run too: after a failure, some of them have no outputs yet. The cache serves what did not change.

    Raises:
      InfeedError: no earlier run has all the outputs.
    """
    nodes = [node.pipeline_node for node in pipeline.nodes]
    upstream = _upstream(name, nodes)
    partial_run_utils.mark_pipeline(pipeline, [n.node_info.id for n in nodes if n.node_info.id not in upstream])
    for node in nodes:
        if node.node_info.id == name:  # asked for by name: likely for a change that the cache cannot see
            node.execution_options.caching_options.enable_cache = False
    if upstream:
        with store:
            partial_run_utils.snapshot(store, pipeline, _lender(upstream, pipeline.pipeline_info.id, store.store))


def _upstream(name: str, nodes: Sequence[Any]) -> set[str]:
    found = {name}
    for node in reversed(nodes):  # the compiler sorts them topologically
        if node.node_info.id in found:
            found.update(node.upstream_nodes)
    return found - {name}


def _lender(needed: set[str], pipeline_name: str, store: Any) -> str:
    """The newest run in which all of `needed` succeeded; TFX by itself would take the newest, whatever became of it."""
    succeeded = {node: _successes(compiler_utils.node_context_name(pipeline_name, node), store) for node in needed}
    runs = store.get_contexts_by_type(constants.PIPELINE_RUN_CONTEXT_TYPE_NAME)
    for run in sorted(runs, key=lambda run: run.id, reverse=True):
        executed = {execution.id for execution in store.get_executions_by_context(run.id)}
        if all(executed & successes for successes in succeeded.values()):
            return str(run.name)
    missing = [node for node, successes in succeeded.items() if not successes] or succeeded
    raise InfeedError(
        f"no earlier run has the outputs of {', '.join(sorted(missing))} to start from",
        where=f"pipeline {pipeline_name!r}",
        do="run the whole pipeline once, or start from an earlier node",
    )


def _successes(node_context: str, store: Any) -> set[int]:
    context = store.get_context_by_type_and_name(constants.NODE_CONTEXT_TYPE_NAME, node_context)
    executions = store.get_executions_by_context(context.id) if context else []
    return {execution.id for execution in executions if execution_lib.is_execution_successful(execution)}
