"""Outcome of a run, and reuse of the last successful run if nothing has changed.

The outcome is read from metadata and artifacts: scores, blessing, pushed model, input wait. A successful run writes
`last_run.json` into its root: digests of its inputs and of its metadata, and the outcome. The next run is unchanged if
the config, the sources of the user's functions, the data files, this package, the installed packages and the metadata
are the same, and all artifacts still exist. TFX would then find every node in its cache, so `infeed run` returns the
outcome without loading TFX or TensorFlow. If anything differs, TFX decides node by node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.components.base import schema, user_code
from infeed.components.evaluation.model_report.options import HTML
from infeed.components.evaluation.model_report.scores import Scores
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console.nodes import NodeReport, NodeState, OnChange, RunReport, RunTracker
from infeed.pipelines.local.scores import read_scores, reasons

_ROOMS = [Path(__file__).resolve().parents[2] / room for room in ("components", "pipelines", "templates")]


@dataclass(frozen=True)
class NodeOutput:
    """Output artifact of a node: its URI and custom properties."""

    uri: str
    properties: Mapping[str, Any]


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


def read_outcome(config: PipelineConfig) -> RunOutcome:
    """Read the outcome from the latest successful execution of each node."""
    from tfx.utils import path_utils  # imported late: an unchanged run loads no TFX

    outputs = latest_outputs(config)
    report = outputs["InputReport", "report"]
    blessing = outputs["Evaluator", "blessing"]
    evaluation = outputs["Evaluator", "evaluation"].uri
    blessed = bool(blessing.properties.get("blessed"))
    model_report = os.path.join(evaluation, HTML)
    return RunOutcome(
        **vars(read_scores(evaluation, config)),
        blessed=blessed,
        reasons=reasons(evaluation, config.blessing),
        model=path_utils.serving_model_path(outputs["Trainer", "model"].uri),
        pushed=str(outputs["Pusher", "pushed_model"].properties["pushed_destination"]) if blessed else None,
        verdict=str(report.properties["verdict"]),
        wait_fraction=float(report.properties["wait_fraction"]),
        # Cached reports of earlier versions lack both properties.
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


def latest_outputs(config: PipelineConfig) -> dict[tuple[str, str], NodeOutput]:
    """Map (node, output key) to the artifact of the node's latest successful or cached execution."""
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    store = open_store(config.metadata)
    outputs: dict[tuple[str, str], NodeOutput] = {}
    for context in store.get_contexts_by_type("node"):
        pipeline, _, node = context.name.rpartition(".")
        executions = store.get_executions_by_context(context.id) if pipeline == config.name else []
        succeeded = [e for e in executions if e.last_known_state in (mlmd.Execution.COMPLETE, mlmd.Execution.CACHED)]
        if not succeeded:
            continue
        latest = max(execution.id for execution in succeeded)
        events = [e for e in store.get_events_by_execution_ids([latest]) if e.type == mlmd.Event.OUTPUT]
        artifacts = {found.id: found for found in store.get_artifacts_by_id([event.artifact_id for event in events])}
        for event in events:
            artifact = artifacts[event.artifact_id]
            values = artifact.custom_properties.items()
            properties = {name: getattr(value, value.WhichOneof("value")) for name, value in values}
            outputs[node, event.path.steps[0].key] = NodeOutput(artifact.uri, properties)
    return outputs


@dataclass(frozen=True)
class LastRun:
    """Contents of `last_run.json`."""

    made_of: str  # digest of everything that the run depends on
    metadata: str  # digest of the metadata file at the end of the run
    nodes: tuple[str, ...]  # names of the nodes in order of execution
    resolvers: tuple[str, ...]  # names of the resolver nodes, which are never cached
    artifacts: tuple[str, ...]  # files and folders that the nodes wrote
    outcome: RunOutcome  # outcome of the run

    def report(self, on_change: OnChange) -> RunReport:
        """Report all nodes like a run that finds them in the cache."""
        tracker = RunTracker([NodeReport(name) for name in self.nodes], on_change)
        for name in self.nodes:
            tracker.post(NodeReport(name, NodeState.DONE if name in self.resolvers else NodeState.CACHED))
        return tracker.report()


def same_run(config: PipelineConfig, made_of: str) -> LastRun | None:
    """Return the last run if a run of `config`, with the digest `made_of`, would find every node in the cache."""
    try:
        last = schema.read_json(LastRun, _file(config.root).read_bytes())
    except (OSError, ValueError):  # the file is missing, or another version wrote it
        return None
    unchanged = last.made_of == made_of and last.metadata == _digest_of_file(config.metadata)
    return last if made_of and unchanged and all(map(os.path.exists, last.artifacts)) else None


def remember(
    config: PipelineConfig, made_of: str, report: RunReport, outcome: RunOutcome, resolvers: Collection[str]
) -> None:
    """Write `last_run.json` after a complete, successful run; `made_of` was computed before the run started."""
    names = tuple(node.name for node in report.nodes)
    outputs = {output.uri: None for (node, _), output in latest_outputs(config).items() if node in names}
    last = LastRun(made_of, _digest_of_file(config.metadata), names, tuple(resolvers), tuple(outputs), outcome)
    write_json(last, _file(config.root))


@contextlib.contextmanager
def keeping_last_run(root: str, metadata: str) -> Iterator[None]:
    """Keep `last_run.json` valid while the body changes metadata that the last run does not depend on."""
    last = None
    with contextlib.suppress(OSError, ValueError):
        last = schema.read_json(LastRun, _file(root).read_bytes())
    valid = last is not None and last.metadata == _digest_of_file(metadata)
    yield
    if last and valid:
        write_json(dataclasses.replace(last, metadata=_digest_of_file(metadata)), _file(root))


def write_json(value: Any, path: Path) -> None:
    """Write a dataclass as JSON. The file appears once it is complete."""
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(schema.to_plain(value), indent=1))
    unfinished.rename(path)


def digest_of(config: PipelineConfig) -> str:
    """Compute the digest of the config, user sources, data files, this package and the installed packages.

    The digest is empty if runs are never reused: with warm start, without a cache, and for data or results in an object
    store or of a function, whose state is expensive to check or unknown.
    """
    if not (config.enable_cache and config.place) or config.warm_start or "://" in f"{config.data} {config.root}":
        return ""
    libraries = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    sources = sorted(source for room in _ROOMS for source in room.rglob("*.py"))
    parts = [
        json.dumps(settings_of(config), sort_keys=True),
        *(user_code.digest(function, option) for option, function in config.user_functions.items()),
        *_data_files(config),
        sys.version,
        *sorted(found.name for library in libraries for found in Path(library).glob("*.dist-info")),
        *(f"{source} {_digest_of_file(source)}" for source in sources),
    ]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def settings_of(config: PipelineConfig) -> dict[str, Any]:
    """Return the settings of a run as plain values, except settings inferred from the data files."""
    fields = (f.name for f in dataclasses.fields(config) if f.name not in ("survey", "notes"))
    return {name: schema.to_plain(getattr(config, name)) for name in fields}


def _file(root: str) -> Path:
    return Path(root, "last_run.json")


def _data_files(config: PipelineConfig) -> Iterator[str]:
    """Yield name, size and time of the data files and of the files that features read; TFX also compares these."""
    place = Path(config.data)
    # A table of pictures names files beside it. Of a pattern such as 2024-*/rides.csv, only a parent folder exists.
    while not place.exists() or (config.source == "images" and place.is_file()):
        place = place.parent
    names = glob.iglob(f"{glob.escape(str(place))}/**", recursive=True) if place.is_dir() else [str(place)]
    of_features = (name for feature in config.features for name in feature.files)
    for name in sorted(filter(os.path.isfile, {*names, *of_features})):
        known = os.stat(name)
        yield f"{name} {known.st_size} {known.st_mtime_ns}"


def _digest_of_file(path: str | Path) -> str:
    """Return the digest of a file, or an empty text if the file does not exist."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
