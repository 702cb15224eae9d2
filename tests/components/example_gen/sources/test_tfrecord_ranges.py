"""A large TFRecord file is several tasks, which find their records without an index."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import records
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import ingest, settling
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources import tfrecord

OPTIONS = IngestOptions(block_bytes=1024)  # tasks of 8 kB
RECORDS = [random.Random(size).randbytes(size) for size in range(0, 700, 3)]


def framed(payloads: list[bytes]) -> pa.LargeBinaryArray:
    return records.frame_records(pa.array(payloads, pa.large_binary()))


def write(path: Path, payloads: list[bytes]) -> None:
    level = 1 if path.suffix == ".gz" else None
    records.write_records(str(path), [framed(payloads)], gzip_level=level)


def open_cut(folder: Path) -> OpenedSource:
    return tfrecord.open_cut_tfrecords(str(folder), {None: "*"}, OPTIONS)


def read(source: OpenedSource) -> list[bytes]:
    batches = (batch for task in source.tasks for batch in source.read(task.payload, bad_rows=BadRows()))
    return [record for batch in batches for record in batch.column(0).to_pylist()]


def test_each_record_is_read_by_one_task(tmp_path: Path) -> None:
    write(tmp_path / "a", RECORDS)
    write(tmp_path / "b.gz", RECORDS)
    source = open_cut(tmp_path)
    assert len(source.tasks) > 10
    assert [task.order for task in source.tasks] == list(range(len(source.tasks)))
    assert isinstance(source.tasks[-1].payload.piece, str)
    assert read(source) == [*RECORDS, *RECORDS]


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=30), offset=st.integers(0, 500))
def test_the_record_behind_any_byte_is_found(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], offset: int
) -> None:
    path = tmp_path_factory.mktemp("records") / "a"
    write(path, [bytes(size) for size in sizes])
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + records.FRAMING_BYTES + size)
    offset = min(offset, starts[-1])
    assert records.find_record(str(path), offset) == min(start for start in starts if start >= offset)


def test_records_that_hold_records_are_read_file_by_file(tmp_path: Path, job) -> None:  # type: ignore[no-untyped-def]
    inner = b"".join(framed([b"inner"] * 2_000).to_pylist())
    write(tmp_path / "a", [inner, inner])
    source = open_cut(tmp_path)
    assert len(source.tasks) > 2

    def attempt(one: OpenedSource) -> int:
        return ingest.ingest(one.tasks, job(one, OPTIONS)).rows_read

    assert settling.settled(source, attempt) == 2


@pytest.mark.parametrize("at", [3, 200])
def test_an_error_counts_records_from_the_beginning_of_the_file(tmp_path: Path, at: int) -> None:
    write(tmp_path / "a", RECORDS)
    data = bytearray((tmp_path / "a").read_bytes())
    data[sum(records.FRAMING_BYTES + len(record) for record in RECORDS[:at]) + 13] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(InfeedError, match="corrupt record") as raised:
        read(open_cut(tmp_path))
    assert raised.value.where.endswith(f"a, record {at}")


def test_the_first_record_of_a_cut_file_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "a", [b"\x89PNG" * 3_000] * 3)
    with pytest.raises(InfeedError, match=r"not a tf\.Example"):
        tfrecord.check_examples(open_cut(tmp_path), sequences=False)
