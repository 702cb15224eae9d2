"""How many shards a split gets, and which records go into which: arithmetic only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
class Deal:
    """Which records go into which of some windows; over all windows, every record exactly once.

    Attributes:
      windows: how many there are.
      bytes: of all records together.
      interleave: True deals records out one by one, so that every part reaches every window, as a shuffle wants, and no
        window has two records more than another; False gives each window a run of the input, of about as many bytes.
    """

    windows: int
    bytes: int
    interleave: bool

    def bounds(self, part: Part, before: Part, windows: range) -> npt.NDArray[np.int64]:
        """Return where the windows begin in a part: the number of the first record of each, and the end of the last.

        Args:
          part: some records that follow one another.
          before: all records before them.
          windows: neighboring ones.

        Returns:
          int64 [len(windows) + 1], from 0 to the number of the part's records.
        """
        limits = range(windows.start, windows.stop + 1)
        if self.interleave:
            return self._dealt(before.records + part.records, limits) - self._dealt(before.records, limits)
        return np.array([self._within(part, before.bytes, limit) for limit in limits], np.int64)

    def reached(self, part: Part, before: Part) -> range:
        """Return the windows that may hold records of a part."""
        if self.interleave or not self.bytes:
            return range(self.windows)
        stop = -(-(before.bytes + part.bytes) * self.windows // self.bytes)
        return range(before.bytes * self.windows // self.bytes, min(stop, self.windows))

    def _dealt(self, records: int, limits: range) -> npt.NDArray[np.int64]:
        """How many of `records` records go to the windows before each limit when they are dealt out one by one."""
        rounds, left_over = divmod(records, self.windows)
        numbers = np.arange(limits.start, limits.stop, dtype=np.int64)
        before: npt.NDArray[np.int64] = rounds * numbers + np.minimum(left_over, numbers)
        return before

    def _within(self, part: Part, before: int, limit: int) -> int:
        """How many of a part's records lie in the windows before `limit`, taken as all of one size."""
        numerator = part.records * (limit * self.bytes - before * self.windows)
        return min(max(numerator // max(part.bytes * self.windows, 1), 0), part.records)


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
