from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import ranges
from infeed.components.dataset.record_blocks import read_blocks
from infeed.components.dataset.records import frame_records, read_records, write_records


def write(path: Path, count: int, gzip_level: int | None = None) -> list[bytes]:
    records = [b"%d" % number * 50 for number in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_records(str(path), [frame_records(pa.array(records, pa.large_binary()))], gzip_level=gzip_level)
    return records


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", 10_000)


def test_a_file_that_is_not_large_is_one_range_and_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path / "Split-eval" / "b", 3)
    write(tmp_path / "Split-eval" / "a", 3)
    (tmp_path / "Split-eval" / ".hidden").touch()

    def count_nothing(function: object, paths: list[str]) -> list[int]:
        assert paths == []
        return []

    found = ranges.record_ranges([str(tmp_path / "Split-eval")], count_nothing)
    assert [(part.split, Path(part.path).name, part.start, part.stop) for part in found] == [
        ("eval", "a", 0, None),
        ("eval", "b", 0, None),
    ]
    assert [part.bytes for part in found] == [(tmp_path / "Split-eval" / name).stat().st_size for name in "ab"]


@pytest.mark.parametrize("name", ["data.tfrecord", "data.tfrecord.gz"])
@pytest.mark.usefixtures("small_ranges")
def test_ranges_of_a_large_file_hold_each_record_once_in_its_order(tmp_path: Path, name: str) -> None:
    path = tmp_path / "Split-train" / name
    records = write(path, 1_000, gzip_level=0 if name.endswith("gz") else None)
    found = ranges.record_ranges([str(path.parent)])
    assert len(found) > 1
    assert found[-1].stop is None
    read = [list(read_records(part.path, None, part.start, part.stop)) for part in found]
    assert [record for part in read for record in part] == records
    blocks = [
        block.payloads(range(len(block))) for part in found for block in read_blocks(part.path, part.start, part.stop)
    ]  # type: ignore[arg-type]
    assert [record for block in blocks for record in block] == records


@pytest.mark.usefixtures("small_ranges")
def test_a_range_of_a_damaged_file_tells_the_number_of_the_record(tmp_path: Path) -> None:
    path = tmp_path / "Split-train" / "data"
    write(path, 1_000)
    found = ranges.record_ranges([str(path.parent)])
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # in the last record's payload
    path.write_bytes(content)
    list(read_records(str(path), None, found[0].start, found[0].stop))
    with pytest.raises(InfeedError, match="corrupt") as raised:
        list(read_records(str(path), None, found[-1].start, found[-1].stop))
    assert raised.value.where == f"{path}, record 999"
    with pytest.raises(InfeedError, match="corrupt") as raised:
        list(read_blocks(str(path), found[-1].start, found[-1].stop))
    assert raised.value.where == f"{path}, record 999"


@pytest.mark.parametrize(
    ("start", "stop", "place"), [(0, None, "f"), (5, 9, "f, records 5 to 8"), (5, None, "f, records 5 to the end")]
)
def test_a_range_says_its_place(start: int, stop: int | None, place: str) -> None:
    assert ranges.ShardRange("train", "f", start, stop).place == place
