"""The shuffle: from the spills of all tasks to the records of each window, with work that grows with the records alone.

A shard takes some records of every spill: a range of each, once all shards are read from all spills. Those ranges are
as many as the square of the input, and grow small. Where they are too many or too small, the spills are regrouped
first. A window is a part of a shard that fits into memory, and a stripe is a run of neighboring windows: one task reads
what neighboring spills hold of a stripe, some `_GROUP_BYTES`, and writes it as one file, window by window. Where more
than `_FAN` files still make a window, those files are regrouped in the same way into narrower stripes, level after
level. A level reads and writes every record once, in ranges of a megabyte or more. It adds a sixth to the CPU
time of ingest from CSV, as much as ranges of some 20 kB.

Regrouping changes no order. A window holds what the first spill gives it, then what the second does, and so on, on
every level; a Beam runner, which groups by key instead, puts it in the same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.shards import Part
from infeed.components.example_gen.planning import SplitPlan
from infeed.components.example_gen.spill_columns import Spills
from infeed.components.example_gen.spills import ROWS_OF_CHUNK

_MOST_RANGES = 100_000  # of all shards, that are read from the spills
_LEAST_BYTES = 64 << 10  # of such a range, on average
_FEW = 8  # ranges a spill or a shard, which are read whatever their size
_FAN = 64  # stripes that one is divided into, and files that make a window in the end
_GROUP_BYTES = 128 << 20  # of records, which a regrouping task holds twice
_SCHEMA = pa.schema([("record", pa.large_binary())])
Chunks = list[pa.LargeBinaryArray]


@dataclass(frozen=True)
class PlacedSpill:
    """A spill of a split, and what comes before it in the order of the input."""

    path: str
    start: int
    part: Part
    before: Part


@dataclass(frozen=True)
class Level:
    """How the records of a split lie after regrouping: so many stripes, each in so many files."""

    stripes: int
    groups: int


@dataclass(frozen=True)
class Regrouping:
    """A task: one stripe of one group of neighboring files of the level before; `level` counts from 1."""

    plan: SplitPlan
    level: int
    stripe: int
    group: int


def level_folder(folder: str, level: int, split: str) -> str:
    """Where a level of a split lies; level 0 is its spills."""
    return files.join(folder, f"level-{level}", split)


def levels_of(plan: SplitPlan) -> list[Level]:
    """The levels of regrouping that a split takes; none where its ranges are few or large."""
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
    """All tasks of one level, which can be done in any order; none where the split takes no such level."""
    levels = levels_of(plan)
    if level > len(levels):
        return []
    stripes, groups = range(levels[level - 1].stripes), range(levels[level - 1].groups)
    return [Regrouping(plan, level, stripe, group) for stripe, group in itertools.product(stripes, groups)]


def list_spills(folder: str, split: str, spills: Spills) -> None:
    """Write down which spills hold a split, in the order of the input, for whoever reads windows."""
    paths = pa.array([path for _, path in spills.files], pa.string())
    columns = {
        "path": pa.DictionaryArray.from_arrays(pa.array(spills.file), paths),
        "start": pa.array(spills.start),
        "records": pa.array(spills.records),
        "bytes": pa.array(spills.bytes),
    }
    table = pa.table(columns)
    with files.open_output(_list(folder, split)) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


@dataclass(frozen=True)
class SpillTable:
    """All spills of a split, in the order of the input, as columns: a worker needs few of them.

    Attributes:
      records, bytes: int64 [n + 1], of all spills before each, and of all.
    """

    paths: pa.Array
    starts: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]

    @classmethod
    def read(cls, folder: str, split: str) -> SpillTable:
        """What `list_spills` has written down."""
        with files.open_input(_list(folder, split), mapped=True) as file:
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
        """The numbers of the spills that begin from byte `start` on, and before byte `stop`, of all records."""
        first, last = np.searchsorted(self.bytes[:-1], [start, stop]).tolist()
        return range(first, last)

    def reaching(self, plan: SplitPlan, windows: range) -> range:
        """The numbers of the spills that may hold records of some windows."""
        if plan.interleave:
            return range(len(self))
        start, stop = (plan.bytes * limit // plan.windows for limit in (windows.start, windows.stop))
        found = self.between(start, stop + 1)
        return range(max(found.start - 1, 0), found.stop)


def regroup(task: Regrouping, folder: str) -> None:
    """Write one stripe of one group, window by window."""
    levels = levels_of(task.plan)
    windows = _stripe(task.plan.windows, levels[task.level - 1].stripes, task.stripe)
    if task.level == 1:
        parts = _of_spills(task.plan, windows, _spills_of_group(task, levels[0].groups, folder))
    else:
        above = levels[task.level - 2]
        members = range(task.group * _FAN, min((task.group + 1) * _FAN, above.groups))
        parts = _of_files(task.plan, windows, task.level - 1, above, members, folder)
    chunks, numbers = Chunks(), [np.empty(0, np.int64)]
    for of_part, counts in parts:
        chunks += of_part
        numbers.append(np.repeat(np.arange(len(windows)), counts))
    _write_windows(_file(folder, task.plan.split, task.level, task.stripe, task.group), chunks, numbers, len(windows))


def read_windows(plan: SplitPlan, windows: range, folder: str) -> Iterator[pa.LargeBinaryArray]:
    """The records of neighboring windows, window by window, after all levels are done."""
    levels = levels_of(plan)
    if not levels:
        spills = SpillTable.read(folder, plan.split)
        reaching = (spills[number] for number in spills.reaching(plan, windows))
        yield from joined(_of_spills(plan, windows, reaching), len(windows))
        return
    last = levels[-1]
    while windows:
        stripe = _stripe(plan.windows, last.stripes, _stripe_of(windows.start, plan.windows, last.stripes))
        here = range(windows.start, min(windows.stop, stripe.stop))
        yield from joined(_of_files(plan, here, len(levels), last, range(last.groups), folder), len(here))
        windows = range(here.stop, windows.stop)


def deal_spill(plan: SplitPlan, spill: PlacedSpill) -> Iterator[tuple[int, npt.NDArray[np.int64], pa.LargeBinaryArray]]:
    """(shard, how many records each of its windows gets, those records) of one spill, for each shard that gets any."""
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
    """One array of all; a single one is not copied."""
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())


def _spills_of_group(task: Regrouping, groups: int, folder: str) -> Iterator[PlacedSpill]:
    """Those that begin in the group's share of all bytes."""
    spills = SpillTable.read(folder, task.plan.split)
    start, stop = (-(-task.plan.bytes * number // groups) for number in (task.group, task.group + 1))
    return (spills[number] for number in spills.between(start, stop))


def _of_spills(
    plan: SplitPlan, windows: range, spills: Iterable[PlacedSpill]
) -> Iterator[tuple[Chunks, npt.NDArray[np.int64]]]:
    """(records, how many of them belong to each window) of each spill that has any."""
    for spill in spills:
        bounds = plan.deal.bounds(spill.part, spill.before, windows)
        if bounds[0] < bounds[-1]:
            yield _rows_of(spill, int(bounds[0]), int(bounds[-1])), np.diff(bounds)


def _of_files(
    plan: SplitPlan, windows: range, number: int, level: Level, groups: range, folder: str
) -> Iterator[tuple[Chunks, npt.NDArray[np.int64]]]:
    """The same of some files of a level; the windows lie in one stripe of it."""
    stripe = _stripe_of(windows.start, plan.windows, level.stripes)
    first = _stripe(plan.windows, level.stripes, stripe).start
    for group in groups:
        with files.open_input(_file(folder, plan.split, number, stripe, group), mapped=True) as file:
            reader = pa.ipc.open_file(file)
            chunks = [reader.get_batch(window - first).column(0) for window in windows]
        yield chunks, np.array([len(chunk) for chunk in chunks], np.int64)


def joined(parts: Iterable[tuple[Chunks, npt.NDArray[np.int64]]], windows: int) -> Iterator[pa.LargeBinaryArray]:
    """The records of each window: those of the first part, then those of the second, and so on.

    Args:
      parts: (records, how many of them belong to each window) of each.
    """
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
    """Records `start` to `stop`, not included, of a spill."""
    start, stop, found = spill.start + start, spill.start + stop, Chunks()
    with files.open_input(spill.path, mapped=True, ahead=True) as file:
        reader = pa.ipc.open_file(file)
        rows = int(reader.schema.metadata[ROWS_OF_CHUNK])
        for chunk in range(start // rows, -(-stop // rows)):
            first = chunk * rows
            records = reader.get_batch(chunk).column(0)
            found.append(records[max(start - first, 0) : min(stop - first, rows)])
    return found


def _write_windows(path: str, chunks: Chunks, numbers: Sequence[npt.NDArray[np.int64]], windows: int) -> None:
    """One batch for each window; `numbers` are those of the windows that the records belong to."""
    of_records = np.concatenate(numbers)
    # Copy everything once: slices for each part and window could be a hundred thousand.
    records = concat(chunks).take(pa.array(np.argsort(of_records, kind="stable")))
    ends = np.cumsum(np.bincount(of_records, minlength=windows)).tolist()
    with files.open_output(path) as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        for start, stop in zip([0, *ends], ends, strict=False):
            writer.write_batch(pa.RecordBatch.from_arrays([records[start:stop]], schema=_SCHEMA))


def _stripe(windows: int, stripes: int, number: int) -> range:
    """The windows of one stripe; stripes of a level lie within those of the level before."""
    return range(windows * number // stripes, windows * (number + 1) // stripes)


def _stripe_of(window: int, windows: int, stripes: int) -> int:
    return ((window + 1) * stripes - 1) // windows


def _list(folder: str, split: str) -> str:
    return files.join(folder, f"spills-{split}.arrow")


def _file(folder: str, split: str, level: int, stripe: int, group: int) -> str:
    return files.join(level_folder(folder, level, split), f"{stripe:06d}-{group:06d}.arrow")
