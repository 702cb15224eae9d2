from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.dataset import names, records
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.manifest import Balanced, Column, Manifest, Rejected, Shard, Source, Split, manifest_of
from infeed.components.errors import InfeedError

SHARDS = (
    Shard("Split-train/data_tfrecord-00000-of-00002.gz", 3, 100, "0a0b0c0d"),
    Shard("Split-train/data_tfrecord-00001-of-00002.gz", 2, 80, "0a0b0c0e"),
)
MANIFEST = Manifest(
    source=Source("csv", "f1", files=1, bytes=1234),
    options={"compression": "gzip"},
    schema=(Column("fare", "float", (1,), 2), Column("tags", "bytes", None, 0)),
    splits={"train": Split.of(SHARDS)},
    rows_read=5,
)


def write_shards(root: Path, split: str, payloads: list[list[bytes]], gzip: bool = True) -> None:
    for index, shard in enumerate(payloads):
        name = names.shard_name(index, len(payloads), gzip)
        framed = records.frame_records(pa.array(shard, pa.large_binary()))
        path = f"{names.split_dir(str(root), split)}/{name}"
        records.write_records(path, [framed], gzip_level=1 if gzip else None)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    MANIFEST.write(str(tmp_path))
    assert Manifest.read(str(tmp_path)) == MANIFEST
    assert manifest_of(str(tmp_path)) == MANIFEST
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_the_json_is_the_contract(tmp_path: Path) -> None:
    MANIFEST.write(str(tmp_path))
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert written.pop("created_by").startswith("tfx-infeed ")
    assert written == {
        "format": 1,
        "complete": True,
        "source": {"kind": "csv", "fingerprint": "f1", "files": 1, "bytes": 1234},
        "options": {"compression": "gzip"},
        "schema": [
            {"name": "fare", "type": "float", "shape": [1], "nulls": 2},
            {"name": "tags", "type": "bytes", "shape": None, "nulls": 0},
        ],
        "splits": {
            "train": {
                "records": 5,
                "bytes": 180,
                "shards": [dataclasses.asdict(shard) for shard in SHARDS],
                "reason": "",
            },
        },
        "rejected": {"rows": 0, "file": None},
        "filtered": 0,
        "balanced": {"repeated": 0, "dropped": 0},
        "warnings": [],
        "rows_read": 5,
    }


@pytest.mark.parametrize(
    "changes", [{"rows_read": 6}, {"rejected": Rejected(1)}, {"filtered": 1}, {"balanced": Balanced(repeated=1)}]
)
def test_a_count_that_does_not_add_up_is_never_written(tmp_path: Path, changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"rows read and . repeated, but 5 written"):
        dataclasses.replace(MANIFEST, **changes).write(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_rejected_and_filtered_rows_count(tmp_path: Path) -> None:
    dataclasses.replace(MANIFEST, rows_read=8, rejected=Rejected(2, "rejected.jsonl"), filtered=1).write(str(tmp_path))
    assert Manifest.read(str(tmp_path)).rejected == Rejected(2, "rejected.jsonl")


def test_repeated_and_dropped_rows_count(tmp_path: Path) -> None:
    dataclasses.replace(MANIFEST, rows_read=4, balanced=Balanced(repeated=3, dropped=2)).write(str(tmp_path))
    assert Manifest.read(str(tmp_path)).balanced == Balanced(3, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "unreadable manifest"),
        ('{"format": 2}', "format 2, this version reads 1"),
        ('{"format": 1, "complete": false}', "not complete"),
    ],
)
def test_a_manifest_that_cannot_be_trusted(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InfeedError, match=message):
        Manifest.read(str(tmp_path))


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"no manifest.json"):
        Manifest.read(str(tmp_path))


def test_a_dataset_of_somebody_else_is_counted_and_left_alone(tmp_path: Path) -> None:
    write_shards(tmp_path, "train", [[b"a", b"b"], [b"c"]])
    write_shards(tmp_path, "eval", [[b"d"]], gzip=False)
    before = sorted(os.walk(tmp_path))
    counted = manifest_of(str(tmp_path))
    assert {name: split.records for name, split in counted.splits.items()} == {"eval": 1, "train": 3}
    assert counted.splits["train"].shards[1].file == "Split-train/data_tfrecord-00001-of-00002.gz"
    assert counted.rows_read == 4
    assert sorted(os.walk(tmp_path)) == before


def test_a_count_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    write_shards(root, "train", [[b"a", b"b"]])
    first = manifest_of(str(root), str(cache))
    assert manifest_of(str(root), str(cache)) == first
    assert len(os.listdir(cache)) == 1
    write_shards(root, "train", [[b"a", b"b", b"c"]])
    assert manifest_of(str(root), str(cache)).splits["train"].records == 3
    assert len(os.listdir(cache)) == 2


def test_a_count_that_cannot_be_kept_is_made_anew(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", "train", [[b"a", b"b"]])
    (tmp_path / "cache").write_text("no folder")
    assert manifest_of(str(tmp_path / "data"), str(tmp_path / "cache")).splits["train"].records == 2


def test_a_dataset_that_is_still_written_is_nobodys(tmp_path: Path) -> None:
    write_shards(tmp_path, "train", [[b"a"]])
    (tmp_path / ".ingest").mkdir()
    with pytest.raises(InfeedError, match="a dataset that is not finished"):
        manifest_of(str(tmp_path))


def test_a_folder_without_splits(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="not a TFRecord dataset"):
        manifest_of(str(tmp_path))


def test_a_fingerprint_is_of_names_sizes_and_times() -> None:
    def fingerprint(*found: FileStat) -> str:
        return Source.of("csv", "/root", list(found)).fingerprint

    a, b = FileStat("/root/a", 1, 10), FileStat("/root/b", 2, 20)
    assert fingerprint(a, b) == fingerprint(b, a)
    assert fingerprint(a) == Source.of("csv", "/moved", [FileStat("/moved/a", 1, 10)]).fingerprint
    changed = [FileStat("/root/c", 1, 10), FileStat("/root/a", 2, 10), FileStat("/root/a", 1, 11)]
    assert len({fingerprint(a), *(fingerprint(one) for one in changed)}) == 4
