"""Numbers as people write them, and the option `numbers` of the sources."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opened_sources import batches_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources.kinds import NumberFormat


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
