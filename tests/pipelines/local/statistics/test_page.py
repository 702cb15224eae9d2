"""Covers the tables of `figures` as well: both show the same."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from infeed.components.statistics.comparison import compare
from infeed.pipelines.local.statistics.figures import Figures, changes_table, columns_table, verdict
from infeed.pipelines.local.statistics.page import Bar, Chart, chart_of, comparison_page, split_page

EVIL = '<script>alert("x")</script>'


def text_of(table: Any, width: int = 200) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return [line.rstrip() for line in console.export_text().splitlines()]


class Balanced(HTMLParser):
    """Fails where a tag is closed that was not opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def check_page(page: str) -> None:
    parser = Balanced()
    parser.feed(page)
    assert parser.opened == []
    assert not re.search(r"<script|https?://|nan%|inf%", page)


def test_a_page_of_a_split_has_a_card_for_each_column(columns: Any) -> None:
    page = split_page("data", "train", columns(age=[1, 2, 2, None], city=["Bern", "Bern", EVIL, None]))
    check_page(page)
    assert "train: 4 rows; 2 columns" in page
    assert page.count('<section class="card">') == 2
    assert "<title>2: 67 %</title>" in page
    assert "&lt;script&gt;" in page


def test_columns_without_values_are_on_the_page_too(columns: Any) -> None:
    check_page(
        split_page("data", "train", columns(x=pa.array([[]], pa.list_(pa.int64())), y=[float("nan")], z=["a", "b"]))
    )
    check_page(split_page("data", "train", {}))


def test_a_page_of_a_comparison_begins_with_what_differs(columns: Any) -> None:
    before = columns(same=[1, 2], gone=[1, 2], moved=["a", "a"], retyped=[1])
    after = columns(same=[1, 2], new=[1, 2], moved=["b", "b"], retyped=["1"])
    page = comparison_page("data", {"train": before, "eval": after}, compare(before, after))
    check_page(page)
    assert "4 of 5 columns differ: gone, moved, new, retyped." in page
    assert re.findall(r'<span class="problem">(.*?)</span>', page) == ["lost", "new", "was int, is bytes", "differs"]
    assert re.findall(r'<span class="name">(.*?)</span>', page)[-1] == "same"
    assert "Two types cannot be drawn together." in page


def test_the_table_has_a_row_for_each_column(columns: Any) -> None:
    found = [Figures.of(one) for one in columns(age=[1, 2, 2, None], city=["Bern", "Bern", "Chur", ""]).values()]
    assert text_of(columns_table("column", found)) == [
        "column  type   missing  zeros  distinct  min  median    mean     std  max  most frequent",
        "age     int       25 %    0 %         2    1       2  1.6667  0.4714    2  2 (67 %)",
        "city    bytes      0 %   25 %         3  0 B             3 B          4 B  Bern (50 %)",
    ]


NAMES = ("duration_minutes", "fare_in_dollars", "company", "pickup_area", "payment_type", "was_shared")


@pytest.mark.parametrize("width", [60, 80, 100, 140, None])
def test_a_narrow_table_leaves_out_figures_and_no_names(columns: Any, width: int | None) -> None:
    rows = {name: [1.23456, 2000.5, 99999.9] if place % 2 else ["a" * 30] for place, name in enumerate(NAMES)}
    table = columns_table("column", list(map(Figures.of, columns(**rows).values())), width)
    head, *lines = text_of(table, width or 200)
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert max(len(line) for line in [head, *lines]) <= (width or 200)
    assert head.split()[:3] == ["column", "type", "missing"]
    assert ("std" in head, "zeros" in head) == ((True, True) if width in (140, None) else (False, width == 100))


def test_a_long_name_is_shortened_before_figures_are_cut_off(columns: Any) -> None:
    table = columns_table("column", [Figures.of(one) for one in columns(**{"n" * 90: [1, 2]}).values()], 80)
    head, line = text_of(table, 80)
    assert "max" in head
    assert line.startswith("n" * 12)
    assert "…" in line


def test_lists_and_odd_numbers_are_told_in_the_table(columns: Any) -> None:
    found = [Figures.of(one) for one in columns(x=[[1.0], [], [float("nan"), float("inf")]]).values()]
    (_, row) = text_of(columns_table("column", found))
    assert "0 to 2" in row
    assert row.endswith("1 (33 %), 1 NaN, 1 infinite")


def test_the_table_of_a_comparison_says_what_is_wrong(columns: Any) -> None:
    changes = compare(columns(x=["a", "a"], y=[1]), columns(x=["a", "b"]))
    assert text_of(changes_table(changes)) == [
        "column           distance  allowed  missing before  after  measure",
        "x       differs    0.5000      0.1             0 %    0 %  L-infinity, most of b",
        "x       differs    0.5000      0.1             0 %    0 %  new words: 50 % of the values",
        "y       lost                                   0 %",
    ]


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"x": [1]}, "none of 1 columns differs by more than its limit"),
        ({"x": ["a"]}, "1 of 1 columns differ: x"),
        ({f"x{number}": [1] for number in range(9)}, "10 of 10 columns differ"),
    ],
)
def test_the_verdict_names_few_columns(columns: Any, after: dict[str, list[Any]], words: str) -> None:
    assert verdict(compare(columns(x=[1]), columns(**after))) == words


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


def test_names_and_values_on_a_page_hold_no_control_characters(columns: Any) -> None:
    page = split_page("da\x1bta", "train", columns(**{"a\x1b[31mge\x07": [1, 2], "city": ["\u202egnp", "b"]}))
    assert not re.search("[\x07\x1b\u202e]", page)
    assert r"a\x1b[31mge\x07" in page
