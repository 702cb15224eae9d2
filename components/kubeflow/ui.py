"""Results of a step in Kubeflow's user interface: metrics, a confusion matrix, and pages.

Kubeflow shows artifacts of certain types. `infeed compile` declares those of `outputs_of` in addition to TFX's
artifacts. The entry point of the step hides them from TFX, and `fill` writes them afterwards. A step without TFX
starts with

    python -m infeed.components.kubeflow.ui EXECUTOR_INPUT evaluation PLACE evaluate CONFIG ...

which runs a command of infeed, and then writes Kubeflow's artifacts for its output at PLACE.
"""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infeed.components.dataset import files
from infeed.components.kubeflow.message import PathMap, accepted

# Kubeflow's user interface does not show TFX's types, so each result also exists as an artifact of a type it shows.
METRICS, MATRIX, REPORT = "ui_metrics", "ui_confusion_matrix", "ui_report"
MODEL_REPORT, STATISTICS, PICTURES = "ui_model_report", "ui_statistics", "ui_pictures"
# Page that the step has written -> (output, file).
_WRITTEN = {REPORT: ("report", "report.html"), MODEL_REPORT: ("evaluation", "model_report.html")}
_PAGES = (*_WRITTEN, STATISTICS, PICTURES)
_TYPES = {METRICS: "system.Metrics", MATRIX: "system.ClassificationMetrics", **dict.fromkeys(_PAGES, "system.HTML")}
_CLASSES = "classes"
_INFEED = (sys.executable, "-c", "from infeed.pipelines.cli import main; main()")
_SHEET = "<!doctype html><title>Pictures</title><img alt='contact sheet' src='data:image/png;base64,{}'>"


def outputs_of(executor: str, classes: Sequence[str], *, pictures: bool = False) -> dict[str, Any]:
    """Return Kubeflow's artifacts for the step of an executor, an import path, as ArtifactSpecs by output name.

    `classes` are in index order, empty for a regression. `pictures` is whether the Examples hold images.
    """
    names = {
        "infeed.components.evaluation.component.EvaluatorExecutor": of_evaluation(classes),
        "infeed.components.example_gen.executor.Executor": [PICTURES] if pictures else [],
        "infeed.components.input_report.component.InputReportExecutor": [REPORT],
        "infeed.components.statistics.component.StatisticsExecutor": [STATISTICS],
    }
    return specs_of(names.get(executor, []), classes)


def of_evaluation(classes: Sequence[str]) -> list[str]:
    """Return Kubeflow's artifacts for an evaluation. The confusion matrix is included only with classes."""
    return [METRICS, *([MATRIX] if classes else []), MODEL_REPORT]


def specs_of(names: Sequence[str], classes: Sequence[str]) -> dict[str, Any]:
    """Return artifacts of this module as ArtifactSpecs by output name."""
    specs: dict[str, Any] = {
        name: {"artifactType": {"schemaTitle": _TYPES[name], "schemaVersion": "0.0.1"}} for name in names
    }
    if MATRIX in specs:
        specs[MATRIX]["metadata"] = {_CLASSES: list(classes)}
    return specs


def split(message: Any) -> tuple[Any, dict[str, Any]]:
    """Return the ExecutorInput without the artifacts of this module, and these artifacts by output name."""
    artifacts = message["outputs"].get("artifacts", {})
    shown = {name: artifacts[name]["artifacts"][0] for name in artifacts.keys() & _TYPES.keys()}
    if not shown:
        return message, {}
    others = {name: found for name, found in artifacts.items() if name not in shown}
    return {**message, "outputs": {**message["outputs"], "artifacts": others}}, shown


def write_shown(message: str, **places: str) -> None:
    """Write the artifacts of this module for a step without TFX, and name them in its ExecutorOutput.

    `message` is the ExecutorInput. `places` are local folders by TFX's names: `evaluation`, `examples`.
    """
    whole, shown = split(json.loads(message))
    uris = PathMap.of(artifact["uri"] for artifact in shown.values())  # the launcher uploads the pages
    output = {"artifacts": uris.to_uris(fill(uris.to_local(shown), places))}
    files.write_bytes(whole["outputs"]["outputFile"], accepted(output).encode())


def fill(shown: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """Write the artifacts of this module, by output name and with local paths. Return them for the ExecutorOutput.

    `places` are the local folders of the step's inputs and other outputs, by name.
    """
    filled = {}
    for name, artifact in shown.items():
        metadata: dict[str, Any] = {}
        if name in _PAGES:
            if os.path.isdir(artifact["uri"]):  # the launcher creates it for artifacts without files
                os.rmdir(artifact["uri"])
            files.write_bytes(artifact["uri"], _page(name, places))
        elif name == METRICS:
            metadata = metrics(places["evaluation"])
        else:
            metadata = {"confusionMatrix": confusion_matrix(places["evaluation"], artifact["metadata"][_CLASSES])}
        filled[name] = {"artifacts": [{"name": name, "uri": artifact["uri"], "metadata": metadata}]}
    return filled


def _page(name: str, places: Mapping[str, str]) -> bytes:
    """Return a page. Commands of infeed write those of statistics and images."""
    if name in _WRITTEN:
        output, file = _WRITTEN[name]
        path = files.join(places[output], file)
        return files.read_bytes(path) if files.exists(path) else b"<!doctype html><p>The step wrote no report.</p>"
    with tempfile.TemporaryDirectory() as scratch:
        shown = Path(scratch, "shown")
        words = ("statistics", "--html", shown) if name == STATISTICS else ("inspect", "--sheet", shown)
        done = subprocess.run([*_INFEED, *words, places["examples"]], capture_output=True, check=False)
        if not shown.exists():  # the step itself has succeeded, so write a page with the reason
            return f"<!doctype html><pre>{html.escape(done.stderr.decode(errors='replace'))}</pre>".encode()
        page = shown.read_bytes()
    return page if name == STATISTICS else _SHEET.format(base64.b64encode(page).decode()).encode()


def metrics(evaluation: str) -> dict[str, float]:
    """Return the metrics of all rows by name, from the folder of an evaluation."""
    return {name: value.double_value.value for name, value in _values(evaluation) if value.HasField("double_value")}


def confusion_matrix(evaluation: str, classes: Sequence[str]) -> dict[str, Any]:
    """Return the confusion matrix in the format of `kfp.dsl.ClassificationMetrics`. Rows are the actual classes.

    Rows of classes without training rows are excluded.
    """
    counts = [[0.0] * len(classes) for _ in classes]
    for _, value in _values(evaluation):
        for matrix in value.multi_class_confusion_matrix_at_thresholds.matrices:
            for cell in matrix.entries:
                if cell.actual_class_id >= 0:
                    counts[cell.actual_class_id][cell.predicted_class_id] += cell.num_weighted_examples
    return {"annotationSpecs": [{"displayName": name} for name in classes], "rows": [{"row": row} for row in counts]}


def _values(evaluation: str) -> Iterator[tuple[str, Any]]:
    """Yield the candidate's metrics of all rows as TFMA's MetricValue."""
    import infeed.components.evaluation.tfx_first  # noqa: F401 - before TFMA

    # isort: split
    import tensorflow_model_analysis as tfma

    for record in tfma.load_metrics(evaluation):
        if record.slice_key.single_slice_keys:
            continue
        for entry in record.metric_keys_and_values:
            if not entry.key.is_diff and entry.key.model_name != tfma.BASELINE_KEY:
                output = f"{entry.key.output_name}: " if entry.key.output_name else ""
                yield f"{output}{entry.key.name}", entry.value


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command of infeed as a step, and write Kubeflow's artifacts for it. Exit with the command's code."""
    message, name, place, *words = sys.argv[1:] if arguments is None else arguments
    if code := subprocess.run([*_INFEED, *words], check=False).returncode:
        sys.exit(code)
    write_shown(message, **{name: place})


if __name__ == "__main__":
    main()
