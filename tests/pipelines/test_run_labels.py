"""The main job with several labels, as a user runs it: a new project, a run, predictions, an evaluation.

Covers the heads of `templates/tabular/model.py` for several labels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.image]  # here `test_run_fn_outputs` trains such models

INFEED = Path(sys.executable).with_name("infeed")
CLASSES = ["big", "old"]
Infeed = Callable[..., str]


@pytest.fixture(scope="module")
def infeed(warm: Mapping[str, str]) -> Infeed:
    """infeed(folder, "predict", "root") -> what the command prints there."""

    def run(folder: Path, *words: str) -> str:
        env = {**os.environ, **warm}
        done = subprocess.run([INFEED, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def homes(infeed: Infeed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Homes of which area and age, with some noise, decide a price, whether they are sold, and tags."""
    folder, random = tmp_path_factory.mktemp("homes"), np.random.default_rng(0)
    with (folder / "homes.jsonl").open("w") as file:
        for area, age, noise in random.normal(0, 1, (600, 3)).tolist():
            tags = ["big"] * (area + noise / 9 > 0.5) + ["old"] * (age + noise / 9 > 0)
            row = {"area": area, "age": age, "price": 1e6 + 1e5 * (area - age / 2 + noise / 9)}
            file.write(json.dumps(row | {"sold": "no" if area + noise / 9 > 0 else "yes", "tags": tags}) + "\n")
    words = ["--data", "homes.jsonl", "--label", "tags", "--label", "price", "--label", "sold"]
    infeed(folder, "new", "tabular", "mine", *words)
    config = folder / "mine" / "config.yaml"
    config.write_text(config.read_text().replace("train:\n", "train:\n  class_weight: {sold: balanced}\n"))
    return folder


@pytest.fixture(scope="module")
def outcome(infeed: Infeed, homes: Path) -> Any:
    out = infeed(homes, "run", "mine", "--root", "root", "--epochs", "12", "--json")
    return json.loads(out)["outcome"]


def scores(outcome: Any) -> dict[str, Any]:
    others = {one["label"]: one["scores"]["metrics"] for one in outcome["others"]}
    return {"tags": outcome["metrics"], **others}


def test_each_label_is_learned_and_the_first_decides(outcome: Any) -> None:
    found = scores(outcome)
    assert outcome["blessed"]
    assert found["tags"]["f1"] > 0.8
    assert found["price"]["r2"] > 0.8
    assert found["sold"]["accuracy"] > 0.8


def test_each_label_has_a_page_and_intervals(homes: Path, outcome: Any) -> None:
    assert "macro_f1" in outcome["metrics"]
    low, high = outcome["intervals"]["f1"]
    assert low < outcome["metrics"]["f1"] < high
    tags = (homes / outcome["model_report"]).read_text()
    assert "exactly the right set" in tags
    assert all(f'<th class="left" scope="row">{name}</th>' in tags for name in CLASSES)
    pages = {one["label"]: one["page"] for one in outcome["others"]}
    assert "R²" in (homes / pages["price"]).read_text()
    assert "confus" in (homes / pages["sold"]).read_text().lower()


def test_a_prediction_has_every_label(infeed: Infeed, homes: Path, outcome: Any) -> None:
    row = {"area": 2.0, "age": 2.0}
    (homes / "new.jsonl").write_text(json.dumps(row) + "\n")
    [made] = [json.loads(line) for line in infeed(homes, "predict", "root", "new.jsonl", "--json").splitlines()]
    assert set(made["value"]["tags"]) == {"big", "old"}
    assert made["value"]["sold"] == "no"
    assert made["value"]["price"] == pytest.approx(1e6 + 1e5, rel=0.1)


def test_an_evaluation_of_a_table_scores_every_label(infeed: Infeed, homes: Path, outcome: Any) -> None:
    words = ["--dataset", "homes.jsonl", "--model", "root", "--output", "evaluation", "--json"]
    made = json.loads(infeed(homes, "evaluate", "mine/config.yaml", *words))
    assert made["rows"] == 600
    found = scores(made)
    assert found.keys() == {"tags", "price", "sold"}
    for name, metric in (("tags", "f1"), ("price", "r2"), ("sold", "accuracy")):
        assert found[name][metric] == pytest.approx(scores(outcome)[name][metric], abs=0.1)
