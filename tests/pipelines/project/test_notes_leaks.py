"""Columns that give the label away, from the table to what a run says and does: `leaks` at work in `resolve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

HEADER = "age,refund_code,score,late fee,y"


@pytest.fixture
def data(tmp_path: Path) -> str:
    """400 rows: two columns give the label away, one may, and `age` does not."""
    random = np.random.default_rng(0)
    rows = []
    for yes in random.random(400) < 0.4:
        code, fee = (f"R{random.integers(4)}", random.integers(5, 90)) if yes else ("", 0)
        rows.append(f"{random.integers(18, 80)},{code},{random.uniform() + yes:.4f},{fee},{'yes' if yes else 'no'}")
    (tmp_path / "data.csv").write_text("\n".join([HEADER, *rows]))
    return str(tmp_path / "data.csv")


def of_template(data: str, **given: Any) -> PipelineConfig:
    return resolve(read_project("tabular"), Overrides(data=data, label="y", root=str(Path(data).parent), **given))


def of_file(data: str, text: str, **given: Any) -> PipelineConfig:
    folder = Path(data).parent
    (folder / "model.py").write_text("def build_model(spec):\n    raise NotImplementedError\n")
    (folder / "own.py").write_text("def preprocessing_fn(inputs):\n    return inputs\n")
    config = folder / "config.yaml"
    config.write_text(f"source: csv\ndata: {data}\nlabel: y\nmodel: model.py:build_model\n{text}\n")
    return resolve(read_project(str(config)), Overrides(**given))


def learned(config: PipelineConfig) -> list[str]:
    return [feature.column for feature in config.features]


def said(config: PipelineConfig) -> dict[str, str]:
    """What is said of each column that leaks."""
    notes = [words for about, words in config.notes if about == "label leak"]
    return {name: words for words in notes for name in HEADER.split(",") if words.startswith(f"{name} ")}


def test_what_surely_gives_the_label_away_is_left_out_and_the_choice_is_told(data: str) -> None:
    config = of_template(data)
    assert learned(config) == ["age", "score", "y"]
    notes = said(config)
    assert notes.keys() == {"refund_code", "late fee", "score"}
    assert "filled in 100.0% of the rows of 'yes'" in notes["refund_code"]
    assert notes["refund_code"].endswith("--keep refund_code")
    assert notes["late fee"].endswith("--keep 'late fee'")
    assert "may give the label away" in notes["score"]
    assert "refund_code" not in dict(config.notes).get("left out", "")


def test_what_is_kept_is_learned_from(data: str) -> None:
    config = of_template(data, keep=("refund_code",))
    assert learned(config) == ["age", "refund_code", "score", "y"]
    assert said(config)["refund_code"].startswith("refund_code is kept")


def test_a_strict_run_stops_and_names_all_that_is_not_kept(data: str) -> None:
    with pytest.raises(InfeedError, match="2 columns give the label away") as error:
        of_template(data, strict=True)
    assert error.value.where == data
    assert "--keep refund_code --keep 'late fee'" in error.value.do
    with pytest.raises(InfeedError, match=r"1 column gives the label away: late fee"):
        of_template(data, strict=True, keep=("refund_code",))
    kept = of_template(data, strict=True, keep=("refund_code", "late fee"))
    assert learned(kept) == ["age", "refund_code", "score", "late fee", "y"]


FEATURES = "features: [{kind: z_score, column: late fee}, {kind: label, column: y}]"


def test_features_that_a_config_lists_are_its_choice(data: str) -> None:
    config = of_file(data, FEATURES)
    assert learned(config) == ["late fee", "y"]
    assert said(config).keys() == {"late fee"}
    assert "remove it from the features" in said(config)["late fee"]


def test_each_column_of_a_feature_is_used(data: str) -> None:
    both = "{kind: cross, of: [age, late fee], output: both, buckets: 9}"
    config = of_file(data, f"features: [{both}, {{kind: label, column: y}}]")
    assert dict(config.notes)["learned from"].endswith("age, late fee")
    assert said(config).keys() == {"late fee"}


@pytest.mark.parametrize(("text", "given"), [("strict: true", {}), ("", {"strict": True})])
def test_a_strict_run_asks_for_that_choice_too(data: str, text: str, given: dict[str, Any]) -> None:
    with pytest.raises(InfeedError, match="late fee"):
        of_file(data, f"{FEATURES}\n{text}", **given)
    assert said(of_file(data, f"{FEATURES}\n{text}\nkeep: [late fee]", **given))["late fee"].startswith(
        "late fee is kept"
    )


def test_a_function_that_gets_all_columns_is_told_of_each(data: str) -> None:
    config = of_file(data, "preprocessing_fn: own.py")
    assert said(config).keys() == {"refund_code", "late fee", "score"}
    assert "do not use it in " in said(config)["refund_code"]


def test_the_only_column_stays(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "1,no\n2,yes\n" * 50)
    config = of_template(str(path))
    assert learned(config) == ["x", "y"]
    assert "no other column is left" in dict(config.notes)["label leak"]


def test_a_column_that_is_left_out_anyway_says_that_it_leaks(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    rows = [f"{i},{i * 7 % 13},{'no' if i < 60 else 'yes'}" for i in range(100)]
    path.write_text("\n".join(["id,x,y", *rows]))
    assert "it numbers the rows; it gives the label away" in dict(of_template(str(path)).notes)["left out"]


def test_a_column_to_keep_that_is_not_there_is_an_error(data: str) -> None:
    with pytest.raises(InfeedError, match=r"no column 'refundcode'; did you mean 'refund_code'"):
        of_template(data, keep=("refundcode",))
    with pytest.raises(InfeedError, match="no column 'x'"):
        resolve(read_project("image"), Overrides(root=str(Path(data).parent), keep=("x",)))
