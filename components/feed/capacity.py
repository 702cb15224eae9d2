"""What of a split fits where: its sizes beside what this machine may use, and what follows from that, with reasons.

What may be used, the cgroup says where it has limits, else the machine itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infeed.components import machine
from infeed.components.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.units import size

Tier = Literal["device", "columns", "disk", "stream"]

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
_UNKNOWN = "the devices do not say how much memory they have"


@dataclass(frozen=True)
class Machine:
    """CPU cores, bytes of memory and of free disk that the plan may count on.

    `device_bytes` are free on each of the accelerators that train; None where there are none, or they do not tell.
    """

    cpus: int
    memory_bytes: int
    disk_bytes: int = 0
    device_bytes: int | None = None

    @classmethod
    def here(cls, cgroup: Path = machine.CGROUP, cache_dir: str | None = None, devices: Sequence[str] = ()) -> Machine:
        """Reads this process's limits.

        Args:
          cgroup: where the kernel tells the limits.
          cache_dir: the folder on whose disk columns may be kept; None counts on no disk.
          devices: names of those that train.
        """
        return cls(
            cpus=machine.cpus(cgroup),
            memory_bytes=machine.memory_bytes(cgroup),
            disk_bytes=_disk_bytes(Path(cache_dir).expanduser()) if cache_dir else 0,
            device_bytes=_free_device_bytes(accelerators(devices)),
        )


@dataclass(frozen=True)
class RecordSizes:
    """Measured on the first records of a split (see `build.measure_records`): sizes in bytes a record.

    `can_split` says whether batches may be made several at once (see `columns.can_split`), `can_keep` whether rows may
    be kept decoded (see `columns.can_keep`), `is_dense` whether every feature is dense and of a fixed shape,
    `is_numeric` whether it is a number as well.
    """

    record_bytes: float
    feature_bytes: float
    can_split: bool = True
    can_keep: bool = True
    is_dense: bool = True
    is_numeric: bool = True

    @property
    def kept_bytes(self) -> float:
        """What `columns` and `disk` keep of a record."""
        return self.feature_bytes if self.can_keep else self.record_bytes


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

    Attributes:
      records: in the split.
      sizes: of a record.
      options: what the user says.
      machine: what there is.
      epochs: how often the split will be read, where that is known.
      remote: whether batches are not made on this machine, so that nothing can be kept here for them.
      devices: names of those whose steps can gather their rows themselves.
      host_only: why no step can gather the rows of this split on its device; empty where it can.
    """

    records: int
    sizes: RecordSizes
    options: FeedOptions
    machine: Machine
    epochs: int | None = None
    remote: bool = False
    devices: tuple[str, ...] = ()
    host_only: str = ""

    def __post_init__(self) -> None:
        if self.remote and (self.options.tier not in ("auto", "stream") or self.options.cache_records):
            raise InfeedError(
                f"tier is {self.options.tier!r} and cache_records {self.options.cache_records}, and other processes "
                "make the batches",
                where="FeedOptions",
                do="use the tier stream without cache_records, or another strategy",
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
    def kept(self) -> float:
        """Bytes of all that `columns` and `disk` keep: decoded features, or records where those cannot be kept."""
        return self.records * self.sizes.kept_bytes

    @property
    def device_memory(self) -> float | None:
        """Bytes that may be taken of each device that trains; None where it does not say how much it has."""
        if not accelerators(self.devices):  # CPUs share this machine's memory, and each has a copy of its own
            return self.memory / max(1, len(self.devices))
        free = self.machine.device_bytes
        return None if free is None else free * self.options.device_fraction

    def tier(self) -> tuple[Tier, str]:
        """Which tier, and why.

        Raises:
          InfeedError: the tier `device` is asked for, and the columns cannot lie there.
        """
        takes = f"{self.records:,} records take {size(self.kept)} {'decoded' if self.sizes.can_keep else 'serialized'}"
        memory, disk = f"{size(self.memory)} of memory may be used", f"{size(self.disk)} of disk may be used"
        if self.remote:
            return "stream", f"other processes make the batches, so nothing is kept in this one; {takes}"
        if self.options.tier == "device":
            return "device", f"asked for in FeedOptions.tier; {takes}, and {self._devices_hold(takes)}"
        if self.options.tier != "auto":
            return self.options.tier, f"asked for in FeedOptions.tier; {takes}, {memory} and {disk}"
        if self.epochs == 1 and self.kept > _CHEAP_BYTES:
            return "stream", f"{takes}, and a single epoch gains nothing from what is kept decoded"
        why_not = ""
        if accelerators(self.devices):
            if not (why_not := self._why_not_on_devices()) and self.device_memory is not None:
                return "device", f"{takes}, and {self._devices_hold(takes)}"
            why_not = f"; not on the devices: {why_not or _UNKNOWN}"
        if self.kept <= self.memory:
            return "columns", f"{takes}, and {memory}{why_not}"
        if self.kept <= self.disk:
            return "disk", f"{takes}, only {memory}, but {disk}{why_not}"
        return "stream", f"{takes}, only {memory}, and only {disk}{why_not}"

    def _devices_hold(self, takes: str) -> str:
        """What may be used of each device."""
        if why := self._why_not_on_devices():
            raise InfeedError(
                f"tier is 'device', and {why}; {takes}", where="FeedOptions.tier", do="use the tier columns, or auto"
            )
        free = self.device_memory
        return _UNKNOWN if free is None else f"{size(free)} of each device's memory may be used"

    def _why_not_on_devices(self) -> str:
        """Empty where the columns can lie there."""
        free = self.device_memory
        if self.host_only or free is None or self.kept <= free:
            return self.host_only
        return f"only {size(free)} of each device's memory may be used"

    def readers(self, shards: int) -> tuple[int, str]:
        """How many of the shards are read at a time, and why."""
        readers = min(shards, self.options.readers or self.machine.cpus)
        if readers == shards:
            return readers, "as many as there are shards"
        return readers, "asked for in FeedOptions.readers" if self.options.readers else "one reader a core"

    def cache(self) -> tuple[bool, str]:
        """Whether `stream` keeps the serialized records, and why."""
        serialized = self.records * self.sizes.record_bytes
        if self.remote:
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
        fits = max(1, int(self.memory / (_WINDOWS * self.sizes.record_bytes)))
        if self.records <= min(fits, _MAX_SHUFFLE):
            return self.records, "the whole split fits, so the shuffle is a full one"
        window = min(fits, _MAX_SHUFFLE)
        return window, f"{self.records:,} records would not fit or take too long to read; shards are permuted as well"

    def window(self) -> Window | None:
        """Rows of `disk` that are shuffled together; None for all."""
        if self.kept <= self.memory:
            return None
        batch = self.options.batch_size
        block = batch * max(1, int(_BLOCK_BYTES / (batch * self.sizes.kept_bytes)))
        return Window(block, max(1, int(self.memory / (block * self.sizes.kept_bytes))))

    def rows_a_call(self) -> int:
        """Rows that are decoded, or gathered, in one call."""
        return max(1, int(min(_CALL_ROWS, _CALL_BYTES / max(1, self.sizes.feature_bytes))))

    def batches_a_call(self) -> int:
        """Batches of training that are made in one call."""
        return max(1, self.rows_a_call() // self.options.batch_size) if self.sizes.can_split else 1


def accelerators(devices: Sequence[str]) -> tuple[str, ...]:
    """Those of the devices that have memory of their own."""
    return tuple(one for one in devices if "CPU" not in one)


def _free_device_bytes(devices: Sequence[str]) -> int | None:
    """Of the one that has least, as TensorFlow tells it for GPUs."""
    if not devices:
        return None
    import tensorflow as tf
    from tensorflow.python.client import device_lib  # the one place where limits are told

    try:
        limits = {_short(one.name): one.memory_limit for one in device_lib.list_local_devices()}
        used = [tf.config.experimental.get_memory_info(_short(one))["current"] for one in devices]
        return min(int(limits[_short(one)] - taken) for one, taken in zip(devices, used, strict=True))
    except (KeyError, ValueError, tf.errors.OpError):  # a device that does not tell, or one cut into several
        return None


def _short(device: str) -> str:
    """`/job:worker/task:0/device:GPU:1` -> `GPU:1`"""
    return ":".join(device.split(":")[-2:])


def _disk_bytes(folder: Path) -> int:
    """Free bytes, and those that our own files take: a plan must not change because the one before kept its columns."""
    ours = sum(file.stat().st_blocks * 512 for file in folder.glob("*/*"))
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free + ours
