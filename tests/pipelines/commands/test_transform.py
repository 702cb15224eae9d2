"""`infeed transform` prints rows side by side, or why a feature is as it is, as a table or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infeed.pipelines.cli import main

pytestmark = pytest.mark.slow

CONFIG = """
source: csv
data: {folder}/rides.csv
label: tipped
features: [{{kind: z_score, column: fare}}, {{kind: label, column: tipped}}]
model: {folder}/model.py:build
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    rows = [f"{number}.5,{'yes' if number % 3 else 'no'}" for number in range(40)]
    (tmp_path / "rides.csv").write_text("\n".join(["fare,tipped", *rows]) + "\n")
    (tmp_path / "model.py").write_text("def build(shapes, options):\n    raise NotImplementedError\n")
    (tmp_path / "config.yaml").write_text(CONFIG.format(folder=tmp_path))
    return str(tmp_path / "config.yaml")


def infeed(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it prints; the console is the real one, which keeps what libraries print apart."""
    with pytest.raises(SystemExit) as ended:
        main(["transform", *arguments])
    told = capfd.readouterr()
    assert ended.value.code == (2 if told.err.startswith("error: ") else 0), told.err
    return told.out + told.err


def test_rows_stand_side_by_side(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    told = infeed(capfd, config, "--show", "2")
    header, fare, label = told.splitlines()
    assert header.split()[:3] == ["feature", "made", "by"]
    assert header.split().count("becomes") == 2
    assert fare.split()[:2] == ["fare", "ZScore"]
    assert label.split()[:2] == ["tipped", "Label"]


def test_json_holds_the_values_unrounded(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    told = infeed(capfd, config, "--show", "1", "--json")
    (row,) = json.loads(told)
    assert row["raw"]["fare"] == row["number"] - 0.5
    assert row["raw"].keys() == row["transformed"].keys() == {"fare", "tipped"}


def test_a_feature_is_explained(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    told = infeed(capfd, config, "--why", "fare")
    for words in ("fare: ZScore(column='fare')", "made of", "training rows; 0 missing", "scaled by", "least in"):
        assert words in told


def test_a_feature_that_is_not_there_is_an_error(config: str, capfd: pytest.CaptureFixture[str]) -> None:
    told = infeed(capfd, config, "--why", "fair")
    assert "there is no feature 'fair'; did you mean 'fare'?" in told
