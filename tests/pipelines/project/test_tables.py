"""What a second look at a table reads, and that it finds what the first one would."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import ByName, ByTime, SplitBy
from infeed.components.example_gen.sources import csv_files, streams
from infeed.pipelines.config import Source
from infeed.pipelines.project import tables
from infeed.pipelines.project.tables import Table

ROWS = [("a", "city", "y"), (1, "Bern", "no"), (2, "Basel", "yes"), ("", "Bern", "no"), (4, "", "no")]
Found = tuple[list[tuple[str, str]], dict[str, dict[str, Any]], int]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a table; what is found of it is kept, however small it is."""
    monkeypatch.setattr(tables, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "_KEPT_BYTES", 0)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the CSV files that are read, once for each time."""
    names: list[str] = []
    read_blocks = streams.read_blocks

    def noted(span: streams.Span, *given: Any) -> Iterable[streams.TextBlock]:
        names.append(os.path.basename(span.path))
        return read_blocks(span, *given)

    monkeypatch.setattr(csv_files.streams, "read_blocks", noted)
    return names


def write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")


def look(path: Path, source: Source = "csv", on_bad_row: str = "fail", **settings: Any) -> Found:
    table = Table(str(path), source, settings, IngestOptions(on_bad_row=on_bad_row))  # type: ignore[arg-type]
    found, rejected = table.statistics()
    columns = [(column.name, column.type) for column in table.columns]
    return columns, {name: one.plain() for name, one in found.items()}, rejected


def rows_of(found: Found) -> Any:
    (rows,) = {one["rows"] for one in found[1].values()}
    return rows


def anew(path: Path, source: Source = "csv", **settings: Any) -> Found:
    """What a look finds that knows nothing of earlier ones."""
    shutil.rmtree(tables.CACHE_DIR)
    return look(path, source, **settings)


def test_files_that_have_not_changed_are_not_read_again(data: Path, opened: list[str]) -> None:
    write(data / "1.csv", ROWS)
    write(data / "2.csv", ROWS[:3])
    first = look(data)
    assert set(opened) == {"1.csv", "2.csv"}
    opened.clear()
    assert look(data) == first
    assert opened == []


def test_the_sample_of_rows_is_kept_too_and_grows_with_the_table(data: Path, opened: list[str]) -> None:
    def sampled() -> list[float]:
        values = Table(str(data), "csv", {}, IngestOptions()).found.sample.cells["a"].values
        return [float(value) for value in values]

    write(data / "1.csv", ROWS)
    assert sampled() == [1, 2, 4]
    opened.clear()
    assert sampled() == [1, 2, 4]
    assert opened == []
    write(data / "2.csv", [ROWS[0], (7, "Chur", "yes")])
    assert sampled() == [1, 2, 4, 7]
    assert set(opened) == {"2.csv"}


def test_of_a_table_that_has_grown_only_the_new_file_is_read(data: Path, opened: list[str]) -> None:
    write(data / "2.csv", ROWS)
    look(data)
    opened.clear()
    write(data / "1.csv", ROWS[:1] + ROWS[3:])  # named so that it comes first
    grown = look(data)
    assert set(opened) == {"1.csv"}
    assert rows_of(grown) == 6
    opened.clear()
    assert look(data) == grown
    assert opened == []
    assert anew(data) == grown


@pytest.mark.parametrize("a", ["0.5", "word"])
def test_a_new_file_that_changes_the_type_of_a_column_has_all_read(data: Path, opened: list[str], a: str) -> None:
    write(data / "1.csv", ROWS)
    look(data)
    opened.clear()
    write(data / "2.csv", [ROWS[0], (a, "Chur", "yes")])
    grown = look(data)
    assert set(opened) == {"1.csv", "2.csv"}
    assert dict(grown[0])["a"] == {"0.5": "double", "word": "string"}[a]
    assert anew(data) == grown


def test_a_column_may_get_another_type_when_a_file_is_gone(data: Path) -> None:
    write(data / "1.csv", ROWS)
    write(data / "2.csv", [ROWS[0], ("word", "Chur", "yes")])
    assert dict(look(data)[0])["a"] == "string"
    (data / "2.csv").unlink()
    assert dict(look(data)[0])["a"] == "int64"


def test_a_file_that_is_written_anew_is_read_again_and_its_neighbour_is_not_counted_again(data: Path) -> None:
    write(data / "1.csv", ROWS)
    write(data / "2.csv", ROWS)
    look(data)
    write(data / "1.csv", [*ROWS, (7, "Chur", "yes")])
    changed = look(data)
    assert rows_of(changed) == 9
    assert anew(data) == changed


def test_what_is_read_in_another_way_is_another_table(data: Path, opened: list[str]) -> None:
    write(data / "1.csv", ROWS)
    look(data)
    opened.clear()
    look(data, encoding="latin-1")
    assert opened


def test_what_is_wrong_with_a_new_file_is_told_as_ever(data: Path) -> None:
    write(data / "1.csv", ROWS)
    look(data)
    write(data / "2.csv", [("a", "town", "y"), (1, "Bern", "no")])
    with pytest.raises(InfeedError, match=r"columns a, town, y differ from a, city, y in .*1\.csv"):
        look(data)


def test_bad_rows_are_told_of_each_time(data: Path) -> None:
    write(data / "1.csv", [*ROWS, (5, "Bern", "no", "one cell too many")])
    for _ in range(2):
        assert look(data, on_bad_row="reject")[2] == 1
        with pytest.raises(InfeedError, match=r"column|cell|value"):
            look(data)


def test_what_was_kept_and_is_damaged_is_found_again(data: Path) -> None:
    write(data / "1.csv", ROWS)
    write(data / "2.csv", ROWS)
    first = look(data)
    for kept in sorted(Path(tables.CACHE_DIR).iterdir()):
        kept.write_text("{")
        assert look(data) == first
        assert len(Table(str(data), "csv", {}, IngestOptions()).found.sample) == 8


def test_of_a_small_table_nothing_is_kept(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_KEPT_BYTES", 1 << 20)
    write(data / "1.csv", ROWS)
    look(data)
    assert not Path(tables.CACHE_DIR).exists()


def test_many_small_files_are_a_large_table(data: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    for number in range(4):
        write(data / f"{number}.csv", ROWS)
    monkeypatch.setattr(tables, "_KEPT_BYTES", 2 * (data / "1.csv").stat().st_size)
    first = look(data)
    opened.clear()
    assert look(data) == first
    assert opened == []
    write(data / "4.csv", ROWS)
    assert rows_of(look(data)) == 20


def test_other_kinds_of_files_are_kept_alike(data: Path) -> None:
    for number in range(2):
        columns = {"x": [number, 2, None], "words": [["a"], ["b", "c"], []]}
        pyarrow.parquet.write_table(pa.table(columns), data / f"{number}.parquet")
        grown = look(data, "parquet")
        assert grown == look(data, "parquet") == anew(data, "parquet")
    assert rows_of(grown) == 6


@pytest.mark.parametrize("rule", [ByTime("city", ("2020-01-01",)), ByName("city")])
def test_a_rule_that_does_not_fit_is_told_each_time_and_by_kept_results_too(data: Path, rule: SplitBy) -> None:
    write(data / "data.csv", ROWS)
    look(data)
    for _ in range(2):
        with pytest.raises(InfeedError, match="city"):
            Table(str(data), "csv", {}, IngestOptions(split_by=rule)).check_rule()
    Table(str(data), "csv", {}, IngestOptions(split_by=ByName("y"))).check_rule()


def test_the_rows_between_cuts_are_kept_and_added(data: Path, opened: list[str]) -> None:
    def check(*cuts: str) -> None:
        Table(str(data), "csv", {}, IngestOptions(split_by=ByTime("n", cuts))).check_rule()

    write(data / "a.csv", [("n", "y"), (1, "no"), (2, "yes")])
    write(data / "b.csv", [("n", "y"), (7, "no"), (8, "yes")])
    check("2", "7")
    opened.clear()
    check("2", "7")
    assert not opened
    for cuts in (("1", "7"), ("3", "5"), ("2", "9")):
        with pytest.raises(InfeedError, match="no row is"):
            check(*cuts)
    write(data / "c.csv", [("n", "y"), (4, "no")])
    check("3", "5")
