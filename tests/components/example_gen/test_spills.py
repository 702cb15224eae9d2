from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.dataset.shards import Slice
from infeed.components.example_gen import spills
from infeed.components.example_gen.spills import Spill

RECORDS = [[b"a", b"bb", b""], [b"dddd"]]


@pytest.fixture
def written(tmp_path: Path) -> list[Spill]:
    return [
        spills.write_spill(f"{tmp_path}/{number}", "train", pa.array(records, pa.large_binary()), None)
        for number, records in enumerate(RECORDS)
    ]


def test_a_spill_knows_its_records_and_their_bytes(written: list[Spill]) -> None:
    assert [(spill.records, spill.bytes) for spill in written] == [(3, 3), (1, 4)]


def test_slices_are_read_one_after_the_other(written: list[Spill]) -> None:
    slices = [Slice(0, 1, 3), Slice(1, 0, 1), Slice(0, 0, 1)]
    assert spills.read_slices(written, slices, None).to_pylist() == [b"bb", b"", b"dddd", b"a"]
    assert spills.read_slices(written, [], (0,)).to_pylist() == []


def test_a_seed_shuffles_what_is_written_and_what_is_read(tmp_path: Path) -> None:
    values = [bytes([number]) for number in range(100)]
    one = spills.write_spill(f"{tmp_path}/a", "train", pa.array(values, pa.large_binary()), (0, 1))
    stored = spills.read_slices([one], [Slice(0, 0, 100)], None).to_pylist()
    read = spills.read_slices([one], [Slice(0, 0, 100)], (0, 2)).to_pylist()
    assert sorted(stored) == sorted(read) == values
    assert values != stored != read != values


def test_a_permutation_never_changes() -> None:
    assert spills.permutation(8, (0, 1)).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]
