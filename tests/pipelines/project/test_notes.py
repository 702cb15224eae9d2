"""Notes about the data, the label and the columns."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components import DecodeImage, Label, ZScore
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.pipelines.config import Blessing
from infeed.pipelines.project.notes import notes
from infeed.pipelines.surveys import ColumnSurvey, ImageSurvey, Layout, TableSurvey

NUMBER = ColumnSurvey("x", "float", rows=100, missing=0, distinct=80, mean=2.0, std=3.0, commonest=5)
LABEL = dataclasses.replace(NUMBER, name="y", type="int", distinct=2)
TABLE = TableSurvey((NUMBER,), LABEL, "classification", 100, ("no", "yes"), (97, 3))
BLESSING = Blessing("accuracy", 0.97)


def said(survey: TableSurvey | ImageSurvey, about: str) -> list[str]:
    features = (ZScore("x"), Label("y"))
    return [words for name, words in notes(survey, "rides.csv", features, BLESSING) if name == about]


def test_a_rare_class_is_told() -> None:
    [words] = said(TABLE, "label")
    assert (
        words
        == "y: 2 classes: no (97.0%), yes (3.0%); yes has 3 rows: training or evaluation may miss such a rare class"
    )


def test_of_many_classes_only_their_number_is_told() -> None:
    many = dataclasses.replace(TABLE, classes=tuple(map(str, range(20))), class_rows=(5,) * 20)
    assert said(many, "label") == ["y: 20 classes of 5 rows: a model learns little from few rows a class"]


@pytest.mark.parametrize(
    ("values", "is_name"),
    [
        ([*range(100)], True),
        ([*range(5_000, 5_100)], True),
        ([(row * 2_654_435_761) % 2**32 for row in range(100)], True),  # random numbers
        ([(-1) ** row * row * 10**15 for row in range(100)], True),  # hashes with a sign
        ([round(1_000 * 1.12**row) for row in range(100)], False),  # populations
    ],
)
def test_a_quantity_is_not_taken_for_a_name(values: list[int], is_name: bool) -> None:
    statistics, of = ColumnStatistics.of("x", pa.array(values)), np.array(values, float)
    number = dataclasses.replace(
        NUMBER, type="int", distinct=100, missing=0, mean=of.mean(), std=of.std(), statistics=statistics
    )
    assert len(said(dataclasses.replace(TABLE, columns=(number,)), "note")) == is_name


def test_a_column_that_is_used_and_always_the_same_is_told_with_its_value() -> None:
    statistics = ColumnStatistics.of("x", pa.array([7] * 100))
    always = dataclasses.replace(NUMBER, type="int", distinct=1, missing=0, statistics=statistics)
    assert said(dataclasses.replace(TABLE, columns=(always,)), "note") == [
        "x: every row has the same value, 7, which carries no information: leave it out"
    ]


@pytest.mark.parametrize(("channels", "color"), [(1, "gray"), (3, "RGB")])
def test_pictures_are_told_with_their_size_and_what_is_left_out(channels: int, color: str) -> None:
    layout = Layout((), {"train": "training/*/*", "eval": "val/*/*"}, unused="test")
    pictures = ImageSurvey(layout, ("cat", "dog"), (30, 10), 40, 8, 9, channels, most=38)
    assert said(pictures, "data") == [f"rides.csv: 40 images of 8 x 9 px, {color}; 2 of other sizes"]
    assert said(pictures, "left out")[0].startswith("test: ")


@pytest.mark.parametrize(("rule", "word"), [("stretch", "stretched"), ("fit", "padded"), ("crop", "cropped")])
def test_how_pictures_become_one_size_is_said_with_the_other_ways(rule: Any, word: str) -> None:
    pictures = ImageSurvey(Layout((), {}), ("cat", "dog"), (30, 10), 40, 8, 9, 3, most=38, resize=rule)
    feature = DecodeImage(8, 9, resize=rule)
    ((about, words),) = [note for note in notes(pictures, "d", [feature], BLESSING) if note[0] == "size"]
    assert (about, word in words, "8 x 9 px" in words) == ("size", True, True)
    others = {"stretch", "fit", "crop"} - {rule}
    assert all(other in words.partition("--resize")[2] for other in others)


def test_nothing_is_said_of_sizes_if_all_pictures_have_the_one_that_the_model_takes() -> None:
    pictures = ImageSurvey(Layout((), {}), ("cat", "dog"), (30, 10), 40, 8, 9, 3, most=40)
    assert "size" not in dict(notes(pictures, "d", [DecodeImage(8, 9)], BLESSING))
    assert "size" in dict(notes(pictures, "d", [DecodeImage(4, 4)], BLESSING))
