"""Which text columns are read as numbers by default, and what is advised for the others."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from infeed.pipelines.project.number_columns import NumberColumn, number_columns, read_as, remark, shapes_of

PRICES = ["3,356.21", "12.50", "1,000,000.00", "-7.25"]


def german(cells: list[str]) -> list[str]:
    return [cell.translate(str.maketrans(",.", ".,")) for cell in cells]


def found(source: Any = "csv", settings: dict[str, Any] | None = None, **columns: list[str]) -> dict[str, NumberColumn]:
    arrays = [pa.array(cells, pa.string()) for cells in columns.values()]
    most = max(map(len, arrays))
    arrays = [pa.concat_arrays([array, pa.nulls(most - len(array), pa.string())]) for array in arrays]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    return number_columns(shapes_of(batch), source, settings or {})


def read(source: Any = "csv", settings: dict[str, Any] | None = None, **columns: list[str]) -> dict[str, str]:
    return read_as(found(source, settings, **columns))


@pytest.mark.parametrize(
    ("cells", "example"),
    [
        (PRICES, "1,234.5"),
        (["$" + cell for cell in PRICES], "$1,234.5"),
        (["US$ 5", "US$ 1,200"], "US$1,234.5"),
        ([cell + " €" for cell in german(PRICES)], "1.234,5€"),
        (["CHF 1'200.50", "CHF 3.00"], "CHF 1'234.5"),
        (["45%", "7.5 %", "100%"], "1234.5%"),
        (["12 kg", "7.5 kg"], "1234.5 kg"),
        (["12kg", "7.5kg"], "1234.5 kg"),
        (["36 months", "60 months"], "1234.5 months"),
        (["(1,200.00)", "3,400.50"], "1,234.5"),
        (["1,200", "35,000", "900"], "1,234.5"),
        (["1 200,50", "12,00"], "1 234,5"),
        (["45 000", "52 000"], "1 234.5"),
        (["12,50", "3,99"], "1234,5"),
        (["0,125", "1,250"], "1234,5"),
    ],
)
def test_a_column_whose_cells_agree_is_read_by_default(cells: list[str], example: str) -> None:
    assert read(x=cells) == {"x": example}


@pytest.mark.parametrize(
    "cells",
    [
        ["007", "012,5"],
        ["01234-5678", "12345-6789"],
        ["555 123 456", "555 987 654"],
        ["+49 170 123 456", "+49 171 654 321"],
        ["192.168.100.200", "192.168.100.201"],
        ["192.168.1.1", "10.0.0.1"],
        ["1.2.3", "1.10.2"],
        ["2024-01-02", "2024-01-03"],
        ["01.02.2024", "03.12.2024"],
        ["1/2/2024", "12/3/2024"],
        ["12:30", "9:45"],
        ["A123", "A124"],
        ["Q1", "Q2"],
        ["12A", "13A"],
        ["room 12", "room 13"],
        ["$5", "€5"],
        ["5%", "5"],
        ["12 kg", "12 lb"],
        ["1,3", "2", "1,2,4"],
        ["1,2", "3,4"],
        ["4111 1111 1111 1111", "5500 0000 0000 0004"],
        ["word", "another"],
    ],
)
def test_codes_dates_and_mixed_units_stay_text(cells: list[str]) -> None:
    assert read(x=cells) == {}


@pytest.mark.parametrize(
    ("delimiter", "cells", "ways"),
    [
        (";", ["1,234", "2,500"], ["--set thousands=,", "--set decimal=,"]),
        (",", ["1.234 €", "2.500 €"], ["1234.5€", "1.234,5€"]),
    ],
)
def test_signs_that_may_mean_either_are_left_to_the_user(delimiter: str, cells: list[str], ways: list[str]) -> None:
    one = found(settings={"delimiter": delimiter}, x=cells)["x"]
    assert not one.settled
    assert all(way in one.advice("csv", {}) for way in ways)


def test_another_column_may_settle_it() -> None:
    assert read(settings={"delimiter": ";"}, x=["1,234", "2,500"], y=PRICES)["x"] == "1,234.5"
    assert read(settings={"delimiter": ";"}, x=["1,234", "2,500"], y=german(PRICES))["x"] == "1234,5"


def test_pairs_are_numbers_where_cells_are_not_separated_by_commas() -> None:
    assert read(settings={"delimiter": ";"}, x=["1,2", "3,4"]) == {"x": "1234,5"}


def test_a_cell_that_does_not_agree_leaves_the_column_and_is_counted() -> None:
    one = found(x=[*PRICES * 3, "call us", "call us"])["x"]
    assert not one.settled
    advice = one.advice("csv", {})
    assert re.match("6 of 14 cells look like '1,000,000.00', and 2 such as 'call us'", advice)
    assert "--set thousands=," in advice
    assert """--set 'nulls=["", "call us"]'""" in advice
    assert """--set 'types={"x": "float"}' --on-bad-row reject""" in advice


def test_units_are_advised_by_an_example() -> None:
    assert """--set 'numbers={"x": "$1,234.5"}'""" in found(x=["$5", "$1,200", "free"])["x"].advice("csv", {})


def test_other_formats_than_csv_are_advised_by_an_example() -> None:
    assert """--set 'numbers={"x": "1,234.5"}'""" in found("jsonl", x=[*PRICES, "n/a"])["x"].advice("jsonl", {})


def test_plain_numbers_with_some_words_are_advised_too() -> None:
    advice = found(x=["1", "2.5", "3", "n/a"])["x"].advice("csv", {"nulls": ["", "-"]})
    assert advice.startswith("3 of 4 cells are numbers, and 1 such as 'n/a'")
    assert """--set 'nulls=["", "-", "n/a"]'""" in advice


@pytest.mark.parametrize("settings", [{"types": {"x": "bytes"}}, {"numbers": {"x": None}}])
def test_what_the_user_says_of_a_column_wins(settings: dict[str, Any]) -> None:
    assert read(settings=settings, x=PRICES) == {}


def test_text_that_json_says_is_text_stays_so_without_a_format() -> None:
    assert read("jsonl", zip=["12345", "23456"]) == {}


def test_the_remark_names_the_columns_and_the_way_back() -> None:
    columns = found(x=PRICES, y=["45%", "7%"])
    words = remark(columns, list(read_as(columns)))
    assert all(part in words for part in ("x (4 cells such as '1,000,000.00')", "y (2 cells", '"x": null'))
    assert remark(columns, []) == ""


def test_the_remark_shows_a_few_columns_and_counts_the_others() -> None:
    columns = found(**{f"x{number}": PRICES for number in range(17)})
    words = remark(columns, list(read_as(columns)))
    assert "13 more" in words
    assert words.count("cells such as") == 4
