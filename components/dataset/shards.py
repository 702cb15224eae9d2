"""How many shards a split gets, and which records go into which: arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from infeed.components.checks import at_least, refused
from infeed.components.units import size

MIN_BYTES = 10_000_000  # smaller files cost more to open than to read
TARGET_BYTES = 128 << 20  # what object stores and TensorFlow's performance guide both ask for
READERS_PER_HOST = 10  # what a parallel interleave keeps open at a time


@dataclass(frozen=True)
class ShardOptions:
    """Bounds of the shard rule, in bytes of records before compression; `count` overrides the rule."""

    count: int | None = None
    min_bytes: int = MIN_BYTES
    target_bytes: int = TARGET_BYTES
    readers_per_host: int = READERS_PER_HOST
    hosts: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "count", "min_bytes", "target_bytes", "readers_per_host", "hosts")
        if self.min_bytes > self.target_bytes:
            what = f"min_bytes is {self.min_bytes}, more than target_bytes, which is {self.target_bytes}"
            raise refused(self, "min_bytes", "give a min_bytes no larger than target_bytes", what)


@dataclass(frozen=True)
class ShardPlan:
    """A number of shards, at least 1, and why."""

    count: int
    reason: str


@dataclass(frozen=True)
class Part:
    """A run of records, and how many bytes they take together."""

    records: int
    bytes: int


@dataclass(frozen=True)
class Slice:
    """Records `start` to `stop` (not included) of one part."""

    part: int
    start: int
    stop: int


def plan_shards(total_bytes: int, records: int, options: ShardOptions) -> ShardPlan:
    """The number of shards for one split.

    As many as keep each at or under `target_bytes`; at least `readers_per_host * hosts` where that leaves each at
    `min_bytes` or more; then a multiple of `hosts`; never more than there are records, and at least 1.
    """
    if options.count is not None:
        return _at_most(records, options.count, f"{options.count} asked for")
    count, reason = _by_rule(total_bytes, options)
    rounded = math.ceil(count / options.hosts) * options.hosts
    if rounded != count:
        reason += f"; {rounded} is a multiple of {options.hosts} hosts"
    return _at_most(records, rounded, reason)


def records_of_shard(parts: Sequence[Part], shard: int, count: int, *, interleave: bool) -> list[Slice]:
    """Which records of which parts shard `shard` of `count` takes; over all shards, every record exactly once.

    Args:
      parts: what there is, in input order.
      interleave: True deals records out one by one, so that every part reaches every shard, as a shuffle wants, and no
        shard has two records more than another; False gives each shard a run of the input, of about as many bytes.
    """
    slices, total, before = [], sum(part.bytes for part in parts), Part(0, 0)
    for number, part in enumerate(parts):
        if interleave:
            start, stop = (
                _dealt_before(before.records + part.records, limit, count) - _dealt_before(before.records, limit, count)
                for limit in (shard, shard + 1)
            )
        else:
            start, stop = (
                _records_within(part, limit * total - before.bytes * count, count) for limit in (shard, shard + 1)
            )
        if start < stop:
            slices.append(Slice(number, start, stop))
        before = Part(before.records + part.records, before.bytes + part.bytes)
    return slices


def _records_within(part: Part, numerator: int, denominator: int) -> int:
    """How many of a part's records lie within its first `numerator / denominator` bytes, taken as all of one size."""
    return min(max(part.records * numerator // (part.bytes * denominator), 0), part.records)


def _dealt_before(records: int, shard: int, count: int) -> int:
    """How many of `records` records go to shards before `shard` when dealt out one by one to `count` shards."""
    rounds, left_over = divmod(records, count)
    return rounds * shard + min(left_over, shard)


def _by_rule(total_bytes: int, options: ShardOptions) -> tuple[int, str]:
    by_size = math.ceil(total_bytes / options.target_bytes)
    readers = options.readers_per_host * options.hosts
    most = max(1, total_bytes // options.min_bytes)
    if by_size >= readers:
        return by_size, f"{by_size} keep each at {size(options.target_bytes)} or less before compression"
    if most >= readers:
        return (
            readers,
            f"{readers} give each of {options.hosts} host(s) {options.readers_per_host} files to read at once",
        )
    return most, f"more than {most} would make files smaller than {size(options.min_bytes)} before compression"


def _at_most(records: int, count: int, reason: str) -> ShardPlan:
    if count <= max(records, 1):
        return ShardPlan(count, reason)
    return ShardPlan(max(records, 1), f"{reason}; there are only {records} records")
