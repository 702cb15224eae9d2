from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.manifest import Balanced, Column, Manifest, Rejected, Shard, Source, Split

Place = tuple[str | int, ...]
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


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    MANIFEST.write(str(tmp_path))
    assert Manifest.read(str(tmp_path)) == MANIFEST
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
        ("{", "cannot read the manifest"),
        ("null", "None is not an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": 1, "format": 1}', "'format' occurs twice"),
        ('{"format": NaN}', "NaN is not JSON"),
        ('{"format": 2}', "format is 2, but this version reads 1"),
        ('{"format": true}', "format: True is not an integer"),
        ('{"format": 1, "complete": false}', "not complete"),
        ('{"format": 1, "complete": "no"}', "complete: 'no' is not true or false"),
        ('{"format": 1, "complete": true}', "created_by is missing"),
    ],
)
def test_a_manifest_that_cannot_be_trusted(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InfeedError, match=message):
        Manifest.read(str(tmp_path))


SHARD, TRAIN = ("splits", "train", "shards", 0), ("splits", "train")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((*SHARD, "file"), "../secret", r"shards\[0\].file: '../secret' is not a file in the folder of its split"),
        ((*SHARD, "file"), "/etc/passwd", "'/etc/passwd' is not a file in the folder"),
        ((*SHARD, "file"), "Split-train/../../secret", "is not a file in the folder"),
        ((*SHARD, "file"), "Split-eval/data_tfrecord-00000-of-00002.gz", "is not a file in the folder"),
        ((*SHARD, "file"), "Split-train/", "is not a file in the folder"),
        ((*SHARD, "file"), "Split-train/.hidden", "is not a file in the folder"),
        ((*SHARD, "file"), "Split-train/\x1b[2J", r"'Split-train/\\x1b\[2J' is not a file in the folder"),
        ((*SHARD, "file"), SHARDS[1].file, "listed twice"),
        ((*SHARD, "file"), "Split-train/data_tfrecord-00007-of-00009.gz", "do not match 2 shards"),
        ((*SHARD, "file"), 7, "7 is not text"),
        ((*SHARD, "records"), -3, "records: -3 is too small"),
        ((*SHARD, "records"), 10**30, "is too large"),
        ((*SHARD, "records"), 3.0, r"3\.0 is not an integer"),
        ((*SHARD, "records"), 4, "'5 records, 180 bytes' is not the sum of its shards"),
        ((*SHARD, "bytes"), 99, "is not the sum of its shards"),
        ((*SHARD, "crc32c"), "0a0b", "'0a0b' is not a checksum"),
        ((*SHARD, "more"), 1, "'more' is not a field"),
        ((*TRAIN, "shards"), {}, "{} is not a list"),
        ((*TRAIN, "records"), 6, "is not the sum of its shards"),
        (TRAIN, [], r"splits.train: \[\] is not an object"),
        (("splits",), {"../x": {"records": 0, "bytes": 0, "shards": [], "reason": 1}}, "reason: 1 is not text"),
        (("splits",), {}, "no splits"),
        (("rows_read",), 6, "6 rows read and 0 repeated, but 5 written"),
        (("filtered",), -1, "filtered: -1 is too small"),
        (("rejected", "file"), "../../secret", "'../../secret' is not a plain file name"),
        (("schema", 0, "type"), "pickle", "'pickle' is not one of int, float, bytes"),
        (("schema", 0, "shape"), [-1], r"schema\[0\]\.shape\[0\]: -1 is too small"),
        (("schema", 0, "shape"), 1, r"schema\[0\]\.shape: 1 is not a list"),
        (("source", "files"), "1", "source.files: '1' is not an integer"),
        (("options",), [], "is not an object"),
        (("warnings",), [1], r"warnings\[0\]: 1 is not text"),
        (("surprise",), 1, "'surprise' is not a field"),
    ],
)
def test_a_manifest_that_was_tampered_with(tmp_path: Path, place: Place, value: object, message: str) -> None:
    fields = inside = json.loads(MANIFEST.to_json())
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(InfeedError, match=f"cannot read the manifest: .*{message}"):
        Manifest.read(str(tmp_path))


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"no manifest.json"):
        Manifest.read(str(tmp_path))


def test_a_fingerprint_is_of_names_sizes_and_times() -> None:
    def fingerprint(*found: FileStat) -> str:
        return Source.of("csv", "/root", list(found)).fingerprint

    a, b = FileStat("/root/a", 1, 10), FileStat("/root/b", 2, 20)
    assert fingerprint(a, b) == fingerprint(b, a)
    assert fingerprint(a) == Source.of("csv", "/moved", [FileStat("/moved/a", 1, 10)]).fingerprint
    changed = [FileStat("/root/c", 1, 10), FileStat("/root/a", 2, 10), FileStat("/root/a", 1, 11)]
    assert len({fingerprint(a), *(fingerprint(one) for one in changed)}) == 4
