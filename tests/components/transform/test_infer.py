"""Features that statistics call for, with the reasons."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import features_from_json, features_to_json
from infeed.components.transform.infer import MAX_VOCABULARY, OWN_VALUE, Proposal, infer_features, infer_task, look_at
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore

RNG = np.random.default_rng(4)


def statistics(**columns: Any) -> dict[str, ColumnStatistics]:
    arrays = {name.replace("__", "/"): v if isinstance(v, pa.Array) else pa.array(v) for name, v in columns.items()}
    return {name: ColumnStatistics.of(name, array) for name, array in arrays.items()}


def proposals(label: str | None = None, **columns: Any) -> list[Proposal]:
    found = statistics(**columns)
    return infer_features({name: column.type for name, column in found.items()}, found, label)


def proposal(values: Any) -> Proposal:
    [found] = proposals(x=values)
    return found


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([None] * 5, pa.float32()), "it is empty"),
        (pa.array([math.nan, math.inf, None], pa.float32()), "it is empty"),
        (pa.array([7.5] * 9 + [None] * 391, pa.float32()), "only 9 of 400 rows have a value"),
        (pa.array(["x", *[None] * 20]), "only 1 of 21 rows have a value"),
        ([3] * 30, "every row has the same value"),
        (["a"] * 30, "every row has the same value"),
        (list(range(7, 37)), "it numbers the rows"),
        (list(range(36, 6, -1)), "it numbers the rows"),
        ([f"id{n}" for n in range(300)], "nearly every row has a distinct value"),
        ([str(n) for n in range(300)] + ["n/a"], "'n/a' in it is not a number"),
        ([bytes([255, n]) for n in range(200)], "it holds bytes that are not text"),
    ],
)
def test_a_column_is_left_out_for_a_reason(values: Any, reason: str) -> None:
    found = proposal(values)
    assert (found.features, found.reason) == ((), reason)


def test_whether_there_is_a_value_is_something_to_learn_from() -> None:
    assert proposal([3.5, None, 3.5]).features == (ZScore("x", output="x"),)


def test_numbers_are_scaled_and_words_have_indices() -> None:
    found = proposals(age=RNG.normal(size=50), city=["Bern", "Chur"] * 25, few=[1, 2, 2, 5] * 10)
    assert [one.features for one in found] == [
        (ZScore("age", output="age"),),
        (Vocabulary("city", output="city", size=MAX_VOCABULARY),),
        (ZScore("few", output="few"),),
    ]
    assert [one.reason for one in found] == [
        "it holds numbers, which are scaled",
        "it holds words, which become indices",
        "it holds numbers, which are scaled",
    ]


def test_more_rows_than_values_that_are_counted_one_by_one() -> None:
    assert proposal(np.arange(25_000)).reason == "it numbers the rows"
    assert proposal(RNG.permutation(25_000) * 3).features == (ZScore("x", output="x"),)
    assert "too many" in proposal([f"id {n}" for n in range(25_000)]).reason


@pytest.mark.parametrize(
    ("dates", "form", "parts"),
    [
        ([f"2024-{m:02}-{d:02}" for m in (1, 2, 3) for d in range(1, 28)], "iso", ["days", "month", "weekday"]),
        ([f"{d}.1.2024 0{d % 9}:30" for d in range(1, 30)], "%d.%m.%Y %H:%M", ["days", "month", "weekday", "hour"]),
        ([f"1/{d}/2024" for d in range(1, 30)], "%m/%d/%Y", ["days", "month", "weekday"]),
    ],
)
def test_dates_become_their_parts(dates: list[str], form: str, parts: list[str]) -> None:
    found = proposal(dates)
    assert [feature.output_name for feature in found.features] == [f"x_{part}" for part in parts]
    assert [feature.clean for feature in found.features] == [(DatePart(part, form),) for part in parts]  # type: ignore[arg-type]
    assert found.reason.startswith("it holds dates such as ")


def test_dates_whose_day_may_be_the_month_are_left_to_their_author() -> None:
    found = proposal([f"{d % 12 + 1}/{d % 11 + 1}/{1800 + d}" for d in range(200)])
    assert found.features == ()
    assert "or set its format with DatePart" in found.advice


def test_sentences_become_words() -> None:
    [feature] = proposal([f"the plot of film {n} was thin" for n in range(200)]).features
    assert feature == Vocabulary("x", output="x", size=MAX_VOCABULARY, clean=(LowerCase(), Tokens()), length=64)
    assert (
        proposal(["the same four words", "or another four words"] * 50).reason == "it holds words, which become indices"
    )


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([f"I liked film {n} very much" for n in range(12_000)], "it holds sentences"),
        (
            [f"2024-01-{1 + n % 28:02} {n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}" for n in range(12_000)],
            "it holds dates",
        ),
        ([f"id{n}" for n in range(12_000)], OWN_VALUE),
        ([*map(str, range(12_000)), "n/a"], "'n/a' in it is not a number"),
    ],
)
def test_values_of_some_rows_show_what_more_values_than_are_counted_mean(values: list[str], reason: str) -> None:
    found = statistics(x=values)
    assert not len(found["x"].counts.values)
    some = [value.encode() for value in (*values[::100], values[-1])]
    [by_values] = infer_features({"x": "bytes"}, found, values={"x": some})
    assert reason in by_values.reason


def test_texts_of_which_each_row_has_its_own_are_kept_as_sentences() -> None:
    found = statistics(x=[f"title{n}" for n in range(300)])
    [skipped] = infer_features({"x": "bytes"}, found)
    [kept] = infer_features({"x": "bytes"}, found, keep=["x"])
    assert (skipped.reason, skipped.features) == (OWN_VALUE, ())
    assert isinstance(kept.features[0].steps[1], Tokens)


def test_texts_too_long_to_be_counted_are_sentences() -> None:
    assert "it holds sentences" in proposal([f"word {n} " * 300 for n in range(200)]).reason


def test_lists_of_categories_and_of_as_many_numbers() -> None:
    tags = proposal([["a", "b"], ["a"], []])
    assert tags.features == (Vocabulary("x", output="x", size=MAX_VOCABULARY, values="all", length=2),)
    places = proposal([[0.5, 1.5, 2.5], [1.0, 2.0, 4.0]])
    assert places.features == (ZScore("x", output="x", values="by_position", length=3),)
    ragged = proposal([[0.5], [1.0, 2.0]])
    assert (ragged.features, ragged.reason) == ((), "its rows hold lists of 1 to 2 numbers")
    assert "length" in ragged.advice


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["no", "yes"] * 20, "classification"),
        ([0, 1] * 20, "classification"),
        (list(range(40)), "regression"),
        ([0.0, 1.0, math.nan] * 20, "classification"),
        ([float(n % 20) for n in range(60)], "classification"),
        ([float(n % 21) for n in range(63)], "regression"),
        ([0.5, 1.0], "regression"),
        ([191, 189, 193, 162, 189, 182, 211, 167, 176, 154, 169, 138], "regression"),  # weights of people
        ([1, 2, 3, 2, 1, 3], "classification"),
        ([0, 1], "classification"),
    ],
)
def test_the_task_is_told_from_the_label(values: Any, task: Any) -> None:
    found = proposals(label="y", x=RNG.normal(size=len(values)), y=values)
    assert found[1].features == (Label("y", task=task),)
    assert infer_task(statistics(y=values)["y"]) == task


def test_outputs_have_no_slash_and_are_all_different() -> None:
    numbers = RNG.normal(size=30)
    dates = [f"2024-01-{d:02}" for d in range(1, 31)]
    found = proposals(label="a_c", a__b=numbers, a_b=numbers, a__c=numbers, a_c=[0, 1] * 15, d_days=numbers, d=dates)
    outputs = [feature.output_name for one in found for feature in one.features]
    assert outputs == ["a_b_", "a_b", "a_c_", "a_c", "d_days", "d_days_", "d_month", "d_weekday"]


def test_a_column_without_statistics_is_empty() -> None:
    assert infer_features({"x": "float"}, {}) == [Proposal("x", (), "it is empty")]


def test_what_is_proposed_travels_as_plain_data() -> None:
    found = proposals(
        label="y",
        n=RNG.normal(size=30),
        d=[f"2024-01-{d:02}" for d in range(1, 31)],
        t=[["a"], ["b", "c"]] * 15,
        y=[0, 1] * 15,
    )
    features: list[Feature] = [feature for one in found for feature in one.features]
    assert features_from_json(features_to_json(features)) == features


@pytest.mark.parametrize(
    ("values", "looks", "example", "form"),
    [
        ([], "", "", ""),
        (["red", "green", "dark blue"], "", "", ""),
        (["not at all satisfied", "somewhat satisfied"], "", "", ""),
        (["the plot was very thin", "I liked every minute of it"], "sentences", "the plot was very thin", ""),
        (["1", "2.5", "NA"], "numbers", "NA", ""),
        (["1", "2"], "", "", ""),  # numbers that the file says are text
        (["2024-01-02", "2024-01-03 10:00:00"], "dates", "2024-01-02", "iso"),
        (["1/12/2024", "13/1/2024"], "dates", "1/12/2024", "%d/%m/%Y"),
        (["1/12/2024", "3/1/2024"], "dates", "1/12/2024", ""),  # December or the 12th
        (["31-12-24"], "dates", "31-12-24", ""),
        (["$1,200.50", "$3"], "amounts", "$1,200.50", ""),
        (["12 %", "7 %", "3 %"], "amounts", "12 %", ""),
        (["1.200,50 EUR", "12,5"], "", "", ""),
        (["A1", "B2"], "", "", ""),
        (["\udcff"], "", "", ""),
    ],
)
def test_what_values_look_like(values: list[str], looks: str, example: str, form: str) -> None:
    assert look_at([value.encode("utf-8", "surrogateescape") for value in values])[:3] == (looks, example, form)


@pytest.mark.parametrize(
    ("values", "has_nulls", "nulls"),
    [
        (["1", "2.5", "B2"], True, '["", "B2"]'),
        (["1", "2", "3", "4", "A1", "B2"], True, ""),
        (["1", "2", "3", "4", "True", "B2"], True, ""),
        (["1", "2.5", "B2"], False, ""),
    ],
)
def test_one_word_beside_numbers_may_mean_a_missing_value(values: list[str], has_nulls: bool, nulls: str) -> None:
    (found,) = infer_features({"x": "bytes"}, statistics(x=values * 50), has_nulls=has_nulls)
    assert bool(found.advice) is bool(nulls)
    assert nulls in found.advice
