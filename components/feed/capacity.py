"""What of a split fits where: its sizes beside what this machine may use, and what follows from that, with reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infeed.components.errors import InfeedError
from infeed.components.feed.machine import Machine
from infeed.components.feed.options import FeedOptions

Tier = Literal["columns", "disk", "stream"]

# A window is read before its first batch is made; a larger one makes the first step wait for seconds.
_MAX_SHUFFLE = 100_000
# Windows in memory at a time: one in use, one ready, and the records of the next.
_WINDOWS = 3
# Rows made in one call, and bytes at most: below that a call costs more than its rows, above it memory is lost.
_CALL_ROWS = 4096
_CALL_BYTES = 4 << 20
# Decoded, a split this small is kept even for a single epoch: it costs little, and the order is exact.
_CHEAP_BYTES = 64 << 20
# Neighbouring rows that are read from disk as one: enough that seeking between them costs little.
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Sample:
    """Measured on the first records of a split (see `sample.measure`): sizes in bytes a record.

    `can_be_cut` says whether batches may be made several at once (see `columns.can_be_cut`).
    """

    record_bytes: float
    feature_bytes: float
    can_be_cut: bool = True


@dataclass(frozen=True)
class Window:
    """Rows shuffled together where not all can be: `blocks` blocks of `block` neighbouring rows each.

    A block is a whole number of batches, so that only the last window of an epoch can end in a short one.
    """

    block: int
    blocks: int

    @property
    def rows(self) -> int:
        return self.block * self.blocks


@dataclass(frozen=True)
class Capacity:
    """What the split takes, beside what may be taken.

    `elsewhere` says that batches are not made on this machine, so that nothing can be kept here for them.
    """

    records: int
    sample: Sample
    options: FeedOptions
    machine: Machine
    epochs: int | None = None
    elsewhere: bool = False

    def __post_init__(self) -> None:
        if self.elsewhere and (self.options.tier not in ("auto", "stream") or self.options.cache_records):
            raise InfeedError(
                f"tier is {self.options.tier!r} and cache_records {self.options.cache_records}, and other processes "
                "make the batches",
                where="FeedOptions",
                do="Use the tier stream without cache_records, or another strategy.",
            )

    @property
    def memory(self) -> float:
        """Bytes of memory that may be taken."""
        return self.machine.memory_bytes * self.options.memory_fraction

    @property
    def disk(self) -> float:
        """Bytes of disk that may be taken."""
        return self.machine.disk_bytes * self.options.disk_fraction

    @property
    def decoded(self) -> float:
        """Bytes of all decoded features."""
        return self.records * self.sample.feature_bytes

    def tier(self) -> tuple[Tier, str]:
        """Which tier, and why."""
        takes = f"{self.records:,} records take {size(self.decoded)} decoded"
        memory, disk = f"{size(self.memory)} of memory may be used", f"{size(self.disk)} of disk may be used"
        if self.elsewhere:
            return "stream", f"other processes make the batches, so nothing is kept in this one; {takes}"
        if self.options.tier != "auto":
            return self.options.tier, f"asked for in FeedOptions.tier; {takes}, {memory} and {disk}"
        if self.epochs == 1 and self.decoded > _CHEAP_BYTES:
            return "stream", f"{takes}, and a single epoch gains nothing from what is kept decoded"
        if self.decoded <= self.memory:
            return "columns", f"{takes}, and {memory}"
        if self.decoded <= self.disk:
            return "disk", f"{takes}, only {memory}, but {disk}"
        return "stream", f"{takes}, only {memory}, and only {disk}"

    def cache(self) -> tuple[bool, str]:
        """Whether `stream` keeps the serialized records, and why."""
        serialized = self.records * self.sample.record_bytes
        if self.elsewhere:
            return False, "other processes make the batches"
        if self.options.cache_records is not None:
            return self.options.cache_records, "asked for in FeedOptions.cache_records"
        if self.epochs == 1:
            return False, "each record is read but once"
        fits = serialized <= self.memory
        return fits, f"serialized they take {size(serialized)} of the {size(self.memory)} that may be used"

    def shuffle(self) -> tuple[int, str]:
        """Records that `stream` shuffles together, and why."""
        if self.options.shuffle_records is not None:
            return min(self.options.shuffle_records, self.records), "asked for in FeedOptions.shuffle_records"
        fits = max(1, int(self.memory / (_WINDOWS * self.sample.record_bytes)))
        if self.records <= min(fits, _MAX_SHUFFLE):
            return self.records, "the whole split fits, so the shuffle is a full one"
        window = min(fits, _MAX_SHUFFLE)
        return window, f"{self.records:,} records would not fit or take too long to read; shards are permuted as well"

    def window(self) -> Window | None:
        """Rows of `disk` that are shuffled together; None for all."""
        if self.decoded <= self.memory:
            return None
        batch = self.options.batch_size
        block = batch * max(1, int(_BLOCK_BYTES / (batch * self.sample.feature_bytes)))
        return Window(block, max(1, int(self.memory / (block * self.sample.feature_bytes))))

    def rows_a_call(self) -> int:
        """Rows that are decoded, or gathered, in one call."""
        return max(1, int(min(_CALL_ROWS, _CALL_BYTES / max(1, self.sample.feature_bytes))))

    def batches_a_call(self) -> int:
        """Batches of training that are made in one call."""
        return max(1, self.rows_a_call() // self.options.batch_size) if self.sample.can_be_cut else 1


def size(count: float) -> str:
    """Bytes in words: `1.2 GB`."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
