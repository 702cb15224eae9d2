"""What a model is given for a cell depends on this cell alone."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.dataset.times import times_of
from infeed.components.evaluation.predictor import RawColumns
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.jsonl import JsonNumber
from infeed.pipelines.predict.cells import Cells, fit_cells


def spec(*, is_floating: bool = False, is_integer: bool = False) -> Any:
    dtype = SimpleNamespace(is_floating=is_floating, is_integer=is_integer)
    return SimpleNamespace(dtype=dtype, shape=SimpleNamespace(rank=1))


SPECS = {"n": spec(is_integer=True), "x": spec(is_floating=True), "word": spec()}


def fitted_as(known: RawColumns, column: Any) -> Cells:
    return fit_cells({"word": column}, len(column), {"word": SPECS["word"]}, CsvOptions(), (), known)


def fitted(name: str, column: Any, **texts: Any) -> Cells:
    return fit_cells({name: column}, len(column), {name: SPECS[name]}, CsvOptions(**texts))


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("1", 1), ("+1_000", 1000), ("9007199254740993", 9007199254740993), ("1e5", 100000), ("TRUE", 1), (None, None)],
)
def test_texts_are_whole_numbers_as_ingest_reads_them(cell: str | None, expected: int | None) -> None:
    found = fitted("n", pa.array([cell], pa.string()))
    assert found == Cells({"n": [expected]}, {}, {})


@pytest.mark.parametrize("cell", ["", "x", "NaN", "inf", "9223372036854775808", "1e40", "\u0661", "0x1F"])
def test_other_texts_are_no_whole_numbers(cell: str) -> None:
    found = fitted("n", pa.array([cell], pa.string()), nulls=())
    assert found == Cells({"n": []}, {0: f"column 'n': {cell!r} is not a whole number"}, {})


def test_a_fraction_is_rounded_with_a_note() -> None:
    for column in (pa.array(["2.5"]), pa.array([2.5]), [JsonNumber("2.5")]):
        found = fitted("n", column)
        assert (found.columns, found.wrong) == ({"n": [2]}, {})
        assert "2.5 is rounded to 2" in found.notes[0]


def test_numbers_with_separators_and_units_are_read_by_the_options() -> None:
    assert fitted("x", pa.array(["1.234,5", "7.5"]), decimal=",", thousands=".").columns == {"x": [1234.5, 7.5]}
    found = fitted("x", pa.array(["$1,234.5", "free"]), numbers={"x": "$1.5"})
    assert "'free' is not a number such as '$1.5'" in found.wrong[1]
    assert "'$1,234.5'" in found.wrong[0]  # the example has no thousands
    assert fitted("n", pa.array(["1.234"]), thousands=".", decimal=",").columns == {"n": [1234]}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["01234", "1.50", "1e5", "NaN", None]), ["01234", "1.50", "1e5", "NaN", ""]),
        (pa.array([b"\xff", None]), [b"\xff", ""]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (["01", None], ["01", ""]),
    ],
)
def test_words_are_what_is_written(column: Any, expected: list[Any]) -> None:
    assert fitted("word", column) == Cells({"word": expected}, {}, {})


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (pa.array([1234]), "1234"),
        ([JsonNumber("1234")], "1234"),
        (pa.array([True]), "true"),
        ([False], "false"),
        (pa.array([datetime.date(2024, 9, 28)]), "2024-09-28"),
        (pa.array([datetime.date(2024, 9, 28)], pa.date64()), "2024-09-28"),
    ],
)
def test_what_has_one_spelling_is_a_word_with_a_note(column: Any, word: str) -> None:
    found = fitted("word", column)
    assert (found.columns, found.wrong) == ({"word": [word]}, {})
    assert f"{column[0]} is read as the word {word!r}" in found.notes[0]


def test_a_boolean_is_spelled_as_in_training() -> None:
    known = RawColumns(("word",), {}, truths={"word": ("FALSE", "TRUE")})
    for column in (pa.array([True, None, False]), [True, None, False]):
        found = fitted_as(known, column)
        assert found.columns == {"word": ["TRUE", "", "FALSE"]}
        assert "'TRUE'" in found.notes[0]
        assert list(found.notes) == [0, 2]
    assert fitted_as(known, ["true", "x"]) == Cells({"word": ["true", "x"]}, {}, {})


@pytest.mark.parametrize(
    ("forms", "cells", "unread"),
    [
        (["iso"], ["2024-09-28", None, "28.09.2024", "foo", "2024-13-45", "2023-02-29", ""], [2, 3, 4, 5]),
        (["iso", "%d.%m.%Y"], ["2024-09-28", "28.09.2024", "28/09/2024"], [2]),
        (["iso"], [b"2024-09-28", b"\xff"], [1]),
    ],
)
def test_text_that_is_no_date_as_in_training_has_a_note(forms: list[str], cells: list[Any], unread: list[int]) -> None:
    found = fitted_as(RawColumns(("word",), {}, dates={"word": forms}), pa.array(cells))
    assert not found.wrong
    assert [place for place, note in found.notes.items() if "so it is missing" in note] == unread
    assert all(_shown(cells[place]) in found.notes[place] for place in unread)


@pytest.mark.parametrize(
    ("forms", "text"),
    [
        (["%d.%m.%Y", "iso"], "2024-09-28T05:06:07"),
        (["%d.%m.%Y"], "28.09.2024"),
        (["%m/%d/%y %H:%M"], "09/28/24 05:06"),
    ],
)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_in_a_text_column_of_dates_is_written_as_in_training(forms: list[str], text: str, unit: str) -> None:
    cells = pa.array([datetime.datetime(2024, 9, 28, 5, 6, 7), None], pa.timestamp(unit))
    found = fitted_as(RawColumns(("word",), {}, dates={"word": forms}), cells)
    assert found.columns == {"word": [text, ""]}
    assert f"read as the word {text!r}" in found.notes[0]
    assert list(found.notes) == [0]


def _shown(cell: Any) -> str:
    return repr(cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell))


def test_a_row_has_the_notes_of_all_its_columns() -> None:
    columns = {"n": pa.array([2.5]), "word": pa.array([7])}
    [note] = fit_cells(columns, 1, {name: SPECS[name] for name in columns}, CsvOptions()).notes.values()
    assert "column 'n': 2.5 is rounded" in note
    assert "column 'word': the number 7" in note


@pytest.mark.parametrize("text", ["2021-11-23", "2021-11-23 05:06:07.000008", "1969-12-31T23:59:59+02:00"])
@pytest.mark.parametrize("is_json", [True, False])
def test_the_text_of_a_date_in_a_column_of_integers_is_an_error_with_the_integer(text: str, is_json: bool) -> None:
    found = fitted("n", [text] if is_json else pa.array([text]))
    micros = int(times_of(pa.array([text])).micros[0])
    assert found.columns == {"n": []}
    assert f" {micros}," in found.wrong[0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5]),
        pa.array([1.0]),
        pa.array([Decimal("1.10")]),
        pa.array([datetime.datetime(2024, 1, 1)]),
        [JsonNumber("1.0")],
        [JsonNumber("1e5")],
        [{"a": "b"}],
    ],
)
def test_what_has_several_spellings_is_no_word(column: Any) -> None:
    found = fitted("word", column)
    assert found.columns == {"word": []}
    assert "is not text" in found.wrong[0]


def test_typed_numbers_dates_and_booleans_are_those_of_a_tf_example() -> None:
    assert fitted("n", pa.array([True, None, False])).columns == {"n": [1, None, 0]}
    assert fitted("n", pa.array([datetime.date(1970, 1, 2)])).columns == {"n": [86_400_000_000]}
    [missing, value] = fitted("x", pa.array([None, 0.5])).columns["x"]
    assert math.isnan(missing)
    assert value == 0.5


def test_items_of_lists_are_converted_and_a_null_among_them_is_an_error() -> None:
    found = fitted("x", [[JsonNumber("1"), "2.5"], [], None, [JsonNumber("1"), None], [[JsonNumber("1")]]])
    assert found.columns["x"][:2] == [[1.0, 2.5], []]
    assert math.isnan(found.columns["x"][2])
    assert found.wrong[3] == "column 'x': a list contains null"
    assert "is not a number" in found.wrong[4]


def test_the_first_wrong_cell_of_a_row_is_reported() -> None:
    columns = {"n": pa.array(["a", "1"]), "x": pa.array(["b", "1"])}
    found = fit_cells(columns, 2, {name: SPECS[name] for name in columns}, CsvOptions())
    assert found.columns == {"n": [1], "x": [1.0]}
    assert found.wrong == {0: "column 'n': 'a' is not a whole number"}
