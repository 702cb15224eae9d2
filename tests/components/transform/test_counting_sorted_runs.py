"""Runs on disk: how many are open, what a pickle carries, and what stays behind."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.dataset import files
from infeed.components.transform import counting
from infeed.components.transform.counting import Tally


def words(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array([b"%06d" % number for number in numbers], object)


def runs_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


def rows_in(tally: Tally) -> int:
    return sum(batch.num_rows for batch in tally.items())


def test_few_runs_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_open: list[str] = []
    most = 0

    @contextmanager
    def counted(path: str) -> Iterator[Any]:
        nonlocal most
        with open_input(path) as file:
            is_open.append(path)
            most = max(most, len(is_open))
            yield file
            is_open.remove(path)

    open_input = files.open_input
    monkeypatch.setattr(files, "open_input", counted)
    tally = Tally(str(tmp_path), limit=64)
    for number in range(100):
        tally.add(words(number, 99 - number))
    assert len(runs_in(tmp_path)) == 100
    assert [batch.column(1).to_pylist() for batch in tally.items()] == [[2]] * 100
    assert counting._FAN_IN // 2 < most <= counting._FAN_IN
    assert not is_open


def test_a_few_rows_need_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    tally = Tally(str(folder))
    tally.add(words(2, 1, 2))
    (batch,) = pickle.loads(pickle.dumps(tally)).ranked()
    assert batch.to_pydict() == {"value": [b"000002", b"000001"], "count": [2, 1]}
    assert not folder.exists()


def test_many_rows_travel_as_a_path(tmp_path: Path) -> None:
    tally = Tally(str(tmp_path), limit=1 << 20)
    tally.add(words(*range(10_000)))
    pickled = pickle.dumps(tally)
    assert len(pickled) < 5000
    assert len(runs_in(tmp_path)) == 1
    assert rows_in(pickle.loads(pickled)) == 10_000


def test_a_pickle_can_be_read_twice(tmp_path: Path) -> None:
    """A worker that is killed leaves its item to another."""
    tally = Tally(str(tmp_path), limit=1000)
    for start in range(0, 4000, 100):
        tally.add(words(*range(start, start + 100)))
    pickled = pickle.dumps(tally)
    assert [rows_in(pickle.loads(pickled)) for _ in range(2)] == [4000, 4000]


def test_rows_are_written_in_blocks_that_fit_a_merge(tmp_path: Path) -> None:
    limit = 1 << 20
    tally = Tally(str(tmp_path), limit)
    tally.add(words(*range(50_000)))
    (run,) = runs_in(tmp_path)
    blocks = list(counting._read(str(tmp_path / run)))
    assert sum(block.num_rows for block in blocks) == 50_000
    assert max(map(counting._size, blocks)) * counting._FAN_IN < limit


def test_ranking_leaves_nothing_behind_when_the_reader_stops(tmp_path: Path) -> None:
    tally = Tally(str(tmp_path), limit=64)
    for number in range(50):
        tally.add(words(number))
    before = runs_in(tmp_path)
    ranked = tally.ranked()
    assert next(ranked).column(0).to_pylist() == [b"000049"]
    assert len(runs_in(tmp_path)) > len(before)
    del ranked
    merged = set(runs_in(tmp_path)) - set(before)
    assert len(merged) < len(before)


def test_few_values_in_many_batches_take_little_memory(tmp_path: Path) -> None:
    limit = 1 << 20
    tally = Tally(str(tmp_path), limit)
    for _ in range(1000):
        tally.add(words(1, 2, 3))
    assert tally._runs._load < limit // 32
    assert [batch.column(1).to_pylist() for batch in tally.items()] == [[1000] * 3]
