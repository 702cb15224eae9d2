"""Whatever a dataset's files or a cache have become: what was written is read, or it is said what is wrong."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import names, records
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.feed.build import build
from infeed.components.feed.capacity import Machine, RecordSizes
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import check_files, corrupt_record_context, shard_files
from infeed.components.feed.stages.base import BatchFunctions

pytestmark = pytest.mark.slow

SHARDS, ROWS, BATCH = 3, 16, 8
STAGES = BatchFunctions(
    parse=lambda texts: tf.strings.to_number(texts, tf.int64),
    transform=lambda numbers: ({"number": numbers, "text": tf.strings.as_string(numbers)}, numbers % 2),
    key="numbers",
)
TIERS: dict[str, dict[str, Any]] = {
    "columns": {"tier": "columns"},
    "disk": {"tier": "disk"},
    "cached": {"tier": "stream", "cache_records": True},
    "stream": {"tier": "stream", "cache_records": False},
}
each_tier = pytest.mark.parametrize(
    "tier", [pytest.param(tier, marks=pytest.mark.image) if tier == "cached" else tier for tier in TIERS]
)
each_split = pytest.mark.parametrize("split", ["train", "eval"])


def write_dataset(root: Path, first: int, gzip: bool = True) -> dict[str, list[int]]:
    """Numbers from `first` on, all of five digits, in both splits; returns what they hold."""
    held, splits = {}, {}
    for place, split in enumerate(("train", "eval")):
        numbers = [first + 1000 * place + row for row in range(SHARDS * ROWS)]
        shards = [_write_shard(root, split, number, numbers[number::SHARDS], gzip) for number in range(SHARDS)]
        held[split], splits[split] = numbers, Split.of(tuple(shards))
    source = Source("csv", "", 1, 1)
    Manifest(source=source, options={}, schema=(), splits=splits, rows_read=2 * SHARDS * ROWS).write(str(root))
    return held


def _write_shard(root: Path, split: str, number: int, numbers: list[int], gzip: bool) -> Shard:
    file = f"{names.split_folder(split)}/{names.shard_name(number, SHARDS, gzip)}"
    framed = records.frame_records(pa.array([str(one).encode() for one in numbers], pa.large_binary()))
    written = records.write_records(str(root / file), [framed], gzip_level=1 if gzip else None)
    return Shard(file, len(numbers), written.bytes, written.crc32c)


def read(root: Path, split: str, tier: str, cache: Path) -> list[int]:
    """One epoch, as the Trainer reads it."""
    shards = shard_files([f"{root}/Split-{split}/*"], str(cache))
    training = split == "train"
    options = FeedOptions(batch_size=BATCH, cache_dir=str(cache), **TIERS[tier])
    made = plan(shards, FeedSpec(training, RecordSizes(5, 16)), options, Machine(cpus=2, memory_bytes=1 << 30))
    with corrupt_record_context(shards):
        batches = build(made, STAGES)
        epoch = batches.take(made.steps_per_epoch) if training else batches
        return sorted(number for features, _ in epoch for number in features["number"].numpy().tolist())


def shard_of(root: Path, split: str, number: int = 1) -> Path:
    return sorted((root / f"Split-{split}").iterdir())[number]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def as_old(path: Path, like: os.stat_result) -> None:
    """Hides a change, as `cp -p` and rsync do."""
    os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))


def replace_shard(root: Path, other: Path, split: str) -> None:
    shard = shard_of(root, split)
    before = shard.stat()
    shutil.copy(shard_of(other, split), shard)
    as_old(shard, before)


def swap_splits(root: Path, other: Path, split: str) -> None:
    for number in range(SHARDS):
        train, evaluation = shard_of(root, "train", number), shard_of(root, "eval", number)
        train.rename(root / "aside")
        evaluation.rename(train)
        (root / "aside").rename(evaluation)


def repeat_a_shard(root: Path, other: Path, split: str) -> None:
    shutil.copy(shard_of(root, split, 0), shard_of(root, split, 1))


def lose_a_shard(root: Path, other: Path, split: str) -> None:
    shard_of(root, split).unlink()


def leave_a_stranger(root: Path, other: Path, split: str) -> None:
    shutil.copy(shard_of(other, split), root / f"Split-{split}" / "data_tfrecord-00003-of-00004")


def take_the_other_manifest(root: Path, other: Path, split: str) -> None:
    shutil.copy(other / "manifest.json", root)


def forget_a_shard(root: Path, other: Path, split: str) -> None:
    manifest = Manifest.read(str(root))
    fewer = Split.of(manifest.splits[split].shards[:-1])
    rows = manifest.rows_read - ROWS
    replace(manifest, splits={**manifest.splits, split: fewer}, rows_read=rows).write(str(root))


def count_a_row_more(root: Path, other: Path, split: str) -> None:
    text = (root / "manifest.json").read_text()
    (root / "manifest.json").write_text(text.replace(f'"records": {ROWS}', f'"records": {ROWS + 1}'))


def cut_a_shard(root: Path, other: Path, split: str) -> None:
    os.truncate(shard_of(root, split), 40)


def empty_a_shard(root: Path, other: Path, split: str) -> None:
    os.truncate(shard_of(root, split), 0)


def flip_a_bit(root: Path, other: Path, split: str) -> None:
    shard = shard_of(root, split)
    before = shard.stat()
    flip(shard, 40)
    as_old(shard, before)


def change_a_record(root: Path, other: Path, split: str) -> None:
    """With checksums of its own, so that TensorFlow takes it."""
    shard = shard_of(root, split)
    payloads = [b"99999", *list(records.read_records(str(shard)))[1:]]
    framed = records.frame_records(pa.array(payloads, pa.large_binary()))
    records.write_records(str(shard), [framed], gzip_level=1 if shard.suffix == ".gz" else None)


DAMAGES = (
    replace_shard, swap_splits, repeat_a_shard, lose_a_shard, leave_a_stranger, take_the_other_manifest,
    forget_a_shard, count_a_row_more, cut_a_shard, empty_a_shard, flip_a_bit, change_a_record,
)  # fmt: skip


@each_tier
@each_split
def test_a_dataset_is_read_as_it_was_written(tmp_path: Path, tier: str, split: str) -> None:
    held = write_dataset(tmp_path / "data", 10_000)
    assert read(tmp_path / "data", split, tier, tmp_path / "cache") == held[split]


@each_tier
@each_split
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_dataset_is_told_and_never_trained_on(
    tmp_path: Path, tier: str, split: str, damage: Callable[[Path, Path, str], None]
) -> None:
    gzip = tier in ("columns", "stream")  # without, files of another content are of the same size
    root, other, cache = tmp_path / "data", tmp_path / "other", tmp_path / "cache"
    write_dataset(root, 10_000, gzip)
    write_dataset(other, 20_000, gzip)
    check_files(shard_files([f"{root}/Split-{split}/*"]), str(cache))  # so the cache knows its files to be right
    damage(root, other, split)
    with pytest.raises(InfeedError, match="where: "):
        read(root, split, tier, cache)


@pytest.mark.parametrize("tier", ["disk", "stream"])
def test_two_datasets_of_the_same_name_share_nothing_in_the_cache(tmp_path: Path, tier: str) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    for first in (10_000, 20_000):
        held = write_dataset(root, first, gzip=False)
        (root / "manifest.json").unlink()  # so that the records are counted
        for file in root.rglob("*"):
            os.utime(file, (1, 1))
        assert read(root, "eval", tier, cache) == held["eval"]
        shutil.rmtree(root)


def entry_of(cache: Path) -> Path:
    (index,) = cache.glob("*/columns.json")
    return index.parent


def cut_values(cache: Path, chance: int) -> None:
    files = sorted(entry_of(cache).glob("*.values"))
    os.truncate(files[chance % len(files)], 3)


def lose_values(cache: Path, chance: int) -> None:
    files = sorted(entry_of(cache).glob("[0-9]*"))
    files[chance % len(files)].unlink()


def flip_values(cache: Path, chance: int) -> None:
    files = sorted(file for file in entry_of(cache).glob("[0-9]*") if file.stat().st_size)
    flip(files[chance % len(files)], 0)


def empty_index(cache: Path, chance: int) -> None:
    os.truncate(entry_of(cache) / "columns.json", 0)


def forge_index(cache: Path, chance: int) -> None:
    index = json.loads((entry_of(cache) / "columns.json").read_text())
    index["columns"][0]["values"] += 1
    (entry_of(cache) / "columns.json").write_text(json.dumps(index))


def make_it_a_file(cache: Path, chance: int) -> None:
    entry = entry_of(cache)
    shutil.rmtree(entry)
    entry.write_bytes(b"")


def forget_all(cache: Path, chance: int) -> None:
    """The notes of what was found right, damaged as well."""
    flip_values(cache, chance)
    for marks in cache.rglob("verified-*.json"):
        marks.write_bytes(b"\0")


CACHE_DAMAGES = (cut_values, lose_values, flip_values, empty_index, forge_index, make_it_a_file, forget_all)


@pytest.mark.parametrize("damage", CACHE_DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_cache_is_told_and_made_again(
    tmp_path: Path, damage: Callable[[Path, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    held = write_dataset(root, 10_000)
    read(root, "eval", "disk", cache)
    damage(cache, 1)
    with caplog.at_level(logging.WARNING):
        assert read(root, "eval", "disk", cache) == held["eval"]
    assert "is damaged" in caplog.text
    caplog.clear()
    assert read(root, "eval", "disk", cache) == held["eval"]  # it does not stay broken
    assert not caplog.text


def test_another_datasets_columns_in_the_place_of_ours_are_not_trained_on(tmp_path: Path) -> None:
    root, other, caches = tmp_path / "data", tmp_path / "other", (tmp_path / "cache", tmp_path / "others")
    held = write_dataset(root, 10_000)
    write_dataset(other, 20_000)
    read(root, "eval", "disk", caches[0])
    read(other, "eval", "disk", caches[1])
    ours, theirs = map(entry_of, caches)
    for file in theirs.glob("*.values"):
        shutil.copy2(file, ours / file.name)
    assert read(root, "eval", "disk", caches[0]) == held["eval"]


def test_a_cache_with_random_damage_is_read_as_written(
    tmp_path: Path, mutated: Callable[[bytes, int], bytes], seed: int
) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    held = write_dataset(root, 10_000)
    read(root, "eval", "disk", cache)
    files = sorted(file for file in cache.rglob("*") if file.is_file())
    file = files[seed % len(files)]
    file.write_bytes(mutated(file.read_bytes(), seed))
    assert read(root, "eval", "disk", cache) == held["eval"]


def test_a_shard_with_random_damage_is_told_or_read_as_written(
    tmp_path: Path, mutated: Callable[[bytes, int], bytes], seed: int
) -> None:
    root, cache = tmp_path / "data", tmp_path / "cache"
    held = write_dataset(root, 10_000, gzip=bool(seed % 2))
    shard = shard_of(root, "eval")
    before = shard.read_bytes()
    shard.write_bytes(mutated(before, seed))
    if shard.read_bytes() == before:
        assert read(root, "eval", "stream", cache) == held["eval"]
        return
    with pytest.raises(InfeedError):
        read(root, "eval", "stream", cache)
