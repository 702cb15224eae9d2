"""Columns of whole numbers whose cells have leading zeros."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.survey import survey_table


@pytest.fixture
def table(tmp_path: Path) -> str:
    draw = random.Random(0)
    zips, labels = ("01234", "94107"), "ab"
    lines = [
        f"{draw.choice(zips)},+4{draw.randint(10, 99)},{draw.random():.3f},{draw.choice(labels)}" for _ in range(60)
    ]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["zip,phone,x,y", *lines, ""]))
    return str(path)


def test_a_column_with_leading_zeros_is_read_as_words_and_a_note_says_how_to_read_numbers(table: str) -> None:
    survey = survey_table(table, "y")
    assert survey.codes == ("zip",)
    assert {column.name: column.type for column in survey.columns} == {"zip": "bytes", "phone": "int", "x": "float"}
    (_, words), (_, others) = survey.remarks
    assert "'01234'" in words
    assert 'types={"zip": "int"}' in words
    assert 'types={"phone": "bytes"}' in others


@pytest.mark.parametrize("kind", ["int", "float", "bytes"])
def test_a_type_that_is_given_stands(table: str, kind: str) -> None:
    survey = survey_table(table, "y", settings={"types": {"zip": kind}})
    assert survey.codes == ()
    assert {column.name: column.type for column in survey.columns}["zip"] == kind


def test_the_label_of_a_regression_stays_a_number(table: str) -> None:
    assert survey_table(table, "zip", "regression").codes == ()
    assert survey_table(table, "zip").classes == ("01234", "94107")


def test_the_pipeline_reads_these_columns_as_bytes(table: str) -> None:
    config = resolve(read_project("tabular"), Overrides(data=table, label="y"))
    assert config.source_options["types"] == {"zip": "bytes"}
    assert [text[:3] for label, text in config.notes if label == "codes"] == ["zip", "cel"]
