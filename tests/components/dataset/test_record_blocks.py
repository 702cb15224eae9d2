"""Blocks hold what `records` reads one by one, and complain in its words."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import record_blocks, records
from infeed.components.dataset.record_blocks import PADDING, RecordBlock, read_blocks, regroup

PAYLOADS = [b"", b"one", b"\x00" * 1000, b"four", b"x" * 70_000]


def write(folder: Path, payloads: list[bytes], name: str = "data.gz") -> str:
    path = str(folder / name)
    framed = records.frame_records(pa.array(payloads, pa.large_binary()))
    records.write_records(path, [framed], gzip_level=1 if name.endswith(".gz") else None)
    return path


def read(path: str) -> list[bytes]:
    return [payload for block in read_blocks(path) for payload in block.payloads(np.arange(len(block)))]


@pytest.mark.parametrize("name", ["data.gz", "data"])
@pytest.mark.parametrize("size", [1, 20, 5_000, 1 << 20], ids=lambda size: f"{size} bytes at a time")
def test_what_is_written_is_read(name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_blocks, "_BYTES", size)
    assert read(write(tmp_path, PAYLOADS * 3, name)) == PAYLOADS * 3


def test_a_block_holds_so_many_records_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_blocks, "_RECORDS", 2)
    assert [len(block) for block in read_blocks(write(tmp_path, PAYLOADS))] == [2, 2, 1]


def test_no_records_are_no_block(tmp_path: Path) -> None:
    assert list(read_blocks(write(tmp_path, []))) == []


@given(st.lists(st.binary(max_size=20)))
def test_a_block_of_any_records_gives_them_back(payloads: list[bytes]) -> None:
    block = RecordBlock.of(payloads)
    assert block.payloads(np.arange(len(block))) == payloads
    assert block.data.endswith(PADDING)


def damaged(folder: Path, damage: str) -> str:
    path = write(folder, PAYLOADS, "data")
    content = bytearray(Path(path).read_bytes())
    if damage == "payload":
        content[12 + 4 + 12] ^= 1  # of the second record
    elif damage == "length":
        content[12 + 4] ^= 1
    elif damage == "length beyond the file":
        content[12 + 4 + 6] ^= 1
    else:
        content = content[: {"cut in a payload": -10, "cut in a header": 16 + 5}[damage]]
    Path(path).write_bytes(content)
    return path


@pytest.mark.parametrize(
    "damage", ["payload", "length", "length beyond the file", "cut in a payload", "cut in a header"]
)
def test_a_damaged_file_is_told_as_records_are_read(damage: str, tmp_path: Path) -> None:
    path = damaged(tmp_path, damage)
    with pytest.raises(InfeedError) as one_by_one:
        list(records.read_records(path))
    with pytest.raises(InfeedError) as in_blocks:
        list(read_blocks(path))
    assert str(in_blocks.value) == str(one_by_one.value)


def test_a_cut_gzip_file_is_told_as_well(tmp_path: Path) -> None:
    path = write(tmp_path, PAYLOADS)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])
    assert gzip.decompress(content)  # it was whole
    with pytest.raises(InfeedError, match=r"(?s)cannot decompress.*record"):
        list(read_blocks(path))


@given(
    st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=9), max_size=6),
    st.integers(1, 12),
    st.integers(1, 90),
)
def test_regrouped_blocks_have_so_many_records_or_enough_bytes(
    payloads: list[list[bytes]], most_rows: int, enough_bytes: int
) -> None:
    expected: list[list[bytes]] = [[]]
    for payload in (payload for some in payloads for payload in some):
        if len(expected[-1]) == most_rows or sum(map(len, expected[-1])) >= enough_bytes:
            expected.append([])
        expected[-1].append(payload)
    found = list(regroup(map(RecordBlock.of, payloads), most_rows, enough_bytes))
    assert [block.payloads(np.arange(len(block))) for block in found] == [some for some in expected if some]
    assert all(block.data.endswith(PADDING) for block in found)
