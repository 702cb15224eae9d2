from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import names, reading, records
from infeed.components.dataset.cache import Expected
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.dataset.reading import check_listed, expected_file, flat_manifest, inspect, manifest_of
from infeed.components.dataset.record_blocks import read_blocks
from infeed.components.dataset.records import frame_records, read_records, write_records
from infeed.components.example_gen.local import ingest

SHARD = Shard("Split-train/data_tfrecord-00000-of-00001", 3, 100, "0a0b0c0d")
MANIFEST = Manifest(
    source=Source("csv", "f1", files=1, bytes=9),
    options={},
    schema=(),
    splits={"train": Split.of((SHARD,))},
    rows_read=3,
)


def write_shards(root: Path, split: str, payloads: list[list[bytes]], gzip: bool = True) -> None:
    for index, shard in enumerate(payloads):
        name = names.shard_name(index, len(payloads), gzip)
        framed = records.frame_records(pa.array(shard, pa.large_binary()))
        path = f"{names.split_dir(str(root), split)}/{name}"
        records.write_records(path, [framed], gzip_level=1 if gzip else None)


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


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", None])
def test_a_kept_count_that_is_damaged_or_anothers_is_made_again(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    write_shards(root, "train", [[b"a", b"b"]])
    first = manifest_of(str(root), str(cache))
    (kept,) = cache.glob("counted-*.json")
    kept.write_bytes(MANIFEST.to_json().encode() if damage is None else damage)
    assert manifest_of(str(root), str(cache)) == first
    assert "is damaged" in caplog.text
    assert Manifest.from_json(kept.read_bytes()) == first


def test_the_count_of_flat_files_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = str(tmp_path / "cache")
    write_shards(tmp_path, "train", [[b"a", b"b"]])
    [file] = (tmp_path / "Split-train").iterdir()
    monkeypatch.chdir(tmp_path / "Split-train")
    for root in ("../Split-train", file.name, f"../Split-train/{file.name}"):
        first = manifest_of(root, cache)
        assert {name: split.records for name, split in first.splits.items()} == {"train": 2}
        assert [shard.file for shard in first.splits["train"].shards] == [file.name]
        assert manifest_of(root, cache) == first
    assert not caplog.text


def test_a_count_is_of_one_place_even_where_names_sizes_and_times_agree(tmp_path: Path) -> None:
    cache, found = tmp_path / "cache", []
    for name, payload in (("one", b"a"), ("two", b"b")):
        write_shards(tmp_path / name, "train", [[payload]], gzip=False)
        for file in (tmp_path / name / "Split-train").iterdir():
            os.utime(file, (1, 1))
        found.append(manifest_of(str(tmp_path / name), str(cache)).splits["train"].shards[0].crc32c)
    assert found[0] != found[1]


def test_a_count_that_cannot_be_kept_is_made_anew(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", "train", [[b"a", b"b"]])
    (tmp_path / "cache").write_text("no folder")
    assert manifest_of(str(tmp_path / "data"), str(tmp_path / "cache")).splits["train"].records == 2


def test_a_dataset_that_is_still_written_is_nobodys(tmp_path: Path) -> None:
    write_shards(tmp_path, "train", [[b"a"]])
    (tmp_path / ".ingest").mkdir()
    with pytest.raises(InfeedError, match="not complete"):
        manifest_of(str(tmp_path))


def test_a_folder_without_splits(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="not a TFRecord dataset"):
        manifest_of(str(tmp_path))


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    with pytest.raises(InfeedError, match=r"no Split-\* folder\n  where: .*rows\.csv"):
        manifest_of(str(path))


def test_a_manifest_is_believed_where_there_is_one(tmp_path: Path) -> None:
    MANIFEST.write(str(tmp_path))
    assert manifest_of(str(tmp_path)) == MANIFEST


def test_what_is_expected_of_a_file_stands_in_the_manifest_of_its_dataset(tmp_path: Path) -> None:
    path = f"{tmp_path}/data/{SHARD.file}"
    MANIFEST.write(f"{tmp_path}/data")
    assert expected_file(path) == Expected(path, 100, "0a0b0c0d")
    assert expected_file(f"{path}-more") is None
    assert expected_file(f"{tmp_path}/other/{SHARD.file}") is None
    (tmp_path / "manifest.json").write_text("of another program")
    assert expected_file(f"{tmp_path}/data/file") is None


def test_a_manifest_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = f"{tmp_path}/{SHARD.file}"
    for crc32c in ("00000000", "0a0b0c0d"):
        split = Split.of((dataclasses.replace(SHARD, crc32c=crc32c),))
        dataclasses.replace(MANIFEST, splits={"train": split}).write(str(tmp_path))
        assert expected_file(path) == Expected(path, 100, crc32c)


def test_a_folder_holds_what_its_manifest_lists_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a", "b", "_SUCCESS", ".crc"):
        (tmp_path / name).touch()
    check_listed(str(tmp_path), {"a", "b"})
    for listed, says in (
        ({"a"}, "b is unknown"),
        (set[str](), "a and 1 more are unknown"),
        ({"a", "b", "c"}, "c is missing"),
    ):
        with pytest.raises(InfeedError, match=rf"(?s){says}.*where: {tmp_path}"):
            check_listed(str(tmp_path), listed)


def write(path: Path, payloads: pa.LargeBinaryArray) -> None:
    gzip = 1 if path.name.endswith(".gz") else None
    records.write_records(str(path), [records.frame_records(payloads)], gzip_level=gzip)


def write_count(path: Path, count: int) -> None:
    write(path, pa.array([b"record"] * count, pa.large_binary()))


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["mnist-train.tfrecord-00000-of-00002", "mnist-train.tfrecord-00001-of-00002"], {"train": 4}),
        (["my-data-test.tfrecord-00000-of-00001", "my-data-train.tfrecord-00000-of-00001"], {"test": 2, "train": 2}),
        (["train.tfrecords", "eval.tfrecord.gz"], {"eval": 2, "train": 2}),
        (["data_tfrecord-00000-of-00001.gz"], {"data": 2}),
        (["part-0.tfrecord", "part-1.tfrecord.gz"], {"part": 4}),  # a number is that of a shard
        (["a-train_00.tfrecords", "a-train_01.tfrecords"], {"train": 4}),
        (["0.tfrecord", "cifar10.tfrecord"], {"0": 2, "cifar10": 2}),
    ],
)
def test_splits_are_told_from_the_names(tmp_path: Path, names: list[str], splits: dict[str, int]) -> None:
    for name in names:
        write_count(tmp_path / name, 2)
    (tmp_path / "dataset_info.json").write_text("{}")
    found = flat_manifest(str(tmp_path))
    assert found is not None
    root, manifest = found
    assert root == str(tmp_path)
    assert {name: split.records for name, split in manifest.splits.items()} == splits
    assert (manifest.source.files, manifest.rows_read) == (len(names), sum(splits.values()))


def test_one_file_is_a_dataset_too(tmp_path: Path) -> None:
    write_count(tmp_path / "mnist-test.tfrecord-00000-of-00001", 3)
    write_count(tmp_path / "mnist-train.tfrecord-00000-of-00001", 2)
    found = flat_manifest(str(tmp_path / "mnist-test.tfrecord-00000-of-00001"))
    assert found is not None
    assert (found[0], found[1].rows_read) == (str(tmp_path), 3)


def test_gzip_that_a_name_does_not_tell_is_read_and_noted(tmp_path: Path) -> None:
    write_count(tmp_path / "a-train.tfrecord.gz", 3)
    (tmp_path / "a-train.tfrecord.gz").rename(tmp_path / "a-train.tfrecord")
    write_count(tmp_path / "b-train.tfrecord", 2)
    found = flat_manifest(str(tmp_path))
    assert found is not None
    assert found[1].rows_read == 5
    (note,) = found[1].warnings
    assert f"{tmp_path}/a-train.tfrecord is compressed by gzip" in note


def test_the_folder_of_one_split_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "Split-eval").mkdir()
    write_count(tmp_path / "Split-eval" / "data_tfrecord-00000-of-00001.gz", 3)
    found = flat_manifest(str(tmp_path / "Split-eval"))
    assert found is not None
    assert list(found[1].splits) == ["eval"]


def test_a_folder_without_any(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    assert flat_manifest(str(tmp_path)) is None


def test_a_folder_that_somebody_else_wrote(tmp_path):
    for split in ("test", "train"):
        write(tmp_path / f"a-{split}.tfrecord", encode_examples(pa.record_batch([pa.array([7, 8, 9])], ["x"])))
    shown = inspect(str(tmp_path), "train", 1)
    assert (shown.root, shown.split, shown.manifest.rows_read) == (str(tmp_path), "train", 6)
    assert [example.features["x"].values for example in shown.examples] == [(7,)]
    assert inspect(str(tmp_path)).split == "test"


def test_other_records_are_counted_and_not_shown(tmp_path):
    write(tmp_path / "a.tfrecord", pa.array([b"\xff"], pa.large_binary()))
    shown = inspect(str(tmp_path))
    assert (shown.manifest.rows_read, shown.examples) == (1, ())


@pytest.mark.parametrize(
    ("where", "split", "said"),
    [
        (".", "dev", "no split 'dev'"),
        ("none", None, "no such file or folder"),
        ("empty", None, "not a TFRecord dataset"),
    ],
)
def test_what_is_not_there(tmp_path, where, split, said):
    write(tmp_path / "a.tfrecord", pa.array([b""], pa.large_binary()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InfeedError, match=said):
        inspect(str(tmp_path / where), split)


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_shard_of_any_split_is_an_error(tmp_path: Path, damage: str) -> None:
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 50)
    ingest(tmp_path / "a.csv", tmp_path / "out", splits={"train": 1, "eval": 1})
    [shard] = (tmp_path / "out" / "Split-eval").iterdir()
    os.truncate(shard, shard.stat().st_size - 1) if damage == "cut" else shard.unlink()
    with pytest.raises(InfeedError, match="missing" if damage == "missing" else "bytes, expected") as raised:
        inspect(str(tmp_path / "out"), "train")
    assert raised.value.where == str(shard)


def test_a_shard_that_the_manifest_does_not_list_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 50)
    ingest(tmp_path / "a.csv", tmp_path / "out", splits={"train": 1, "eval": 1})
    folder = tmp_path / "out" / "Split-eval"
    [shard] = folder.iterdir()
    shutil.copy(shard, folder / "more.gz")
    with pytest.raises(InfeedError, match=r"more\.gz is unknown") as raised:
        inspect(str(tmp_path / "out"), "train")
    assert raised.value.where == str(folder)


def write_files(path: Path, count: int, gzip_level: int | None = None) -> list[bytes]:
    records = [b"%d" % number * 50 for number in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_records(str(path), [frame_records(pa.array(records, pa.large_binary()))], gzip_level=gzip_level)
    return records


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RANGE_BYTES", 10_000)


def test_a_file_that_is_not_large_is_one_range_and_is_not_opened(tmp_path: Path) -> None:
    write_files(tmp_path / "Split-eval" / "b", 3)
    write_files(tmp_path / "Split-eval" / "a", 3)
    (tmp_path / "Split-eval" / ".hidden").touch()

    def count_nothing(function: object, paths: list[str]) -> list[int]:
        assert paths == []
        return []

    found = reading.record_ranges([str(tmp_path / "Split-eval")], count_nothing)
    assert [(part.split, Path(part.path).name, part.start, part.stop) for part in found] == [
        ("eval", "a", 0, None),
        ("eval", "b", 0, None),
    ]
    assert [part.bytes for part in found] == [(tmp_path / "Split-eval" / name).stat().st_size for name in "ab"]


@pytest.mark.parametrize("name", ["data.tfrecord", "data.tfrecord.gz"])
@pytest.mark.usefixtures("small_ranges")
def test_ranges_of_a_large_file_hold_each_record_once_in_its_order(tmp_path: Path, name: str) -> None:
    path = tmp_path / "Split-train" / name
    records = write_files(path, 1_000, gzip_level=0 if name.endswith("gz") else None)
    found = reading.record_ranges([str(path.parent)])
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
    write_files(path, 1_000)
    found = reading.record_ranges([str(path.parent)])
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
    assert reading.ShardRange("train", "f", start, stop).place == place
