"""Outcomes of whole runs are in tests/pipelines/test_run.py; here is what is made of what they leave."""

from __future__ import annotations

import dataclasses
from types import ModuleType, SimpleNamespace

import pytest

from infeed.components.evaluation.model_report.scores import Scores
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.local.outcome import reasons

pytestmark = pytest.mark.tfx


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from infeed.pipelines.local import outcome

    scores = Scores("test", 33, {"accuracy": 0.9}, {"accuracy": (0.8, 0.95)})
    monkeypatch.setattr(outcome, "read_scores", lambda uri, config: (scores, ()))
    monkeypatch.setattr(outcome, "reasons", lambda uri, blessing: ())
    return outcome


def latest(outcome: ModuleType, blessed: int) -> dict[tuple[str, str], object]:
    pushed = {"pushed_destination": "/runs/taxi/serving/1"} if blessed else {}
    return {
        ("InputReport", "report"): outcome.NodeOutput("/report", {"verdict": "balanced", "wait_fraction": 0.1}),
        ("Evaluator", "blessing"): outcome.NodeOutput("/blessing", {"blessed": blessed}),
        ("Evaluator", "evaluation"): outcome.NodeOutput("/evaluation", {}),
        ("Trainer", "model"): outcome.NodeOutput("/model", {}),
        ("Pusher", "pushed_model"): outcome.NodeOutput("/pushed", pushed),
    }


def test_an_outcome_is_gathered_from_several_nodes(
    outcome: ModuleType, taxi: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "latest_outputs", lambda config: latest(outcome, 1))
    found = outcome.read_outcome(taxi)
    assert (found.blessed, found.pushed, found.metrics) == (True, "/runs/taxi/serving/1", {"accuracy": 0.9})
    assert (found.split, found.rows, found.intervals) == ("test", 33, {"accuracy": (0.8, 0.95)})
    assert (found.verdict, found.wait_fraction, found.report) == ("balanced", 0.1, "/report/report.html")
    assert found.model.startswith("/model/")


def test_a_model_that_is_not_blessed_is_pushed_nowhere(
    outcome: ModuleType, taxi: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "latest_outputs", lambda config: latest(outcome, 0))
    assert outcome.read_outcome(taxi).pushed is None


@pytest.mark.parametrize(
    ("metric", "is_diff", "reason"),
    [
        ("accuracy", False, "its accuracy of 0.5 is below 0.6"),
        ("mse", False, "its mse of 0.5 is above 0.6"),
        ("accuracy", True, "its accuracy is 0.5 below that of the last blessed model"),
    ],
)
def test_why_a_model_is_not_blessed(
    metric: str, is_diff: bool, reason: str, taxi: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = SimpleNamespace(double_value=SimpleNamespace(value=-0.5 if is_diff else 0.5))
    failure = SimpleNamespace(metric_value=value, metric_key=SimpleNamespace(is_diff=is_diff, name=metric))
    blessing = dataclasses.replace(taxi.blessing, metric=metric)
    validation = SimpleNamespace(metric_validations_per_slice=[SimpleNamespace(failures=[failure])])
    monkeypatch.setattr("tensorflow_model_analysis.load_validation_result", lambda uri: validation)
    assert reasons("/evaluation", blessing) == (reason,)
