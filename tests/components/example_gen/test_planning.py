from __future__ import annotations

import dataclasses

import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import BadRow
from infeed.components.example_gen.planning import ShardTask, SpilledBlock, plan_writes, shard_tasks
from infeed.components.example_gen.spills import Spill

BUCKETS = Buckets((("train", 2), ("eval", 1)))
BAD = BadRow("a.csv", 3, None, "cut short", "")


def block(number: int, *spills: Spill, **changes: int) -> SpilledBlock:
    rows = sum(spill.records for spill in spills)
    plain = SpilledBlock((number, 1), rows, 0, (), (number,), (0,), spills)
    return dataclasses.replace(plain, **changes)


def spill(split: str | None, path: str, records: int) -> Spill:
    return Spill(split, path, 0, records, records * 100, ("a", None))


def test_spills_are_planned_in_the_order_of_the_input() -> None:
    blocks = [block(2, spill("train", "c", 4)), block(1, spill("train", "a", 6), spill("eval", "b", 3))]
    plan = plan_writes(blocks, BUCKETS.names, BUCKETS, IngestOptions(shards=ShardOptions(count=2)))
    assert {split: [one.path for one in found] for split, found in plan.spills.items()} == {
        "train": ["a", "c"],
        "eval": ["b"],
    }
    assert (plan.rows, plan.nulls) == (13, (3,))
    assert plan.shards["train"].reason == "2 asked for"
    assert shard_tasks(plan) == [ShardTask(split, index, 2) for split in ("train", "eval") for index in (0, 1)]


def test_labels_are_divided_once_all_are_counted() -> None:
    blocks = [block(number, spill(None, str(number), 1)) for number in range(6)]
    plan = plan_writes(blocks, BUCKETS.names, BUCKETS, IngestOptions(split_by=ByLabel("x")))
    assert {split: len(found) for split, found in plan.spills.items()} == {"train": 4, "eval": 2}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "no rows in the input"),
        ([block(1, rows=5, filtered=5)], "no rows left of 5: 5 filtered out, 0 rejected"),
        ([dataclasses.replace(block(1), rows=3, rejected=(BAD,) * 3)], r"(?s)more than 2 bad rows.*a\.csv, line 3"),
    ],
)
def test_nothing_to_write(blocks: list[SpilledBlock], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        plan_writes(blocks, BUCKETS.names, BUCKETS, IngestOptions(on_bad_row="reject", bad_row_limit=2))
