"""Outcome of a run, read from ML Metadata and artifacts: scores, blessing, pushed model, input wait."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from infeed.components.evaluation.model_report.options import HTML
from infeed.components.evaluation.model_report.scores import Scores
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.local.scores import LabelScores, read_scores, reasons


@dataclass(frozen=True)
class NodeOutput:
    """Output artifact of a node: its URI and custom properties."""

    uri: str
    properties: Mapping[str, Any]


Outputs: TypeAlias = Mapping[tuple[str, str], NodeOutput]  # by node and output key


@dataclass(frozen=True)
class RunOutcome(Scores):
    """Outcome of a run: the scores and the results of the other nodes."""

    blessed: bool = field(kw_only=True)  # whether the model is blessed; if not, `reasons` has the causes
    reasons: tuple[str, ...] = field(kw_only=True)
    model: str = field(kw_only=True)  # folder of the trained model, pushed or not
    pushed: str | None = field(kw_only=True)  # folder of the pushed model; None if the model is not blessed
    verdict: str = field(kw_only=True)  # verdict of InputReport, for example "input-bound"
    wait_fraction: float = field(kw_only=True)  # share of training time spent waiting for input, 0 to 1
    wait_uncertainty: float = field(kw_only=True)  # half the width of the confidence range of `wait_fraction`
    bottleneck: str = field(kw_only=True)  # stage that limits the speed of training; empty if InputReport names none
    report: str = field(kw_only=True)  # path of the HTML report
    # Path of the HTML report on the model; empty if TFX's own executor has evaluated.
    model_report: str = field(kw_only=True, default="")
    others: tuple[LabelScores, ...] = field(kw_only=True, default=())  # scores of the other labels, if any


def read_outcome(config: PipelineConfig) -> RunOutcome:
    """Read the outcome from the latest successful execution of each node."""
    from tfx.utils import path_utils  # imported late, because TFX takes seconds

    outputs = latest_outputs(config)
    report = outputs["InputReport", "report"]
    blessing = outputs["Evaluator", "blessing"]
    evaluation = outputs["Evaluator", "evaluation"].uri
    blessed = bool(blessing.properties.get("blessed"))
    model_report = os.path.join(evaluation, HTML)
    scores, others = read_scores(evaluation, config)
    return RunOutcome(
        **vars(scores),
        others=others,
        blessed=blessed,
        reasons=reasons(evaluation, config.blessing),
        model=path_utils.serving_model_path(outputs["Trainer", "model"].uri),
        pushed=str(outputs["Pusher", "pushed_model"].properties["pushed_destination"]) if blessed else None,
        verdict=str(report.properties["verdict"]),
        wait_fraction=float(report.properties["wait_fraction"]),
        # Cached reports of earlier versions do not have these two properties.
        wait_uncertainty=float(report.properties.get("wait_uncertainty", 0.0)),
        bottleneck=str(report.properties.get("bottleneck", "")),
        report=os.path.join(report.uri, "report.html"),
        model_report=model_report if os.path.exists(model_report) else "",
    )


def open_store(path: str) -> Any:
    """Open the SQLite file of ML Metadata at `path`."""
    from ml_metadata import metadata_store
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    connection = mlmd.ConnectionConfig(sqlite=mlmd.SqliteMetadataSourceConfig(filename_uri=path))
    return metadata_store.MetadataStore(connection)


def latest_outputs(config: PipelineConfig) -> Outputs:
    """Return the outputs of each node's latest successful or cached execution."""
    from ml_metadata.proto.metadata_store_pb2 import Execution

    store = open_store(config.metadata)
    latest: dict[str, int] = {}
    for context in store.get_contexts_by_type("node"):
        pipeline, _, node = context.name.rpartition(".")
        executions = store.get_executions_by_context(context.id) if pipeline == config.name else []
        if succeeded := [e.id for e in executions if e.last_known_state in (Execution.COMPLETE, Execution.CACHED)]:
            latest[node] = max(succeeded)
    return outputs_of(store, {execution: node for node, execution in latest.items()})


def node_names(store: Any) -> dict[int, str]:
    """Map the executions of a store to the names of their nodes."""
    return {
        execution.id: context.name.rpartition(".")[2]
        for context in store.get_contexts_by_type("node")
        for execution in store.get_executions_by_context(context.id)
    }


def outputs_of(store: Any, executions: Mapping[int, str]) -> Outputs:
    """Return the outputs of executions. `executions` maps an execution id to the node's name."""
    from ml_metadata.proto.metadata_store_pb2 import Event

    events = store.get_events_by_execution_ids(list(executions)) if executions else []
    made = [event for event in events if event.type == Event.OUTPUT]
    artifacts = {found.id: found for found in store.get_artifacts_by_id([event.artifact_id for event in made])}
    outputs: dict[tuple[str, str], NodeOutput] = {}
    for event in made:
        artifact = artifacts[event.artifact_id]
        values = artifact.custom_properties.items()
        properties = {name: getattr(value, value.WhichOneof("value")) for name, value in values}
        outputs[executions[event.execution_id], event.path.steps[0].key] = NodeOutput(artifact.uri, properties)
    return outputs
