from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.example_gen import spills
from infeed.components.example_gen.spills import RunCutter, RunRecords, Spill, Strata

RECORDS = [[b"a", b"bb", b""], [b"dddd"]]


def array(values: list[bytes]) -> pa.LargeBinaryArray:
    return pa.array(values, pa.large_binary())


def records_of(spill: Spill) -> list[bytes]:
    records: list[bytes] = spills.read_file(spill.path, spill.start, spill.start + spill.records).to_pylist()
    return records


@pytest.fixture
def written(tmp_path: Path) -> list[Spill]:
    return [
        spill
        for number, records in enumerate(RECORDS)
        for spill in spills.write_spill(
            f"{tmp_path}/{number}", "train", array(records), np.arange(len(records)), None, Strata.none(len(records))
        )
    ]


def test_a_spill_knows_its_records_and_their_bytes(written: list[Spill]) -> None:
    assert [(spill.records, spill.bytes) for spill in written] == [(3, 3), (1, 4)]


def test_a_stratum_is_a_spill_of_its_own(tmp_path: Path) -> None:
    strata = Strata(np.array([1, 0, 1, 0, 1]), [(None, "a"), (None, "b"), (None, "nobody")])
    found = spills.write_spill(
        f"{tmp_path}/0", None, array([b"0", b"1", b"22", b"3", b"4"]), np.arange(5), (7,), strata
    )
    assert [(spill.start, spill.records, spill.bytes, spill.strata) for spill in found] == [
        (0, 2, 2, (None, "a")),
        (2, 3, 4, (None, "b")),
    ]
    first, second = (records_of(found[part]) for part in (0, 1))
    assert (set(first), set(second)) == ({b"1", b"3"}, {b"0", b"22", b"4"})


def test_a_seed_shuffles_what_is_written(tmp_path: Path) -> None:
    values = [bytes([number]) for number in range(100)]
    (one,) = spills.write_spill(f"{tmp_path}/a", "train", array(values), np.arange(100), (0, 1), Strata.none(100))
    stored = records_of(one)
    assert sorted(stored) == values != stored


def test_a_permutation_never_changes() -> None:
    assert spills.permutation(8, (0, 1)).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]


def test_only_the_rows_asked_for_are_written(tmp_path: Path) -> None:
    rows = np.array([3, 1])
    strata = Strata(np.array([0, 1, 0, 1]), [(None, "a"), (None, "b")])
    found = spills.write_spill(f"{tmp_path}/a", "train", array([b"0", b"1", b"22", b"3"]), rows, None, strata)
    assert [(spill.records, spill.strata) for spill in found] == [(2, (None, "b"))]
    assert records_of(found[0]) == [b"3", b"1"]


def test_the_blocks_of_a_run_are_shuffled_together(tmp_path: Path) -> None:
    run = RunRecords()
    for first in (0, 50):
        values = [bytes([number]) for number in range(first, first + 50)]
        rows = {"train": np.arange(0, 50, 2), "eval": np.arange(1, 50, 2)}
        run.add(array(values), rows, Strata.none(50))
    train, evaluation = run.spill(lambda split: f"{tmp_path}/{split}", lambda split: (0, 1))
    found = [record[0] for record in records_of(train)]
    assert sorted(found) == list(range(0, 100, 2))
    assert {number // 50 for number in found[:10]} == {0, 1}
    assert sorted(records_of(evaluation)) == [bytes([number]) for number in range(1, 100, 2)]


def test_a_label_is_one_stratum_in_all_blocks_of_a_run(tmp_path: Path) -> None:
    run = RunRecords()
    run.add(array([b"0", b"1"]), {None: np.arange(2)}, Strata(np.array([0, 1]), [("a", None), ("b", None)]))
    run.add(array([b"2", b"3"]), {None: np.arange(2)}, Strata(np.array([0, 1]), [("b", None), ("c", None)]))
    found = list(run.spill(lambda _: f"{tmp_path}/all", lambda _: None))
    assert [(one.strata[0], records_of(one)) for one in found] == [("a", [b"0"]), ("b", [b"1", b"2"]), ("c", [b"3"])]


def test_a_run_ends_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spills, "_RUN_BYTES", 100)
    cutter = RunCutter()
    blocks = [pa.RecordBatch.from_pydict({"x": np.zeros(count, np.int64)}) for count in (5, 5, 5, 20, 20, 1)]
    assert [cutter.ends_before(block) for block in blocks] == [False, False, True, True, True, True]
