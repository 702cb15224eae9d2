from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import record_blocks, records
from infeed.components.dataset.records import by_length

PAYLOADS = [b"", b"one", b"\x00" * 1000, b"four"]


def framed(payloads: list[bytes]) -> pa.LargeBinaryArray:
    return records.frame_records(pa.array(payloads, pa.large_binary()))


@pytest.fixture(params=[None, 0, 1, 3, 6, 9], ids=lambda level: f"level={level}")
def level(request: pytest.FixtureRequest) -> int | None:
    return request.param


def write(folder: Path, payloads: list[bytes], level: int | None = None) -> str:
    path = f"{folder}/data{'' if level is None else '.gz'}"
    records.write_records(path, [framed(payloads)], gzip_level=level)
    return path


def test_what_is_written_is_read(tmp_path: Path, level: int | None) -> None:
    path = write(tmp_path, PAYLOADS, level)
    assert list(records.read_records(path)) == PAYLOADS
    assert records.count_records(path) == len(PAYLOADS)


def test_no_records_make_a_file_that_reads_as_none(tmp_path: Path, level: int | None) -> None:
    assert list(records.read_records(write(tmp_path, [], level))) == []


def test_arrays_follow_one_another(tmp_path: Path) -> None:
    path = f"{tmp_path}/data.gz"
    records.write_records(path, [framed([b"a"]), framed([]), framed([b"b", b"c"]).slice(1)], gzip_level=1)
    assert list(records.read_records(path)) == [b"a", b"c"]


def test_size_and_checksum_are_of_the_finished_file(tmp_path: Path, level: int | None) -> None:
    path = f"{tmp_path}/data"
    written = records.write_records(path, [framed(PAYLOADS)], gzip_level=level)
    content = Path(path).read_bytes()
    assert written == records.Written(len(content), f"{google_crc32c.value(content):08x}")
    assert records.file_crc32c(path) == written.crc32c


def test_the_same_records_make_the_same_file(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, PAYLOADS, 1) for name in "ab")
    assert Path(first).read_bytes() == Path(second).read_bytes()


def test_the_bytes_of_a_file_do_not_depend_on_how_its_records_arrive(tmp_path: Path, level: int | None) -> None:
    random = np.random.default_rng(0)
    payloads = [b"%d,%f" % (number, value) for number, value in enumerate(random.normal(size=20_000))]
    payloads[700] = bytes(random.integers(0, 9, 1_500_000, np.uint8))  # longer than a piece
    whole = framed(payloads)
    for name, size in (("whole", len(whole)), ("some", 1_000), ("odd", 77)):
        some = [whole.slice(start, size) for start in range(0, len(whole), size)]
        records.write_records(f"{tmp_path}/{name}", some, gzip_level=level)
    written = {Path(f"{tmp_path}/{name}").read_bytes() for name in ("whole", "some", "odd")}
    assert len(written) == 1
    assert list(records.read_records(f"{tmp_path}/odd")) == payloads


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def breaks() -> Iterator[pa.LargeBinaryArray]:
        yield framed(PAYLOADS)
        raise RuntimeError("worker lost")

    with pytest.raises(RuntimeError, match="worker lost"):
        records.write_records(f"{tmp_path}/data.gz", breaks(), gzip_level=1)
    assert os.listdir(tmp_path) == []


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_framing_is_length_crc_payload_crc(payloads: list[bytes]) -> None:
    def masked(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")

    lengths = [len(payload).to_bytes(8, "little") for payload in payloads]
    assert framed(payloads).to_pylist() == [
        length + masked(length) + payload + masked(payload) for length, payload in zip(lengths, payloads, strict=True)
    ]


def cut(path: str, keep: int) -> str:
    Path(path).write_bytes(Path(path).read_bytes()[:keep])
    return path


@pytest.mark.parametrize("keep", [5, 16 + 5, 16 + 13, 16 + 19 - 2])  # in a length, the next, a payload, a checksum
def test_a_truncated_file_names_the_record(tmp_path: Path, keep: int) -> None:
    path = cut(write(tmp_path, PAYLOADS), keep)
    number = 0 if keep < 16 else 1
    for read in (records.count_records, lambda path: list(records.read_records(path))):
        with pytest.raises(InfeedError, match=rf"(?s)truncated record.*{path}, record {number}"):
            read(path)


def test_a_truncated_gzip_names_the_file(tmp_path: Path) -> None:
    path = cut(write(tmp_path, [os.urandom(100) for _ in range(50)], 1), 3_000)
    with pytest.raises(InfeedError, match=rf"(?s){path}, record \d+"):
        records.count_records(path)


def test_a_changed_byte_names_the_record(tmp_path: Path) -> None:
    path = write(tmp_path, PAYLOADS)
    content = bytearray(Path(path).read_bytes())
    content[16 + 13] ^= 1
    Path(path).write_bytes(content)
    with pytest.raises(InfeedError, match=rf"(?s)corrupt record: wrong checksum.*{path}, record 1"):
        list(records.read_records(path))


def test_a_file_of_something_else(tmp_path: Path) -> None:
    plain, zipped = tmp_path / "plain", tmp_path / "zipped.gz"
    plain.write_text("a,b\n1,2\n3,4\n")
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, zipped):
        with pytest.raises(InfeedError, match=rf"(?s)not a TFRecord.*{path}, record 0"):
            records.count_records(str(path))
    plain.rename(tmp_path / "text.gz")
    with pytest.raises(InfeedError, match="cannot decompress"):
        records.count_records(f"{tmp_path}/text.gz")


@pytest.mark.parametrize("size", [5, 0x8B1F, 0x088B1F])  # lengths whose first bytes are those of gzip
def test_gzip_is_found_by_the_first_bytes_of_a_file(tmp_path: Path, size: int) -> None:
    payloads = [bytes(size), b"a"]
    plain, packed = Path(write(tmp_path, payloads)), tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert not records.is_gzip(str(plain))
    assert records.is_gzip(str(packed))
    for path in (plain, packed):
        assert list(records.read_records(str(path))) == payloads
        assert records.count_records(str(path)) == 2
        assert sum(map(len, record_blocks.read_blocks(str(path)))) == 2
    (note,) = records.misnamed_gzip(map(str, (plain, packed, tmp_path / "missing.gz")))
    assert note.startswith(f"{packed} is compressed")
    misnamed = plain.rename(tmp_path / "plain.gz")
    assert not records.is_gzip(str(misnamed))
    assert list(records.read_records(str(misnamed))) == payloads
    assert records.count_records(str(misnamed)) == 2
    assert sum(map(len, record_blocks.read_blocks(str(misnamed)))) == 2
    notes = records.misnamed_gzip(map(str, (misnamed, packed, misnamed)))
    assert notes[1].startswith(f"{misnamed} is not compressed by gzip, and 1 more")
    assert notes[0] == note


def test_numbered_shards_are_not_opened_to_find_gzip(tmp_path: Path) -> None:
    named = Path(write(tmp_path, [b"a"])).rename(tmp_path / "data_tfrecord-00000-of-00001.gz")
    assert records.is_gzip(str(named))


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_a_file_that_zlib_compressed_is_called_so(tmp_path: Path, level: int) -> None:
    path = Path(write(tmp_path, PAYLOADS))
    path.write_bytes(zlib.compress(path.read_bytes(), level))
    with pytest.raises(InfeedError, match="zlib") as raised:
        records.count_records(str(path))
    assert raised.value.where == f"{path}, record 0"


@pytest.mark.parametrize("far", [3, 1 << 40])
def test_each_row_gets_what_is_made_of_its_length(far: int) -> None:
    made: list[int] = []

    def make(length: int) -> bytes:
        made.append(length)
        return b"" if length < 0 else str(length).encode()

    assert by_length(np.array([7, -1, far, 7, 0]), make).to_pylist() == [b"7", b"", str(far).encode(), b"7", b"0"]
    assert sorted(made) == sorted({-1, 0, 7, far}), "once for each length"


def test_no_rows() -> None:
    assert len(by_length(np.array([], np.int64), bytes)) == 0
