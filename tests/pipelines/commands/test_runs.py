"""`infeed runs` lists and compares; `infeed clean` is refused while a run uses the root. Covers `clean`, too."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infeed.components.base import schema
from infeed.pipelines.cli import main
from infeed.pipelines.console.nodes import NodeReport, NodeState
from infeed.pipelines.local.history import PastRun, only_process
from infeed.pipelines.local.outcome import RunOutcome

CONFIG = {"train": {"epochs": 3, "label": "y"}, "features": [{"kind": "z_score", "column": "x"}]}


@pytest.fixture
def root(run_outcome: RunOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    nodes, rows = (NodeReport("Trainer", NodeState.DONE, 4.0),), {"train": 66, "test": 33}
    first = PastRun(1, "2026-01-31T12:00:00.123456", CONFIG, True, 6.0, nodes, run_outcome, rows, "ab12")
    changed = {**CONFIG, "train": {"epochs": 5, "label": "y"}, "data": "x.csv"}
    stopped = PastRun(3, "2026-01-31T13:00:00.123456", CONFIG)
    folder = tmp_path / "runs" / "taxi"
    (folder / "history").mkdir(parents=True)
    for run in (first, dataclasses.replace(first, number=2, config=changed), stopped):
        (folder / "history" / f"{run.number:04}.json").write_text(json.dumps(schema.to_plain(run)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return folder


def infeed(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code, result.output
    return result


def test_runs_are_listed_with_status_score_rows_data_and_waiting(root: Path) -> None:
    _, stopped, second, _ = infeed("runs").stdout.splitlines()
    assert stopped.split()[:1] == ["3"]
    assert "stopped" in stopped
    for cell in ("2026-01-31 12:00", "6.0 s", "pushed", "accuracy 0.900 ± 0.050", "99", "ab12", "12 %"):
        assert cell in second


def test_the_newest_run_without_an_end_runs_while_the_lock_is_held(root: Path) -> None:
    with only_process(str(root)):
        listed = json.loads(infeed("runs", "--json").stdout)
    assert [run["status"] for run in listed] == ["running", "pushed", "pushed"]
    assert listed[1]["outcome"]["metrics"] == {"accuracy": 0.9}


def test_the_runs_of_all_roots_are_listed_and_two_of_one_compared(root: Path) -> None:
    shutil.copytree(root, root.with_name("flowers"))
    lines = infeed("runs").stdout.splitlines()
    assert [line for line in lines if line.startswith("runs/")] == ["runs/flowers:", "runs/taxi:"]
    assert len(lines) == 2 * 5
    listed = json.loads(infeed("runs", "--json").stdout)
    assert [run["root"] for run in listed] == ["runs/flowers"] * 3 + ["runs/taxi"] * 3
    assert "--root" in infeed("runs", "1", "2", code=2).stderr


def test_a_narrow_terminal_shows_whole_scores(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "66")
    lines = infeed("runs").stdout.splitlines()
    assert len(lines) == 1 + 3
    assert "accuracy 0.900 ± 0.050" in lines[2]
    assert "waited" not in lines[0]


def test_two_runs_differ_in_settings_by_path(root: Path) -> None:
    rows: list[dict[str, Any]] = json.loads(infeed("runs", "1", "2", "--json").stdout)
    found = {row["what"]: (row["1"], row["2"]) for row in rows}
    assert found["train.epochs"] == ("3", "5")
    assert found["data"] == ("-", '"x.csv"')
    assert found["accuracy"] == ("0.900 ± 0.050",) * 2
    assert found["Trainer"] == ("4.0 s, done",) * 2
    assert not {"train.label", "features[0].column"} & found.keys()


def test_a_run_that_is_not_there_is_told_with_those_that_are(root: Path) -> None:
    assert "3, 2, 1" in infeed("runs", "1", "7", code=2).stderr
    infeed("runs", "1", code=2)


def test_nothing_is_cleaned_while_a_run_uses_the_root(root: Path) -> None:
    with only_process(str(root)):
        assert "another run uses this folder" in infeed("clean", code=2).stderr


def test_cleaning_a_root_without_outputs_removes_nothing(root: Path) -> None:
    assert json.loads(infeed("clean", "--json").stdout) == {
        "root": "runs/taxi",
        "places": [],
        "bytes": 0,
        "runs": [],
        "removed": True,
    }
    assert len(list((root / "history").iterdir())) == 3
