"""Runs as ML Metadata has them, the scores in the folder of an evaluation, and the lock on a root."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import infeed
from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.model_report.options import JSON
from infeed.components.evaluation.model_report.scores import Guess, Scores
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.local.outcome import find_roots, only_process, read_runs, read_scores, reasons

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


PAST = Scores("test", 33, {"accuracy": 0.9}, {"accuracy": (0.85, 0.95)})
RunMaker = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path, past_runs: Callable[[Path], RunMaker]) -> RunMaker:
    """run(NAME, NODE=(state, {output: (uri, properties)})): a run in the root `tmp_path`."""
    return past_runs(tmp_path)


def outputs(folder: Path, blessed: int) -> dict[str, Any]:
    """The nodes of a whole run, with files where they belong."""
    examples = folder / "examples"
    if not examples.exists():
        (folder / "data.csv").write_text("x\n" + "".join(f"{row}\n" for row in range(6)))
        infeed.ingest(folder / "data.csv", examples, splits={"train": 2, "eval": 1})
        (folder / "evaluation").mkdir()
        (folder / "evaluation" / JSON).write_text(json.dumps({"scores": schema.to_plain(PAST)}))
    evaluated = {"evaluation": (folder / "evaluation", {}), "blessing": (folder, {"blessed": blessed})}
    return {
        "CsvExampleGen": ("CACHED", {"examples": (examples, {})}),
        "Evaluator": ("COMPLETE", evaluated),
        "InputReport": ("COMPLETE", {"report": (folder, {"wait_fraction": 0.12})}),
    }


@pytest.mark.parametrize(("blessed", "status"), [(1, "pushed"), (0, "not blessed")])
def test_a_whole_run_has_its_scores_rows_and_waiting(run: RunMaker, tmp_path: Path, blessed: int, status: str) -> None:
    run("2026-01-31T12:00:00", **outputs(tmp_path, blessed))
    [found] = read_runs(str(tmp_path))
    assert (found.run_id, found.status, found.scores) == ("2026-01-31T12:00:00", status, PAST)
    assert sum(found.rows.values()) == 6
    assert found.wait_fraction == 0.12
    assert found.nodes == {"CsvExampleGen": "cached", "Evaluator": "complete", "InputReport": "complete"}


def test_a_failed_run_names_its_node(run: RunMaker, tmp_path: Path) -> None:
    run("2026-01-31T12:00:00", CsvExampleGen=("COMPLETE", {}), Trainer=("FAILED", {}))
    [found] = read_runs(str(tmp_path))
    assert (found.status, found.scores, found.rows, found.wait_fraction) == ("Trainer failed", None, {}, None)


def test_the_newest_run_is_running_while_the_root_is_locked_and_others_without_an_end_were_stopped(
    run: RunMaker, tmp_path: Path
) -> None:
    run("2026-01-31T12:00:00", Trainer=("RUNNING", {}))
    run("2026-01-31T13:00:00", Trainer=("RUNNING", {}))
    with only_process(str(tmp_path)):
        assert [one.status for one in read_runs(str(tmp_path))] == ["running", "stopped"]
    assert [one.run_id[11:13] for one in read_runs(str(tmp_path)) if one.status == "stopped"] == ["13", "12"]


def test_a_run_whose_outputs_were_removed_has_no_scores(run: RunMaker, tmp_path: Path) -> None:
    run("2026-01-31T12:00:00", **outputs(tmp_path, 1))
    (tmp_path / "evaluation" / JSON).unlink()
    assert read_runs(str(tmp_path))[0].scores is None


def test_all_roots_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, past_runs: Callable[[Path], RunMaker]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InfeedError, match="no run"):
        find_roots(None)
    for name in ("taxi", "flowers"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        past_runs(tmp_path / "runs" / name)("2026-01-31T12:00:00", Trainer=("FAILED", {}))
    assert find_roots(None) == ["runs/flowers", "runs/taxi"]
    assert find_roots("runs/flowers") == ["runs/flowers"]
    with pytest.raises(InfeedError, match="no run"):
        find_roots(str(tmp_path))
