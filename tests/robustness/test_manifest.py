"""A manifest is not trusted: whatever is in it, it is read as it was written or refused as an InfeedError."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Column, Manifest, Rejected, Shard, Source, Split

_MANIFEST = Manifest(
    source=Source("csv", "f1", files=1, bytes=1234),
    options={"compression": "gzip"},
    schema=(Column("fare", "float", (1,), 2), Column("tags", "bytes", None, 0)),
    splits={
        "train": Split.of(
            (
                Shard("Split-train/data_tfrecord-00000-of-00002.gz", 3, 100, "0a0b0c0d"),
                Shard("Split-train/data_tfrecord-00001-of-00002.gz", 2, 80, "0a0b0c0e"),
            )
        ),
        "eval": Split.of((Shard("Split-eval/data_tfrecord-00000-of-00001.gz", 1, 40, "00000000"),)),
    },
    rejected=Rejected(2, "rejected.jsonl"),
    warnings=("column 'fare': double values rounded to float32: 3",),
    rows_read=8,
)


def test_a_damaged_manifest_is_refused_or_sound(
    tmp_path: Path, mutated: Callable[[bytes, int], bytes], seed: int
) -> None:
    (tmp_path / "manifest.json").write_bytes(mutated(_MANIFEST.to_json().encode(), seed))
    check_read(tmp_path)


_NUMBERS = (None, True, -1, 1.5, 1 << 63, 10**30)
_TEXTS = ("", "no", "..", "../x", "/x", "a\x1b[2J", "\ud800")
_NASTY = (*_NUMBERS, *_TEXTS, [], {}, [[]], {"": {}})


def test_a_manifest_with_another_value_somewhere_is_refused_or_sound(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    manifest = json.loads(_MANIFEST.to_json())
    places = list(_places(manifest))
    holder, key = chance.choice(places)
    if chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(chance.choice([*_NASTY, *(other[name] for other, name in places)]))
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    check_read(tmp_path)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(what holds it, its key) of every value."""
    for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inside, dict | list):
            yield from _places(inside)


def check_read(root: Path) -> None:
    """Raises anything but InfeedError, or what a reader would fall over."""
    try:
        read = Manifest.read(str(root))
    except InfeedError:
        return
    shards = [shard for split in read.splits.values() for shard in split.shards]
    for shard in shards:
        assert Path(root, shard.file).resolve().is_relative_to(root)
        assert shard.file.isprintable()
        assert 0 <= shard.records < sys.maxsize
    assert len({shard.file for shard in shards}) == len(shards)
    went = read.rejected.rows + read.filtered + read.balanced.dropped
    assert sum(shard.records for shard in shards) + went == read.rows_read + read.balanced.repeated
    assert Manifest.from_json(read.to_json().encode()) == read
