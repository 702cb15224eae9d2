"""From the sizes of all spills: what each split holds, in how many shards, and what became of every row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infeed.components.dataset.manifest import Balanced
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardPlan, plan_shards
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.errors import InfeedError
from infeed.components.example_gen import strata
from infeed.components.example_gen.bad_rows import BadRow, check_limit
from infeed.components.example_gen.spills import Spill


@dataclass(frozen=True)
class Block:
    """What became of one record batch and of the bad rows found on the way to it.

    Args:
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
    blocks: Iterable[Block], splits: Sequence[str], buckets: Buckets | None, options: IngestOptions
) -> WritePlan:
    """What each split holds, and in how many shards.

    Raises:
      InfeedError: no rows at all, none left to write, or more bad ones than the limit.
    """
    blocks = sorted(blocks, key=lambda block: block.order)
    rejected = tuple(row for block in blocks for row in block.rejected)
    check_limit(len(rejected), options.bad_row_limit, rejected[-1].where if rejected else "")
    rows, filtered = sum(block.rows for block in blocks), sum(block.filtered for block in blocks)
    _check_any_left(rows, filtered, len(rejected))
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


def _check_any_left(rows: int, filtered: int, rejected: int) -> None:
    if not rows:
        raise InfeedError("no rows in the input", do="check the input's path and pattern")
    if rows == filtered + rejected:
        raise InfeedError(
            f"no rows left of {rows}: {filtered} filtered out, {rejected} rejected",
            do="check the filter, and the options of the input's format",
        )


def _plan_splits(
    spills: list[Spill], splits: Sequence[str], buckets: Buckets | None, options: IngestOptions
) -> tuple[dict[str, tuple[Spill, ...]], Balanced]:
    """Split -> what it holds, once labels are divided and balanced."""
    if buckets is not None and isinstance(options.split_by, ByLabel):
        spills = strata.divide(spills, buckets)
    by_split = {split: [spill for spill in spills if spill.split == split] for split in splits}
    balanced = Balanced()
    if options.balance is not None:
        for split in options.balance.splits:
            by_split[split], counts = strata.balance(by_split[split], options.balance)
            balanced += counts
    return {split: tuple(found) for split, found in by_split.items()}, balanced


def _plan_shards(spills: Sequence[Spill], options: IngestOptions) -> ShardPlan:
    size, records = sum(spill.bytes for spill in spills), sum(spill.records for spill in spills)
    return plan_shards(size, records, options.shards)


def _sums(counts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(of_column) for of_column in zip(*counts, strict=True))
