"""Scores in the folder of an evaluation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from infeed.components.evaluation.model_report.options import JSON
from infeed.components.evaluation.model_report.scores import Guess, Scores
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.local.outcome import read_scores, reasons

SCORES = Scores(
    "test", 33, {"accuracy": 0.9}, {"accuracy": (0.8, 0.95)}, {"accuracy": Guess(0.6, "always 'no'")}, groups=12
)


def test_the_scores_are_those_of_the_report(tmp_path: Path, taxi: PipelineConfig) -> None:
    (tmp_path / JSON).write_text(json.dumps({"scores": dataclasses.asdict(SCORES)}))
    assert read_scores(str(tmp_path), taxi) == (SCORES, ())


@pytest.mark.tfx
def test_a_model_that_is_not_better_than_a_guess_has_the_reason_of_the_evaluator(
    tmp_path: Path, taxi: PipelineConfig
) -> None:
    import tfx.components  # noqa: F401 - before TFMA

    # isort: split
    import tensorflow as tf
    from tensorflow_model_analysis.proto.validation_result_pb2 import ValidationResult

    verdict = ValidationResult(validation_ok=False)
    verdict.metric_validations_per_slice.add().failures.add().message = "its auc is not clearly better"
    with tf.io.TFRecordWriter(str(tmp_path / "validations.tfrecord")) as writer:
        writer.write(verdict.SerializeToString())
    assert reasons(str(tmp_path), taxi.blessing) == ("its auc is not clearly better",)
