"""The shuffle: distribute the records of all spills over the windows of all shards.

Each shard takes a range of records from every spill. The number of ranges grows with the square of the input, and
their size shrinks. If ranges become too many or too small, the spills are regrouped first.

A window is a part of a shard that fits into memory. A stripe is a run of neighboring windows. One task reads the
records of a stripe from neighboring spills, about `_GROUP_BYTES`, and writes them to one file, window by window. If
more than `_FAN` files still contribute to a window, they are regrouped into narrower stripes, level after level. Each
level reads and writes every record once, in ranges of at least a megabyte. A level adds about a sixth to the CPU time
of ingesting CSV, which equals the cost of ranges of 20 kB.

Regrouping keeps the order: a window holds the records of the first spill, then those of the second, and so on. A Beam
runner groups by key instead and restores the same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.shards import Part
from infeed.components.example_gen.planning import SplitPlan
from infeed.components.example_gen.spills import ROWS_OF_CHUNK, Spills

_MOST_RANGES = 100_000  # ranges that all shards may read from the spills
_LEAST_BYTES = 64 << 10  # average size of a range
_FEW = 8  # ranges per spill or shard that are read regardless of size
_FAN = 64  # stripes per wider stripe, and files per window after the last level
_GROUP_BYTES = 128 << 20  # of records. A regrouping task holds two copies
SCHEMA = pa.schema([("record", pa.large_binary())])
Chunks = list[pa.LargeBinaryArray]
Parts = Iterator[tuple[Chunks, npt.NDArray[np.int64]]]  # records, and the number of records in each window


@dataclass(frozen=True)
class PlacedSpill:
    """A spill of a split, and the total size of the spills before it."""

    path: str
    start: int
    part: Part
    before: Part


@dataclass(frozen=True)
class Level:
    """The layout of a split after regrouping: the number of stripes, and of files per stripe."""

    stripes: int
    groups: int


@dataclass(frozen=True)
class Regrouping:
    """A task that writes one stripe from one group of files of the previous level. `level` counts from 1."""

    plan: SplitPlan
    level: int
    stripe: int
    group: int


def level_folder(folder: str, level: int, split: str) -> str:
    """Return the folder of a level of a split. Level 0 holds the spills."""
    return files.join(folder, f"level-{level}", split)


def levels_of(plan: SplitPlan) -> list[Level]:
    """Return the levels of regrouping that a split needs. Empty if its ranges are few or large."""
    ranges = plan.spills * plan.shards.count
    are_few = ranges <= _FEW * (plan.spills + plan.shards.count)
    if not plan.interleave or are_few or (ranges <= _MOST_RANGES and plan.bytes >= ranges * _LEAST_BYTES):
        return []
    stripes = min(_FAN, plan.windows, math.ceil(plan.bytes / _GROUP_BYTES))
    levels = [Level(stripes, math.ceil(plan.bytes / (_GROUP_BYTES * stripes)))]
    while levels[-1].groups > _FAN:
        stripes = min(_FAN * levels[-1].stripes, plan.windows)
        levels.append(Level(stripes, math.ceil(levels[-1].groups / _FAN)))
    return levels


def regroupings(plan: SplitPlan, level: int) -> list[Regrouping]:
    """Return the tasks of one level, in any order. Empty if the split does not need that level."""
    levels = levels_of(plan)
    if level > len(levels):
        return []
    stripes, groups = range(levels[level - 1].stripes), range(levels[level - 1].groups)
    return [Regrouping(plan, level, stripe, group) for stripe, group in itertools.product(stripes, groups)]


def list_spills(folder: str, split: str, spills: Spills) -> None:
    """Write the list of a split's spills, in input order, for the readers of windows."""
    paths = pa.array([path for _, path in spills.files], pa.string())
    sizes = {"start": spills.start, "records": spills.records, "bytes": spills.bytes}
    table = pa.table({"path": pa.DictionaryArray.from_arrays(pa.array(spills.file), paths), **sizes})
    with files.open_output(_list_path(folder, split)) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


@dataclass(frozen=True)
class SpillTable:
    """The spills of a split as columns, in input order. A worker needs only few of them."""

    paths: pa.Array
    starts: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]  # [n + 1], cumulative size before each spill, and the total
    bytes: npt.NDArray[np.int64]  # the same in bytes

    @classmethod
    def read(cls, folder: str, split: str) -> SpillTable:
        with files.open_input(_list_path(folder, split), mapped=True) as file:
            table = pa.ipc.open_file(file).read_all()
        numbers = [table.column(name).to_numpy() for name in ("start", "records", "bytes")]
        start, *sizes = (of_column.astype(np.int64, copy=False) for of_column in numbers)
        records, size = (np.concatenate([[0], np.cumsum(of_column)]) for of_column in sizes)
        return cls(table.column("path").combine_chunks(), start, records, size)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> PlacedSpill:
        before = Part(int(self.records[number]), int(self.bytes[number]))
        after = Part(int(self.records[number + 1]), int(self.bytes[number + 1]))
        part = Part(after.records - before.records, after.bytes - before.bytes)
        return PlacedSpill(self.paths[number].as_py(), int(self.starts[number]), part, before)

    def between(self, start: int, stop: int) -> range:
        """Return the indices of the spills that start in bytes `start` to `stop` of all records."""
        first, last = np.searchsorted(self.bytes[:-1], [start, stop]).tolist()
        return range(first, last)

    def reaching(self, plan: SplitPlan, windows: range) -> range:
        """Return the indices of the spills that may hold records of some windows."""
        if plan.interleave:
            return range(len(self))
        start, stop = (plan.bytes * limit // plan.windows for limit in (windows.start, windows.stop))
        found = self.between(start, stop + 1)
        return range(max(found.start - 1, 0), found.stop)


def regroup(task: Regrouping, folder: str) -> None:
    """Write one stripe of one group, one batch for each window."""
    levels = levels_of(task.plan)
    windows = _stripe(task.plan.windows, levels[task.level - 1].stripes, task.stripe)
    if task.level == 1:
        spills, groups = SpillTable.read(folder, task.plan.split), levels[0].groups
        start, stop = (-(-task.plan.bytes * number // groups) for number in (task.group, task.group + 1))
        parts = _read_spills(task.plan, windows, (spills[number] for number in spills.between(start, stop)))
    else:
        above = levels[task.level - 2]
        members = range(task.group * _FAN, min((task.group + 1) * _FAN, above.groups))
        parts = _read_files(task.plan, windows, task.level - 1, above, members, folder)
    chunks, numbers = Chunks(), [np.empty(0, np.int64)]
    for of_part, counts in parts:
        chunks += of_part
        numbers.append(np.repeat(np.arange(len(windows)), counts))
    of_records = np.concatenate(numbers)
    # One copy is cheaper than up to a hundred thousand slices.
    records = concat(chunks).take(pa.array(np.argsort(of_records, kind="stable")))
    ends = np.cumsum(np.bincount(of_records, minlength=len(windows))).tolist()
    path = _stripe_path(folder, task.plan.split, task.level, task.stripe, task.group)
    with files.open_output(path) as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for start, stop in zip([0, *ends], ends, strict=False):
            writer.write_batch(pa.RecordBatch.from_arrays([records[start:stop]], schema=SCHEMA))


def read_windows(plan: SplitPlan, windows: range, folder: str) -> Iterator[pa.LargeBinaryArray]:
    """Yield the records of neighboring windows, once all levels are complete."""
    levels = levels_of(plan)
    if not levels:
        spills = SpillTable.read(folder, plan.split)
        reaching = (spills[number] for number in spills.reaching(plan, windows))
        yield from joined(_read_spills(plan, windows, reaching), len(windows))
        return
    last = levels[-1]
    while windows:
        stripe = _stripe(plan.windows, last.stripes, _stripe_of(windows.start, plan.windows, last.stripes))
        here = range(windows.start, min(windows.stop, stripe.stop))
        yield from joined(_read_files(plan, here, len(levels), last, range(last.groups), folder), len(here))
        windows = range(here.stop, windows.stop)


def deal_spill(plan: SplitPlan, spill: PlacedSpill) -> Iterator[tuple[int, npt.NDArray[np.int64], pa.LargeBinaryArray]]:
    """Yield (shard, number of records in each of its windows, records) for each shard that the spill reaches."""
    size = plan.windows_of_shard
    reached = plan.deal.reached(spill.part, spill.before)
    shards = range(reached.start // size, -(-reached.stop // size))
    bounds = plan.deal.bounds(spill.part, spill.before, range(shards.start * size, shards.stop * size))
    records = pa.chunked_array(_rows_of(spill, int(bounds[0]), int(bounds[-1])), pa.large_binary())
    for number, shard in enumerate(shards):
        of_shard = bounds[number * size : (number + 1) * size + 1]
        if of_shard[0] < of_shard[-1]:
            taken = records.slice(int(of_shard[0] - bounds[0]), int(of_shard[-1] - of_shard[0]))
            yield shard, np.diff(of_shard), concat(taken.chunks)


def concat(chunks: Chunks) -> pa.LargeBinaryArray:
    """Concatenate arrays. A single array is not copied."""
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())


def _read_spills(plan: SplitPlan, windows: range, spills: Iterable[PlacedSpill]) -> Parts:
    """Yield a part for each spill that reaches the windows."""
    for spill in spills:
        bounds = plan.deal.bounds(spill.part, spill.before, windows)
        if bounds[0] < bounds[-1]:
            yield _rows_of(spill, int(bounds[0]), int(bounds[-1])), np.diff(bounds)


def _read_files(plan: SplitPlan, windows: range, number: int, level: Level, groups: range, folder: str) -> Parts:
    """Yield a part for each file of a level. The windows must be in one stripe."""
    stripe = _stripe_of(windows.start, plan.windows, level.stripes)
    first = _stripe(plan.windows, level.stripes, stripe).start
    for group in groups:
        with files.open_input(_stripe_path(folder, plan.split, number, stripe, group), mapped=True) as file:
            reader = pa.ipc.open_file(file)
            chunks = [reader.get_batch(window - first).column(0) for window in windows]
        yield chunks, np.array([len(chunk) for chunk in chunks], np.int64)


def joined(parts: Parts, windows: int) -> Iterator[pa.LargeBinaryArray]:
    """Yield the records of each window: those of the first part, then of the second, and so on."""
    found: list[Chunks] = [[] for _ in range(windows)]
    for chunks, counts in parts:
        records, start = pa.chunked_array(chunks, pa.large_binary()), 0
        for of_window, count in zip(found, counts.tolist(), strict=True):
            if count:
                of_window += records.slice(start, count).chunks
            start += count
    while found:
        yield concat(found.pop(0))


def _rows_of(spill: PlacedSpill, start: int, stop: int) -> Chunks:
    start, stop, found = spill.start + start, spill.start + stop, Chunks()
    with files.open_input(spill.path, mapped=True, ahead=True) as file:
        reader = pa.ipc.open_file(file)
        rows = int(reader.schema.metadata[ROWS_OF_CHUNK])
        for chunk in range(start // rows, -(-stop // rows)):
            first = chunk * rows
            records = reader.get_batch(chunk).column(0)
            found.append(records[max(start - first, 0) : min(stop - first, rows)])
    return found


def _stripe(windows: int, stripes: int, number: int) -> range:
    """Return the windows of one stripe. Each stripe lies within one stripe of the previous level."""
    return range(windows * number // stripes, windows * (number + 1) // stripes)


def _stripe_of(window: int, windows: int, stripes: int) -> int:
    return ((window + 1) * stripes - 1) // windows


def _list_path(folder: str, split: str) -> str:
    return files.join(folder, f"spills-{split}.arrow")


def _stripe_path(folder: str, split: str, level: int, stripe: int, group: int) -> str:
    return files.join(level_folder(folder, level, split), f"{stripe:06d}-{group:06d}.arrow")
