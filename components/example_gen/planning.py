"""From the sizes of all spills: what each split holds, in how many shards, and what became of every row.

Labels are divided, repeated and dropped here as well, on sizes alone: a `Spill` holds the records of one run, split
and stratum in shuffled order, so any run of it is a random sample. Shares are rounded over all spills of a label
together, not in each.

What is planned from grows with the tasks: one summary each, and a spill for each run, split and label.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infeed.components.dataset.manifest import Balanced
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.shards import Deal, ShardPlan, plan_shards
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import BadRow, Findings, check_any_good, check_limit
from infeed.components.example_gen.spills import Spill

WINDOW_BYTES = 32 << 20  # of records; a shard's writer holds a few copies of one window


@dataclass(frozen=True)
class SpilledTask:
    """What became of the rows of one task.

    Attributes:
      order: of the task.
      rows: of the input, whatever became of them.
      rejected: how many were set aside; the task has left them in a file.
      first_rejected, last_rejected: the first and the last rejected row; None if there are none.
      nulls: how many each written column has.
      rounded: how many values of each written column are changed by float32.
      spills: in the order of the input.
      found: what the source found in the task, if its types are those of a sample.
    """

    order: int
    rows: int
    filtered: int
    rejected: int
    first_rejected: BadRow | None
    last_rejected: BadRow | None
    nulls: tuple[int, ...]
    rounded: tuple[int, ...]
    spills: tuple[Spill, ...]
    found: Findings | None = None


@dataclass(frozen=True)
class SplitPlan:
    """What a split holds, and how it is written.

    Attributes:
      spills: how many hold its records.
      interleave: whether records are shuffled.
      shards: their number, with the reason.
    """

    split: str
    records: int
    bytes: int
    spills: int
    interleave: bool
    shards: ShardPlan

    @property
    def windows_of_shard(self) -> int:
        """As many as keep each small."""
        return max(1, math.ceil(self.bytes / self.shards.count / WINDOW_BYTES))

    @property
    def windows(self) -> int:
        """Of all shards."""
        return self.shards.count * self.windows_of_shard

    @property
    def deal(self) -> Deal:
        """How the records go into the windows."""
        return Deal(self.windows, self.bytes, self.interleave)


@dataclass(frozen=True)
class WritePlan:
    """What became of all rows, and the plan of every split."""

    rows: int
    filtered: int
    rejected: int
    balanced: Balanced
    nulls: tuple[int, ...]
    rounded: tuple[int, ...]
    splits: tuple[SplitPlan, ...]


@dataclass(frozen=True)
class ShardTask:
    """A shard to write."""

    plan: SplitPlan
    index: int

    @property
    def windows(self) -> range:
        """Those of all windows of the split that make this shard."""
        first = self.index * self.plan.windows_of_shard
        return range(first, first + self.plan.windows_of_shard)


def plan_writes(
    tasks: Iterable[SpilledTask], splits: Sequence[str], buckets: Buckets | None, options: IngestOptions
) -> tuple[WritePlan, dict[str, list[Spill]]]:
    """What each split holds, and in how many shards.

    Returns:
      The plan, and the spills of each split in the order of the input.

    Raises:
      InfeedError: no rows at all, none left to write, or more bad ones than the limit.
    """
    tasks = sorted(tasks, key=lambda task: task.order)
    rejected = sum(task.rejected for task in tasks)
    bad = [row for task in tasks for row in (task.first_rejected, task.last_rejected) if row is not None]
    check_limit(rejected, options.bad_row_limit, bad[-1].where if bad else "")
    rows, filtered = sum(task.rows for task in tasks), sum(task.filtered for task in tasks)
    _check_any_left(rows, filtered, rejected, bad)
    spills, balanced = _plan_splits([spill for task in tasks for spill in task.spills], splits, buckets, options)
    plan = WritePlan(
        rows=rows,
        filtered=filtered,
        rejected=rejected,
        balanced=balanced,
        nulls=_sums(task.nulls for task in tasks),
        rounded=_sums(task.rounded for task in tasks),
        splits=tuple(_plan_split(split, found, options) for split, found in spills.items()),
    )
    return plan, spills


def shard_tasks(plan: WritePlan) -> list[ShardTask]:
    return [ShardTask(split, index) for split in plan.splits for index in range(split.shards.count)]


def _check_any_left(rows: int, filtered: int, rejected: int, bad: Sequence[BadRow]) -> None:
    if not rows:
        raise InfeedError("no rows in the input", do="check the input's path and pattern")
    if rows == rejected:
        check_any_good(bad)
    if rows == filtered + rejected:
        raise InfeedError(
            f"no rows left of {rows}: {filtered} filtered out, {rejected} rejected", do="check the filter"
        )


def _plan_splits(
    spills: list[Spill], splits: Sequence[str], buckets: Buckets | None, options: IngestOptions
) -> tuple[dict[str, list[Spill]], Balanced]:
    """Split -> what it holds, once labels are divided and balanced."""
    if buckets is not None and isinstance(options.split_by, ByLabel):
        whole = [spill for spill in spills if spill.split is not None]
        spills = whole + divide_by_label([spill for spill in spills if spill.split is None], buckets)
    by_split = {split: [spill for spill in spills if spill.split == split] for split in splits}
    balanced = Balanced()
    if options.balance is not None:
        for split in options.balance.splits:
            by_split[split], counts = balance_labels(by_split[split], options.balance)
            balanced += counts
    return by_split, balanced


def divide_by_label(spills: Sequence[Spill], buckets: Buckets) -> list[Spill]:
    """Spills of no split yet -> runs of them, each in a split, every label divided by the shares.

    The first split takes its share, rounded up, of each label; the second its share of the rest, and so on.
    """
    divided: list[Spill] = []
    for spill, before in _counted(spills, [spill.strata[0] for spill in spills]):
        start, left = 0, sum(share for _, share in buckets.shares)
        for split, share in buckets.shares:
            taken = _rounded(before, spill.records - start, Fraction(share, left))
            divided += _run(dataclasses.replace(spill, split=split), start, start + taken)
            before -= math.ceil(before * Fraction(share, left))
            start, left = start + taken, left - share
    return divided


def balance_labels(spills: Sequence[Spill], options: Balance) -> tuple[list[Spill], Balanced]:
    """The segments of one split with every label as often as any other, and how many records that adds or drops."""
    labels = [spill.strata[1] for spill in spills]
    records: dict[Hashable, int] = defaultdict(int)
    for spill, label in zip(spills, labels, strict=True):
        if label is not None:
            records[label] += spill.records
    if not records:
        return list(spills), Balanced()
    wanted = max(records.values()) if options.sampling == "over" else min(records.values())
    sampled: list[Spill] = []
    for (spill, before), label in zip(_counted(spills, labels), labels, strict=True):
        times, rest = divmod(wanted, records[label]) if label is not None else (1, 0)
        more = _rounded(before, spill.records, Fraction(rest, records[label])) if rest else 0
        sampled += [spill] * times + list(_run(spill, 0, more))
    repeated = sum(max(wanted - found, 0) for found in records.values())
    dropped = sum(max(found - wanted, 0) for found in records.values())
    return sampled, Balanced(repeated, dropped)


def _counted(spills: Sequence[Spill], labels: Iterable[Hashable]) -> Iterator[tuple[Spill, int]]:
    """Each segment, and how many records of its label came before it."""
    before: dict[Hashable, int] = defaultdict(int)
    for spill, label in zip(spills, labels, strict=True):
        yield spill, before[label]
        before[label] += spill.records


def _rounded(before: int, records: int, share: Fraction) -> int:
    """How many of a segment's records belong to a share of all of its label, rounded up over the whole."""
    return math.ceil((before + records) * share) - math.ceil(before * share)


def _run(spill: Spill, start: int, stop: int) -> Iterator[Spill]:
    """Records `start` to `stop` of a segment; their bytes are its average."""
    if start < stop:
        size = spill.bytes * (stop - start) // spill.records
        yield dataclasses.replace(spill, start=spill.start + start, records=stop - start, bytes=size)


def _plan_split(split: str, spills: Sequence[Spill], options: IngestOptions) -> SplitPlan:
    size, records = sum(spill.bytes for spill in spills), sum(spill.records for spill in spills)
    shards = plan_shards(size, records, options.shards)
    return SplitPlan(split, records, size, len(spills), options.shuffle_seed is not None, shards)


def _sums(counts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(of_column) for of_column in zip(*counts, strict=True))
