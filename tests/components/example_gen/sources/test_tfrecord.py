from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import records
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources import tfrecord

RECORDS = [os.urandom(100) for _ in range(100)]


def write(path: Path, payloads: list[bytes]) -> bytes:
    framed = records.frame_records(pa.array(payloads, pa.large_binary()))
    records.write_records(str(path), [framed], gzip_level=1 if path.suffix == ".gz" else None)
    return path.read_bytes()


def read(path: Path) -> list[bytes]:
    return [
        record
        for batch in tfrecord.read_blocks(str(path), 1_000, 1 << 20, bad_rows=BadRows())
        for record in batch.column(0).to_pylist()
    ]


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_records_pass_untouched_in_blocks(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, RECORDS)
    assert read(tmp_path / name) == RECORDS
    blocks = list(tfrecord.read_blocks(f"{tmp_path}/{name}", 1_000, 1 << 20, bad_rows=BadRows()))
    assert [block.num_rows for block in blocks] == [10] * 10


@pytest.mark.parametrize("open_", [tfrecord.open_tfrecords, tfrecord.open_cut_tfrecords])
@pytest.mark.parametrize(("name", "packed"), [("b.tfrecord", True), ("b.tfrecord.gz", False)])
def test_a_name_that_does_not_tell_the_compression_is_read_and_noted(
    tmp_path: Path, open_: Any, name: str, packed: bool
) -> None:
    write(tmp_path / "a.tfrecord", RECORDS)
    plain = (tmp_path / "a.tfrecord").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(plain, 0) if packed else plain)
    opened = open_(str(tmp_path), {None: "*"}, IngestOptions(block_bytes=1_024))
    found = [batch for task in opened.tasks for batch in opened.read(task.payload, bad_rows=BadRows())]
    assert [record for batch in found for record in batch.column(0).to_pylist()] == [*RECORDS, *RECORDS]
    (note,) = opened.warnings
    assert note.startswith(f"{tmp_path}/{name} is {'' if packed else 'not '}compressed by gzip")


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_a_record_beyond_the_limit_is_named_before_it_is_read(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, [b"x", bytes(2 << 20)])
    with pytest.raises(InfeedError, match="the record takes 2 MB") as raised:
        read(tmp_path / name)
    assert raised.value.where.endswith(f"{name}, record 1")


@pytest.mark.parametrize(
    ("name", "keep", "says"),
    [
        ("a", 116 * 60 + 5, r"truncated record\n.*a, record 60"),
        ("a", 116 * 60 + 50, r"truncated record\n.*a, record 60"),
        ("a.gz", -20, r"cannot decompress(?s:.*)a\.gz, record 9\d"),
    ],
)
def test_a_file_cut_short_names_its_record(tmp_path: Path, name: str, keep: int, says: str) -> None:
    whole = write(tmp_path / name, RECORDS)
    (tmp_path / name).write_bytes(whole[:keep])
    with pytest.raises(InfeedError, match=says):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize("length", [1 << 40, 1 << 63, (1 << 64) - 1])
def test_a_forged_length_takes_no_memory(tmp_path: Path, name: str, length: int) -> None:
    data = records._header(length) + b"so little" * 1_000
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    with pytest.raises(InfeedError, match="the record takes") as raised:
        read(tmp_path / name)
    assert raised.value.where.endswith(f"{name}, record 0")
    with pytest.raises(InfeedError, match="truncated record"):
        list(records.read_records(str(tmp_path / name)))
    with pytest.raises(InfeedError, match="truncated record"):
        records.count_records(str(tmp_path / name))


def test_a_changed_byte_names_its_record(tmp_path: Path) -> None:
    whole = bytearray(write(tmp_path / "a", RECORDS))
    whole[116 * 7 + 20] ^= 1
    (tmp_path / "a").write_bytes(whole)
    with pytest.raises(InfeedError, match=r"(?s)wrong checksum.*a, record 7"):
        read(tmp_path / "a")


FEATURES = b"\x0a\x03abc"
FEATURE_LISTS = b"\x12\x01x"


@pytest.mark.parametrize(
    ("record", "is_example", "is_sequence"),
    [
        (b"", True, True),
        (FEATURES, True, True),
        (FEATURES + FEATURES, True, True),  # protobuf merges them
        (FEATURES + FEATURE_LISTS, False, True),
        (b"\x0a\x04abc", False, False),  # ends too early
        (b"\x0a\xff", False, False),
        (b"\x89PNG", False, False),
    ],
)
def test_a_look_at_the_first_record(tmp_path: Path, record: bytes, is_example: bool, is_sequence: bool) -> None:
    write(tmp_path / "a", [record, b"\x89PNG"])
    opened = tfrecord.open_tfrecords(str(tmp_path), {None: "*"}, IngestOptions())
    for sequences, fits in ((False, is_example), (True, is_sequence)):
        if fits:
            tfrecord.check_examples(opened, sequences=sequences)
        else:
            with pytest.raises(InfeedError, match=r"the record is not a (tf\.|Sequence)Example"):
                tfrecord.check_examples(opened, sequences=sequences)


def test_of_a_dataset_that_we_wrote_only_its_own_sound_files_are_taken(tmp_path: Path) -> None:
    name = "Split-train/data_tfrecord-00000-of-00001"
    written = records.write_records(
        f"{tmp_path}/{name}", [records.frame_records(pa.array(RECORDS, pa.large_binary()))], gzip_level=None
    )
    splits = {"train": Split.of((Shard(name, 100, written.bytes, written.crc32c),))}
    Manifest(source=Source("csv", "", 1, 1), options={}, schema=(), splits=splits, rows_read=100).write(str(tmp_path))
    assert read(tmp_path / name) == RECORDS
    write(tmp_path / name, RECORDS[::-1])
    with pytest.raises(InfeedError, match=r"(?s)the file has changed: checksum .*of-00001"):
        read(tmp_path / name)
    write(tmp_path / "Split-train" / "left-over", RECORDS)
    with pytest.raises(InfeedError, match="left-over is unknown"):
        tfrecord.open_tfrecords(str(tmp_path), {None: "*/*"}, IngestOptions())
