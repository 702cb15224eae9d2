"""Records as they are, by file or in ranges: a large file is several tasks, which find records without an index."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_sources import batches_of
from pyarrow import compute as pc

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import records
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.splits import ByColumns, ByLabel
from infeed.components.example_gen import ingest, planning
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources import tfrecord

RECORDS = [os.urandom(100) for _ in range(100)]


def framed(payloads: list[bytes]) -> pa.LargeBinaryArray:
    return records.frame_records(pa.array(payloads, pa.large_binary()))


def write(path: Path, payloads: list[bytes]) -> bytes:
    records.write_records(str(path), [framed(payloads)], gzip_level=1 if path.suffix == ".gz" else None)
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
    assert read_all(opened) == [*RECORDS, *RECORDS]
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
    written = records.write_records(f"{tmp_path}/{name}", [framed(RECORDS)], gzip_level=None)
    splits = {"train": Split.of((Shard(name, 100, written.bytes, written.crc32c),))}
    Manifest(source=Source("csv", "", 1, 1), options={}, schema=(), splits=splits, rows_read=100).write(str(tmp_path))
    assert read(tmp_path / name) == RECORDS
    write(tmp_path / name, RECORDS[::-1])
    with pytest.raises(InfeedError, match=r"(?s)the file has changed: checksum .*of-00001"):
        read(tmp_path / name)
    write(tmp_path / "Split-train" / "left-over", RECORDS)
    with pytest.raises(InfeedError, match="left-over is unknown"):
        tfrecord.open_tfrecords(str(tmp_path), {None: "*/*"}, IngestOptions())


OPTIONS = IngestOptions(block_bytes=1024)  # tasks of 8 kB
MANY = [random.Random(size).randbytes(size) for size in range(0, 700, 3)]


def open_cut(folder: Path) -> OpenedSource:
    return tfrecord.open_cut_tfrecords(str(folder), {None: "*"}, OPTIONS)


def read_all(source: OpenedSource) -> list[bytes]:
    batches = batches_of(source)
    return [record for batch in batches for record in batch.column(0).to_pylist()]


def test_each_record_is_read_by_one_task(tmp_path: Path) -> None:
    write(tmp_path / "a", MANY)
    write(tmp_path / "b.gz", MANY)
    source = open_cut(tmp_path)
    assert len(source.tasks) > 10
    assert [task.order for task in source.tasks] == list(range(len(source.tasks)))
    assert isinstance(source.tasks[-1].payload.piece, str)
    assert read_all(source) == [*MANY, *MANY]


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

    assert planning.settled(source, attempt) == 2


@pytest.mark.parametrize("at", [3, 200])
def test_an_error_counts_records_from_the_beginning_of_the_file(tmp_path: Path, at: int) -> None:
    write(tmp_path / "a", MANY)
    data = bytearray((tmp_path / "a").read_bytes())
    data[sum(records.FRAMING_BYTES + len(record) for record in MANY[:at]) + 13] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(InfeedError, match="corrupt record") as raised:
        read_all(open_cut(tmp_path))
    assert raised.value.where.endswith(f"a, record {at}")


def test_the_first_record_of_a_cut_file_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "a", [b"\x89PNG" * 3_000] * 3)
    with pytest.raises(InfeedError, match=r"not a tf\.Example"):
        tfrecord.check_examples(open_cut(tmp_path), sequences=False)


ROWS = 3_000
TABLE = pa.RecordBatch.from_pydict(
    {
        "id": list(range(ROWS)),
        "label": [None if row % 10 == 9 else row % 4 for row in range(ROWS)],
        "user": [f"ü{row % 50}" for row in range(ROWS)],
        "x": pa.array([row / 8 for row in range(ROWS)], pa.float32()),
        "tags": [list(range(row % 3)) for row in range(ROWS)],
        "raw": [b"\xff"] * ROWS,
        "rare": [1 if row == ROWS - 1 else None for row in range(ROWS)],
    }
)


def write_table(path: Path, table: pa.RecordBatch = TABLE) -> Path:
    framed = records.frame_records(encode_examples(table))
    records.write_records(str(path), [framed], gzip_level=None)
    return path


def written(root: Path, split: str) -> list[bytes]:
    return [record for path in sorted(root.glob(f"Split-{split}/*")) for record in records.read_records(str(path))]


def ids(root: Path, split: str = "train") -> list[int]:
    column = decode_columns(written(root, split))["id"]
    return sorted(column.flatten().to_pylist())


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("label == 3", pc.equal(TABLE["label"], 3)),
        ("label in (1, 2)", pc.is_in(TABLE["label"], pa.array([1, 2]))),
        ("label is None and x >= 100", pc.and_(pc.is_null(TABLE["label"]), pc.greater_equal(TABLE["x"], 100))),
        ("user == 'ü7' or rare == 1", pc.or_(pc.equal(TABLE["user"], "ü7"), pc.is_valid(TABLE["rare"]))),
    ],
)
def test_the_rows_that_pass_are_arrows(tmp_path: Path, text: str, mask: pa.Array) -> None:
    manifest = infeed.ingest(
        write_table(tmp_path / "a.tfrecord"),
        tmp_path / "out",
        splits={"train": 1},
        options=IngestOptions(filter=text, block_bytes=20_000),
        workers=1,
    )
    wanted = pa.Table.from_batches([TABLE]).filter(mask)["id"].to_pylist()
    assert ids(tmp_path / "out") == wanted
    assert manifest.filtered == ROWS - len(wanted)


def test_splits_and_balance_go_by_features(tmp_path: Path) -> None:
    source = write_table(tmp_path / "a.tfrecord")
    infeed.ingest(source, tmp_path / "users", options=IngestOptions(split_by=ByColumns(("user",))), workers=1)
    infeed.ingest(source, tmp_path / "labels", options=IngestOptions(split_by=ByLabel("label")), workers=1)
    users = [{row % 50 for row in ids(tmp_path / "users", split)} for split in ("train", "eval")]
    assert sorted([*users[0], *users[1]]) == list(range(50))
    assert sum(row % 10 == 9 for row in ids(tmp_path / "labels")) == 200  # two thirds of the rows without a label
    balanced = IngestOptions(balance=Balance("label"), required=("label",), on_bad_row="reject")
    infeed.ingest(source, tmp_path / "even", splits={"train": 1}, options=balanced, workers=1)
    labels = [row % 4 for row in ids(tmp_path / "even")]
    assert len({labels.count(label) for label in range(4)}) == 1


def test_bytes_of_the_records_stay(tmp_path: Path) -> None:
    infeed.ingest(
        write_table(tmp_path / "a.tfrecord"),
        tmp_path / "out",
        splits={"train": 1},
        options=IngestOptions(filter="id >= 0", shuffle_seed=None),
        workers=1,
    )
    assert written(tmp_path / "out", "train") == encode_examples(TABLE).to_pylist()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"label": pa.array([0.5])}, "float"),
        ({"label": [[1, 2]]}, "2 values"),
        ({"user": [b"\xff"]}, "UTF-8"),
        (None, "not a serialized"),
    ],
)
def test_a_later_record_that_does_not_fit_is_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, word: str
) -> None:
    monkeypatch.setattr("infeed.components.example_gen.sources.streams.span_bytes", lambda _: 50_000)
    last = b"PNG" if change is None else encode_examples(pa.RecordBatch.from_pydict({"id": [-1], **change}))[0].as_py()
    examples = pa.array([*encode_examples(TABLE).to_pylist(), last], pa.large_binary())
    records.write_records(f"{tmp_path}/a.tfrecord", [records.frame_records(examples)], gzip_level=None)
    options = IngestOptions(filter="label != 1 and user > ''", block_bytes=20_000)
    with pytest.raises(InfeedError, match=word) as error:
        infeed.ingest(tmp_path / "a.tfrecord", tmp_path / "out", options=options, workers=1)
    assert error.value.where.startswith(f"{tmp_path}/a.tfrecord, line {ROWS + 1}")
    again = IngestOptions(filter="label != 1 and user > ''", block_bytes=20_000, on_bad_row="reject")
    manifest = infeed.ingest(tmp_path / "a.tfrecord", tmp_path / "out", options=again, workers=1)
    assert manifest.rejected.rows == 1
    assert f'"line": {ROWS + 1},' in (tmp_path / "out" / "rejected.jsonl").read_text()


def test_a_feature_that_no_record_has_is_an_error(tmp_path: Path) -> None:
    write_table(tmp_path / "a.tfrecord")
    with pytest.raises(InfeedError, match="'nobody'") as error:
        open_source(str(tmp_path), "tfrecord", IngestOptions(filter="nobody > 1"), {})
    assert "label" in error.value.do
    with pytest.raises(InfeedError, match="columns is id"):
        open_source(str(tmp_path), "tfrecord", IngestOptions(columns=("id",)), {})


def test_a_function_sees_all_features(tmp_path: Path) -> None:
    write_table(tmp_path / "a.tfrecord")
    (tmp_path / "mine.py").write_text("def keep(batch): return [True] * batch.num_rows\n")
    opened = open_source(f"{tmp_path}/*.tfrecord", "tfrecord", IngestOptions(filter=f"{tmp_path}/mine.py:keep"), {})
    (batch,) = opened.read(opened.tasks[0].payload, bad_rows=BadRows())
    assert batch.schema == opened.schema
    for name in ("id", "label", "user", "x", "tags", "raw"):
        assert batch[opened.schema.names.index(name)].to_pylist() == TABLE[name].to_pylist(), name
