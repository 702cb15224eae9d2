"""Blocks of rows -> shards on disk, in plain functions; `transforms` gives the same steps to Beam.

    spill_task     one task's rows: read, filter, encode, split; one spill file a block and split
    plan_shards    what each split holds and in how many shards, from the sizes of all spills; see `planning`
    write_shard    its share of every spill: shuffled, compressed, written
    publish        renames the finished shards into their splits, then writes the manifest

Nothing is visible under its final name before `publish`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components import progress, schema
from infeed.components.dataset import example_types, files, names
from infeed.components.dataset.manifest import Manifest, Rejected, Shard, Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.dataset.shards import Part, Slice, records_of_shard
from infeed.components.dataset.splits import Buckets, check_splits
from infeed.components.errors import InfeedError
from infeed.components.example_gen.chosen import choose_rows, chosen_schema, place_of
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource, Task, to_jsonl
from infeed.components.example_gen.planning import ShardTask, SpilledBlock, WritePlan, plan_writes, shard_tasks
from infeed.components.example_gen.spills import (
    ProcessedBatch,
    Spill,
    Strata,
    TaskAnalysis,
    analysed_splits,
    list_spills,
    listed_spills,
    process_batch,
    publish_statistics,
    read_slices,
    write_spill,
)

A = TypeVar("A")
B = TypeVar("B")
_WINDOW_BYTES = 32 << 20  # of records; a shard's writer holds a few copies of one window


@dataclass(frozen=True)
class Job:
    """What every step needs to know.

    Attributes:
      root: the dataset's folder.
      source: without its tasks, which may be many and go to the workers one by one.
      splits: names of all splits, in order.
      buckets: how rows are split by hash; None where every task brings its split.
    """

    root: str
    source: OpenedSource
    splits: tuple[str, ...]
    buckets: Buckets | None
    options: IngestOptions

    @classmethod
    def of(
        cls,
        source: OpenedSource,
        *,
        root: str,
        splits: tuple[str, ...],
        buckets: Buckets | None,
        options: IngestOptions,
    ) -> Job:
        """
        Raises:
          InfeedError: options that do not fit the source's schema or its splits.
        """
        if not source.tasks:
            raise InfeedError("no rows in the input", do="check the input's path and pattern")
        job = cls(root, dataclasses.replace(source, tasks=()), splits, buckets, options)
        _check_options(job)
        return job

    @property
    def temporary(self) -> str:
        return files.join(self.root, names.UNFINISHED)

    @property
    def written_schema(self) -> pa.Schema:
        return chosen_schema(self.source.schema, self.options)

    @property
    def analysed_splits(self) -> list[str]:
        """The splits that column statistics are gathered of."""
        return analysed_splits(self.splits, self.written_schema, self.options, self.source.serialized)

    def spills_of(self, split: str) -> str:
        """The file that lists a split's spills, once they are planned."""
        return files.join(self.temporary, f"spills-{split}.json")


class MapFn(Protocol):
    """Like `map`, as `Engine.map` is."""

    def __call__(self, function: Callable[[A], B], items: Sequence[A], /) -> Iterable[B]: ...


class ProgressListener:
    """Is told how far it is, from this process."""

    def read(self, block: SpilledBlock) -> None:
        """A block is read and spilled."""

    def write(self, shard: Shard, shards: int) -> None:
        """One of `shards` is written."""


def ingest(
    tasks: Sequence[Task], job: Job, *, map_fn: MapFn = map, listener: ProgressListener | None = None
) -> Manifest:
    """All steps, without Beam; what is written does not depend on `map_fn`."""
    listener = listener or ProgressListener()
    with transaction(job):
        blocks = []
        for block in itertools.chain.from_iterable(map_fn(partial(spill_task, job=job), tasks)):
            blocks.append(block)
            listener.read(block)
        plan = plan_shards(blocks, job)
        wanted, shards = shard_tasks(plan), []
        for shard in map_fn(partial(write_shard, job=job), wanted):
            shards.append(shard)
            listener.write(shard, len(wanted))
        return publish(shards, plan, job)


@contextmanager
def transaction(job: Job) -> Iterator[None]:
    """What is written inside becomes a whole dataset or, where it fails, nothing; an earlier one is cleared first."""
    _clear(job)
    try:
        yield
    except BaseException:
        _clear(job)
        raise
    files.remove(job.temporary)


def _clear(job: Job) -> None:
    """The manifest goes first, and what it described is marked unfinished, so that nothing half-cleared looks whole."""
    if files.exists(files.join(job.root, names.MANIFEST)):
        files.write_bytes(files.join(job.temporary, "clearing"), b"")
    for file in files.list_files(job.root):
        if files.name(file.path) in (names.MANIFEST, names.REJECTS) or names.is_statistics(files.name(file.path)):
            files.remove(file.path)
    splits = [folder for folder in files.list_folders(job.root) if folder.startswith(names.SPLIT_FOLDER)]
    for folder in (*splits, names.UNFINISHED):
        files.remove(files.join(job.root, folder))


def _check_options(job: Job) -> None:
    """Tries every option on a batch without rows, so that a wrong name fails before anything is read."""
    if job.buckets is not None:
        check_splits(job.buckets, job.options.split_by)
    elif job.options.split_by is not None:
        raise InfeedError(
            f"split by {job.options.split_by.how}, but the input is split already",
            where=f"splits {', '.join(job.splits)}",
            do="give one input split, or leave out split_by",
        )
    strangers = set(job.options.balance.splits) - set(job.splits) if job.options.balance else set()
    if strangers:
        raise InfeedError(
            f"no split named {min(strangers)!r}", where="balance", do=f"choose one of {', '.join(job.splits)}"
        )
    rows = choose_rows(_no_rows(job.source.schema), job.options, "", BadRows())
    _process(rows, None if job.buckets else job.splits[0], job)


def spill_task(task: Task, job: Job) -> Iterator[SpilledBlock]:
    """Reads one task and spills it, block by block; at least one."""
    bad_rows = BadRows(job.options.on_bad_row, job.options.bad_row_limit)
    analysis = TaskAnalysis(job.analysed_splits, empty_lists=job.options.compat == "tfx")
    number = 0
    for batch in job.source.read(task.payload, bad_rows=bad_rows):
        number += 1
        unread = bad_rows.take()
        chosen = choose_rows(batch, job.options, place_of(task.payload), bad_rows)
        block = _Block(chosen, batch.num_rows, unread, bad_rows.take())
        yield _spill_block(block, (task.order, number), task.split, job, analysis)
        progress.count("rows read", batch.num_rows)
        del batch, chosen, block  # a block of one large row takes as much as the next one
    if (unread := bad_rows.take()) or not number:
        block = _Block(_no_rows(job.source.schema), 0, unread)
        yield _spill_block(block, (task.order, number + 1), task.split, job, analysis)
    analysis.leave(job.temporary, task.order)


@dataclass(frozen=True)
class _Block:
    """A batch of rows as it was read.

    Attributes:
      chosen: the rows to write.
      rows: rows that were read, chosen or not.
      unread: bad rows on the way to the batch, which are not in `rows`.
      incomplete: rows without a required value, which are.
    """

    chosen: pa.RecordBatch
    rows: int
    unread: tuple[BadRow, ...]
    incomplete: tuple[BadRow, ...] = ()


def _spill_block(
    block: _Block, order: tuple[int, int], split: str | None, job: Job, analysis: TaskAnalysis
) -> SpilledBlock:
    made = _process(block.chosen, split, job)
    written, by_split, strata, framed = made.written, made.rows, made.strata, frame_records(made.examples)
    del made  # its examples take as much as the records
    analysis.add(written, by_split)
    spills = [_spill(framed, rows, split, order, strata, job) for split, rows in by_split.items() if len(rows)]
    return SpilledBlock(
        order=order,
        rows=block.rows + len(block.unread),
        filtered=block.rows - len(block.incomplete) - len(framed),
        rejected=block.unread + block.incomplete,
        nulls=tuple(column.null_count for column in written.columns),
        rounded=tuple(example_types.count_rounded(column, decimals=job.source.decimals) for column in written.columns),
        spills=tuple(spill for found in spills for spill in found),
    )


def _process(batch: pa.RecordBatch, split: str | None, job: Job) -> ProcessedBatch:
    return process_batch(batch, split, buckets=job.buckets, options=job.options, serialized=job.source.serialized)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _spill(
    framed: pa.LargeBinaryArray,
    rows: npt.NDArray[np.int64],
    split: str | None,
    order: tuple[int, int],
    strata: Strata,
    job: Job,
) -> list[Spill]:
    name = f"{order[0]:06d}-{order[1]:06d}-{split or 'all'}.arrow"
    seed = _seed(job, job.splits.index(split) if split else len(job.splits), *order)
    path = files.join(job.temporary, "spills", name)
    return write_spill(path, split, framed, rows, seed, strata)


def plan_shards(blocks: Iterable[SpilledBlock], job: Job) -> WritePlan:
    """Plans from the sizes of all blocks, and lists each split's spills where `write_shard` finds them."""
    plan = plan_writes(blocks, job.splits, job.buckets, job.options)
    for split, spills in plan.spills.items():
        list_spills(job.spills_of(split), spills)
    return plan


def write_shard(task: ShardTask, job: Job) -> Shard:
    """Writes one whole shard into the temporary folder, a window of records at a time."""
    spills = listed_spills(job.spills_of(task.split))
    name = names.shard_name(task.index, task.count, gzip=job.options.gzip_level is not None)
    file = files.join(names.split_folder(task.split), name)
    windows = _windows(task.index, task.count, spills, interleave=job.options.shuffle_seed is not None)
    records = (
        read_slices(spills, slices, _seed(job, job.splits.index(task.split), task.index, number))
        for number, slices in enumerate(windows)
    )
    written = write_records(files.join(job.temporary, file), records, gzip_level=job.options.gzip_level)
    progress.count("shards written", 1)
    return Shard(file, sum(one.stop - one.start for slices in windows for one in slices), written.bytes, written.crc32c)


def _windows(shard: int, count: int, spills: Sequence[Spill], *, interleave: bool) -> list[list[Slice]]:
    """A shard's share of the spills, cut into as many windows as keep each small."""
    size = sum(spill.bytes for spill in spills) / count
    windows = max(1, math.ceil(size / _WINDOW_BYTES))
    parts = [Part(spill.records, spill.bytes) for spill in spills]
    return [
        records_of_shard(parts, window, count * windows, interleave=interleave)
        for window in range(shard * windows, (shard + 1) * windows)
    ]


def _seed(job: Job, *place: int) -> tuple[int, ...] | None:
    """A seed of its own for every place where rows are shuffled."""
    return None if job.options.shuffle_seed is None else (job.options.shuffle_seed, *place)


def publish(shards: Iterable[Shard], plan: WritePlan, job: Job) -> Manifest:
    """Moves finished shards to where readers look, then writes the manifest."""
    shards = sorted(shards, key=lambda shard: shard.file)
    for shard in shards:
        files.rename(files.join(job.temporary, shard.file), files.join(job.root, shard.file))
    if plan.rejected:
        files.write_bytes(files.join(job.root, names.REJECTS), to_jsonl(plan.rejected))
    manifest = Manifest(
        source=job.source.provenance,
        options=schema.to_plain(job.options),
        schema=() if job.source.serialized else example_types.describe(job.written_schema, plan.nulls),
        splits={split: Split.of(_shards_of(shards, split), plan.shards[split].reason) for split in job.splits},
        rejected=Rejected(len(plan.rejected), names.REJECTS if plan.rejected else None),
        filtered=plan.filtered,
        balanced=plan.balanced,
        warnings=(*job.source.warnings, *_warnings(plan, job)),
        rows_read=plan.rows,
    )
    publish_statistics(job.temporary, job.root, [(split, manifest.splits[split]) for split in job.analysed_splits])
    manifest.write(job.root)
    return manifest


def _shards_of(shards: Iterable[Shard], split: str) -> tuple[Shard, ...]:
    return tuple(shard for shard in shards if shard.file.startswith(names.split_folder(split) + "/"))


def _warnings(plan: WritePlan, job: Job) -> Iterator[str]:
    lost = "whole numbers beyond 2^24, or out of range, changed by" if job.source.decimals else "values rounded to"
    for field, rounded in zip(job.written_schema, plan.rounded, strict=True):
        if rounded:
            yield f"column {field.name!r}: {field.type} {lost} float32: {rounded}"
    for name, why in job.source.left_out.items():
        yield f"column {name!r} is left out: {why}"
