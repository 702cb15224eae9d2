"""Words beside numbers that mean a missing value, such as the NA of R."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.survey import survey_table
from infeed.pipelines.surveys import TableSurvey


def write(folder: Path, word: str, label: tuple[str, str] = ("yes", "no")) -> str:
    lines = [
        f"{word if i % 20 == 7 else i % 13},0{10 + i % 5},{word if i % 9 == 0 else 'fm'[i % 2]},{label[i % 2]}"
        for i in range(400)
    ]
    (folder / "t.csv").write_text("\n".join(["x,code,sex,y", *lines]) + "\n")
    return str(folder / "t.csv")


def surveyed(path: str, **settings: Any) -> TableSurvey:
    return survey_table(path, "y", settings=settings)


@pytest.mark.parametrize("word", ["NA", "N/A", "null", "?", "-"])
def test_a_word_for_a_missing_value_does_not_make_numbers_words(tmp_path: Path, word: str) -> None:
    survey = surveyed(write(tmp_path, word))
    x, code, sex = survey.columns
    assert survey.nulls == (word,)
    assert (x.type, x.missing, sex.type, sex.missing) == ("int", 20, "bytes", 45)
    assert (code.type, survey.codes) == ("bytes", ("code",))  # with a zero in front


def test_the_files_are_read_in_that_way(tmp_path: Path) -> None:
    given = {"data": write(tmp_path, "NA"), "label": "y", "root": str(tmp_path / "runs")}
    config: PipelineConfig = resolve(read_project("tabular"), Overrides(**given))
    assert config.source_options["nulls"] == ["", "NA"]
    assert "x (20 cells)" in dict(config.notes)["missing"]


def test_other_words_a_class_and_given_nulls_stay(tmp_path: Path) -> None:
    assert surveyed(write(tmp_path, "unknown")).nulls == ()
    survey = surveyed(write(tmp_path, "NA", ("NA", "EU")))
    assert (survey.nulls, survey.classes, survey.unlabeled) == ((), ("EU", "NA"), 0)
    survey = surveyed(write(tmp_path, "NA"), nulls=[""])
    assert (survey.nulls, survey.columns[0].type) == ((), "bytes")


def test_rows_whose_quantity_is_missing_are_left_out(tmp_path: Path) -> None:
    lines = [f"{i % 13},{'NA' if i % 10 == 0 else i / 7}" for i in range(400)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    survey = surveyed(str(tmp_path / "t.csv"))
    assert (survey.task, survey.rows, survey.unlabeled, survey.nulls) == ("regression", 360, 40, ("NA",))
