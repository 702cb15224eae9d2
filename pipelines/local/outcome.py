"""What came of a run, and the last one that succeeded: a run of the very same takes its results.

The outcome is read back from metadata and artifacts: how good, blessed, pushed where, waited how long. After a run its
root holds `last_run.json`: what the run was made of, the metadata that it left behind, and what came of it. The next
run is the same where config, sources of the user's functions, data files, this package and the installed packages are,
where the metadata has not changed since, and where all artifacts are still there: then TFX would find every node in
its cache, and neither TFX nor TensorFlow is loaded. Whatever differs, TFX decides node by node, as always.
"""

from __future__ import annotations

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

from infeed.components import schema, user_code
from infeed.pipelines.config import Blessing, PipelineConfig
from infeed.pipelines.console.nodes import NodeReport, NodeState, OnChange, RunReport, RunTracker
from infeed.pipelines.local.scores import Scores, read_scores

_ROOMS = [Path(__file__).resolve().parents[2] / room for room in ("components", "pipelines", "templates")]
_OF_THE_DATA = ("survey", "notes")  # what is found in the files says nothing that the files do not


@dataclass(frozen=True)
class NodeOutput:
    """One output of a node: where it is and its custom properties."""

    uri: str
    properties: Mapping[str, Any]


@dataclass(frozen=True)
class RunOutcome(Scores):
    """The end of a run in numbers, beside the scores.

    Attributes:
      blessed: whether the model reached what it must; `reasons` says where it did not.
      model: folder of the trained model, pushed or not.
      pushed: folder of the pushed model; None where it was not blessed.
      verdict: of InputReport, such as "input-bound".
      wait_fraction: share of training time spent waiting for input, 0 to 1.
      bottleneck: what sets the pace of training; empty if InputReport does not single it out.
      wait_uncertainty: half the width of the range that this share is known to.
      report: path of the HTML report.
    """

    blessed: bool = field(kw_only=True)
    reasons: tuple[str, ...] = field(kw_only=True)
    model: str = field(kw_only=True)
    pushed: str | None = field(kw_only=True)
    verdict: str = field(kw_only=True)
    wait_fraction: float = field(kw_only=True)
    wait_uncertainty: float = field(kw_only=True)
    bottleneck: str = field(kw_only=True)
    report: str = field(kw_only=True)


def read_outcome(config: PipelineConfig) -> RunOutcome:
    """The outcome of the latest successful execution of each node."""
    from tfx.utils import path_utils  # here and not above: the same run loads no TFX

    outputs = latest_outputs(config)
    report = outputs["InputReport", "report"]
    blessing = outputs["Evaluator", "blessing"]
    evaluation = outputs["Evaluator", "evaluation"].uri
    blessed = bool(blessing.properties.get("blessed"))
    return RunOutcome(
        **vars(read_scores(evaluation, config)),
        blessed=blessed,
        reasons=_reasons(evaluation, config.blessing),
        model=path_utils.serving_model_path(outputs["Trainer", "model"].uri),
        pushed=str(outputs["Pusher", "pushed_model"].properties["pushed_destination"]) if blessed else None,
        verdict=str(report.properties["verdict"]),
        wait_fraction=float(report.properties["wait_fraction"]),
        # A report of an earlier version, which TFX takes from its cache, has neither.
        wait_uncertainty=float(report.properties.get("wait_uncertainty", 0.0)),
        bottleneck=str(report.properties.get("bottleneck", "")),
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


def _reasons(uri: str, blessing: Blessing) -> tuple[str, ...]:
    """Why the model was not blessed."""
    import tensorflow_model_analysis as tfma

    validation = tfma.load_validation_result(uri)
    failures = [failure for of_slice in validation.metric_validations_per_slice for failure in of_slice.failures]
    return tuple(_reason(failure, blessing) for failure in failures)


def _reason(failure: Any, blessing: Blessing) -> str:
    """In words, why the decisive metric was not good enough."""
    value = failure.metric_value.double_value.value
    worse = "below" if blessing.higher_is_better else "above"
    if failure.metric_key.is_diff:
        return f"its {blessing.metric} is {abs(value):.4g} {worse} that of the last blessed model"
    return f"its {blessing.metric} of {value:.4g} is {worse} {blessing.bound:.4g}"


@dataclass(frozen=True)
class LastRun:
    """What `last_run.json` says.

    Attributes:
      made_of: digest of all that the run depended on.
      metadata: digest of the metadata's file, as the run left it.
      nodes: in the order of their execution.
      resolvers: those of the nodes that have no cache, and only look up what is there.
      artifacts: files and folders that its nodes wrote.
      outcome: what came of it.
    """

    made_of: str
    metadata: str
    nodes: tuple[str, ...]
    resolvers: tuple[str, ...]
    artifacts: tuple[str, ...]
    outcome: RunOutcome

    def report(self, on_change: OnChange) -> RunReport:
        """Tells of all nodes, as a run does that finds them in the cache."""
        tracker = RunTracker([NodeReport(name) for name in self.nodes], on_change)
        for name in self.nodes:
            tracker.post(NodeReport(name, NodeState.DONE if name in self.resolvers else NodeState.CACHED))
        return tracker.report()


def same_run(config: PipelineConfig, made_of: str) -> LastRun | None:
    """The last run, where a run of `config` would find everything in the cache.

    Args:
      made_of: digest of what it would be made of; see `digest_of`.
    """
    try:
        last = schema.read_json(LastRun, _file(config).read_bytes())
    except (OSError, ValueError):  # there is none yet, or another version wrote it
        return None
    unchanged = last.made_of == made_of and last.metadata == _digest_of_file(config.metadata)
    return last if made_of and unchanged and all(map(os.path.exists, last.artifacts)) else None


def remember(
    config: PipelineConfig, made_of: str, report: RunReport, outcome: RunOutcome, resolvers: Collection[str]
) -> None:
    """Writes `last_run.json` after a whole run that succeeded.

    Args:
      made_of: digest of what it was made of, taken before it began.
      resolvers: nodes that have no cache, and only look up what is there.
    """
    names = tuple(node.name for node in report.nodes)
    outputs = {output.uri: None for (node, _), output in latest_outputs(config).items() if node in names}
    last = LastRun(made_of, _digest_of_file(config.metadata), names, tuple(resolvers), tuple(outputs), outcome)
    unfinished = _file(config).with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(schema.to_plain(last), indent=1))
    unfinished.rename(_file(config))


def digest_of(config: PipelineConfig) -> str:
    """Digest of config, the user's own sources, data files, this package and the packages that are installed.

    It is empty where no run is like another: where each starts from the model of the run before, without a cache, and
    for data or results in an object store, whose state nobody can tell at a glance.
    """
    if not config.enable_cache or config.warm_start or "://" in f"{config.data} {config.root}":
        return ""
    named = config.user_functions
    said = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in _OF_THE_DATA}
    parts = [
        json.dumps(schema.to_plain(said), sort_keys=True),
        *(user_code.digest(function, option) for option, function in named.items()),
        *_data_files(config),
        *_environment(),
    ]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _file(config: PipelineConfig) -> Path:
    return Path(config.root, "last_run.json")


def _data_files(config: PipelineConfig) -> Iterator[str]:
    """Name, size and time of each file of the data and of those that features read; TFX, too, goes by these."""
    place = Path(config.data)
    # A table of pictures names files beside it; of a pattern, such as 2024-*/rides.csv, only a folder above it exists.
    while not place.exists() or (config.source == "images" and place.is_file()):
        place = place.parent
    names = glob.iglob(f"{glob.escape(str(place))}/**", recursive=True) if place.is_dir() else [str(place)]
    of_features = (name for feature in config.features for name in feature.files)
    for name in sorted(filter(os.path.isfile, {*names, *of_features})):
        known = os.stat(name)
        yield f"{name} {known.st_size} {known.st_mtime_ns}"


def _environment() -> Iterator[str]:
    yield sys.version
    libraries = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    yield from sorted(found.name for library in libraries for found in Path(library).glob("*.dist-info"))
    for source in sorted(source for room in _ROOMS for source in room.rglob("*.py")):
        yield f"{source} {_digest_of_file(source)}"


def _digest_of_file(path: str | Path) -> str:
    """Empty where there is no such file."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
