"""Choose the number of shards of a split, and assign records to shards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from infeed.components.base.checks import at_least, refused
from infeed.components.base.units import size

MIN_BYTES = 10_000_000  # opening a smaller file takes longer than reading it
TARGET_BYTES = 128 << 20  # recommended by object stores and TensorFlow's performance guide
READERS_PER_HOST = 10  # files that a parallel interleave keeps open


@dataclass(frozen=True)
class ShardOptions:
    """Bounds of the shard rule, in bytes of records before compression. `count` overrides the rule."""

    count: int | None = None
    min_bytes: int = MIN_BYTES
    target_bytes: int = TARGET_BYTES
    readers_per_host: int = READERS_PER_HOST
    hosts: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "count", "min_bytes", "target_bytes", "readers_per_host", "hosts")
        if self.min_bytes > self.target_bytes:
            what = f"min_bytes is {self.min_bytes}, more than target_bytes, which is {self.target_bytes}"
            raise refused(self, "min_bytes", "use a min_bytes of at most target_bytes", what)


@dataclass(frozen=True)
class ShardPlan:
    """A number of shards, at least 1, and the reason."""

    count: int
    reason: str


@dataclass(frozen=True)
class Part:
    """A run of records and their size in bytes."""

    records: int
    bytes: int


@dataclass(frozen=True)
class Deal:
    """The assignment of records to windows. Every record belongs to exactly one window.

    With `interleave`, records are dealt round-robin, as a shuffle requires. Then every part reaches every window, and
    sizes differ by at most one record. Otherwise, each window is a run of the input of about equal bytes.
    """

    windows: int
    bytes: int
    interleave: bool

    def bounds(self, part: Part, before: Part, windows: range) -> npt.NDArray[np.int64]:
        """Return the starts of neighboring windows in a part, and the end of the last.

        `before` is the number of records before the part. The result, int64 [len(windows) + 1], counts from the first
        record of the part.
        """
        limits = range(windows.start, windows.stop + 1)
        if self.interleave:
            return self._dealt(before.records + part.records, limits) - self._dealt(before.records, limits)
        whole = max(part.bytes * self.windows, 1)  # within a part, records count as equally large
        numerators = (part.records * (limit * self.bytes - before.bytes * self.windows) for limit in limits)
        return np.array([min(max(one // whole, 0), part.records) for one in numerators], np.int64)

    def _dealt(self, records: int, limits: range) -> npt.NDArray[np.int64]:
        """Return how many of the first `records` records go to windows below each limit, dealt round-robin."""
        rounds, left_over = divmod(records, self.windows)
        numbers = np.arange(limits.start, limits.stop, dtype=np.int64)
        before: npt.NDArray[np.int64] = rounds * numbers + np.minimum(left_over, numbers)
        return before


def plan_shards(total_bytes: int, records: int, options: ShardOptions) -> ShardPlan:
    """Choose the number of shards of a split.

    The rule starts with the smallest number that keeps each shard at or below `target_bytes`. It raises the number to
    `readers_per_host * hosts` if shards keep at least `min_bytes`. The result is a multiple of `hosts`, at least 1 and
    at most the number of records.
    """
    by_size = math.ceil(total_bytes / options.target_bytes)
    readers = options.readers_per_host * options.hosts
    most = max(1, total_bytes // options.min_bytes)
    if options.count is not None:
        count, reason = options.count, f"the number is set to {options.count}"
    elif by_size >= readers:
        count = by_size
        reason = f"the smallest number with shards of at most {size(options.target_bytes)} before compression"
    elif most >= readers:
        reason = f"{options.readers_per_host} files to read at once per training host"
        count = readers
    else:
        reason = f"more than {most} would make files smaller than {size(options.min_bytes)} before compression"
        count = most
    if options.count is None and count % options.hosts:
        count = math.ceil(count / options.hosts) * options.hosts
        reason += f"; {count} is a multiple of {options.hosts} hosts"
    if count > max(records, 1):
        count, reason = max(records, 1), f"{reason}; there are only {records} records"
    return ShardPlan(count, reason)
