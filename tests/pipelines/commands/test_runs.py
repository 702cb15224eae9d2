"""`infeed runs` lists the runs of roots."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infeed.pipelines.cli import main


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, past_runs: Callable[[Path], Callable[..., None]]) -> Path:
    folder = tmp_path / "runs" / "taxi"
    (folder / "evaluation").mkdir(parents=True)
    scores = {"split": "test", "rows": 33, "metrics": {"accuracy": 0.9}, "intervals": {"accuracy": [0.85, 0.95]}}
    (folder / "evaluation" / "model_report.json").write_text(json.dumps({"scores": scores}))
    evaluated = {"evaluation": (folder / "evaluation", {}), "blessing": (folder, {"blessed": 1})}
    run = past_runs(folder)
    report = {"report": (folder, {"wait_fraction": 0.12})}
    run("2026-01-31T12:00:00.123456", Evaluator=("COMPLETE", evaluated), InputReport=("COMPLETE", report))
    run("2026-01-31T13:00:00.123456", Trainer=("FAILED", {}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return folder


def infeed(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code, result.output
    return result


def test_runs_are_listed_with_status_score_and_waiting(root: Path) -> None:
    _, failed, first = infeed("runs").stdout.splitlines()
    assert "Trainer failed" in failed
    for cell in ("2026-01-31 12:00", "pushed", "accuracy 0.900 ± 0.050", "12 %"):
        assert cell in first


def test_the_runs_of_all_roots_are_listed(root: Path) -> None:
    shutil.copytree(root, root.with_name("flowers"))
    lines = infeed("runs").stdout.splitlines()
    assert [line for line in lines if line.startswith("runs/")] == ["runs/flowers:", "runs/taxi:"]
    listed = json.loads(infeed("runs", "--json").stdout)
    assert [run["root"] for run in listed] == ["runs/flowers"] * 2 + ["runs/taxi"] * 2
    assert listed[0]["nodes"] == {"Trainer": "failed"}


def test_a_narrow_terminal_shows_whole_scores(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "62")
    lines = infeed("runs").stdout.splitlines()
    assert "accuracy 0.900 ± 0.050" in lines[2]
    assert "waited" not in lines[0]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    assert "no run" in infeed("runs", "--root", str(tmp_path), code=2).stderr
