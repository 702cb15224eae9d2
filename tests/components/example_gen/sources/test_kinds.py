"""Kinds of columns of cells, and numbers as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_sources import batches_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources import kinds
from infeed.components.example_gen.sources.kinds import CellKind, NumberFormat


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([None, None], CellKind.EMPTY),
        (["1", "-2", None], CellKind.INT),
        (["9223372036854775807", "-9223372036854775808"], CellKind.INT),
        (["9223372036854775808"], CellKind.TEXT),  # beyond 64 bits every digit counts
        (["0.5", "9223372036854775808"], CellKind.TEXT),
        (["007", " 7", "+7", "1_000"], CellKind.INT),  # whatever int() reads, as TFX does
        (["1", "0.5"], CellKind.FLOAT),
        (["1e5", "nan", "-inf", "Infinity", ".5", "5.", "+1.5"], CellKind.FLOAT),
        (["1e30", "1"], CellKind.FLOAT),
        (["1", "9" * 400], CellKind.TEXT),  # Arrow alone would read infinity
        (["1", "9" * 5_000], CellKind.TEXT),  # and so would Python
        (["0.5", f" -{'1_0' * 2_000} "], CellKind.TEXT),
        (["1", f"0.{'9' * 5_000}", "1e400", "inf"], CellKind.FLOAT),
        (["0x1F"], CellKind.TEXT),  # Arrow alone would read 31
        (["nan(1)"], CellKind.TEXT),
        (["1", "two"], CellKind.TEXT),
        (["true"], CellKind.TEXT),
        (["2020-01-01"], CellKind.TEXT),
        ([" "], CellKind.TEXT),
        (["١"], CellKind.TEXT),  # a digit to str, not to the bytes that TFX reads  # noqa: RUF001
    ],
)
def test_the_kind_of_a_column(cells: list[str | None], kind: CellKind) -> None:
    assert kinds.infer_kind(pa.array(cells, pa.string())) == kind


@pytest.mark.parametrize(
    ("cells", "to", "values", "unfit"),
    [
        (["1", None, "-2"], pa.int64(), [1, None, -2], []),
        (["1", "x", "2.0", "9223372036854775808"], pa.int64(), [1, None, None, None], [1, 2, 3]),
        (["1e5", "0x1F", " 2"], pa.float64(), [1e5, None, 2.0], [1]),
        (["x", None], pa.string(), ["x", None], []),
    ],
)
def test_cells_of_a_given_type(
    cells: list[str | None], to: pa.DataType, values: list[object], unfit: list[int]
) -> None:
    converted, places = kinds.convert(pa.array(cells, pa.string()), to)
    assert (converted.to_pylist(), places) == (values, unfit)


@pytest.mark.parametrize("cells", [["+412", "+5"], ["+412", "7"], ["1", "+9007199254740993"]], ids=str)
def test_plus_signs_are_those_of_pythons_integers(cells: list[str]) -> None:
    array = pa.array(cells)
    assert kinds.infer_kind(array) == CellKind.INT
    assert kinds.convert(array, pa.int64())[0].to_pylist() == [int(cell) for cell in cells]


def test_a_large_integer_with_a_plus_sign_beside_fractions_loses_its_digit_in_the_count() -> None:
    values, unfit = kinds.convert(pa.array(["1.5", "+9007199254740993"]), pa.float64())
    assert unfit == []
    assert example_types.count_rounded(values) == 1


@pytest.mark.parametrize(
    ("example", "cell", "number"),
    [
        ("1,234.5", "3,356.21", "3356.21"),
        ("1,234.5", "1,234,567", "1234567"),
        ("1,234.5", "-12", "-12"),
        ("1,234.5", "(1,200.00)", "-1200.00"),
        ("1,234.5", " 7 ", "7"),
        ("1,234.5", ".5", ".5"),
        ("$1,234.5", "$3,356.21", "3356.21"),
        ("$1,234.5", "-$5", "-5"),
        ("$1,234.5", "$-5", "-5"),
        ("$1,234.5", "5", "5"),
        ("1.234,5", "1.234,56", "1234.56"),
        ("1234,5", "12,5", "12.5"),
        ("1 234,5 €", "1\u202f234,56\u00a0€", "1234.56"),
        ("CHF 1'234.5", "CHF 1\u2019234.50", "1234.50"),
        ("12.5%", "45%", "45"),
        ("12.5 kg", "12 kg", "12"),
        ("12.5", "1e5", "1e5"),
        ("1,234.5", "\u22125", "-5"),
    ],
)
def test_a_cell_of_the_format_is_a_number(example: str, cell: str, number: str) -> None:
    assert NumberFormat.of(example).plain(pa.array([cell, None]), exact=True).to_pylist() == [number, None]


@pytest.mark.parametrize(
    ("example", "cell"),
    [
        ("1,234.5", "1,23"),
        ("1,234.5", "1234,567"),
        ("1,234.5", "12 kg"),
        ("1.234,5", "1.5"),
        ("$1,234.5", "$"),
        ("$1,234.5", "€5"),
        ("12.5 kg", "12 lb"),
        ("1,234.5", "call us"),
    ],
)
def test_a_cell_of_another_format_is_no_number_or_stays(example: str, cell: str) -> None:
    form, cells = NumberFormat.of(example), pa.array([cell])
    assert form.plain(cells, exact=True).to_pylist() == [""]
    assert form.plain(cells).to_pylist() == [cell]


@pytest.mark.parametrize("text", ["1,234.5", "1.234,5", "1234,5", "1234.5%", "$1,234.5", "CHF 1'234.5", "1 234,5 kg"])
def test_a_format_is_written_as_an_example_of_it(text: str) -> None:
    assert str(NumberFormat.of(text)) == text


@pytest.mark.parametrize("text", ["", "abc", "1,234", "1.2.3", "1,234,5", "12:30"])
def test_what_is_no_example_of_a_number(text: str) -> None:
    with pytest.raises(InfeedError, match=r"1,234\.5") as raised:
        NumberFormat.of(text)
    assert raised.value.where == "numbers"


def tables(folder: Path, cells: list[str]) -> dict[str, Path]:
    """The same text column in a file of each format that takes `numbers`."""
    paths = {kind: folder / f"t.{kind}" for kind in ("csv", "jsonl", "parquet")}
    paths["csv"].write_text("price,n\n" + "".join(f'"{cell}",1\n' for cell in cells))
    paths["jsonl"].write_text("".join(json.dumps({"price": cell, "n": 1}) + "\n" for cell in cells))
    pq.write_table(pa.table({"price": cells, "n": [1] * len(cells)}), paths["parquet"])
    return paths


def prices(path: Path, kind: str, bad_rows: BadRows, **settings: object) -> list[float]:
    opened = open_source(str(path), kind, IngestOptions(on_bad_row="reject"), settings)
    assert opened.schema.field("price").type == pa.float64()
    return [value for batch in batches_of(opened, bad_rows) for value in batch.column("price").to_pylist()]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_each_format_reads_the_numbers_and_sets_other_cells_aside(kind: str, tmp_path: Path) -> None:
    bad_rows = BadRows("reject", 9)
    path = tables(tmp_path, ["$1,200.50", "call us", "$7"])[kind]
    assert prices(path, kind, bad_rows, numbers={"price": "$1,234.5"}) == [1200.5, 7.0]
    [bad] = bad_rows.take()
    assert (bad.column, "'call us'" in bad.reason, bad.line) == ("price", True, 3 if kind == "csv" else 2)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_column_that_is_not_there_is_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="no column 'prise'"):
        prices(tables(tmp_path, ["$7"])[kind], kind, BadRows(), numbers={"prise": "$1,234.5"})


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_wrong_example_is_an_error_about_the_option(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="not an example of a number") as raised:
        prices(tables(tmp_path, ["$7"])[kind], kind, BadRows(), numbers={"price": "abc"})
    assert "numbers" in raised.value.where


@pytest.mark.parametrize(
    ("settings", "cells", "found"),
    [
        ({"thousands": ","}, ["3,356.21", "12"], [3356.21, 12.0]),
        ({"thousands": ".", "decimal": ","}, ["3.356,21", "12,5"], [3356.21, 12.5]),
        ({"decimal": ","}, ["12,5", "7"], [12.5, 7.0]),
        ({"thousands": "'"}, ["3'356.2", "12"], [3356.2, 12.0]),
    ],
)
def test_signs_for_all_columns_of_a_csv(
    settings: dict[str, str], cells: list[str], found: list[float], tmp_path: Path
) -> None:
    assert prices(tables(tmp_path, cells)["csv"], "csv", BadRows(), **settings) == found


def test_whole_numbers_with_thousands_stay_whole(tmp_path: Path) -> None:
    path = tables(tmp_path, ["1,234", "12"])["csv"]
    assert open_source(str(path), "csv", IngestOptions(), {"thousands": ","}).schema.field("price").type == pa.int64()


def test_the_same_sign_for_thousands_and_decimals_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="thousands") as raised:
        open_source(str(tables(tmp_path, ["1"])["csv"]), "csv", IngestOptions(), {"thousands": ",", "decimal": ","})
    assert raised.value.where == "CsvOptions.thousands"
