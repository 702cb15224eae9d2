from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.shards import Slice
from infeed.components.example_gen import spills
from infeed.components.example_gen.spills import Spill, Strata

RECORDS = [[b"a", b"bb", b""], [b"dddd"]]


def array(values: list[bytes]) -> pa.LargeBinaryArray:
    return pa.array(values, pa.large_binary())


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


def test_slices_are_read_one_after_the_other(written: list[Spill]) -> None:
    slices = [Slice(0, 1, 3), Slice(1, 0, 1), Slice(0, 0, 1)]
    assert spills.read_slices(written, slices, None).to_pylist() == [b"bb", b"", b"dddd", b"a"]
    assert spills.read_slices(written, [], (0,)).to_pylist() == []


def test_a_slice_may_reach_over_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spills, "_CHUNK_BYTES", 3)
    values = [bytes([number]) for number in range(11)]
    one = spills.write_spill(f"{tmp_path}/a", "train", array(values), np.arange(11), None, Strata.none(11))
    for start in range(11):
        for stop in range(start + 1, 12):
            assert spills.read_slices(one, [Slice(0, start, stop)], None).to_pylist() == values[start:stop]


def test_a_stratum_is_a_spill_of_its_own(tmp_path: Path) -> None:
    strata = Strata(np.array([1, 0, 1, 0, 1]), [(None, "a"), (None, "b"), (None, "nobody")])
    found = spills.write_spill(
        f"{tmp_path}/0", None, array([b"0", b"1", b"22", b"3", b"4"]), np.arange(5), (7,), strata
    )
    assert [(spill.start, spill.records, spill.bytes, spill.strata) for spill in found] == [
        (0, 2, 2, (None, "a")),
        (2, 3, 4, (None, "b")),
    ]
    first, second = (spills.read_slices(found, [Slice(part, 0, found[part].records)], None) for part in (0, 1))
    assert (set(first.to_pylist()), set(second.to_pylist())) == ({b"1", b"3"}, {b"0", b"22", b"4"})


def test_a_seed_shuffles_what_is_written_and_what_is_read(tmp_path: Path) -> None:
    values = [bytes([number]) for number in range(100)]
    one = spills.write_spill(f"{tmp_path}/a", "train", array(values), np.arange(100), (0, 1), Strata.none(100))
    stored = spills.read_slices(one, [Slice(0, 0, 100)], None).to_pylist()
    read = spills.read_slices(one, [Slice(0, 0, 100)], (0, 2)).to_pylist()
    assert sorted(stored) == sorted(read) == values
    assert values != stored != read != values


def test_a_permutation_never_changes() -> None:
    assert spills.permutation(8, (0, 1)).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]


def test_only_the_rows_asked_for_are_written(tmp_path: Path) -> None:
    rows = np.array([3, 1])
    strata = Strata(np.array([0, 1, 0, 1]), [(None, "a"), (None, "b")])
    found = spills.write_spill(f"{tmp_path}/a", "train", array([b"0", b"1", b"22", b"3"]), rows, None, strata)
    assert [(spill.records, spill.strata) for spill in found] == [(2, (None, "b"))]
    assert spills.read_slices(found, [Slice(0, 0, 2)], None).to_pylist() == [b"3", b"1"]
