from __future__ import annotations

import dataclasses
import datetime
import decimal
import importlib
import os
from collections.abc import Callable, Hashable
from types import ModuleType

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.manifest import Balanced, Shard
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardPlan
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRow
from infeed.components.example_gen.planning import ShardTask, SpilledTask, SplitPlan, WritePlan
from infeed.components.example_gen.sources.csv.reader import open_csv
from infeed.components.example_gen.sources.csv.rows import CsvOptions
from infeed.components.example_gen.spills import Spill, Spills

pytestmark = pytest.mark.tfx

BAD = BadRow("a.csv", 3, None, "cut short", "1,\N{SNOWMAN}")
LABELS = ["a", 7, 2.5, float("inf"), True, None]


@pytest.fixture(scope="module")
def transforms() -> ModuleType:
    """Not imported while tests are collected: it loads Beam."""
    return importlib.import_module("infeed.components.example_gen.transforms")


@pytest.fixture
def one(cancer: str, job: Callable[..., Job]) -> Job:
    return job(open_csv(cancer, {None: "*"}, IngestOptions(), CsvOptions()))


PLAN = SplitPlan("train", 9, 900, 2, True, ShardPlan(9, "9 asked for"))

EMPTY = Spills.of([])


def spilled(order: int, *labels: Hashable) -> SpilledTask:
    spills = Spills.of(Spill("train", "x/0.arrow", start, 2, 90, (label, None)) for start, label in enumerate(labels))
    return SpilledTask(order, 9, 1, 1, BAD, BAD if order else None, (0, 4), (1, 0), spills)


def plain(task: SpilledTask) -> tuple[SpilledTask, list[Spill]]:
    return dataclasses.replace(task, spills=EMPTY), list(task.spills)


def test_what_became_of_tasks_comes_back_as_it_was(one: Job, transforms: ModuleType) -> None:
    left = [spilled(1, *LABELS), spilled(0)]
    for task in left:
        transforms.leave_task(task, one)
    found = sorted(transforms.left_tasks(2, one), key=lambda task: task.order)
    assert [plain(task) for task in found] == [plain(task) for task in left[::-1]]


@pytest.mark.parametrize(
    ("label", "other"),
    [
        (b"\xff", b"\xfe"),
        (datetime.datetime(2020, 1, 1, 0, 0, 0, 1), datetime.datetime(2020, 1, 1, 0, 0, 0, 2)),
        (decimal.Decimal("0.10"), decimal.Decimal("0.11")),
        (0.0, 0.5),
    ],
)
def test_labels_stay_the_same_or_different(one: Job, label: Hashable, other: Hashable, transforms: ModuleType) -> None:
    transforms.leave_task(spilled(0, label, other, label), one)
    (found,) = transforms.left_tasks(1, one)
    first, second, third = (spill.strata[0] for spill in found.spills)
    assert (first == third, first == second) == (True, False)


def test_a_plan_comes_back_as_it_was(one: Job, transforms: ModuleType) -> None:
    plan = WritePlan(9, 1, 1, Balanced(2, 0), (0, 4), (1, 0), (PLAN,))
    transforms.leave_plan(plan, one)
    assert transforms.left_plan(one) == plan


def test_a_task_that_is_tried_again_replaces_what_it_left(one: Job, transforms: ModuleType) -> None:
    for size in (10, 20):
        transforms.leave_shard(ShardTask(PLAN, 4), Shard("Split-train/x", 1, size, "00"), one)
    assert transforms.left_shards(1, one) == [Shard("Split-train/x", 1, 20, "00")]


def test_the_planner_reads_few_tasks_ahead(one: Job, transforms: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()

    def listed(path: str) -> bytes:
        read.append(path)
        return read_bytes(path)

    for order in range(9):
        transforms.leave_task(spilled(order, "a"), one)
    read_bytes = files.read_bytes
    monkeypatch.setattr(files, "read_bytes", listed)
    monkeypatch.setattr(transforms, "_READERS", 2)
    found = transforms.left_tasks(9, one)
    next(found)
    assert len(read) <= 2
    assert len(list(found)) == 8
    assert len(set(read)) == len(read) == 9


def test_a_write_that_was_killed_on_the_way_is_not_read(one: Job, transforms: ModuleType) -> None:
    transforms.leave_task(spilled(0), one)
    folder = f"{one.temporary}/tasks"
    with open(f"{folder}/.00000001.json.0f", "w") as file:
        file.write("[{")
    assert len(os.listdir(folder)) == 2
    assert [plain(task) for task in transforms.left_tasks(1, one)] == [plain(spilled(0))]


def test_workers_that_write_to_a_disk_of_their_own_are_told_of(one: Job, transforms: ModuleType) -> None:
    transforms.leave_task(spilled(0), one)
    with pytest.raises(InfeedError, match=r"only 1 of 3 worker results(.|\n)*/tasks\n(.|\n)*share"):
        list(transforms.left_tasks(3, one))


def test_notes_lie_on_an_object_store_as_well(one: Job, s3: str, transforms: ModuleType) -> None:
    there = dataclasses.replace(one, root=s3)
    for order in range(3):
        transforms.leave_task(spilled(order), there)
    assert [found.order for found in transforms.left_tasks(3, there)] == [0, 1, 2]
