from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split

pytestmark = pytest.mark.tfx

SPLITS = {
    "train": Split.of(
        tuple(Shard(f"Split-train/data_tfrecord-{i:05}-of-00002", 500, 500_000, "0" * 8) for i in range(2))
    ),
    "eval": Split.of((Shard("Split-eval/data_tfrecord-00000-of-00001", 200, 200_000, "0" * 8),)),
}


@pytest.fixture
def model_run(as_json: Callable[..., dict[str, Any]], tmp_path: Path) -> Any:
    from tfx.types import standard_artifacts

    folder = tmp_path / "model_run"
    folder.mkdir()
    (folder / "input_profile.json").write_text(json.dumps(as_json()))
    artifact = standard_artifacts.ModelRun()
    artifact.uri = str(folder)
    return artifact


@pytest.fixture
def examples(tmp_path: Path) -> Any:
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri = str(tmp_path / "examples")
    artifact.split_names = '["train", "eval"]'
    return artifact


def run(tmp_path: Path, inputs: dict[str, list[Any]], **exec_properties: Any) -> Any:
    from tfx.types.experimental import simple_artifacts

    from infeed.components.input_report.component import InputReportExecutor

    report = simple_artifacts.Metrics()
    report.uri = str(tmp_path / "report")
    InputReportExecutor().Do(inputs, {"report": [report]}, exec_properties)
    return report


def said(report: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(report.uri) / "report.json").read_text())
    return content


def test_reports_on_a_model_run_alone(model_run: Any, tmp_path: Path) -> None:
    report = run(tmp_path, {"model_run": [model_run]})
    assert (Path(report.uri) / "report.html").read_text().startswith("<!doctype html>")
    assert said(report)["inputs"] == {"model_run": model_run.uri}
    assert report.get_string_custom_property("verdict") == "input-bound"
    assert report.get_float_custom_property("wait_fraction") == pytest.approx(0.5)
    assert not report.has_custom_property("blessed")


@pytest.mark.parametrize(("limit", "blessed"), [(0.6, 1), (0.1, 0)])
def test_blesses_what_waited_no_longer_than_allowed(limit: float, blessed: int, model_run: Any, tmp_path: Path) -> None:
    report = run(tmp_path, {"model_run": [model_run]}, max_wait_fraction=limit)
    assert report.get_int_custom_property("blessed") == blessed


def test_counts_the_shards_that_training_read(model_run: Any, examples: Any, tmp_path: Path) -> None:
    Manifest(source=Source("csv", "", 1, 1), options={}, schema=(), splits=SPLITS, rows_read=1200).write(examples.uri)
    report = run(tmp_path, {"model_run": [model_run], "examples": [examples]})
    assert said(report)["shards"] == 2
    assert said(report)["inputs"]["examples"] == examples.uri


@pytest.mark.parametrize("manifest", [False, True])
def test_other_examples_and_those_without_a_manifest_tell_nothing_of_this_training(
    manifest: bool, model_run: Any, examples: Any, tmp_path: Path
) -> None:
    others = {"train": Split.of((Shard("Split-train/data_tfrecord-00000-of-00001", 7, 777, "0" * 8),))}
    if manifest:
        Manifest(source=Source("csv", "", 1, 1), options={}, schema=(), splits=others, rows_read=7).write(examples.uri)
    assert said(run(tmp_path, {"model_run": [model_run], "examples": [examples]}))["shards"] is None


def test_a_model_run_of_another_trainer_is_an_error_that_says_so(model_run: Any, tmp_path: Path) -> None:
    (Path(model_run.uri) / "input_profile.json").unlink()
    with pytest.raises(InfeedError, match=r"has no input_profile\.json"):
        run(tmp_path, {"model_run": [model_run]})
    assert not (tmp_path / "report").exists()
