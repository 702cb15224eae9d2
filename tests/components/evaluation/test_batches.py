from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.ranges import ShardRange
from infeed.components.evaluation.batches import (
    Batch,
    KnownColumn,
    batches_of,
    input_shards,
    known_columns,
)


def test_shards_come_split_by_split(dataset: str) -> None:
    found = input_shards([dataset], None)
    assert [(shard.split, Path(shard.path).name) for shard in found] == [
        ("eval", "data_tfrecord-00000-of-00001.gz"),
        ("train", "data_tfrecord-00000-of-00002.gz"),
        ("train", "data_tfrecord-00001-of-00002.gz"),
    ]
    assert [shard.split for shard in input_shards([dataset], ["eval"])] == ["eval"]


def test_a_split_that_is_not_there_is_refused(dataset: str) -> None:
    with pytest.raises(InfeedError, match=r"no split 'test'(?s:.*)use one of 'eval', 'train'"):
        input_shards([dataset], ["train", "test"])


def test_batches_hold_at_most_so_many_rows_and_say_where_they_are(dataset: str) -> None:
    shard = input_shards([dataset], ["eval"])[0]
    found = list(batches_of(shard, 2))
    assert [(batch.start, len(batch.records)) for batch in found] == [(0, 2), (2, 2), (4, 1)]
    assert found[1].where() == f"{shard.path}, records 2 to 3"
    assert found[1].where(1) == f"{shard.path}, record 3"
    assert [word.as_py() for batch in found for word in batch.columns["id"].flatten()] == [
        b"row %d" % i for i in range(5, 10)
    ]


def test_large_records_make_small_batches(dataset: str) -> None:
    [shard] = input_shards([dataset], ["eval"])
    sizes = [len(batch.records[0]) for batch in batches_of(shard, 1)]
    assert [len(batch.records) for batch in batches_of(shard, 100, 2 * max(sizes))] == [2, 2, 1]
    assert [len(batch.records) for batch in batches_of(shard, 100, 1)] == [1] * 5  # one record is never too large


def test_columns_are_known_over_all_splits(dataset: str) -> None:
    assert known_columns(input_shards([dataset], None)) == {
        "bytes": KnownColumn("bytes", is_list=False, is_text=False, some_missing=False),
        "id": KnownColumn("bytes", is_list=False, is_text=True, some_missing=False),
        "number": KnownColumn("int", is_list=False, is_text=False, some_missing=True),
        "pair": KnownColumn("int", is_list=True, is_text=False, some_missing=False),
        "tags": KnownColumn("bytes", is_list=True, is_text=True, some_missing=True),
        "x": KnownColumn("float", is_list=False, is_text=False, some_missing=True),
    }


def test_a_column_of_two_types_is_refused(make_dataset: Callable[..., str], dataset: str) -> None:
    other = make_dataset({"id": [1, 2]})
    with pytest.raises(InfeedError, match="column 'id' is bytes and int"):
        known_columns(input_shards([dataset, other], ["train"]))


def test_records_that_are_no_examples_are_refused_where_columns_are_asked_for() -> None:
    with pytest.raises(InfeedError, match=r"(?s)not a serialized tf.Example.*shard.gz, records 5 to 5"):
        _ = Batch("shard.gz", 5, [b"\xff"]).columns


def test_a_damaged_shard_is_named_with_the_record(make_dataset: Callable[..., str]) -> None:
    path = Path(make_dataset({"id": ["a", "b"]}), "Split-train", "data_tfrecord-00000-of-00001.gz")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InfeedError, match=r"data_tfrecord-00000-of-00001.gz, record \d"):
        list(batches_of(ShardRange("train", str(path)), 10))
