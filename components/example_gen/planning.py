"""From the sizes of all spills: what each split holds, in how many shards, and what became of every row.

Labels are divided, repeated and dropped here as well, on sizes alone: a `Spill` holds the records of one block, split
and stratum in shuffled order, so any run of it is a random sample. Shares are rounded over all spills of a label
together, not in each.
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
from infeed.components.dataset.shards import ShardPlan, plan_shards
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import BadRow, check_any_good, check_limit
from infeed.components.example_gen.spills import Spill


@dataclass(frozen=True)
class SpilledBlock:
    """What became of one record batch and of the bad rows found on the way to it.

    Attributes:
      rows: of the input, whatever became of them.
      nulls: how many each written column has.
      rounded: how many values of each written column are changed by float32.
    """

    order: tuple[int, int]
    rows: int
    filtered: int
    rejected: tuple[BadRow, ...]
    nulls: tuple[int, ...]
    rounded: tuple[int, ...]
    spills: tuple[Spill, ...]


@dataclass(frozen=True)
class WritePlan:
    """Every split's spills in input order, and its number of shards with the reason."""

    rows: int
    filtered: int
    rejected: tuple[BadRow, ...]
    balanced: Balanced
    nulls: tuple[int, ...]
    rounded: tuple[int, ...]
    spills: dict[str, tuple[Spill, ...]]
    shards: dict[str, ShardPlan]


@dataclass(frozen=True)
class ShardTask:
    """One of `count` shards to write."""

    split: str
    index: int
    count: int


def plan_writes(
    blocks: Iterable[SpilledBlock], splits: Sequence[str], buckets: Buckets | None, options: IngestOptions
) -> WritePlan:
    """What each split holds, and in how many shards.

    Raises:
      InfeedError: no rows at all, none left to write, or more bad ones than the limit.
    """
    blocks = sorted(blocks, key=lambda block: block.order)
    rejected = tuple(row for block in blocks for row in block.rejected)
    check_limit(len(rejected), options.bad_row_limit, rejected[-1].where if rejected else "")
    rows, filtered = sum(block.rows for block in blocks), sum(block.filtered for block in blocks)
    _check_any_left(rows, filtered, rejected)
    by_split, balanced = _plan_splits([spill for block in blocks for spill in block.spills], splits, buckets, options)
    return WritePlan(
        rows=rows,
        filtered=filtered,
        rejected=rejected,
        balanced=balanced,
        nulls=_sums(block.nulls for block in blocks),
        rounded=_sums(block.rounded for block in blocks),
        spills=by_split,
        shards={split: _plan_shards(found, options) for split, found in by_split.items()},
    )


def shard_tasks(plan: WritePlan) -> list[ShardTask]:
    return [
        ShardTask(split, index, shards.count) for split, shards in plan.shards.items() for index in range(shards.count)
    ]


def _check_any_left(rows: int, filtered: int, rejected: Sequence[BadRow]) -> None:
    if not rows:
        raise InfeedError("no rows in the input", do="check the input's path and pattern")
    if rows == len(rejected):
        check_any_good(rejected)
    if rows == filtered + len(rejected):
        raise InfeedError(
            f"no rows left of {rows}: {filtered} filtered out, {len(rejected)} rejected", do="check the filter"
        )


def _plan_splits(
    spills: list[Spill], splits: Sequence[str], buckets: Buckets | None, options: IngestOptions
) -> tuple[dict[str, tuple[Spill, ...]], Balanced]:
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
    return {split: tuple(found) for split, found in by_split.items()}, balanced


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


def _plan_shards(spills: Sequence[Spill], options: IngestOptions) -> ShardPlan:
    size, records = sum(spill.bytes for spill in spills), sum(spill.records for spill in spills)
    return plan_shards(size, records, options.shards)


def _sums(counts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(of_column) for of_column in zip(*counts, strict=True))
