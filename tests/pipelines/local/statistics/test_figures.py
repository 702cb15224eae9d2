from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from infeed.components.statistics.comparison import compare
from infeed.pipelines.local.statistics.figures import Figures, Top, about, label, shown


def test_a_column_of_numbers(columns: Any) -> None:
    found = Figures.of(columns(x=[0.0, 2.0, 2.0, None])["x"])
    assert (found.type, found.rows, found.missing, found.values) == ("float", 4, 0.25, 3)
    assert (found.minimum, found.median, found.maximum, found.distinct, found.is_exact) == (0, 2, 2, 2, True)
    assert (found.mean, found.std) == pytest.approx((4 / 3, 8**0.5 / 3))
    assert found.zeros == 1 / 3
    assert found.top == (Top("2", 2, 2 / 3), Top("0", 1, 1 / 3))


def test_of_text_lengths_are_told_and_values_too_long_are_taken_to_differ(columns: Any) -> None:
    found = Figures.of(columns(x=["ab", "abcd", "x" * 2_000, "y" * 2_000])["x"])
    assert (found.minimum, found.mean, found.maximum) == (2, 1001.5, 2_000)
    assert (found.median, found.std) == (None, None)
    assert (found.distinct, found.is_exact) == (4, False)


def test_what_is_no_number_is_counted_beside(columns: Any) -> None:
    found = Figures.of(columns(x=[float("nan"), float("inf"), float("inf"), 1.0])["x"])
    assert (found.nans, found.infinities, found.mean, found.maximum) == (1, 2, 1, 1)
    assert found.median is None  # it is infinite


@pytest.mark.parametrize("rows", [[None, None], [[], []]])
def test_a_column_without_values_has_figures_of_its_rows(columns: Any, rows: list[Any]) -> None:
    import pyarrow as pa

    found = Figures.of(columns(x=pa.array(rows, pa.list_(pa.int64())))["x"])
    assert (found.rows, found.values, found.minimum, found.mean, found.top) == (2, 0, None, None, ())


def test_figures_are_plain_data(columns: Any) -> None:
    assert json.loads(json.dumps(dataclasses.asdict(Figures.of(columns(x=["a"])["x"]))))["top"] == [
        {"value": "a", "count": 1, "share": 1.0}
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ""),
        (0.0, "0"),
        (12, "12"),
        (0.123456, "0.12346"),
        (1234.5678, "1234.6"),
        (123456.7, "123,457"),
        (1e15, "1e+15"),
        (-(2**62), "-4.6117e+18"),
    ],
)
def test_numbers_have_five_digits_or_are_whole(value: float | None, words: str) -> None:
    assert shown(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(b"Bern", "Bern"), (b"", "''"), (b" ", "' '"), (b"\xff\xfe", "2 bytes"), (b"x" * 50, f"{'x' * 37}..."), (3, "3")],
)
def test_values_fit_a_line(value: object, words: str) -> None:
    assert label(value) == words


def test_years_have_no_comma(columns: Any) -> None:
    years, counts = (Figures.of(one) for one in columns(year=[1893, 2005, 2005], count=[1893, 2005, 20_000]).values())
    assert (years.shown(years.maximum), years.top[0].value) == ("2005", "2005")
    assert counts.shown(counts.minimum) == "1,893"


def test_a_comparison_is_plain_data(columns: Any) -> None:
    (found,) = map(about, compare(columns(x=["a", "a"]), columns(x=["a", None])))
    assert found == {
        "name": "x",
        "problem": "differs",
        "measure": "L-infinity",
        "distance": 0.0,
        "threshold": 0.1,
        "most": "a",
        "missing": [0.0, 0.5],
        "differences": [
            {"measure": measure, "distance": distance, "threshold": 0.1, "change": change, "exceeds": distance > 0.1}
            for measure, distance, change in (
                ("missing", 0.5, "0 % -> 50 % of the rows"),
                ("lengths", 0.0, "1 -> 1 values a row"),
                ("new_words", 0.0, "0 % of the values"),
                ("lost_words", 0.0, "0 % of the earlier values"),
            )
        ],
    }
    (lost,) = map(about, compare(columns(x=["a"]), {}))
    assert (lost["problem"], lost["measure"], lost["threshold"], lost["missing"]) == ("lost", None, None, [0.0, None])
