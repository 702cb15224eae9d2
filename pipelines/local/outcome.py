"""Outcomes of the runs of a root, read from ML Metadata and artifacts, and the lock that allows one run at a time.

A run is a context of the type `pipeline_run`. Its executions have the states and times of the nodes, and its artifacts
the scores and the data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.locks import alone, is_held
from infeed.components.base.units import significant
from infeed.components.dataset import files
from infeed.components.dataset.reading import open_dataset
from infeed.components.evaluation.model_report import scores
from infeed.components.evaluation.model_report.options import HTML, STEM, ModelReport
from infeed.components.evaluation.model_report.scores import Scores
from infeed.pipelines.config import Blessing, PipelineConfig

_LOCK, _METADATA = ".lock", "metadata.sqlite"


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


@dataclass(frozen=True)
class LabelScores:
    """Scores of an output of a model with several."""

    label: str
    scores: Scores
    page: str  # path of its model report. Empty if it has none


def read_scores(folder: str, config: PipelineConfig) -> tuple[Scores, tuple[LabelScores, ...]]:
    """Read the scores of all rows: those of the output that decides, and those of the others."""
    if len(config.train.outputs) == 1 and (stored := stored_scores(folder)):
        return stored, ()
    from infeed.pipelines.judging import model_reports  # takes seconds

    first, *others = model_reports(config)
    pages = [files.join(folder, f"{one.file}.html") for one in others]
    return _read(folder, first, config), tuple(
        LabelScores(one.output, _read(folder, one, config), page if files.exists(page) else "")
        for one, page in zip(others, pages, strict=True)
    )


def _read(folder: str, report: ModelReport, config: PipelineConfig) -> Scores:
    """Read scores from the model report, or else from the metrics that TFX's own executor wrote."""
    if stored := stored_scores(folder, report.file):
        return stored
    import tensorflow_model_analysis as tfma

    [whole] = [record for record in tfma.load_metrics(folder) if not record.slice_key.single_slice_keys]
    # Training may know fewer classes.
    read = scores.read_scores(whole, dataclasses.replace(report, classes=()), config.judged_on)
    assert read, "the eval config has the inputs of the intervals"
    return read


def stored_scores(folder: str, file: str = STEM) -> Scores | None:
    """Read the scores of all rows from a model report. None if there is no report."""
    place = files.join(folder, f"{file}.json")
    found = json.loads(files.read_bytes(place)).get("scores") if files.exists(place) else None
    return schema.read(Scores, found, place) if found else None


def reasons(uri: str, blessing: Blessing) -> tuple[str, ...]:
    """Return the reasons why the model of an evaluation is not blessed. Empty if it is blessed."""
    import tensorflow_model_analysis as tfma

    validation = tfma.load_validation_result(uri)
    worse = "below" if blessing.higher_is_better else "above"
    found = []
    for failure in (one for of_slice in validation.metric_validations_per_slice for one in of_slice.failures):
        value = failure.metric_value.double_value.value
        if not failure.metric_key.name:  # the comparison with constant predictions, which is no metric of TFMA
            found.append(failure.message)
        elif failure.metric_key.is_diff:
            found.append(f"its {blessing.metric} is {significant(abs(value))} {worse} that of the last blessed model")
        else:
            found.append(f"its {blessing.metric} of {significant(value)} is {worse} {significant(blessing.bound)}")
    return tuple(found)


@dataclass(frozen=True)
class PastRun:
    """One run of a root."""

    run_id: str  # local time of the start, in ISO format: the name of the run in ML Metadata
    status: str  # "pushed", "not blessed", "NODE failed", "running", or "stopped" before its end
    seconds: float  # from the start of the first node to the end of the last one
    nodes: Mapping[str, str]  # state of each node in ML Metadata, in order of execution, such as "complete" or "cached"
    rows: Mapping[str, int] = field(default_factory=dict)  # rows by split
    scores: Scores | None = None  # None if no model was evaluated, or its evaluation has been removed
    wait_fraction: float | None = None  # share of training time spent waiting for input, 0 to 1

    def as_json(self) -> dict[str, Any]:
        return schema.to_plain(self)


@contextlib.contextmanager
def only_process(root: str) -> Iterator[None]:
    """Create and lock the root, because two runs in one root would mix their checkpoints and metadata."""
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        do = "use another --root, or change the permissions"
        raise InfeedError(f"cannot write to the folder: {error.strerror}", where=f"root {root}", do=do) from error
    do = "wait for that run, stop it, or give another --root"
    with alone(Path(root, _LOCK), doing="another run uses this folder", where=f"root {root}", do=do):
        yield


def find_roots(given: str | None) -> list[str]:
    """Return the given root, or all roots below `runs/`, sorted. Raises InfeedError if there is none."""
    found = [given] if given else [str(file.parent) for file in sorted(Path("runs").glob(f"*/{_METADATA}"))]
    if not found or not Path(found[0], _METADATA).exists():
        raise InfeedError("no run was made here", where=given or "runs/", do="name the root of a run with --root DIR")
    return found


def read_runs(root: str) -> list[PastRun]:
    """Return the runs of a root, newest first."""
    store = open_store(str(Path(root, _METADATA)))
    names, is_running = node_names(store), is_held(Path(root, _LOCK))
    contexts = sorted(store.get_contexts_by_type("pipeline_run"), key=lambda one: int(one.id), reverse=True)
    return [_past_run(store, context, names, is_running=is_running and context is contexts[0]) for context in contexts]


def _past_run(store: Any, context: Any, names: Mapping[int, str], *, is_running: bool) -> PastRun:
    from ml_metadata.proto.metadata_store_pb2 import Execution

    executions = sorted(store.get_executions_by_context(context.id), key=lambda one: int(one.id))
    nodes = {names[one.id]: Execution.State.Name(one.last_known_state).lower() for one in executions}
    outputs = outputs_of(store, {one.id: names[one.id] for one in executions})
    times = [time for one in executions for time in (one.create_time_since_epoch, one.last_update_time_since_epoch)]
    report = outputs.get(("InputReport", "report"))
    evaluation = outputs.get(("Evaluator", "evaluation"))
    if is_running:
        status = "running"
    elif failed := next((name for name, state in nodes.items() if state == "failed"), None):
        status = f"{failed} failed"
    elif report is None:  # the report of the last node
        status = "stopped"
    else:
        status = "pushed" if outputs["Evaluator", "blessing"].properties.get("blessed") else "not blessed"
    examples = next((found.uri for (_, key), found in outputs.items() if key == "examples"), None)
    opened = open_dataset(examples) if examples else None
    return PastRun(
        run_id=context.name,
        status=status,
        seconds=(max(times) - min(times)) / 1000 if times else 0.0,
        nodes=nodes,
        rows={name: split.records for name, split in opened[1].splits.items()} if opened else {},
        scores=stored_scores(evaluation.uri) if evaluation else None,
        wait_fraction=report.properties.get("wait_fraction") if report else None,
    )
