from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.inputs import open_files
from infeed.components.example_gen.sources.csv import CsvOptions, open_csv
from infeed.components.example_gen.sources.images import open_images
from infeed.components.example_gen.sources.streams import Span


def test_small_csv_files_are_one_task_each(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x\n1\n")
    (tmp_path / "a.csv").write_text("x\n0.5\n")
    opened = open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(), CsvOptions())
    assert [(task.order, task.what, task.split) for task in opened.tasks] == [
        (0, Span(f"{tmp_path}/a.csv", 2, None, 2), None),
        (1, Span(f"{tmp_path}/b.csv", 2, None, 2), None),
    ]
    assert [batch.to_pydict() for batch in opened.read(opened.tasks[1].what, bad_rows=BadRows())] == [{"x": [1.0]}]
    assert (opened.source.kind, opened.source.files, opened.source.bytes) == ("csv", 2, 10)


@pytest.mark.slow
def test_a_large_csv_file_is_several_tasks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f'{row},"two\nlines"\n' for row in range(2_000)))
    opened = open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(block_bytes=1024), CsvOptions())
    assert len(opened.tasks) == 4
    batches = [batch for task in opened.tasks for batch in opened.read(task.what, bad_rows=BadRows())]
    assert [x for batch in batches for x in batch.column(0).to_pylist()] == list(range(2_000))


def read_numbers(path: str) -> Iterator[pa.RecordBatch]:
    for line in Path(path).read_text().split():
        yield pa.RecordBatch.from_pydict({"n": [int(line)], "inner": [{"half": int(line) / 2}]})


def test_a_source_in_one_function(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 2")
    (tmp_path / "b").write_text("3")
    opened = open_files("numbers", str(tmp_path), {None: "*"}, read_numbers)
    assert opened.schema.names == ["n", "inner.half"]
    batches = [batch for task in opened.tasks for batch in opened.read(task.what, bad_rows=BadRows())]
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"n": 1, "inner.half": 0.5},
        {"n": 2, "inner.half": 1.0},
        {"n": 3, "inner.half": 1.5},
    ]


def test_a_source_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(InfeedError, match="no rows in the input"):
        open_files("numbers", str(tmp_path), {None: "*"}, read_numbers)


def test_input_that_is_split_keeps_its_splits_and_shares_its_types(tmp_path: Path) -> None:
    for split, row in (("train", "1"), ("eval", "0.5")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.csv").write_text(f"x\n{row}\n")
    patterns = {"train": "train/*", "eval": "eval/*"}
    opened = open_csv(str(tmp_path), patterns, IngestOptions(), CsvOptions())
    assert [task.split for task in opened.tasks] == ["train", "eval"]
    assert str(opened.schema.types[0]) == "double"


def test_images_are_tasks_of_about_a_block(digits: str) -> None:
    opened = open_images(digits, {None: "*/*"}, IngestOptions(block_bytes=4096))
    assert len(opened.tasks) > 1
    batches = [batch for task in opened.tasks for batch in opened.read(task.what, bad_rows=BadRows())]
    assert sum(batch.num_rows for batch in batches) == 120
    assert {batch.schema for batch in batches} == {opened.schema}
    assert opened.source.files == 120


def test_a_class_has_one_number_in_all_splits(digits: str) -> None:
    opened = open_images(digits, {"train": "[0-7]/*", "eval": "[89]/*"}, IngestOptions())
    labels = {
        (row["label"], row["label/text"])
        for task in opened.tasks
        for batch in opened.read(task.what, bad_rows=BadRows())
        for row in batch.to_pylist()
    }
    assert labels == {(number, str(number)) for number in range(10)}


def test_a_pattern_that_finds_nothing_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"(?s)no files found.*/\*\.csv, split 'eval'"):
        open_csv(str(tmp_path), {"eval": "*.csv"}, IngestOptions(), CsvOptions())
