"""Blocks of rows -> shards on disk, in plain functions; `transforms` gives the same steps to Beam.

    spill_task     one task's rows: read, encode, split; one spill file a block and split
    plan_writes    how many shards, from the sizes of all spills
    write_shard    its share of every spill: shuffled, compressed, written
    publish        renames the finished shards into their splits, then writes the manifest

Nothing is visible under its final name before `publish`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import columns, files, names
from infeed.components.dataset.encode import encode_examples, encode_feature
from infeed.components.dataset.manifest import Manifest, Shard, Source, Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.dataset.shards import Part, ShardPlan, Slice, plan_shards, records_of_shard
from infeed.components.dataset.splits import Buckets, assign_splits, rows_by_split
from infeed.components.errors import InfeedError
from infeed.components.example_gen.spills import Spill, read_slices, write_spill

TEMPORARY = ".ingest"  # beside the splits; a dot keeps it out of every reader's glob
_WINDOW_BYTES = 32 << 20  # of records; a shard's writer holds a few copies of one window


@dataclass(frozen=True)
class Task:
    """A unit of reading: what `Input.read` takes, its place in the input, and its split where the input has splits."""

    order: int
    what: Any
    split: str | None = None


@dataclass(frozen=True)
class Input:
    """An opened source: everything that is known before the first row is read.

    Args:
      read: `Task.what` -> record batches of `schema`, in order; picklable, since workers call it.
    """

    source: Source
    schema: pa.Schema
    tasks: tuple[Task, ...]
    read: Callable[[Any], Iterable[pa.RecordBatch]]


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
    read: Callable[[Any], Iterable[pa.RecordBatch]]
    splits: tuple[str, ...]
    buckets: Buckets | None
    options: IngestOptions

    @classmethod
    def of(
        cls, opened: Input, *, root: str, splits: tuple[str, ...], buckets: Buckets | None, options: IngestOptions
    ) -> Job:
        """Everything but the tasks, which may be many and go to the workers one by one."""
        return cls(root, opened.source, opened.schema, opened.read, splits, buckets, options)

    @property
    def temporary(self) -> str:
        return files.join(self.root, TEMPORARY)


@dataclass(frozen=True)
class Block:
    """What became of one record batch; `nulls` counts them for each column of the schema."""

    order: tuple[int, int]
    rows: int
    nulls: tuple[int, ...]
    spills: tuple[Spill, ...]


@dataclass(frozen=True)
class WritePlan:
    """Every split's spills in input order, and its number of shards with the reason."""

    rows: int
    nulls: tuple[int, ...]
    spills: dict[str, tuple[Spill, ...]]
    shards: dict[str, ShardPlan]


@dataclass(frozen=True)
class ShardTask:
    """One shard to write."""

    split: str
    index: int


def ingest(tasks: Sequence[Task], job: Job) -> Manifest:
    """All steps in this process, one after the other."""
    prepare(job)
    try:
        blocks = [block for task in tasks for block in spill_task(task, job)]
        plan = plan_writes(blocks, job)
        return publish([write_shard(task, plan, job) for task in shard_tasks(plan)], plan, job)
    finally:
        clean_up(job)


def prepare(job: Job) -> None:
    """Clears what an earlier attempt left: its manifest first, so that nothing half-cleared looks whole."""
    files.remove(files.join(job.root, names.MANIFEST))
    for folder in (job.temporary, *(names.split_dir(job.root, split) for split in job.splits)):
        files.remove(folder)


def clean_up(job: Job) -> None:
    """Removes the temporary folder, whatever became of the attempt."""
    files.remove(job.temporary)


def spill_task(task: Task, job: Job) -> Iterator[Block]:
    """Reads one task and spills it, block by block."""
    for number, batch in enumerate(job.read(task.what)):
        order = (task.order, number)
        examples = encode_examples(batch, empty_lists=job.options.compat == "tfx")
        assigned = {task.split: np.arange(len(examples))} if task.split else _split_rows(batch, examples, job)
        framed = frame_records(examples)
        spills = tuple(_spill(framed, rows, split, order, job) for split, rows in assigned.items() if len(rows))
        yield Block(order, batch.num_rows, tuple(column.null_count for column in batch.columns), spills)


def plan_writes(blocks: Iterable[Block], job: Job) -> WritePlan:
    """The number of shards of every split.

    Raises:
      InfeedError: no rows at all.
    """
    blocks = sorted(blocks, key=lambda block: block.order)
    rows = sum(block.rows for block in blocks)
    if not rows:
        raise InfeedError("no rows in the input", where=job.source.kind, do="check the input's path and pattern")
    spills = {
        split: tuple(spill for block in blocks for spill in block.spills if spill.split == split)
        for split in job.splits
    }
    shards = {split: _plan_split(found, job.options) for split, found in spills.items()}
    nulls = tuple(sum(counts) for counts in zip(*(block.nulls for block in blocks), strict=True))
    return WritePlan(rows, nulls, spills, shards)


def shard_tasks(plan: WritePlan) -> list[ShardTask]:
    return [ShardTask(split, index) for split, shards in plan.shards.items() for index in range(shards.count)]


def write_shard(task: ShardTask, plan: WritePlan, job: Job) -> Shard:
    """Writes one whole shard into the temporary folder, a window of records at a time."""
    spills, count = plan.spills[task.split], plan.shards[task.split].count
    name = names.shard_name(task.index, count, gzip=job.options.gzip_level is not None)
    file = files.join(names.split_folder(task.split), name)
    windows = _windows(task.index, count, spills, interleave=job.options.shuffle_seed is not None)
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
    manifest = Manifest(
        source=job.source,
        options=job.options.as_dict(),
        schema=columns.describe(job.schema, plan.nulls),
        splits={split: Split.of(_shards_of(shards, split)) for split in job.splits},
        rows_read=plan.rows,
    )
    manifest.write(job.root)
    return manifest


def _split_rows(batch: pa.RecordBatch, examples: pa.LargeBinaryArray, job: Job) -> dict[str, npt.NDArray[np.int64]]:
    if job.buckets is None:
        raise ValueError("a task without a split needs buckets")
    if job.buckets.feature is not None:
        assigned = assign_splits(_feature_keys(batch, job.buckets.feature), job.buckets)
    else:
        assigned = assign_splits(examples, job.buckets)
        if job.options.compat != "tfx":
            _assign_rows_with_nulls(assigned, batch, job.buckets)
    return rows_by_split(assigned, job.buckets.names)


def _assign_rows_with_nulls(assigned: npt.NDArray[np.int64], batch: pa.RecordBatch, buckets: Buckets) -> None:
    """TFX hashes its own bytes, with an empty list for a null; splits go by these even where others are written."""
    missing = [column.is_null().to_numpy(zero_copy_only=False) for column in batch.columns if column.null_count]
    if missing:
        rows = np.flatnonzero(np.any(missing, axis=0))
        keys = encode_examples(batch.take(pa.array(rows)), empty_lists=True)
        assigned[rows] = assign_splits(keys, buckets)


def _feature_keys(batch: pa.RecordBatch, feature: str) -> pa.LargeBinaryArray:
    where = f"split by feature {feature!r}"
    if feature not in batch.schema.names:
        raise InfeedError("no such column", where=where, do=f"choose one of {', '.join(batch.schema.names[:10])}")
    column = batch.column(batch.schema.get_field_index(feature))
    if columns.kind_of(column.type) not in ("int", "bytes"):
        raise InfeedError(f"a column of type {column.type}", where=where, do="choose a column of integers or text")
    if column.null_count:
        raise InfeedError("an empty value", where=where, do="choose a column without empty values")
    return encode_feature(column, feature)


def _spill(
    framed: pa.LargeBinaryArray, rows: npt.NDArray[np.int64], split: str, order: tuple[int, int], job: Job
) -> Spill:
    path = files.join(job.temporary, "spills", f"{order[0]:06d}-{order[1]:06d}-{split}.arrow")
    return write_spill(path, split, framed.take(pa.array(rows)), _seed(job, job.splits.index(split), *order))


def _seed(job: Job, *place: int) -> tuple[int, ...] | None:
    """A seed of its own for every place where rows are shuffled."""
    return None if job.options.shuffle_seed is None else (job.options.shuffle_seed, *place)


def _plan_split(spills: Sequence[Spill], options: IngestOptions) -> ShardPlan:
    size, records = sum(spill.bytes for spill in spills), sum(spill.records for spill in spills)
    return plan_shards(size, records, options.shards)


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
