"""Blocks of rows -> shards on disk, in plain functions; `transforms` gives the same steps to Beam.

    spill_task     one task's rows: read, filter, encode, split; one spill file a block and split
    plan_shards    what each split holds and in how many shards, from the sizes of all spills; see `planning`
    write_shard    its share of every spill: shuffled, compressed, written
    publish        renames the finished shards into their splits, then writes the manifest

Nothing is visible under its final name before `publish`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import assign, columns, files, names
from infeed.components.dataset.manifest import Manifest, Rejected, Shard, Source, Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.dataset.shards import Part, Slice, records_of_shard
from infeed.components.dataset.splits import Buckets
from infeed.components.errors import InfeedError
from infeed.components.example_gen.arrange import Arranged, arrange, written_schema
from infeed.components.example_gen.bad_rows import REJECTS, BadRow, BadRows, to_jsonl
from infeed.components.example_gen.planning import Block, ShardTask, WritePlan, plan_writes, shard_tasks
from infeed.components.example_gen.spills import Spill, Strata, list_spills, listed_spills, read_slices, write_spill

A = TypeVar("A")
B = TypeVar("B")
_WINDOW_BYTES = 32 << 20  # of records; a shard's writer holds a few copies of one window


@dataclass(frozen=True)
class Task:
    """A unit of reading: what `Input.read` takes, its place in the input, and its split where the input has splits."""

    order: int
    what: Any
    split: str | None = None


class Read(Protocol):
    """`Task.what` -> record batches of the input's schema, in order; picklable, since workers call it.

    A row that no typed row can be made of is reported to `bad_rows` and left out.
    """

    def __call__(self, what: Any, /, *, bad_rows: BadRows) -> Iterable[pa.RecordBatch]: ...


@dataclass(frozen=True)
class Input:
    """An opened source: everything that is known before the first row is read.

    Args:
      serialized: the only column holds records that are written as they are.
      decimals: floats were written as decimals; see `columns.count_rounded`.
    """

    source: Source
    schema: pa.Schema
    tasks: tuple[Task, ...]
    read: Read
    serialized: bool = False
    decimals: bool = False


@dataclass(frozen=True)
class Job:
    """What every step needs to know.

    Args:
      root: the dataset's folder.
      splits: names of all splits, in order.
      buckets: how rows are split by hash; None where every task brings its split.
    """

    root: str
    source: Source
    schema: pa.Schema
    read: Read
    serialized: bool
    decimals: bool
    splits: tuple[str, ...]
    buckets: Buckets | None
    options: IngestOptions

    @classmethod
    def of(
        cls, opened: Input, *, root: str, splits: tuple[str, ...], buckets: Buckets | None, options: IngestOptions
    ) -> Job:
        """Everything but the tasks, which may be many and go to the workers one by one.

        Raises:
          InfeedError: options that do not fit the input's schema or its splits.
        """
        if not opened.tasks:
            raise InfeedError("no rows in the input", do="check the input's path and pattern")
        job = cls(
            root=root,
            source=opened.source,
            schema=opened.schema,
            read=opened.read,
            serialized=opened.serialized,
            decimals=opened.decimals,
            splits=splits,
            buckets=buckets,
            options=options,
        )
        _check_options(job)
        return job

    @property
    def temporary(self) -> str:
        return files.join(self.root, names.UNFINISHED)

    def spills_of(self, split: str) -> str:
        """The file that lists a split's spills, once they are planned."""
        return files.join(self.temporary, f"spills-{split}.json")


class Each(Protocol):
    """Like `map`, but in any order: `workers.processes` gives one that uses several processes."""

    def __call__(self, function: Callable[[A], B], items: Sequence[A], /) -> Iterable[B]: ...


class Watcher:
    """Is told how far it is, from this process."""

    def read(self, block: Block) -> None:
        """A block is read and spilled."""

    def write(self, shard: Shard, shards: int) -> None:
        """One of `shards` is written."""


def ingest(tasks: Sequence[Task], job: Job, *, each: Each = map, watcher: Watcher | None = None) -> Manifest:
    """All steps, without Beam; what is written does not depend on `each`."""
    watcher = watcher or Watcher()
    with attempt(job):
        blocks = []
        for block in itertools.chain.from_iterable(each(partial(spill_task, job=job), tasks)):
            blocks.append(block)
            watcher.read(block)
        plan = plan_shards(blocks, job)
        wanted, shards = shard_tasks(plan), []
        for shard in each(partial(write_shard, job=job), wanted):
            shards.append(shard)
            watcher.write(shard, len(wanted))
        return publish(shards, plan, job)


@contextmanager
def attempt(job: Job) -> Iterator[None]:
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
    for file in (names.MANIFEST, REJECTS):
        files.remove(files.join(job.root, file))
    splits = [folder for folder in files.list_folders(job.root) if folder.startswith(names.SPLIT_FOLDER)]
    for folder in (*splits, names.UNFINISHED):
        files.remove(files.join(job.root, folder))


def spill_task(task: Task, job: Job) -> Iterator[Block]:
    """Reads one task and spills it, block by block; at least one, so that Beam has something to plan from."""
    bad_rows = BadRows(job.options.on_bad_row, job.options.bad_row_limit)
    number = 0
    for number, batch in enumerate(job.read(task.what, bad_rows=bad_rows), start=1):
        yield _spill_batch(batch, (task.order, number), bad_rows.take(), task.split, job)
    if (rejected := bad_rows.take()) or not number:
        yield _spill_batch(_no_rows(job.schema), (task.order, number + 1), rejected, task.split, job)


def plan_shards(blocks: Iterable[Block], job: Job) -> WritePlan:
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
    return Shard(file, sum(one.stop - one.start for slices in windows for one in slices), written.bytes, written.crc32c)


def publish(shards: Iterable[Shard], plan: WritePlan, job: Job) -> Manifest:
    """Moves finished shards to where readers look, then writes the manifest."""
    shards = sorted(shards, key=lambda shard: shard.file)
    for shard in shards:
        files.rename(files.join(job.temporary, shard.file), files.join(job.root, shard.file))
    if plan.rejected:
        files.write_bytes(files.join(job.root, REJECTS), to_jsonl(plan.rejected))
    manifest = Manifest(
        source=job.source,
        options=job.options.as_dict(),
        schema=() if job.serialized else columns.describe(written_schema(job.schema, job.options), plan.nulls),
        splits={split: Split.of(_shards_of(shards, split), plan.shards[split].reason) for split in job.splits},
        rejected=Rejected(len(plan.rejected), REJECTS if plan.rejected else None),
        filtered=plan.filtered,
        balanced=plan.balanced,
        warnings=tuple(_warnings(plan, job)),
        rows_read=plan.rows,
    )
    manifest.write(job.root)
    return manifest


def _warnings(plan: WritePlan, job: Job) -> Iterator[str]:
    for field, rounded in zip(written_schema(job.schema, job.options), plan.rounded, strict=True):
        if rounded:
            what = "whole numbers beyond 2^24, or out of range, changed by" if job.decimals else "values rounded to"
            yield f"column {field.name!r}: {field.type} {what} float32: {rounded}"


def _check_options(job: Job) -> None:
    """Tries every option on a batch without rows, so that a wrong name is told before anything is read."""
    if job.buckets is not None:
        assign.check_splits(job.buckets, job.options.split_by)
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
    _arrange(_no_rows(job.schema), None if job.buckets else job.splits[0], job)


def _arrange(batch: pa.RecordBatch, split: str | None, job: Job) -> Arranged:
    return arrange(batch, split, buckets=job.buckets, options=job.options, serialized=job.serialized)


def _spill_batch(
    batch: pa.RecordBatch, order: tuple[int, int], rejected: tuple[BadRow, ...], split: str | None, job: Job
) -> Block:
    arranged = _arrange(batch, split, job)
    framed = frame_records(arranged.examples)
    spills = [
        _spill(framed, rows, split, order, arranged.strata, job) for split, rows in arranged.rows.items() if len(rows)
    ]
    return Block(
        order=order,
        rows=batch.num_rows + len(rejected),
        filtered=batch.num_rows - len(framed),
        rejected=rejected,
        nulls=tuple(column.null_count for column in arranged.written.columns),
        rounded=tuple(columns.count_rounded(column, decimals=job.decimals) for column in arranged.written.columns),
        spills=tuple(spill for found in spills for spill in found),
    )


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


def _seed(job: Job, *place: int) -> tuple[int, ...] | None:
    """A seed of its own for every place where rows are shuffled."""
    return None if job.options.shuffle_seed is None else (job.options.shuffle_seed, *place)


def _windows(shard: int, count: int, spills: Sequence[Spill], *, interleave: bool) -> list[list[Slice]]:
    """A shard's share of the spills, cut into as many windows as keep each small."""
    size = sum(spill.bytes for spill in spills) / count
    windows = max(1, math.ceil(size / _WINDOW_BYTES))
    parts = [Part(spill.records, spill.bytes) for spill in spills]
    return [
        records_of_shard(parts, window, count * windows, interleave=interleave)
        for window in range(shard * windows, (shard + 1) * windows)
    ]


def _shards_of(shards: Iterable[Shard], split: str) -> tuple[Shard, ...]:
    return tuple(shard for shard in shards if shard.file.startswith(names.split_folder(split) + "/"))
