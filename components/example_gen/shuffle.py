"""The shuffle: distribute the records of all spills over the windows of all shards, on every engine.

Each shard takes a range of records from every spill. The number of ranges grows with the square of the input, and
their size shrinks. If ranges become too many or too small, the spills are regrouped first.

A window is a part of a shard that fits into memory. A stripe is a run of neighboring windows. One task reads the
records of a stripe from neighboring spills, about `_GROUP_BYTES`, and writes them to one file, window by window. If
too many files still contribute to a window, they are regrouped into narrower stripes, level after level. Each level
reads and writes every record once. On a disk a level adds about a sixth to the CPU time of ingesting CSV, which equals
the cost of ranges of 20 kB. On a store a range costs three requests, so ranges are larger, and levels more.

Regrouping keeps the order: a window holds the records of the first spill, then those of the second, and so on. The
number of levels therefore changes no byte of the output.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.options import Part
from infeed.components.example_gen import planning
from infeed.components.example_gen.planning import SplitPlan
from infeed.components.example_gen.spills import Spills, read_file, write_file

_MOST_RANGES = 100_000  # ranges that all shards may read from the spills
_FAN = 64  # stripes per wider stripe, and files per window after the last level
_GROUP_BYTES = 128 << 20  # of records. A regrouping task holds two copies, and the reader of a shard one
_READERS = 8  # ranges read from a store in parallel
Ints = npt.NDArray[np.int64]
Parts = Iterator[tuple[pa.LargeBinaryArray, Ints]]  # records, and the number of records in each window


@dataclass(frozen=True)
class Ranges:
    """Bounds of the ranges that are read from files.

    Attributes:
      least: average size of a range in bytes.
      few: ranges per spill or reader that are read regardless of size.
    """

    least: int
    few: int

    @classmethod
    def of(cls, folder: str) -> Ranges:
        return ON_DISK if files.is_local(folder) else ON_STORE


ON_DISK = Ranges(64 << 10, 8)
ON_STORE = Ranges(12 << 20, 1)  # three requests: size of the file, places of the records, records


@dataclass(frozen=True)
class PlacedSpill:
    """A spill of a split, and the total size of earlier spills."""

    path: str
    start: int
    part: Part
    before: Part


@dataclass(frozen=True)
class Level:
    """The layout of a split after regrouping.

    Attributes:
      groups: number of files of each stripe.
      members: number of groups of the previous level in each group. 0 for the first level, which groups by bytes.
    """

    stripes: int
    groups: int
    members: int = 0


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


def levels_of(plan: SplitPlan, ranges: Ranges) -> list[Level]:
    """Return the levels of regrouping that a split needs. Empty if its ranges are few or large."""
    readers = plan.shards.count * math.ceil(plan.windows_of_shard / _windows_at_once())
    count = plan.spills * readers
    are_few = count <= ranges.few * (plan.spills + readers)
    if not plan.interleave or are_few or (count <= _MOST_RANGES and plan.bytes >= count * ranges.least):
        return []
    # More stripes than this would make ranges smaller than `least` in a group of `_GROUP_BYTES`.
    fan = min(_FAN, _GROUP_BYTES // ranges.least)
    most = max(1, min(fan, plan.bytes // (readers * ranges.least)))  # files of a window after the last level
    levels, last = list[Level](), Level(1, plan.spills)
    while not levels or last.groups > most:
        narrower = (
            fan,
            plan.windows // last.stripes,
            math.ceil(plan.bytes / (_GROUP_BYTES * last.stripes)),
            plan.bytes // (last.groups * last.stripes * ranges.least),
        )
        stripes = last.stripes * max(1, min(narrower))  # a multiple, so that a stripe lies within one of the last level
        if levels:
            members = max(2, _GROUP_BYTES * last.groups * stripes // plan.bytes)
            last = Level(stripes, math.ceil(last.groups / members), members)
        else:
            last = Level(stripes, math.ceil(plan.bytes / (_GROUP_BYTES * stripes)))
        levels.append(last)
    return levels


def _windows_at_once() -> int:
    """Return how many windows a reader takes at a time."""
    return max(1, _GROUP_BYTES // planning.WINDOW_BYTES)


def regroupings(plan: SplitPlan, level: int, folder: str) -> list[Regrouping]:
    """Return the tasks of one level, in any order. Empty if the split does not need that level."""
    levels = levels_of(plan, Ranges.of(folder))
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
        with files.open_input(_list_path(folder, split), mapped=True, ahead=True) as file:
            table = pa.ipc.open_file(file).read_all()
        numbers = [table.column(name).to_numpy() for name in ("start", "records", "bytes")]
        start, *sizes = (of_column.astype(np.int64, copy=False) for of_column in numbers)
        records, size = (np.concatenate([[0], np.cumsum(of_column)]) for of_column in sizes)
        return cls(table.column("path").combine_chunks(), start, records, size)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> PlacedSpill:
        size, before = self.placed(range(number, number + 1))
        return PlacedSpill(self.paths[number].as_py(), int(self.starts[number]), size, before)

    def placed(self, numbers: range) -> tuple[Part, Part]:
        """Return the size of neighboring spills, and of all spills before them."""
        before, after = (Part(int(self.records[at]), int(self.bytes[at])) for at in (numbers.start, numbers.stop))
        return Part(after.records - before.records, after.bytes - before.bytes), before

    def between(self, start: int, stop: int) -> range:
        """Return the indices of the spills that start in bytes `start` to `stop` of all records."""
        first, last = np.searchsorted(self.bytes[:-1], [start, stop]).tolist()
        return range(first, last)

    def reaching(self, plan: SplitPlan, windows: range) -> range:
        """Return the indices of the spills that may hold records of some windows."""
        if plan.interleave:  # every window takes records from every spill
            return range(len(self))
        start, stop = (plan.bytes * limit // plan.windows for limit in (windows.start, windows.stop))
        found = self.between(start, stop + 1)
        return range(max(found.start - 1, 0), found.stop)


def regroup(task: Regrouping, folder: str) -> None:
    """Write one stripe of one group, window by window."""
    plan, inputs = task.plan, _Inputs.of(task.plan, folder, task.level - 1)
    stripes = inputs.levels[task.level - 1].stripes
    windows = range(plan.windows * task.stripe // stripes, plan.windows * (task.stripe + 1) // stripes)
    chunks, numbers = list[pa.LargeBinaryArray](), [np.empty(0, np.int64)]
    for part, counts in _read_parts(plan, windows, inputs.of_group(task.group, windows), folder):
        chunks.append(part)
        numbers.append(np.repeat(np.arange(len(windows)), counts))
        del part
    # A stable sort by window keeps the order of the spills. One copy is cheaper than up to 100,000 slices.
    records = concat(chunks)
    chunks.clear()
    records = records.take(pa.array(np.argsort(np.concatenate(numbers), kind="stable")))
    write_file(_stripe_path(folder, plan.split, task.level, task.stripe, task.group), records)


def read_windows(plan: SplitPlan, windows: range, folder: str) -> Iterator[pa.LargeBinaryArray]:
    """Yield the records of neighboring windows, once all levels are complete."""
    inputs = _Inputs.of(plan, folder)
    while windows:
        stop = min(windows.start + _windows_at_once(), inputs.stripe_end(windows.start), windows.stop)
        here = range(windows.start, stop)
        yield from joined(_read_parts(plan, here, inputs.reaching(here), folder), len(here))
        windows = range(here.stop, windows.stop)


@dataclass(frozen=True)
class _Inputs:
    """The files of one level, which the next level or the writers of shards read.

    A file of level 1 or more is like a spill of all records of its group, from its first window on.
    """

    plan: SplitPlan
    folder: str
    table: SpillTable
    levels: Sequence[Level]
    level: int

    @classmethod
    def of(cls, plan: SplitPlan, folder: str, level: int | None = None) -> _Inputs:
        levels = levels_of(plan, Ranges.of(folder))
        return cls(plan, folder, SpillTable.read(folder, plan.split), levels, len(levels) if level is None else level)

    @property
    def _stripes(self) -> int:
        return self.levels[self.level - 1].stripes if self.level else 1

    def stripe_end(self, window: int) -> int:
        """Return the end of the stripe of a window."""
        return self.plan.windows * (self._stripe_of(window) + 1) // self._stripes

    def reaching(self, windows: range) -> Iterator[PlacedSpill]:
        """Yield the files that may hold records of some windows of a stripe, in order."""
        if self.level:
            return self._files(range(self.levels[self.level - 1].groups), windows)
        return (self.table[number] for number in self.table.reaching(self.plan, windows))

    def of_group(self, group: int, windows: range) -> Iterator[PlacedSpill]:
        """Yield the files of a group of the next level, in order."""
        if not self.level:
            return (self.table[number] for number in self._spills_of(1, range(group, group + 1)))
        return self._files(self._members(self.level + 1, range(group, group + 1)), windows)

    def _files(self, groups: range, windows: range) -> Iterator[PlacedSpill]:
        stripe = self._stripe_of(windows.start)
        first = self.plan.windows * stripe // self._stripes
        for group in groups:
            part, before = self.table.placed(self._spills_of(self.level, range(group, group + 1)))
            # The file has the group's records only from this stripe on, so indices in it are smaller by `start`.
            start = int(self.plan.deal.bounds(part, before, range(first, first))[0])
            path = _stripe_path(self.folder, self.plan.split, self.level, stripe, group)
            yield PlacedSpill(path, -start, part, before)

    def _spills_of(self, level: int, groups: range) -> range:
        """Return the indices of the spills of some groups of a level."""
        for above in range(level, 1, -1):
            groups = self._members(above, groups)
        size, count = self.plan.bytes, self.levels[0].groups
        return self.table.between(-(-size * groups.start // count), -(-size * groups.stop // count))

    def _members(self, level: int, groups: range) -> range:
        """Return the groups of the previous level in some groups of a level."""
        members = self.levels[level - 1].members
        return range(groups.start * members, min(groups.stop * members, self.levels[level - 2].groups))

    def _stripe_of(self, window: int) -> int:
        return ((window + 1) * self._stripes - 1) // self.plan.windows


def concat(chunks: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Concatenate arrays. A single array is not copied."""
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())


def _read_parts(plan: SplitPlan, windows: range, spills: Iterable[PlacedSpill], folder: str) -> Parts:
    """Yield a part for each spill that reaches the windows, in order."""
    placed = ((spill, plan.deal.bounds(spill.part, spill.before, windows)) for spill in spills)
    wanted = [(spill, bounds) for spill, bounds in placed if bounds[0] < bounds[-1]]
    counts = (np.diff(bounds) for _, bounds in wanted)
    if files.is_local(folder):
        yield from zip(map(_read_part, wanted), counts, strict=True)
        return
    # A store answers in tens of milliseconds, so several requests are open at once; `map` keeps their order.
    with ThreadPoolExecutor(_READERS) as readers:
        yield from zip(readers.map(_read_part, wanted), counts, strict=True)


def _read_part(part: tuple[PlacedSpill, Ints]) -> pa.LargeBinaryArray:
    spill, bounds = part
    return read_file(spill.path, spill.start + int(bounds[0]), spill.start + int(bounds[-1]))


def joined(parts: Parts, windows: int) -> Iterator[pa.LargeBinaryArray]:
    """Yield the records of each window: those of the first part, then of the second, and so on."""
    found: list[list[pa.LargeBinaryArray]] = [[] for _ in range(windows)]
    for records, counts in parts:
        start = 0
        for of_window, count in zip(found, counts.tolist(), strict=True):
            if count:
                of_window.append(records.slice(start, count))
            start += count
    while found:
        yield concat(found.pop(0))  # `pop` frees the slices of a window once it is written


def _list_path(folder: str, split: str) -> str:
    return files.join(folder, f"spills-{split}.arrow")


def _stripe_path(folder: str, split: str, level: int, stripe: int, group: int) -> str:
    return files.join(level_folder(folder, level, split), f"{stripe:06d}-{group:06d}.records")
