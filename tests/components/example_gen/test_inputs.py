from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.sources import images
from infeed.components.example_gen.sources.csv import CsvOptions


def test_csv_files_are_one_task_each(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x\n1\n")
    (tmp_path / "a.csv").write_text("x\n0.5\n")
    opened = inputs.open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(), CsvOptions())
    assert [(task.order, task.what, task.split) for task in opened.tasks] == [
        (0, f"{tmp_path}/a.csv", None),
        (1, f"{tmp_path}/b.csv", None),
    ]
    assert [batch.to_pydict() for batch in opened.read(opened.tasks[1].what)] == [{"x": [1.0]}]
    assert (opened.source.kind, opened.source.files, opened.source.bytes) == ("csv", 2, 10)


def test_input_that_is_split_keeps_its_splits_and_shares_its_types(tmp_path: Path) -> None:
    for split, row in (("train", "1"), ("eval", "0.5")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.csv").write_text(f"x\n{row}\n")
    patterns = {"train": "train/*", "eval": "eval/*"}
    opened = inputs.open_csv(str(tmp_path), patterns, IngestOptions(), CsvOptions())
    assert [task.split for task in opened.tasks] == ["train", "eval"]
    assert str(opened.schema.types[0]) == "double"


def test_images_are_tasks_of_about_a_block(digits: str) -> None:
    opened = inputs.open_images(digits, {None: "*/*"}, IngestOptions(block_bytes=4096))
    assert len(opened.tasks) > 1
    batches = [batch for task in opened.tasks for batch in opened.read(task.what)]
    assert sum(batch.num_rows for batch in batches) == 120
    assert {batch.schema for batch in batches} == {images.SCHEMA}
    assert opened.source.files == 120


def test_a_class_has_one_number_in_all_splits(digits: str) -> None:
    opened = inputs.open_images(digits, {"train": "[0-7]/*", "eval": "[89]/*"}, IngestOptions())
    labels = {
        (row["label"], row["label/text"])
        for task in opened.tasks
        for batch in opened.read(task.what)
        for row in batch.to_pylist()
    }
    assert labels == {(number, str(number)) for number in range(10)}


def test_a_pattern_that_finds_nothing_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"(?s)no files found.*/\*\.csv, split 'eval'"):
        inputs.open_csv(str(tmp_path), {"eval": "*.csv"}, IngestOptions(), CsvOptions())
