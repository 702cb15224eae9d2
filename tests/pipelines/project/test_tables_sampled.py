"""A large table is read once: types of a sample are checked by the pass that gathers the statistics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.engine.choice import Work, choose
from infeed.components.engine.engine import Engine
from infeed.components.example_gen.sources import csv_files, streams
from infeed.pipelines.config import Source
from infeed.pipelines.project import tables
from infeed.pipelines.project.tables import Table

ROWS, SAMPLE = 3_000, 4096


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "_KEPT_BYTES", 0)
    monkeypatch.setattr(csv_files, "_HEADER_BYTES", 256)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each piece that is read of a file."""
    sizes: list[int] = []
    pieces = streams._pieces

    def counted(*args: Any) -> Iterator[bytes]:
        for piece in pieces(*args):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(streams, "_pieces", counted)
    return sizes


def write(folder: Path, kind: str, last: Any = 7, bad: tuple[int, ...] = ()) -> Path:
    """A number, a text with line breaks, and a number that is `last` in the last row; `bad` rows are no rows."""
    path = folder / f"t.{kind}"
    with open(path, "w", newline="") as file:
        file.write("n,text,late\n" if kind == "csv" else "")
        for row in range(ROWS):
            late = last if row == ROWS - 1 else row % 5
            if row in bad:
                file.write("1,2,3,4,5\n" if kind == "csv" else "{]\n")
            elif kind == "csv":
                file.write(f'{row},"line {row}\nend",{late}\n')
            else:
                file.write(json.dumps({"n": row, "text": f"line {row}", "late": late}) + "\n")
    return path


def look(path: Path, sample_bytes: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr(streams, "SAMPLE_BYTES", sample_bytes)
    kind: Source = "csv" if path.suffix == ".csv" else "jsonl"
    table = Table(str(path), kind, {}, IngestOptions(block_bytes=1024, **options))
    found, rejected = table.statistics()
    sample = {name: [str(value) for value in cells.values] for name, cells in table.found.sample.cells.items()}
    return table.columns, {name: one.plain() for name, one in found.items()}, rejected, sample


@pytest.mark.parametrize(("kind", "last"), [("csv", 7), ("csv", 0.5), ("csv", "word"), ("jsonl", 7), ("jsonl", 0.5)])
def test_a_sample_that_misleads_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, last: Any
) -> None:
    path = write(tmp_path, kind, last)
    by_sample = look(path, SAMPLE, monkeypatch)
    assert by_sample == look(path, SAMPLE, monkeypatch)  # from the cache
    Path(tables.CACHE_DIR).rename(tmp_path / "set aside")
    assert by_sample == look(path, 1 << 30, monkeypatch)
    assert by_sample[1]["n"]["rows"] == ROWS


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_large_table_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: list[int], kind: str
) -> None:
    path = write(tmp_path, kind)
    look(path, SAMPLE, monkeypatch)
    assert sum(read_bytes) < 1.5 * path.stat().st_size
    read_bytes.clear()
    look(path, SAMPLE, monkeypatch)
    assert read_bytes == []


def test_bad_rows_are_counted_once_even_if_the_table_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "csv", 0.5, bad=(100, 2_000))
    options = {"on_bad_row": "reject", "bad_row_limit": 2}
    assert look(path, SAMPLE, monkeypatch, **options)[2] == 2
    with pytest.raises(InfeedError) as error:
        look(path, SAMPLE, monkeypatch)
    assert f"{path}, line 202" in str(error.value)


def test_a_filter_fits_the_types_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "csv", "word")
    assert look(path, SAMPLE, monkeypatch, filter="late == 'word'")[1]["n"]["rows"] == 1


@pytest.mark.slow
def test_several_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "csv", bad=(100, 2_000))
    options = {"on_bad_row": "reject", "bad_row_limit": 2}
    alone = look(path, SAMPLE, monkeypatch, **options)
    chosen: list[Engine] = []

    def two(work: Work) -> Engine:
        chosen.append(choose(work, processes=2))
        return chosen[-1]

    monkeypatch.setattr(tables, "choose", two)
    assert look(path, SAMPLE, monkeypatch, **options) == alone
    assert all("2 processes" in engine.place for engine in chosen)
    with pytest.raises(InfeedError, match="more than 1 bad rows") as error:
        look(path, SAMPLE, monkeypatch, on_bad_row="reject", bad_row_limit=1)
    assert f"{path}, line 4001" in str(error.value)
