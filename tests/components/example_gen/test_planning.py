"""Splits and shards from the sizes of spills; and types by a sample, which are those of the whole input."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import names
from infeed.components.dataset.manifest import Balanced, Manifest
from infeed.components.dataset.options import Balance, IngestOptions, ShardOptions
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.engine.beam_runner import LOCAL_RUNNER, Named
from infeed.components.engine.on_beam import OnBeam
from infeed.components.engine.processes import Processes
from infeed.components.example_gen import ingest, planning
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRow, OpenedSource
from infeed.components.example_gen.planning import (
    ShardTask,
    SpilledTask,
    balance_labels,
    divide_by_label,
    limited,
    plan_writes,
    settled,
    shard_tasks,
)
from infeed.components.example_gen.sources import csv_files, streams
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


def labeled(counted: int, label: Any, path: str = "p") -> Spill:
    return Spill("train", path, 0, counted, counted * 100, (label, label))


def counted(spills: list[Spill], by: str = "label") -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for one in spills:
        counts[(one.split, one.strata[0]) if by == "split" else one.strata[1]] += one.records
    return counts


def divide(spills: list[Spill], buckets: Buckets) -> list[Spill]:
    divided = divide_by_label(Spills.of(spills), buckets)
    return [dataclasses.replace(one, split=split) for split, found in divided.items() for one in found]


def balance(spills: list[Spill], options: Balance) -> tuple[list[Spill], Balanced]:
    balanced, counts = balance_labels(Spills.of(spills), options)
    return list(balanced), counts


@given(
    segments=st.lists(st.tuples(st.integers(1, 9), st.sampled_from("abc")), max_size=30),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_every_label_is_divided_by_the_shares_to_within_a_record_a_cut(
    segments: list[tuple[int, str]], shares: list[int]
) -> None:
    spills = [labeled(count, label, str(number)) for number, (count, label) in enumerate(segments)]
    buckets = Buckets(tuple((str(number), share) for number, share in enumerate(shares)))
    divided = divide(spills, buckets)
    counts = counted(divided, by="split")
    for label, total in counted(spills).items():
        for name, share in buckets.shares:
            assert abs(counts[name, label] - total * share / sum(shares)) < max(len(shares) - 1, 1)
    sizes = [sum(count for (split, _), count in counts.items() if split == name) for name in buckets.names]
    if min(counted(spills).values(), default=0) >= sum(shares):  # otherwise rare labels may enlarge the first split
        assert all(abs(size - sum(sizes) * share / sum(shares)) < 1 for size, share in zip(sizes, shares, strict=True))
    taken = [(one.path, record) for one in divided for record in range(one.start, one.start + one.records)]
    assert len(taken) == len(set(taken)) == sum(count for count, _ in segments)


@pytest.mark.parametrize("rows", [(25, 15), (13, 13, 14), (5,) * 8, (1, 2, 2, 35)])
def test_the_splits_of_a_small_table_have_exact_sizes(rows: tuple[int, ...]) -> None:
    """With each label rounded up for itself, the last split would have too few rows."""
    spills = [labeled(count, f"label {number}") for number, count in enumerate(rows)]
    divided = counted(divide(spills, Buckets((("train", 10), ("eval", 5), ("test", 5)))), by="split")
    sizes = {name: sum(count for (split, _), count in divided.items() if split == name) for name, _ in divided}
    assert sizes == {"train": 20, "eval": 10, "test": 10}
    assert all(divided["train", f"label {number}"] for number in range(len(rows)))


def test_the_odd_record_of_a_rare_label_goes_to_the_first_split() -> None:
    divided = divide([labeled(1, "rare")], Buckets((("train", 2), ("eval", 1))))
    assert [one.split for one in divided] == ["train"]


SEGMENTS = [labeled(4, "a"), labeled(1, "b"), labeled(3, "a"), labeled(2, "b"), labeled(5, None)]


def test_over_sampling_repeats_until_all_are_as_frequent() -> None:
    sampled, counts = balance(SEGMENTS, Balance("label", sampling="over"))
    assert counted(sampled) == {"a": 7, "b": 7, None: 5}  # rows without a label stay as they are
    assert counts == Balanced(repeated=4)


def test_under_sampling_drops_until_all_are_as_rare() -> None:
    sampled, counts = balance(SEGMENTS, Balance("label", sampling="under"))
    assert counted(sampled) == {"a": 3, "b": 3, None: 5}
    assert counts == Balanced(dropped=4)


def test_balancing_nothing() -> None:
    assert balance([], Balance("label")) == ([], Balanced())


def test_shares_of_very_many_records_are_exact() -> None:
    few, many = 3_000_000_001, 5_000_000_003  # their product exceeds 64 bits
    spills = [labeled(few, "a"), labeled(many - 2, "b"), labeled(2, "b")]
    sampled, _ = balance(spills, Balance("label", sampling="under"))
    assert counted(sampled) == {"a": few, "b": few}


def many_tasks(labels: int) -> Iterator[SpilledTask]:
    """Three many_tasks, each with as many labels of its own."""
    for order in range(3):
        spills = Spills.of(labeled(1, f"{order}-{number}") for number in range(labels))
        yield SpilledTask(order, labels, 0, 0, None, None, (), (), spills)


@pytest.mark.parametrize("options", [IngestOptions(split_by=ByLabel("id")), IngestOptions(balance=Balance("id"))])
def test_a_column_of_too_many_labels_stops_at_the_task_that_exceeds_the_bound(
    options: IngestOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_MOST_LABELS", 10)
    assert len(list(limited(many_tasks(3), options))) == 3
    found = limited(many_tasks(6), options)
    next(found)
    with pytest.raises(InfeedError, match="more than 10 distinct labels") as raised:
        next(found)
    assert raised.value.where == "column 'id'"


def test_too_many_runs_of_equal_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST_SPILLS", 10)
    with pytest.raises(InfeedError, match="12 runs of equal labels") as raised:
        list(limited(many_tasks(4), IngestOptions(split_by=ByLabel("id"))))
    assert raised.value.where == "column 'id'"


def test_a_label_that_would_be_repeated_too_often() -> None:
    with pytest.raises(InfeedError, match="10000001 runs") as raised:
        balance([labeled(1, "rare"), labeled(10_000_000, "common")], Balance("y"))
    assert raised.value.where == "column 'y'"


def test_columns_that_are_not_labels_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST_SPILLS", 10)
    assert len(list(limited(many_tasks(6), IngestOptions()))) == 3


MakeJob = Callable[..., Job]
OPTIONS = IngestOptions(block_bytes=1024)
REJECT = IngestOptions(block_bytes=1024, on_bad_row="reject", bad_row_limit=100)
SAMPLE = 4096


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SAMPLE_BYTES", SAMPLE)
    monkeypatch.setattr(csv_files, "_HEADER_BYTES", 256)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each piece that is read of an input."""
    read: list[int] = []
    pieces = streams._pieces

    def counted(*args: Any) -> Iterator[bytes]:
        for piece in pieces(*args):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(streams, "_pieces", counted)
    return read


def table(folder: Path, kind: str, last: Any = 7, bad: tuple[int, ...] = ()) -> Path:
    """2,000 rows: a number, a text with line breaks, and a number that is `last` in the last row; some are bad."""
    path = folder / f"t.{kind}"
    with open(path, "w", newline="") as file:
        file.write("n,text,late\n" if kind == "csv" else "")
        for row in range(2_000):
            late = last if row == 1_999 else row
            if row in bad:
                file.write("oops\n")
            elif kind == "csv":
                file.write(f'{row},"two, ""or""\n\nthree {row}",{late}\n')
            else:
                file.write(json.dumps({"n": row, "text": "two\nlines", "late": late}) + "\n")
    return path


def content(root: str) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


def written(
    path: Path, options: IngestOptions, job: MakeJob, *, sampled: bool, run: Any = ingest.ingest
) -> dict[str, str]:
    """The files of the dataset."""

    def attempt(source: OpenedSource) -> str:
        one = job(source, options)
        run(source.tasks, one)
        return one.root

    return content(settled(open_source(str(path), path.suffix[1:], options, {}, sampled=sampled), attempt))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_input_whose_sample_shows_its_types_is_read_once(
    tmp_path: Path, kind: str, job: MakeJob, readings: list[int]
) -> None:
    path = table(tmp_path, kind)
    dataset = written(path, OPTIONS, job, sampled=True)
    assert sum(readings) < path.stat().st_size + 4 * SAMPLE
    assert dataset == written(path, OPTIONS, job, sampled=False)


@pytest.mark.parametrize(("kind", "last"), [("csv", "x"), ("csv", "0.5"), ("jsonl", 0.5)])
def test_a_value_that_only_the_last_row_holds_costs_a_second_reading(
    tmp_path: Path, kind: str, last: Any, job: MakeJob, readings: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    path = table(tmp_path, kind, last)
    with caplog.at_level(logging.WARNING):
        dataset = written(path, OPTIONS, job, sampled=True)
    assert "'late'" in caplog.text
    assert sum(readings) < 2 * path.stat().st_size + 6 * SAMPLE
    assert dataset == written(path, OPTIONS, job, sampled=False)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rejected_rows_keep_their_lines(tmp_path: Path, kind: str, job: MakeJob) -> None:
    path = table(tmp_path, kind, 0.5, bad=(3, 900, 901, 1_998))
    dataset = written(path, REJECT, job, sampled=True)
    rejects = [json.loads(line)["line"] for line in (tmp_path / "out" / names.REJECTS).read_text().splitlines()]
    lines = path.read_text().split("\n")
    assert [lines[line - 1] for line in rejects] == ["oops"] * 4
    assert dataset == written(path, REJECT, job, sampled=False)


@pytest.mark.parametrize("options", [OPTIONS, IngestOptions(block_bytes=1024, on_bad_row="reject", bad_row_limit=0)])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_error_names_the_line_in_the_file(tmp_path: Path, kind: str, options: IngestOptions, job: MakeJob) -> None:
    path = table(tmp_path, kind, bad=(1_500,))
    line = path.read_text().split("\n").index("oops") + 1
    with pytest.raises(InfeedError) as raised:
        written(path, options, job, sampled=True)
    assert raised.value.where.endswith(f"{path}, line {line}")


def test_a_quote_that_never_closes_is_found_by_the_task_that_reads_the_end(tmp_path: Path, job: MakeJob) -> None:
    path = table(tmp_path, "csv")
    lines = path.read_text().count("\n")
    with open(path, "a") as file:
        file.write('1,"open,2\n')
    with pytest.raises(InfeedError, match="never closed") as raised:
        written(path, OPTIONS, job, sampled=True)
    assert raised.value.where == f"{path}, line {lines + 1}"


def test_options_that_fit_the_whole_input_and_not_its_sample_are_right(tmp_path: Path, job: MakeJob) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n' * 2_000 + '{"n": 2, "late": 5}\n' * 3)
    options = IngestOptions(block_bytes=1024, filter="late > 1")
    assert written(path, options, job, sampled=True) == written(path, options, job, sampled=False)
    with pytest.raises(InfeedError, match="latte"):
        written(path, IngestOptions(block_bytes=1024, filter="latte > 1"), job, sampled=True)


@pytest.mark.slow
def test_several_processes_write_the_same(tmp_path: Path, job: MakeJob) -> None:
    path = table(tmp_path, "csv", "x", bad=(900,))
    expected = written(path, REJECT, job, sampled=False)
    with Processes(2) as engine:

        def run(tasks: Any, one: Job) -> Manifest:
            return ingest.ingest(tasks, one, map_fn=engine.map)

        assert written(path, REJECT, job, sampled=True, run=run) == expected


@pytest.mark.tfx
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_beam_writes_the_same(tmp_path: Path, kind: str, job: MakeJob) -> None:
    import apache_beam as beam

    path = table(tmp_path, kind, 0.5, bad=(900, 1_700))
    expected = written(path, REJECT, job, sampled=False)

    def run(tasks: Any, one: Job) -> None:
        with OnBeam(lambda: beam.Pipeline(LOCAL_RUNNER, argv=[]), one.temporary, Named()) as engine:
            ingest.ingest(tasks, one, map_fn=engine.map)

    assert written(path, REJECT, job, sampled=True, run=run) == expected
