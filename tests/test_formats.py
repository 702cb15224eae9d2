"""Datasets, caches and checkpoints that earlier versions wrote, as docs/compatibility.md promises.

`tests/data/format-N` is never written again. If a format changes, a folder of the new one is added.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import infeed
from infeed.components.dataset import manifest
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions, ShardOptions
from infeed.components.dataset.records import read_records
from infeed.components.load import entries

DATA = Path(__file__).parent / "data"
FORMATS = sorted(DATA.glob("format-*"))
ROWS = [9, 17, 12, 25, 23, 38, 26, 6, 30, 2, 4, 18, 3, 21, 27, 22, 28, 33, 14, 5, 24, 32, 29, 39]
FIRST_BATCH = [30, 33, 5, 9, 28, 26, 29, 21]  # of seed 1


def records_of(folder: Path) -> dict[str, list[bytes]]:
    """The records of each shard, without the compression: libraries may compress the same bytes differently."""
    return {str(path.relative_to(folder)): list(read_records(str(path))) for path in folder.glob("Split-*/*.gz")}


@pytest.fixture(params=FORMATS, ids=lambda folder: folder.name)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    copy = tmp_path / "old"
    shutil.copytree(request.param, copy)
    return copy


def test_the_format_of_today_is_among_them() -> None:
    assert f"format-{manifest.FORMAT}" in [folder.name for folder in FORMATS]


def test_a_dataset_is_read_in_the_order_of_its_records(old: Path, tmp_path: Path) -> None:
    found = infeed.inspect(old / "dataset").manifest
    assert {name: split.records for name, split in found.splits.items()} == {"train": 24, "eval": 16}
    assert {column.name: column.nulls for column in found.schema}["tip"] == 6
    data = infeed.load(old / "dataset", split="train", batch_size=8, seed=1, cache_dir=str(tmp_path / "cache"))
    assert data[:]["ride"].tolist() == ROWS
    assert next(iter(data.numpy()))["ride"].tolist() == FIRST_BATCH


def test_the_same_source_gives_the_same_records_in_the_same_order(old: Path, tmp_path: Path) -> None:
    options = IngestOptions(shards=ShardOptions(count=2))
    infeed.ingest(old / "rides.csv", tmp_path / "new", splits={"train": 3, "eval": 1}, options=options)
    assert records_of(tmp_path / "new") == records_of(old / "dataset") != {}


def test_a_dataset_of_a_later_format_is_refused(old: Path) -> None:
    path = old / "dataset" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": manifest.FORMAT + 1}))
    with pytest.raises(infeed.InfeedError, match=f"format is {manifest.FORMAT + 1}"):
        Manifest.read(str(old / "dataset"))


def test_a_cache_of_another_format_is_not_used(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    for format in (entries._FORMAT, entries._FORMAT + 1):
        monkeypatch.setattr(entries, "_FORMAT", format)
        data = infeed.load(old / "dataset", split="train", batch_size=8, cache_dir=str(cache))
        assert data[:]["ride"].tolist() == ROWS
    assert len(list(cache.glob("*/columns.json"))) == 2


@pytest.mark.slow
def test_a_checkpoint_is_read(old: Path) -> None:
    import tensorflow as tf

    from infeed.components.trainer.checkpoint import _MEMORY, newest_checkpoint, saved_step, unpack

    assert saved_step(str(old / "checkpoint")) == 14
    memory = unpack(tf.train.load_variable(newest_checkpoint(str(old / "checkpoint")), _MEMORY))
    assert (memory["1"], memory["finished"]) == ({"batches": 4}, False)
    assert memory["0"]["records"][0]["steps"] == 10
