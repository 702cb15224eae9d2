from __future__ import annotations

from typing import Any

import pytest

from infeed.pipelines.statistics.page import Bar, Chart, chart_of

INF = float("inf")


def test_few_whole_numbers_have_a_bar_each(columns: Any) -> None:
    found = chart_of([columns(x=[1, 1, 3, 2])["x"]])
    assert found == Chart(True, (Bar("1", (0.5,)), Bar("2", (0.25,)), Bar("3", (0.25,))), ("1", "3"))
    assert found.highest == 0.5


def test_numbers_have_bars_of_one_width(columns: Any) -> None:
    found = chart_of([columns(x=[float(number) for number in range(240)])["x"]])
    assert found is not None
    assert found.ends == ("0", "239")
    assert [bar.shares[0] for bar in found.bars] == pytest.approx([1 / 24] * 24)
    assert (found.bars[0].label, found.bars[-1].label) == ("up to 9.9583", "above 229.04")


def test_a_long_tail_is_in_the_last_bar_and_the_axis_says_so(columns: Any) -> None:
    found = chart_of([columns(x=[*map(float, range(1_000)), 1e9])["x"]])
    assert found is not None
    assert found.ends == ("≤ 10", "≥ 990")
    assert sum(bar.shares[0] for bar in found.bars) == pytest.approx(1)


def test_of_text_the_frequent_values_are_drawn_and_the_others_together(columns: Any) -> None:
    found = chart_of([columns(x=["a"] * 6 + ["b"] * 2 + [f"once {number}" for number in range(12)])["x"]])
    assert found is not None
    assert not found.upright
    assert found.bars[:2] == (Bar("a", (0.3,)), Bar("b", (0.1,)))
    assert found.bars[-1].label == "all others"
    assert sum(bar.shares[0] for bar in found.bars) == pytest.approx(1)


def test_two_sides_have_the_same_bars(columns: Any) -> None:
    numbers = chart_of([columns(x=[1, 2])["x"], columns(x=[2, 4])["x"]])
    assert numbers is not None
    assert [bar.shares for bar in numbers.bars] == [(0.5, 0), (0.5, 0.5), (0, 0), (0, 0.5)]
    texts = chart_of([columns(x=["a", "a"])["x"], columns(x=["b", "b", "a", "a"])["x"]])
    assert texts == Chart(False, (Bar("a", (1.0, 0.5)), Bar("b", (0.0, 0.5))))


def test_a_constant_is_one_bar_that_says_its_value(columns: Any) -> None:
    assert chart_of([columns(x=[3.5, 3.5, INF])["x"]]) == Chart(False, (Bar("3.5", (1.0,)),))


@pytest.mark.parametrize(
    "sides", [[["a", "b", "c"]], [[float("nan")]], [[INF, -INF]], [["x" * 2_000] * 2], [[1], ["a"]]], ids=str
)
def test_what_cannot_be_drawn_has_no_chart(columns: Any, sides: list[list[Any]]) -> None:
    assert chart_of([columns(x=side)["x"] for side in sides]) is None
