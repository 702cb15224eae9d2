"""Which rows train, stop and are scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import ByColumns, ByLabel, ByRecord, ByTime
from infeed.pipelines.project.ingest_settings import read_ingest
from infeed.pipelines.project.splits import choose_shares, shares_of, splits_note, stratified, trained_on, with_seed
from infeed.pipelines.surveys import ColumnSurvey, Repeats, TableSurvey

LABEL = ColumnSurvey("y", "int", 100, 0, 2, 0.5, 0.5, 60)


def table(rows: int, *class_rows: int, **more: Any) -> TableSurvey:
    task: Any = "classification" if class_rows else "regression"
    classes = tuple(map(str, range(len(class_rows))))
    return TableSurvey((), LABEL, task, rows, classes=classes, class_rows=class_rows, **more)


@pytest.mark.parametrize(
    ("rows", "shares"),
    [
        (25, {"train": 10, "eval": 5, "test": 5}),
        (569, {"train": 12, "eval": 4, "test": 4}),
        (5_000, {"train": 14, "eval": 3, "test": 3}),
        (100_000, {"train": 16, "eval": 2, "test": 2}),
        (10**8, {"train": 18, "eval": 1, "test": 1}),
    ],
)
def test_few_rows_are_held_out_in_larger_shares(rows: int, shares: dict[str, int]) -> None:
    assert choose_shares(rows, []) == shares


@given(rows=st.integers(20, 10**9), more=st.integers(0, 10**9))
def test_rows_that_train_are_never_held_out_later_as_a_table_grows(rows: int, more: int) -> None:
    few, many = choose_shares(rows, []), choose_shares(rows + more, [])
    assert sum(few.values()) == sum(many.values()) == 20
    assert few["train"] <= many["train"]
    assert few["test"] >= many["test"]


def test_splits_with_files_of_their_own_leave_train_its_rows() -> None:
    assert choose_shares(500, ["train", "test"]) == {"train": 16, "eval": 4}
    assert choose_shares(500, ["train", "eval"]) == {"train": 16, "test": 4}
    assert choose_shares(500, ["train", "eval", "test"]) == {}


def test_a_class_that_the_hash_might_miss_is_divided_exactly() -> None:
    def rule(survey: TableSurvey, options: IngestOptions | None = None) -> Any:
        return stratified(survey, "y", choose_shares(survey.rows, []), options or IngestOptions()).split_by

    assert rule(table(500, 490, 10)) == ByLabel("y")
    assert rule(table(25, 13, 12)) == ByLabel("y")
    assert rule(table(500, 300, 200)) is None  # the hash of TFX, which needs no second look at the rows
    assert rule(table(900, *[2] * 450)) is None  # of two rows a class, none would be scored
    assert rule(table(500)) is None
    assert rule(table(500, 490, 10), IngestOptions(split_by=ByColumns(("user",)))) == ByColumns(("user",))
    assert rule(table(500, 490, 10), IngestOptions(shuffle_seed=None)) is None


def test_rows_of_a_few_categories_are_divided_by_the_label() -> None:
    """The hash keeps equal rows in one split, so the largest group of them would be all in train or all in test."""
    shares = choose_shares(1_316, [])
    few = replace(table(1_316, 816, 500), repeats=Repeats(1_316, effective=7.3))
    assert stratified(few, "y", shares, IngestOptions()).split_by == ByLabel("y")
    assert stratified(few, "y", shares, IngestOptions(split_by=ByRecord("b"))).split_by == ByRecord("b")
    many = replace(few, repeats=Repeats(1_316, effective=700))
    assert stratified(many, "y", shares, IngestOptions()).split_by is None


@pytest.mark.parametrize(
    ("repeats", "told"),
    [(Repeats(1_316, expected=700), True), (Repeats(1_316), False), (Repeats(500, expected=2), False)],
)
def test_equal_rows_that_a_stratified_split_divides_are_counted(repeats: Repeats, told: bool) -> None:
    survey, shares = replace(table(1_316, 816, 500), repeats=repeats), choose_shares(1_316, [])
    assert (f"{repeats.expected:,} of" in splits_note(survey, shares, IngestOptions(split_by=ByLabel("y")))[1]) is told
    assert "equal another" not in splits_note(survey, shares, IngestOptions())[1]


def test_few_rows_are_divided_exactly_by_their_hash() -> None:
    shares, hashed = {"train": 10, "eval": 5, "test": 5}, IngestOptions()
    exact = stratified(table(32), "y", shares, hashed)
    assert exact.split_by == ByRecord("", exact=True)
    assert "8 rows for scoring" in splits_note(table(32), shares, exact)[1]
    assert "about" not in splits_note(table(32), shares, exact)[1]
    assert stratified(table(30, *[2] * 15), "y", shares, hashed).split_by == ByRecord("", exact=True)
    salted = replace(hashed, split_by=ByRecord("b"))
    assert stratified(table(32), "y", shares, salted).split_by == ByRecord("b", exact=True)
    assert stratified(table(500), "y", shares, salted) == salted
    assert stratified(table(900, rows_of={"train": 32}), "y", shares, hashed).split_by == ByRecord("", exact=True)
    ordered = replace(hashed, shuffle_seed=None)
    assert stratified(table(32), "y", shares, ordered) == ordered
    assert stratified(table(32), "y", {}, hashed) == hashed


def asked_for(survey: TableSurvey, **given: Any) -> dict[str, int]:
    settings = read_ingest(given)
    return shares_of(survey, settings, settings.options)


def test_splits_that_are_asked_for_win() -> None:
    assert asked_for(table(500), split={"train": 2, "eval": 1}) == {"train": 2, "eval": 1}
    files = table(500, patterns={"train": "train/*", "test": "test/*"})
    assert asked_for(files, split=["train=3", "eval"]) == {"train": 3, "eval": 1}
    both = table(500, patterns={"train": "train/*", "eval": "val/*"})
    assert asked_for(both, split=["train"]) == {"train": 1}  # and no test


def test_cuts_in_time_make_one_split_more() -> None:
    assert list(asked_for(table(500), split_time="day", cut="2020-06-01")) == ["train", "eval"]
    assert list(asked_for(table(500), split_time="day", cut=["2020-06-01", "2020-07-01"])) == ["train", "eval", "test"]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"split": {"a": 1, "b": 1}}, "'a'"),
        ({"split": {"train": 1, "test": 1}}, "'eval'"),
        ({"split_time": "day"}, "requires cut"),
        ({"split_time": "day", "cut": ["1", "2", "3"]}, "3 cuts"),
        ({"balance": "y", "balance_split": "eval"}, "'eval'"),
    ],
)
def test_splits_that_a_run_cannot_use_are_refused(given: dict[str, Any], word: str) -> None:
    with pytest.raises(InfeedError, match=word):
        asked_for(table(500), **given)


def test_files_that_are_splits_cannot_be_split_otherwise() -> None:
    whole = table(500, patterns={"train": "train.csv", "eval": "val.csv", "test": "test.csv"})
    for said in ({"split": {"train": 1, "eval": 1}}, {"split_by": "user"}):
        with pytest.raises(InfeedError, match=r"val\.csv"):
            asked_for(whole, **said)


def test_the_rows_to_train_on_are_a_share_of_those_that_are_divided() -> None:
    assert trained_on(table(300), {"train": 2, "eval": 1}) == 200
    assert trained_on(table(300, rows_of={"train": 200}), {"train": 16, "eval": 4}) == 160
    assert trained_on(table(300, rows_of={"train": 200}), {}) == 200


@pytest.mark.parametrize(
    ("given", "shares", "seed", "right"),
    [
        ({}, {"train": 1}, 7, {"split_by": ByRecord("7"), "shuffle_seed": 7}),
        ({}, {}, 7, {"shuffle_seed": 7}),  # the files are the splits
        ({"split_by": ByColumns(("u",))}, {"train": 1}, 7, {"split_by": ByColumns(("u",), "7"), "shuffle_seed": 7}),
        ({"split_by": ByColumns(("u",), "b"), "shuffle_seed": 3}, {"train": 1}, 7, {}),
        ({"split_by": ByRecord("b"), "shuffle_seed": None}, {"train": 1}, 7, {}),
        ({"split_by": ByLabel("y")}, {"train": 1}, 7, {"shuffle_seed": 7}),
        (
            {"split_by": ByRecord("", exact=True)},
            {"train": 1},
            7,
            {"split_by": ByRecord("7", exact=True), "shuffle_seed": 7},
        ),
        ({}, {"train": 1}, 0, {}),
    ],
)
def test_another_seed_divides_and_shuffles_otherwise(
    given: dict[str, Any], shares: dict[str, int], seed: int, right: dict[str, Any]
) -> None:
    assert with_seed(IngestOptions(**given), seed, shares) == IngestOptions(**{**given, **right})


def test_the_note_says_what_each_split_is_for_and_warns_of_few_rows() -> None:
    shares = {"train": 12, "eval": 4, "test": 4}
    assert splits_note(table(1_000), shares, IngestOptions()) == (
        "splits",
        "train (60%): trained on; eval (20%): decides when training stops; test (20%): scored once, at the end",
    )
    assert "about 12 rows" in splits_note(table(60), shares, IngestOptions())[1]
    assert "inflated" in splits_note(table(900), {"train": 2, "eval": 1}, IngestOptions())[1]
    by_time = IngestOptions(split_by=ByTime("day", ("2020-01-01", "2020-02-01")))
    assert "time in day" in splits_note(table(900), shares, by_time)[1]


def test_the_note_names_the_files_of_a_split() -> None:
    patterns = {"train": "train/*", "test": "test.csv"}
    words = splits_note(
        table(900, rows_of={"train": 600, "test": 300}, patterns=patterns), {"train": 16, "eval": 4}, IngestOptions()
    )[1]
    assert words.startswith("train (80% of train/): ")
    assert "test (test.csv): " in words
