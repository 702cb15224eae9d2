"""Scores of an evaluation in a folder, and why its model is not blessed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from infeed.components.base import schema
from infeed.components.base.units import significant
from infeed.components.dataset import files
from infeed.components.evaluation.model_report import scores
from infeed.components.evaluation.model_report.options import STEM, ModelReport
from infeed.components.evaluation.model_report.scores import Scores
from infeed.pipelines.config import Blessing, PipelineConfig


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
    return _read(folder, first, config), tuple(
        LabelScores(one.output, _read(folder, one, config), _page(folder, one)) for one in others
    )


def _page(folder: str, report: ModelReport) -> str:
    page = files.join(folder, f"{report.file}.html")
    return page if files.exists(page) else ""


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
