"""Plan of the output from the sizes of all spills: splits, shards, and the fate of every row.

Stratified splits and balancing are planned here too, from sizes alone. A `Spill` holds the records of one run, split
and stratum in shuffled order, so any slice of it is a random sample. Shares are rounded over all spills of a label
together.

The kinds of columns come from a sample, and `check_found` compares the findings of all tasks with it. If they differ,
nothing is written, and `settled` starts again with the kinds of the whole input. The result is the same as with kinds
known from the start.

Memory grows with the tasks: a summary of each, and a row of `Spills` for each run, split and label.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Balanced
from infeed.components.dataset.options import Balance, Deal, IngestOptions, ShardPlan, plan_shards
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.example_gen.codes import Codes, add_codes
from infeed.components.example_gen.inputs import (
    BadRow,
    Findings,
    OpenedSource,
    Sample,
    check_any_good,
    check_limit,
    to_jsonl,
)
from infeed.components.example_gen.spills import Ints, Spills, Stratum, label_columns

WINDOW_BYTES = 32 << 20  # of records; a shard's writer holds a few copies of one window
_INT64 = 1 << 63
_MOST_LABELS = 100_000  # distinct labels in the input
_MOST_SPILLS = 10_000_000  # of all runs, splits and labels
_FEW_VALUES = "stratify or balance by a column with few distinct values"
A = TypeVar("A")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpilledTask:
    """The outcome of one task."""

    order: int
    rows: int  # rows read, including filtered and rejected rows
    filtered: int
    rejected: int  # number of rejected rows, which the task wrote to a file
    first_rejected: BadRow | None
    last_rejected: BadRow | None
    nulls: tuple[int, ...]  # number of nulls in each written column
    rounded: tuple[int, ...]  # number of values that float32 changes, in each written column
    spills: Spills  # in input order
    found: Findings | None = None  # findings of the source, if its types were inferred from a sample
    codes: Mapping[str, Codes] = field(default_factory=dict)  # cells that look like codes, by column of numbers


@dataclass(frozen=True)
class SplitPlan:
    """The content of a split, and how it is written."""

    split: str
    records: int
    bytes: int
    spills: int  # number of spills with its records
    interleave: bool  # whether records are shuffled
    shards: ShardPlan

    @property
    def windows_of_shard(self) -> int:
        """Number of windows of a shard, chosen so that each window fits into memory."""
        return max(1, math.ceil(self.bytes / self.shards.count / WINDOW_BYTES))

    @property
    def windows(self) -> int:
        return self.shards.count * self.windows_of_shard

    @property
    def deal(self) -> Deal:
        """How records are distributed over the windows."""
        return Deal(self.windows, self.bytes, self.interleave)


@dataclass(frozen=True)
class WritePlan:
    """The fate of all rows, and the plan of every split."""

    rows: int
    filtered: int
    rejected: int
    balanced: Balanced
    nulls: tuple[int, ...]
    rounded: tuple[int, ...]
    splits: tuple[SplitPlan, ...]
    codes: Mapping[str, Codes] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardTask:
    """A shard to write."""

    plan: SplitPlan
    index: int

    @property
    def windows(self) -> range:
        first = self.index * self.plan.windows_of_shard
        return range(first, first + self.plan.windows_of_shard)


def plan_writes(
    tasks: Iterable[SpilledTask], splits: Sequence[str], buckets: Buckets | None, options: IngestOptions, place: str
) -> tuple[WritePlan, dict[str, Spills]]:
    """Plan each split, and return its spills in input order. Raises InfeedError if no rows are left to write."""
    # Engines may return tasks in any order, but the plan must not depend on it.
    tasks = sorted(tasks, key=lambda task: task.order)
    rejected = sum(task.rejected for task in tasks)
    bad = [row for task in tasks for row in (task.first_rejected, task.last_rejected) if row is not None]
    # Bad rows are checked first, because they are the reason if no row is left.
    check_limit(rejected, options.bad_row_limit, bad[-1].where if bad else "")
    rows, filtered = sum(task.rows for task in tasks), sum(task.filtered for task in tasks)
    if not rows:
        raise no_rows(place)
    if rows == rejected:
        check_any_good(bad)
    if rows == filtered + rejected:
        what = f"none of {rows} rows are left: {filtered} filtered out, {rejected} rejected"
        raise InfeedError(what, where=place, do="check the filter")
    spills, balanced = _plan_splits(Spills.joined([task.spills for task in tasks]), splits, buckets, options)
    planned = []
    for split, found in spills.items():
        size, records = int(found.bytes.sum()), int(found.records.sum())
        shards = plan_shards(size, records, options.shards)
        planned.append(SplitPlan(split, records, size, len(found), options.shuffle_seed is not None, shards))
    plan = WritePlan(
        rows=rows,
        filtered=filtered,
        rejected=rejected,
        balanced=balanced,
        nulls=_column_sums(task.nulls for task in tasks),
        rounded=_column_sums(task.rounded for task in tasks),
        splits=tuple(planned),
        codes=add_codes(task.codes for task in tasks),
    )
    return plan, spills


def shard_tasks(plan: WritePlan) -> list[ShardTask]:
    return [ShardTask(split, index) for split in plan.splits for index in range(split.shards.count)]


def no_rows(place: str) -> InfeedError:
    return InfeedError("no rows in the input", where=place, do="check the input's path and pattern")


def limited(tasks: Iterable[SpilledTask], options: IngestOptions) -> Iterator[SpilledTask]:
    """Yield the tasks with each label in memory only once. Raise InfeedError if there are too many labels or spills."""
    if not (options.divides_later or any(options.strata)):
        yield from tasks
        return
    where, count, strata = label_columns(options.strata), 0, dict[Stratum, Stratum]()
    for task in tasks:
        of_task = [strata.setdefault(labels, labels) for labels in task.spills.strata]
        count += len(task.spills)
        if len(strata) > _MOST_LABELS:
            what = f"the input has more than {_MOST_LABELS} distinct labels"
            raise InfeedError(what, where=where, do=_FEW_VALUES)
        _check_count(count, where, _FEW_VALUES)
        yield dataclasses.replace(task, spills=dataclasses.replace(task.spills, strata=of_task))


def _plan_splits(
    spills: Spills, splits: Sequence[str], buckets: Buckets | None, options: IngestOptions
) -> tuple[dict[str, Spills], Balanced]:
    by_split = {split: spills.of_split(split) for split in splits}
    if buckets is not None and options.divides_later:
        divide = divide_by_label if isinstance(options.split_by, ByLabel) else divide_by_rank
        for split, divided in divide(spills.of_split(None), buckets).items():
            by_split[split] = Spills.joined([by_split[split], divided]) if len(by_split[split]) else divided
    balanced = Balanced()
    if options.balance is not None:
        for split in options.balance.splits:
            by_split[split], counts = balance_labels(by_split[split], options.balance)
            balanced += counts
    return by_split, balanced


def divide_by_rank(spills: Spills, buckets: Buckets) -> dict[str, Spills]:
    """Divide the records in the order of their ranks. Earlier splits are rounded up. Equal ranks stay together."""
    numbers, ranks = spills.labels(0)
    # Rows of files that belong to a given split have no rank.
    order = np.array(sorted(range(len(ranks)), key=lambda number: cast(bytes, ranks[number] or b"")), np.int64)
    counts = np.zeros(len(ranks), np.int64)
    np.add.at(counts, numbers, spills.records)
    before = np.empty_like(counts)
    before[order] = np.cumsum(counts[order]) - counts[order]
    shares = np.cumsum([share for _, share in buckets.shares])
    limits = -(-counts.sum() * shares // shares[-1])
    # All records of a rank go to the split of its first record, so that equal records stay together.
    of_spill = np.searchsorted(limits, before, side="right")[numbers]
    return {split: spills.take(np.flatnonzero(of_spill == number)) for number, split in enumerate(buckets.names)}


def divide_by_label(spills: Spills, buckets: Buckets) -> dict[str, Spills]:
    """Divide the spills of each label between the splits, so that all rows are divided by the shares as well.

    The first split receives at least one row of each label. Earlier splits are rounded up.
    """
    numbers, labels = spills.labels(0)
    rest = np.zeros(len(labels), np.int64)  # rows of each label that no split has yet
    np.add.at(rest, numbers, spills.records)
    # A fixed order, so that the splits do not depend on the order of the spills.
    order = sorted(range(len(labels)), key=lambda number: (labels[number] is not None, labels[number]))
    before, rows = _counted_before(numbers, spills.records), int(rest.sum())
    whole = left = sum(share for _, share in buckets.shares)
    start, divided = np.zeros_like(before), dict[str, Spills]()
    for split, share in buckets.shares:
        wanted = int(rest.sum()) - rows * (left - share) // whole
        taken = _rows_of_labels(rest, order, share, left, wanted=wanted, at_least=0 if divided else 1)
        # A split takes an even part of what is left of each spill, so that its rows come from the whole input.
        of_label, of_all = taken[numbers], np.maximum(rest, 1)[numbers]
        of_before = _share_of(before, of_label, of_all)
        stop = start + _share_of(before + spills.records - start, of_label, of_all) - of_before
        divided[split] = spills.cut(start, stop)
        before, start, left, rest = before - of_before, stop, left - share, rest - taken
    return divided


def _rows_of_labels(rows: Ints, order: Sequence[int], share: int, left: int, *, wanted: int, at_least: int) -> Ints:
    """Return `rows` * `share` / `left` of each label, rounded so that the sum is `wanted` if possible.

    The labels with the largest remainders are rounded up, as in the method of Hamilton.
    """
    counts = rows.tolist()  # Python's integers, because products may exceed 64 bits
    parts = [divmod(count * share, left) for count in counts]
    taken = [max(whole, min(count, at_least)) for count, (whole, _) in zip(counts, parts, strict=True)]
    more = wanted - sum(taken)
    partial = [number for number in order if parts[number][1] and taken[number] == parts[number][0]]
    for number in sorted(partial, key=lambda number: -parts[number][1])[: max(0, more)]:
        taken[number] += 1
    return np.array(taken, np.int64)


def balance_labels(spills: Spills, options: Balance) -> tuple[Spills, Balanced]:
    """Oversample or undersample the spills of one split so that all labels are equally frequent.

    Rare labels that would need too many repetitions raise InfeedError.
    """
    numbers, labels = spills.labels(1)
    counts = np.zeros(len(labels), np.int64)
    np.add.at(counts, numbers, spills.records)
    is_label = (counts > 0) & np.array([label is not None for label in labels], bool)
    if not is_label.any():
        return spills, Balanced()
    found = counts[is_label]
    wanted = int(found.max() if options.sampling == "over" else found.min())
    times, rest = np.ones_like(counts), np.zeros_like(counts)
    times[is_label], rest[is_label] = np.divmod(wanted, found)
    # Whole copies of each spill, and then so many more of its records that the copies of all spills add up to `wanted`.
    before, whole = _counted_before(numbers, spills.records), np.maximum(counts, 1)[numbers]
    more = _share_of(before + spills.records, rest[numbers], whole) - _share_of(before, rest[numbers], whole)
    balanced = Balanced(int(np.maximum(wanted - found, 0).sum()), int(np.maximum(found - wanted, 0).sum()))
    copies = times[numbers] + (more > 0)  # copies of each spill; the last copy has only the first `more` records
    do = "drop frequent rows instead of repeating rare ones (balance_by: under), or filter out the rarest labels"
    _check_count(int(copies.sum()), label_columns((None, options.label)), do)
    repeated = spills.take(np.repeat(np.arange(len(spills)), copies))
    stop = repeated.records.copy()
    stop[(np.cumsum(copies) - 1)[more > 0]] = more[more > 0]
    return repeated.cut(np.zeros_like(stop), stop), balanced


def _check_count(spills: int, where: str, do: str) -> None:
    if spills > _MOST_SPILLS:
        what = f"the input has {spills} runs of equal labels, more than the maximum of {_MOST_SPILLS}"
        raise InfeedError(what, where=where, do=do)


def _counted_before(labels: npt.NDArray[np.int32], records: Ints) -> Ints:
    """Return the number of records of the same label before each spill."""
    order = np.argsort(labels, kind="stable")
    labels, sums = labels[order], np.cumsum(records[order]) - records[order]
    first = np.flatnonzero(np.diff(labels, prepend=-1))
    before = np.empty(len(sums), np.int64)
    before[order] = sums - np.repeat(sums[first], np.diff(first, append=len(sums)))
    return before


def _share_of(records: Ints, share: Ints | int, whole: Ints | int) -> Ints:
    """Return `records` * `share` / `whole` exactly, rounded up. `share` must not exceed `whole`."""
    # Products beyond 64 bits would wrap around, so they use Python's integers.
    largest = int(records.max(initial=0)) * int(np.max(share, initial=0))
    exact = records if largest < _INT64 else records.astype(object)
    return np.asarray(-(-exact * share // whole), np.int64)


def _column_sums(counts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(of_column) for of_column in zip(*counts, strict=True))


class OtherKindsError(Exception):
    """The column kinds of the input differ from those of the sample. `OpenedSource.reopen` takes `kinds`."""

    def __init__(self, kinds: Any) -> None:
        super().__init__(kinds)
        self.kinds = kinds


def settled(opened: OpenedSource, attempt: Callable[[OpenedSource], A]) -> A:
    """Call `attempt` with the source. If it raises OtherKindsError, reopen the source and retry."""
    try:
        return attempt(opened)
    except OtherKindsError as error:
        assert opened.reopen, "only a source with a sample can have other kinds"
        again = opened.reopen(error.kinds)
    _log.warning("%s", _reason(opened, again))
    return settled(again, attempt)


def check_found(found: Sequence[Findings], sample: Sample) -> None:
    """Raise OtherKindsError if the kinds in all tasks, in order, differ from those of the sample."""
    if any(one.astray for one in found):
        raise OtherKindsError(None)
    merged = sample.merge(found)
    if json.dumps(merged) != json.dumps(sample.kinds):  # unlike ==, this compares the order of columns
        raise OtherKindsError(merged)


def line_offsets(findings: Iterable[tuple[int, Findings | None]]) -> dict[int, int]:
    """Map the index of a task to the offset of the line numbers of its bad rows. Zero offsets are omitted.

    `findings` holds (index, findings) of each task, in order.
    """
    offsets, after = dict[int, int](), 0
    for order, found in findings:
        if found is not None:
            offsets[order] = after if found.line is None else 0
            after += found.lines if found.line is None else found.line - 1 + found.lines - after
    return {order: offset for order, offset in offsets.items() if offset}


def with_lines(task: SpilledTask, offset: int) -> SpilledTask:
    """Add the line offset to the bad rows of a task."""
    first, last = (row and shifted(row, offset) for row in (task.first_rejected, task.last_rejected))
    return dataclasses.replace(task, first_rejected=first, last_rejected=last)


def shift_lines(rows: bytes, offset: int) -> bytes:
    if not offset:
        return rows
    found = [BadRow(**json.loads(row)) for row in rows.decode().removesuffix("\n").split("\n")]
    return to_jsonl(shifted(row, offset) for row in found)


def shifted(row: BadRow, offset: int) -> BadRow:
    return row if row.line is None else dataclasses.replace(row, line=row.line + offset)


def _reason(before: OpenedSource, after: OpenedSource) -> str:
    types: Mapping[str, str] = {field.name: str(field.type) for field in before.schema}
    wider = [
        f"{field.name!r} ({types.get(field.name, 'none')} in a sample, {field.type} in all rows)"
        for field in after.schema
        if types.get(field.name) != str(field.type)
    ]
    if not wider:
        return "one process scans the input first, because parts of it cannot be read independently"
    more = f" and {len(wider) - 5} more" if len(wider) > 5 else ""
    return (
        f"reading the input again, because the types differ from a sample: {', '.join(wider[:5])}{more}. "
        "Set the types (CSV: types) to read it once"
    )
