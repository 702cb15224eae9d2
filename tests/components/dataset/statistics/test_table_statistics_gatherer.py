from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics import table_statistics
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import Gatherer


def cells(**columns: list[Any]) -> dict[str, Cells]:
    found = {name: Cells.of(pa.array(values)) for name, values in columns.items()}
    return {name: column for name, column in found.items() if column is not None}


@pytest.mark.parametrize("waiting", [0, 1 << 20])
def test_blocks_give_what_the_whole_gives_however_many_are_put_together(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_statistics, "_WAITING_BYTES", waiting)
    monkeypatch.setattr(table_statistics, "_MANY_ROWS", 0)
    rows = np.random.default_rng(0).integers(0, 50, 900).tolist()
    words = [None if row % 9 == 0 else f"w{row}" for row in rows]
    gathered = Gatherer()
    for start in range(0, 900, 100):
        part = slice(start, start + 100)
        gathered.add(100, cells(number=rows[part], word=words[part]))
    found = gathered.statistics()
    assert found.rows == 900
    assert found.columns["number"].plain() == ColumnStatistics.of("number", pa.array(rows)).plain()
    assert found.columns["word"].plain() == ColumnStatistics.of("word", pa.array(words)).plain()


@pytest.mark.parametrize(("rows", "bound"), [(0, "_WAITING_BYTES"), (10_000, "_WIDE_WAITING_BYTES")])
def test_no_more_than_some_bytes_wait(rows: int, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_statistics, "_MANY_ROWS", rows)
    monkeypatch.setattr(table_statistics, bound, 5_000)
    gathered, waited = Gatherer(), []
    for _ in range(20):
        gathered.add(100, cells(x=list(range(100))))
        waited.append(gathered._bytes)
    assert max(waited) <= 5_000
    assert gathered.statistics().rows == 2_000


def test_a_block_may_lack_a_column() -> None:
    gathered = Gatherer()
    gathered.add(2, cells(x=[1, 2], y=["a", "b"]))
    gathered.add(3, cells(x=[3, 4, 5]))
    gathered.add(1, {})
    found = gathered.statistics()
    assert {name: (column.rows, column.missing) for name, column in found.columns.items()} == {"x": (6, 1), "y": (6, 4)}


def test_a_column_of_another_type_is_refused() -> None:
    gathered = Gatherer()
    gathered.add(1, cells(x=[1]))
    gathered.add(1, cells(x=["a"]))
    with pytest.raises(ValueError, match="'x' is int, but 'x' is bytes"):
        gathered.statistics()


def test_nothing_is_known_of_nothing() -> None:
    assert (Gatherer().statistics().rows, Gatherer().statistics().columns) == (0, {})
