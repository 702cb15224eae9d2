"""Decisions on where a split fits: its sizes, the limits of this machine, and the resulting choices with reasons.

Limits come from the cgroup, or else from the machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infeed.components.base import machine
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset.cache import size_on_disk
from infeed.components.feed.options import FeedOptions
from infeed.components.seams import tensorflow as tensorflow_seam

Tier = Literal["device", "columns", "disk", "stream"]

# The stream reads a whole window before its first batch, so a larger window delays the first step by seconds.
_MAX_SHUFFLE = 100_000
# Windows in memory at the same time: the current one, the next one, and the records of the one after.
_WINDOWS = 3
# Maximum rows and bytes per call. Smaller calls have too much overhead; larger calls waste memory.
_CALL_ROWS = 4096
_CALL_BYTES = 4 << 20
# A decoded split up to this size is kept even for a single epoch: it is cheap, and the shuffle is exact.
_CHEAP_BYTES = 64 << 20
# Bytes of adjacent rows that are read from disk as one block. At this size, seeks are cheap.
_BLOCK_BYTES = 1 << 20
_UNKNOWN = "the devices do not report their memory"


@dataclass(frozen=True)
class Machine:
    """CPU cores, and bytes of memory and free disk, available to the plan.

    `device_bytes` is the free memory of each training accelerator. It is None without accelerators, or if they do not
    report their memory.
    """

    cpus: int
    memory_bytes: int
    disk_bytes: int = 0
    device_bytes: int | None = None

    @classmethod
    def here(cls, cgroup: Path = machine.CGROUP, cache_dir: str | None = None, devices: Sequence[str] = ()) -> Machine:
        """Read the limits of this process. `cache_dir` is the folder for columns on disk. None disables it."""
        disk = 0
        if cache_dir:
            folder = Path(cache_dir).expanduser()
            # Existing cache entries count as free space, so that cached columns do not change the next plan.
            disk = size_on_disk(cache_dir)
            while not folder.exists():
                folder = folder.parent
            disk += shutil.disk_usage(folder).free
        free = _free_device_bytes(accelerators(devices))
        memory = machine.memory_bytes(cgroup)
        return cls(cpus=machine.cpus(cgroup), memory_bytes=memory, disk_bytes=disk, device_bytes=free)


@dataclass(frozen=True)
class RecordSizes:
    """Bytes per record, measured on the first records of a split; see `build.measure_records`."""

    record_bytes: float
    feature_bytes: float
    can_split: bool = True  # whether one call can make several batches (see `columns.can_split`)
    can_keep: bool = True  # whether rows can be kept decoded (see `columns.can_keep`)
    is_dense: bool = True  # whether every feature is dense and has a fixed shape
    is_numeric: bool = True  # whether every feature is also a number

    @property
    def kept_bytes(self) -> float:
        """Bytes per record in the tiers `columns` and `disk`."""
        return self.feature_bytes if self.can_keep else self.record_bytes


@dataclass(frozen=True)
class Window:
    """Rows that are shuffled together if the split exceeds memory: `blocks` blocks of `block` adjacent rows.

    A block holds full batches, so only the last window of an epoch can end with a short batch.
    """

    block: int
    blocks: int

    @property
    def rows(self) -> int:
        return self.block * self.blocks


@dataclass(frozen=True)
class Capacity:
    """Size of a split, compared with the limits of the machine."""

    records: int
    sizes: RecordSizes
    options: FeedOptions
    machine: Machine
    epochs: int | None = None  # how often training reads the split, if known
    devices: tuple[str, ...] = ()  # names of the devices whose steps can gather their own rows
    host_only: str = ""  # why steps cannot gather the rows of this split on their device. Empty if they can

    @property
    def memory(self) -> float:
        """Bytes of memory that the feed may use."""
        return self.machine.memory_bytes * self.options.memory_fraction

    @property
    def disk(self) -> float:
        """Bytes of disk that the feed may use."""
        return self.machine.disk_bytes * self.options.disk_fraction

    @property
    def kept(self) -> float:
        """Bytes of the split in the tiers `columns` and `disk`: decoded features, or else serialized records."""
        return self.records * self.sizes.kept_bytes

    @property
    def device_memory(self) -> float | None:
        """Bytes that the feed may use on each training device. None if the device does not report its memory."""
        if not accelerators(self.devices):  # CPU devices share memory, and each holds a copy
            return self.memory / max(1, len(self.devices))
        free = self.machine.device_bytes
        return None if free is None else free * self.options.device_fraction

    def tier(self) -> tuple[Tier, str]:
        """Return the tier and the reason for it.

        Raises InfeedError if the user requests the tier `device`, but the devices cannot hold the columns.
        """
        takes = f"{self.records:,} records take {size(self.kept)} {'decoded' if self.sizes.can_keep else 'serialized'}"
        memory, disk = f"{size(self.memory)} of memory is available", f"{size(self.disk)} of disk is available"
        free = self.device_memory
        on_devices = _UNKNOWN if free is None else f"{size(free)} of each device's memory is available"
        not_there = self.host_only or (f"only {on_devices}" if free is not None and self.kept > free else "")
        if self.options.tier == "device":
            if not_there:
                do = "use the tier columns, or auto"
                raise InfeedError(f"tier is 'device', but {not_there}; {takes}", where="FeedOptions.tier", do=do)
            return "device", f"set by FeedOptions.tier; {takes}, and {on_devices}"
        if self.options.tier != "auto":
            return self.options.tier, f"set by FeedOptions.tier; {takes}, {memory} and {disk}"
        # Decoding into a cache costs as much as an epoch of streaming, which a single epoch cannot earn back.
        if self.epochs == 1 and self.kept > _CHEAP_BYTES:
            return "stream", f"{takes}, and a single epoch does not benefit from a decoded cache"
        # From the fastest tier to the one that needs least memory.
        why_not = ""
        if accelerators(self.devices):
            if free is not None and not not_there:
                return "device", f"{takes}, and {on_devices}"
            why_not = f"; not on the devices: {not_there or _UNKNOWN}"
        if self.kept <= self.memory:
            return "columns", f"{takes}, and {memory}{why_not}"
        if self.kept <= self.disk:
            return "disk", f"{takes}, only {memory}, but {disk}{why_not}"
        return "stream", f"{takes}, only {memory}, and only {disk}{why_not}"

    def readers(self, shards: int) -> tuple[int, str]:
        """Return the number of shards read in parallel, and the reason."""
        readers = min(shards, self.options.readers or self.machine.cpus)
        if readers == shards:
            return readers, "one for each shard"
        return readers, "set by FeedOptions.readers" if self.options.readers else "one reader for each core"

    def cache(self) -> tuple[bool, str]:
        """Return whether `stream` caches the serialized records, and the reason."""
        serialized = self.records * self.sizes.record_bytes
        if self.options.cache_records is not None:
            return self.options.cache_records, "set by FeedOptions.cache_records"
        if self.epochs == 1:
            return False, "each record is read only once"
        fits = serialized <= self.memory
        return fits, f"serialized they take {size(serialized)} of the {size(self.memory)} available"

    def shuffle(self) -> tuple[int, str]:
        """Return the number of records that `stream` shuffles together, and the reason."""
        if self.options.shuffle_records is not None:
            return min(self.options.shuffle_records, self.records), "set by FeedOptions.shuffle_records"
        fits = max(1, int(self.memory / (_WINDOWS * self.sizes.record_bytes)))
        if self.records <= min(fits, _MAX_SHUFFLE):
            return self.records, "the whole split fits, so the shuffle is complete"
        window = min(fits, _MAX_SHUFFLE)
        return window, f"{self.records:,} records would not fit or would take too long to read; shards are permuted too"

    def window(self) -> Window | None:
        """Return the rows that `disk` shuffles together; None for all."""
        if self.kept <= self.memory:
            return None
        batch = self.options.batch_size
        block = batch * max(1, int(_BLOCK_BYTES / (batch * self.sizes.kept_bytes)))
        return Window(block, max(1, int(self.memory / (block * self.sizes.kept_bytes))))

    def rows_a_call(self) -> int:
        """Return the number of rows to decode or gather in one call."""
        return max(1, int(min(_CALL_ROWS, _CALL_BYTES / max(1, self.sizes.feature_bytes))))

    def batches_a_call(self) -> int:
        """Return the number of training batches to prepare in one call."""
        return max(1, self.rows_a_call() // self.options.batch_size) if self.sizes.can_split else 1


def accelerators(devices: Sequence[str]) -> tuple[str, ...]:
    """Return the devices that have their own memory."""
    return tuple(one for one in devices if "CPU" not in one)


def _free_device_bytes(devices: Sequence[str]) -> int | None:
    """Return the smallest free memory of the devices, as TensorFlow reports it for GPUs."""
    if not devices or not tensorflow_seam.DEVICE_MEMORY.usable():
        return None
    import tensorflow as tf

    try:
        limits = {short_name(name): limit for name, limit in tensorflow_seam.memory_limits().items()}
        names = [short_name(one) for one in devices]
        return min(int(limits[one] - tf.config.experimental.get_memory_info(one)["current"]) for one in names)
    except (KeyError, ValueError, tf.errors.OpError):  # a device that reports no limit, or a partitioned device
        return None


def short_name(device: str) -> str:
    """Shorten the name of a device: `/job:worker/task:0/device:GPU:1` -> `GPU:1`."""
    return ":".join(device.split(":")[-2:])
