"""Which text columns are read as numbers by default, and what is advised for the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.number_columns import CellShapes, NumberColumn, number_columns, read_as, remark, shapes_of
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.project.survey import survey_table
from infeed.pipelines.surveys import TableSurvey

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


def shapes(cells: list[str | None]) -> CellShapes:
    return shapes_of(pa.RecordBatch.from_arrays([pa.array(cells, pa.string())], names=["x"]))["x"]


def test_digits_are_counted_by_shape_with_the_first_example() -> None:
    found = shapes(["$3,356.21", "$4,100.00", "0.5", "n/a", None])
    assert found.shapes == {"$9,999.99": (2, "$3,356.21"), "0.9": (1, "0.5")}
    assert found.others == {"n/a": 1}
    assert found.cells == 4


def test_spaces_and_apostrophes_of_all_kinds_are_one() -> None:
    assert list(shapes(["1\u202f234", "1\u00a0234", "1 234"]).shapes) == ["9 999"]
    assert list(shapes(["1\u2019234", "1'234"]).shapes) == ["9'999"]


def test_shapes_add_up() -> None:
    cells = ["1,234", "n/a", "7", "n/a", "0,5", "x"]
    assert shapes(cells[:2]) + shapes(cells[2:4]) + shapes(cells[4:]) == shapes(cells)


def test_a_long_column_of_text_is_given_up() -> None:
    assert shapes([f"{n} green bottles hanging on the wall" for n in range(2_000)]).given_up
    assert (shapes([f"{n} green bottles hanging on the wall" for n in range(2_000)]) + shapes(["1"])).given_up


def test_a_column_of_too_many_shapes_is_given_up() -> None:
    assert shapes([f"{'x' * (n % 8)}{n}{'y' * (n // 8 % 16)}{'z' * (n // 128)}" for n in range(500)]).given_up


def test_columns_of_numbers_have_no_shapes() -> None:
    assert shapes_of(pa.RecordBatch.from_pydict({"n": [1, 2], "x": [0.5, 1.5]})) == {}


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
