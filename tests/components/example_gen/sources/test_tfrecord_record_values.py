from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import compute as pc

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import records
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.splits import ByColumns, ByLabel
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import BadRows

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


def write(path: Path, table: pa.RecordBatch = TABLE) -> Path:
    framed = records.frame_records(encode_examples(table))
    records.write_records(str(path), [framed], gzip_level=None)
    return path


def read(root: Path, split: str) -> list[bytes]:
    return [record for path in sorted(root.glob(f"Split-{split}/*")) for record in records.read_records(str(path))]


def ids(root: Path, split: str = "train") -> list[int]:
    column = decode_columns(read(root, split))["id"]
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
        write(tmp_path / "a.tfrecord"),
        tmp_path / "out",
        splits={"train": 1},
        options=IngestOptions(filter=text, block_bytes=20_000),
        workers=1,
    )
    wanted = pa.Table.from_batches([TABLE]).filter(mask)["id"].to_pylist()
    assert ids(tmp_path / "out") == wanted
    assert manifest.filtered == ROWS - len(wanted)


def test_splits_and_balance_go_by_features(tmp_path: Path) -> None:
    source = write(tmp_path / "a.tfrecord")
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
        write(tmp_path / "a.tfrecord"),
        tmp_path / "out",
        splits={"train": 1},
        options=IngestOptions(filter="id >= 0", shuffle_seed=None),
        workers=1,
    )
    assert read(tmp_path / "out", "train") == encode_examples(TABLE).to_pylist()


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
    write(tmp_path / "a.tfrecord")
    with pytest.raises(InfeedError, match="'nobody'") as error:
        open_source(str(tmp_path), "tfrecord", IngestOptions(filter="nobody > 1"), {})
    assert "label" in error.value.do
    with pytest.raises(InfeedError, match="columns is id"):
        open_source(str(tmp_path), "tfrecord", IngestOptions(columns=("id",)), {})


def test_a_function_sees_all_features(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord")
    (tmp_path / "mine.py").write_text("def keep(batch): return [True] * batch.num_rows\n")
    opened = open_source(f"{tmp_path}/*.tfrecord", "tfrecord", IngestOptions(filter=f"{tmp_path}/mine.py:keep"), {})
    (batch,) = opened.read(opened.tasks[0].payload, bad_rows=BadRows())
    assert batch.schema == opened.schema
    for name in ("id", "label", "user", "x", "tags", "raw"):
        assert batch[opened.schema.names.index(name)].to_pylist() == TABLE[name].to_pylist(), name
