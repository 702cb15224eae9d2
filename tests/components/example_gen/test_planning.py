from __future__ import annotations

import dataclasses

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.example_gen import planning
from infeed.components.example_gen.inputs import BadRow
from infeed.components.example_gen.planning import ShardTask, SpilledTask, plan_writes, shard_tasks
from infeed.components.example_gen.spills import Spill, Spills

BUCKETS = Buckets((("train", 2), ("eval", 1)))
BAD = BadRow("a.csv", 3, None, "cut short", "")


def task(number: int, *spills: Spill, **changes: int) -> SpilledTask:
    rows = sum(spill.records for spill in spills)
    plain = SpilledTask(number, rows, 0, 0, None, None, (number,), (0,), Spills.of(spills))
    return dataclasses.replace(plain, **changes)


def spill(split: str | None, path: str, records: int) -> Spill:
    return Spill(split, path, 0, records, records * 100, ("a", None))


def test_spills_are_planned_in_the_order_of_the_input() -> None:
    tasks = [task(2, spill("train", "c", 4)), task(1, spill("train", "a", 6), spill("eval", "b", 3))]
    plan, spills = plan_writes(tasks, BUCKETS.names, BUCKETS, IngestOptions(shards=ShardOptions(count=2)), "")
    assert {split: [one.path for one in found] for split, found in spills.items()} == {
        "train": ["a", "c"],
        "eval": ["b"],
    }
    assert (plan.rows, plan.nulls) == (13, (3,))
    train = plan.splits[0]
    assert (train.split, train.records, train.bytes, train.spills) == ("train", 10, 1_000, 2)
    assert train.shards.reason == "the number is set to 2"
    assert shard_tasks(plan) == [ShardTask(split, index) for split in plan.splits for index in (0, 1)]


def test_a_shard_is_written_in_windows_that_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW_BYTES", 300)
    options = IngestOptions(shards=ShardOptions(count=2))
    plan, _ = plan_writes([task(0, spill("train", "a", 10))], ("train",), None, options, "")
    assert [shard.windows for shard in shard_tasks(plan)] == [range(2), range(2, 4)]


def test_labels_are_divided_once_all_are_counted() -> None:
    tasks = [task(number, spill(None, str(number), 1)) for number in range(6)]
    _, spills = plan_writes(tasks, BUCKETS.names, BUCKETS, IngestOptions(split_by=ByLabel("x")), "")
    assert {split: len(found) for split, found in spills.items()} == {"train": 4, "eval": 2}


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], r"(?s)no rows in the input.*a\.csv"),
        ([task(1, rows=5, filtered=5)], r"(?s)none of 5 rows.*5 filtered out, 0 rejected.*a\.csv"),
        (
            [dataclasses.replace(task(1), rows=3, rejected=3, first_rejected=BAD, last_rejected=BAD)],
            r"(?s)more than 2 bad rows.*a\.csv, line 3",
        ),
    ],
)
def test_nothing_to_write(tasks: list[SpilledTask], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        plan_writes(tasks, BUCKETS.names, BUCKETS, IngestOptions(on_bad_row="reject", bad_row_limit=2), "a.csv")
