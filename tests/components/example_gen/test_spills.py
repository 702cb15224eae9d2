from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen import spills
from infeed.components.example_gen.spills import RunRecords, Spill, Spills, Strata, strata_of_rows

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
    values = array([b"0", b"1", b"22", b"3", b"4"])
    found = list(spills.write_spill(f"{tmp_path}/0", None, values, np.arange(5), (7,), strata))
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
    (found,) = spills.write_spill(f"{tmp_path}/a", "train", array([b"0", b"1", b"22", b"3"]), rows, None, strata)
    assert (found.records, found.strata, records_of(found)) == (2, (None, "b"), [b"3", b"1"])


def test_the_blocks_of_a_run_are_shuffled_together(tmp_path: Path) -> None:
    run = RunRecords()
    for first in (0, 50):
        values = [bytes([number]) for number in range(first, first + 50)]
        rows = {"train": np.arange(0, 50, 2), "eval": np.arange(1, 50, 2)}
        run.add(array(values), rows, Strata.none(50), 1)
    train, evaluation = run.spill(lambda split: f"{tmp_path}/{split}", lambda split: (0, 1))
    found = [record[0] for record in records_of(train)]
    assert sorted(found) == list(range(0, 100, 2))
    assert {number // 50 for number in found[:10]} == {0, 1}
    assert sorted(records_of(evaluation)) == [bytes([number]) for number in range(1, 100, 2)]


def test_a_label_is_one_stratum_in_all_blocks_of_a_run(tmp_path: Path) -> None:
    run = RunRecords()
    for values, labels in (([b"0", b"1"], "ab"), ([b"2", b"3"], "bc")):
        strata = Strata(np.array([0, 1]), [(label, None) for label in labels])
        run.add(array(values), {None: np.arange(2)}, strata, 1)
    found = list(run.spill(lambda _: f"{tmp_path}/all", lambda _: None))
    assert [(one.strata[0], records_of(one)) for one in found] == [("a", [b"0"]), ("b", [b"1", b"2"]), ("c", [b"3"])]


def test_a_run_ends_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spills, "_RUN_BYTES", 100)
    run = RunRecords()
    assert run.has_room(101)  # a block that is too large is a run of its own
    for block_bytes in (40, 40):
        assert run.has_room(block_bytes)
        run.add(array([]), {}, Strata.none(0), block_bytes)
    assert [run.has_room(more) for more in (20, 21)] == [True, False]


SPILLS = [
    Spill("train", "a", 0, 4, 41, ("x", None)),
    Spill("eval", "b", 0, 2, 20, ("y", None)),
    Spill("train", "a", 4, 3, 30, ("y", "z")),
]


def test_columns_hold_what_the_spills_did() -> None:
    columns = Spills.of(SPILLS)
    assert (list(columns), len(columns)) == (SPILLS, 3)
    assert len(columns.files) == 2  # a path is stored once
    assert list(Spills.of([])) == []


@pytest.mark.parametrize("cut", range(4))
def test_parts_are_joined_in_their_order(cut: int) -> None:
    assert list(Spills.joined([Spills.of(SPILLS[:cut]), Spills.of(SPILLS[cut:])])) == SPILLS
    assert list(Spills.joined([])) == []


def test_the_spills_of_a_split() -> None:
    assert list(Spills.of(SPILLS).of_split("train")) == [SPILLS[0], SPILLS[2]]
    assert list(Spills.of(SPILLS).of_split("test")) == []


def test_a_cut_has_the_average_bytes_of_its_spill() -> None:
    found = Spills.of(SPILLS).cut(np.array([1, 2, 0]), np.array([3, 2, 3]))
    assert list(found) == [Spill("train", "a", 1, 2, 20, ("x", None)), SPILLS[2]]


def test_labels_are_numbered() -> None:
    numbers, labels = Spills.of(SPILLS).labels(0)
    assert [labels[number] for number in numbers] == ["x", "y", "y"]


def test_rows_are_numbered_by_both_labels() -> None:
    batch = pa.RecordBatch.from_pydict({"x": ["a", "b", "a", None], "y": [1, 1, 2, 1]})
    found = strata_of_rows(batch, ("x", "y"))
    assert [found.labels[number] for number in found.numbers] == [("a", 1), ("b", 1), ("a", 2), (None, 1)]
    assert len(strata_of_rows(batch, (None, None)).labels) == 1


def test_nan_is_no_label() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1.0, float("nan"), None]})
    found = strata_of_rows(batch, ("x", None))
    assert [found.labels[number][0] for number in found.numbers] == [1.0, None, None]


def test_labels_that_cannot_be() -> None:
    batch = pa.RecordBatch.from_pydict({"list": [[1]], "id": [1]})
    with pytest.raises(InfeedError, match=r"(?s)type is list.*label 'list'"):
        strata_of_rows(batch, ("list", None))
    many = pa.RecordBatch.from_pydict({"id": list(range(10_001))})
    with pytest.raises(InfeedError, match=r"more than 10000 distinct labels"):
        strata_of_rows(many, (None, "id"))
