"""How long a config that leaves it open trains, and in what batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.example_gen.sources.folders import FileRef
from infeed.pipelines.project.decisions import choose_schedule
from infeed.pipelines.surveys import ColumnSurvey, ImageSurvey, Layout, TableSurvey

LABEL = ColumnSurvey("y", "int", 100, 0, 2, 0.5, 0.5, 60)


def table(rows: int) -> TableSurvey:
    return TableSurvey((), LABEL, "regression", rows)


def pictures(train: int, evaluation: int, splits: dict[str, str]) -> ImageSurvey:
    folders = ["training"] * train + ["val"] * evaluation
    refs = tuple(FileRef("/data", f"{folder}/cat/{number}.png", 1, "cat") for number, folder in enumerate(folders))
    return ImageSurvey(Layout(refs, splits), ("cat",), (len(refs),), len(refs), 8, 8, 3, len(refs))


SPLIT = {"train": "training/*/*", "eval": "val/*/*"}


@pytest.mark.parametrize(
    ("rows", "batch_size", "epochs", "patience"),
    [
        (569, 64, 100, 33),
        (6_667, 64, 28, 9),
        (66_667, 512, 23, 8),
        (1_000_000, 1024, 10, 3),
        (100_000_000, 1024, 10, 3),
    ],
)
def test_many_rows_are_trained_on_in_larger_batches_and_fewer_epochs(
    rows: int, batch_size: int, epochs: int, patience: int
) -> None:
    chosen, _ = choose_schedule(table(rows), rows, {})
    assert chosen == {"batch_size": batch_size, "epochs": epochs, "patience": patience}


@pytest.mark.parametrize(
    ("rows", "batch_size", "epochs", "patience"),
    [
        (80, 64, 100, 33),  # an epoch is one step
        (400, 64, 33, 11),
        (1_198, 64, 20, 7),
        (60_000, 256, 12, 4),
        (1_000_000, 256, 10, 3),
    ],
)
def test_pictures_are_trained_on_in_smaller_batches_and_for_two_hundred_steps_where_they_are_few(
    rows: int, batch_size: int, epochs: int, patience: int
) -> None:
    chosen, _ = choose_schedule(pictures(1, 1, SPLIT), rows, {})
    assert chosen == {"batch_size": batch_size, "epochs": epochs, "patience": patience}


@given(rows=st.integers(20, 10**9), more=st.integers(0, 10**9))
def test_more_rows_never_mean_smaller_batches_or_more_epochs_than_the_bounds(rows: int, more: int) -> None:
    chosen = [choose_schedule(table(number), number, {})[0] for number in (rows, rows + more)]
    few, many = (one["batch_size"] for one in chosen)
    assert few <= many
    assert {few & (few - 1), many & (many - 1)} == {0}  # powers of two
    assert all(64 <= one["batch_size"] <= 1024 and 10 <= one["epochs"] <= 100 for one in chosen)


def test_the_choice_is_told_with_its_reason(golden: Callable[..., None]) -> None:
    given = ({}, {"batch_size": 64, "epochs": 2})
    golden("schedules.txt", "".join(f"{choose_schedule(table(100_000), 66_667, one)[1]}\n" for one in given))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"batch_size": 64}, {"batch_size": 64, "epochs": 10, "patience": 3}),
        ({"epochs": 7}, {"batch_size": 512, "epochs": 7, "patience": None}),  # as many as were asked for
        ({"epochs": 7, "patience": 1}, {"batch_size": 512, "epochs": 7, "patience": 1}),
        ({"patience": None}, {"batch_size": 512, "epochs": 23, "patience": None}),
        ({"epochs": None, "strategy": "auto"}, {"batch_size": 512, "epochs": 23, "patience": 8, "strategy": "auto"}),
        ({"epochs": "ten"}, {"batch_size": 512, "epochs": "ten", "patience": None}),  # TrainOptions refuses it
    ],
)
def test_what_is_given_wins(said: dict[str, Any], expected: dict[str, Any]) -> None:
    assert choose_schedule(table(100_000), 66_667, said)[0] == expected
