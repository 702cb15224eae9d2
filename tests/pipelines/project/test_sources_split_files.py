"""Tables whose files say by their names which split they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.sources import find_split_files, split_of


def table(path: Path, rows: int, *, label: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{number},{number % 7},{'ab'[number % 2]}" for number in range(rows)]
    text = "\n".join(["x,z,y", *lines]) if label else "\n".join(["x,z", *(line[:-2] for line in lines)])
    csv = path.with_suffix(".csv")
    csv.write_text(text + "\n")
    if path.suffix == ".parquet":
        pq.write_table(pc.read_csv(csv), path)
        csv.unlink()


def resolved(data: Path, **given: Any) -> PipelineConfig:
    return resolve(read_project("tabular"), Overrides(data=str(data), label="y", root=str(data / "runs"), **given))


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"),
        ("Training", "train"),
        ("train-00000-of-00002.parquet", "train"),
        ("rides_test.csv.gz", "test"),
        ("fashion-mnist_train.csv", "train"),
        ("dev", "eval"),
        ("gender_submission.csv", None),
        ("trained.csv", None),
        ("rides_train_2024_north.csv", None),
    ],
)
def test_the_first_or_the_last_word_of_a_name_says_the_split(name: str, split: str | None) -> None:
    found = split_of(name)
    assert (found and found[0]) == split


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["train.csv", "test.csv"], {"train": "train.csv", "test": "test.csv"}),
        (["train/1.csv", "train/2.csv", "val/1.csv"], {"train": "train/*.csv", "eval": "val/*.csv"}),
        (["train.csv", "test/1.csv"], {"train": "train.csv", "test": "test/*.csv"}),
        (
            ["train-00000-of-00002.csv", "train-00001-of-00002.csv", "validation-00000-of-00001.csv"],
            {"train": "train-*-of-*.csv", "eval": "validation-00000-of-00001.csv"},
        ),
        (["train_a.csv", "train_b.csv", "test.csv"], {"train": "train*", "test": "test.csv"}),
        (["train.csv", "val.csv", "dev.csv"], {"train": "train.csv", "eval": "val.csv"}),
        (["train.csv", "shops.csv"], {}),
        (["1.csv", "test.csv"], {}),
    ],
)
def test_files_and_folders_are_told_by_their_names(tmp_path: Path, names: list[str], patterns: dict[str, str]) -> None:
    for name in names:
        table(tmp_path / name, 1)
    assert find_split_files(str(tmp_path), "csv")[0] == patterns


def test_what_no_pattern_tells_apart_is_an_error(tmp_path: Path) -> None:
    for name in ("north_train", "south_train", "south_test"):
        table(tmp_path / f"{name}.csv", 1)
    with pytest.raises(InfeedError, match=r"north_train\.csv"):
        find_split_files(str(tmp_path), "csv")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_rows_of_each_file_stay_in_its_split(tmp_path: Path, suffix: str) -> None:
    for name, rows in (("train", 300), ("validation", 60), ("test", 40)):
        table(tmp_path / f"{name}{suffix}", rows)
    config = resolved(tmp_path)
    assert config.patterns == {name: f"{file}{suffix}" for name, file in FILES.items()}
    assert (config.splits, config.judged_on, config.survey.rows) == ({}, "test", 400)


FILES = {"train": "train", "eval": "validation", "test": "test"}


def test_the_rows_that_are_scored_never_decide_when_training_stops(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", 300)
    table(tmp_path / "test.csv", 100)
    config = resolved(tmp_path)
    assert config.patterns == {"train": "train.csv", "test": "test.csv"}
    assert (config.splits, config.judged_on) == ({"train": 16, "eval": 4}, "test")
    assert "test (test.csv): scored once" in dict(config.notes)["splits"]
    assert config.survey.undivided == pytest.approx(300, rel=0.1)


def test_a_test_without_labels_is_left_out_and_can_be_predicted(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", 300)
    table(tmp_path / "test.csv", 100, label=False)
    table(tmp_path / "sample_submission.csv", 3)
    config = resolved(tmp_path)
    assert (config.patterns, config.survey.rows) == ({"train": "train.csv"}, 300)
    assert list(config.splits) == ["train", "eval", "test"]
    left_out = [words for about, words in config.notes if about == "left out"]
    assert any(words.startswith("test.csv: no y ") and "infeed predict" in words for words in left_out)
    assert any(words.startswith("sample_submission.csv: ") for words in left_out)


@pytest.mark.tfx
def test_the_example_gen_divides_train_and_leaves_test_whole(tmp_path: Path) -> None:
    from infeed.components.example_gen.executor import Request
    from infeed.pipelines.pipeline import create_pipeline

    table(tmp_path / "train.csv", 300)
    table(tmp_path / "test.csv", 100)
    example_gen = create_pipeline(resolved(tmp_path)).components[0]
    request = Request.of(example_gen.exec_properties)
    assert (request.patterns, request.splits) == (
        {None: "train.csv", "test": "test.csv"},
        ("train", "eval", "test"),
    )
