"""What came of a run, read back from metadata and artifacts: how good, blessed, pushed where, waited how long."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infeed.pipelines.config import Blessing, PipelineConfig

# What people read.
_LABELS = {"mse": "mean squared error", "mae": "mean absolute error"}


@dataclass(frozen=True)
class NodeOutput:
    """One output of a node: where it is and its custom properties."""

    uri: str
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run in numbers.

    Attributes:
      metrics: on the evaluation split, by name.
      blessed: whether the model reached what it must; `reasons` says where it did not.
      model: folder of the trained model, pushed or not.
      pushed: folder of the pushed model; None where it was not blessed.
      verdict: of InputReport: "input-bound", "compute-bound" or "balanced".
      wait_fraction: share of training time spent waiting for input, 0 to 1.
      report: path of the HTML report.
    """

    metrics: Mapping[str, float]
    blessed: bool
    reasons: tuple[str, ...]
    model: str
    pushed: str | None
    verdict: str
    wait_fraction: float
    report: str


def read_outcome(config: PipelineConfig) -> RunOutcome:
    """The outcome of the latest successful execution of each node."""
    from tfx.utils import path_utils  # here and not above: `last_run` reads outcomes where TFX is not loaded

    outputs = latest_outputs(config)
    report = outputs["InputReport", "report"]
    blessing = outputs["Evaluator", "blessing"]
    metrics, reasons = _evaluation(outputs["Evaluator", "evaluation"].uri, config)
    blessed = bool(blessing.properties.get("blessed"))
    return RunOutcome(
        metrics=metrics,
        blessed=blessed,
        reasons=reasons,
        model=path_utils.serving_model_path(outputs["Trainer", "model"].uri),
        pushed=str(outputs["Pusher", "pushed_model"].properties["pushed_destination"]) if blessed else None,
        verdict=str(report.properties["verdict"]),
        wait_fraction=float(report.properties["wait_fraction"]),
        report=os.path.join(report.uri, "report.html"),
    )


def latest_outputs(config: PipelineConfig) -> dict[tuple[str, str], NodeOutput]:
    """(node, output key) -> the artifact of the node's latest execution that succeeded or was cached."""
    from ml_metadata import metadata_store
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    connection = mlmd.ConnectionConfig(sqlite=mlmd.SqliteMetadataSourceConfig(filename_uri=config.metadata))
    store = metadata_store.MetadataStore(connection)
    outputs: dict[tuple[str, str], NodeOutput] = {}
    for context in store.get_contexts_by_type("node"):
        pipeline, _, node = context.name.rpartition(".")
        executions = store.get_executions_by_context(context.id) if pipeline == config.name else []
        succeeded = [e for e in executions if e.last_known_state in (mlmd.Execution.COMPLETE, mlmd.Execution.CACHED)]
        if succeeded:
            latest = max(succeeded, key=lambda execution: execution.id)
            outputs |= {(node, key): artifact for key, artifact in _outputs_of(latest.id, store, mlmd)}
    return outputs


def _outputs_of(execution_id: int, store: Any, mlmd: Any) -> list[tuple[str, NodeOutput]]:
    events = [e for e in store.get_events_by_execution_ids([execution_id]) if e.type == mlmd.Event.OUTPUT]
    found = {artifact.id: artifact for artifact in store.get_artifacts_by_id([event.artifact_id for event in events])}
    return [(event.path.steps[0].key, _artifact(found[event.artifact_id])) for event in events]


def _artifact(artifact: Any) -> NodeOutput:
    values = artifact.custom_properties
    return NodeOutput(artifact.uri, {name: getattr(v, v.WhichOneof("value")) for name, v in values.items()})


def _evaluation(uri: str, config: PipelineConfig) -> tuple[dict[str, float], tuple[str, ...]]:
    """The overall slice's metrics, and why the model was not blessed."""
    import tensorflow_model_analysis as tfma

    from infeed.pipelines.pipeline import measured

    wanted = measured(config)
    found: dict[str, float] = {}
    for record in tfma.load_metrics(uri):
        for entry in record.metric_keys_and_values:
            key = entry.key
            if key.name in wanted and not key.is_diff and key.model_name != tfma.BASELINE_KEY:
                found[key.name] = entry.value.double_value.value
    validation = tfma.load_validation_result(uri)
    failures = [failure for of_slice in validation.metric_validations_per_slice for failure in of_slice.failures]
    values = {_LABELS.get(name, name): found[name] for name in wanted if name in found}
    return values, tuple(_reason(failure, config.blessing) for failure in failures)


def _reason(failure: Any, blessing: Blessing) -> str:
    """In words, why the decisive metric was not good enough."""
    value = failure.metric_value.double_value.value
    worse = "below" if blessing.higher_is_better else "above"
    if failure.metric_key.is_diff:
        return f"its {blessing.metric} is {abs(value):.4g} {worse} that of the last blessed model"
    return f"its {blessing.metric} of {value:.4g} is {worse} {blessing.bound:.4g}"
