"""Write blocks of rows as shards, in plain functions that every engine runs.

    spill_task     read, filter, encode, and split the rows of a task; write a spill file for each run and split
    plan_shards    choose the number of shards of each split from the sizes of all spills; see `planning`
    regroup        if there are many spills, move records closer to their shards; see `shuffle`
    write_shard    shuffle, compress, and write the records of one shard
    publish        move the finished shards into their splits, then write the manifest

Steps exchange records through files in the output's own folder, so an engine carries only tasks and their outcomes.
Nothing has its final name before `publish`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from infeed.components.base import progress, schema
from infeed.components.base.errors import InfeedError, ReadFailedError
from infeed.components.dataset import example_types, files, names
from infeed.components.dataset.manifest import Manifest, Rejected, Shard, Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.read_errors import failed_reads, tried_again
from infeed.components.dataset.reading import MapFn
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.dataset.splits import Buckets, check_splits
from infeed.components.example_gen import planning, shuffle, spills, task_statistics
from infeed.components.example_gen.codes import note_on
from infeed.components.example_gen.inputs import AstrayError, BadRow, BadRows, Findings, OpenedSource, Task, to_jsonl
from infeed.components.example_gen.planning import (
    OtherKindsError,
    ShardTask,
    SpilledTask,
    WritePlan,
    check_found,
    line_offsets,
    shift_lines,
    with_lines,
)
from infeed.components.example_gen.spills import (
    ProcessedBatch,
    RunRecords,
    Seed,
    Spill,
    Spills,
    choose_rows,
    chosen_schema,
    place_of,
)
from infeed.components.example_gen.task_statistics import StatisticsGroup

_REJECTS = "rejects"  # folder of the rejected rows of each task
_OFFSETS = "lines.json"
_ANY_NUMBER = 1 << 62  # limit of bad rows that is never reached


@dataclass(frozen=True)
class Job:
    """The plan of one ingest, shared by all steps."""

    root: str
    source: OpenedSource  # without its tasks, which may be many and which the engine sends one by one
    splits: tuple[str, ...]
    buckets: Buckets | None  # hash buckets that split the rows. None if every task names its split
    options: IngestOptions

    @classmethod
    def of(
        cls, source: OpenedSource, root: str, splits: tuple[str, ...], buckets: Buckets | None, options: IngestOptions
    ) -> Job:
        """Create a job. Raises InfeedError if options do not fit, or OtherKindsError if they do not fit a sample."""
        if not source.tasks:
            raise planning.no_rows(source.place)
        # `reopen` is a closure, which no engine can send to a worker.
        job = cls(root, dataclasses.replace(source, tasks=(), reopen=None), splits, buckets, options)
        try:
            _check_options(job, source.tasks[0])
        except InfeedError as error:
            if source.sample is None:
                raise
            raise OtherKindsError(None) from error  # the options may fit the types of all rows
        return job

    @property
    def temporary(self) -> str:
        """Folder of the shards until they are published, and of spills, statistics, and rejected rows."""
        return files.join(self.root, names.UNFINISHED)

    @property
    def written_schema(self) -> pa.Schema:
        if self.source.serialized:
            return pa.schema([self.source.schema.field(0)])
        return chosen_schema(self.source.schema, self.options)

    @property
    def analyzed_splits(self) -> list[str]:
        return task_statistics.analyzed_splits(self.splits, self.written_schema, self.options, self.source.serialized)


class ProgressListener:
    """Callbacks for progress, called in this process. They do nothing by default."""

    def read(self, task: SpilledTask) -> None:
        """Handle a task that has been read and spilled."""

    def write(self, shard: Shard, shards: int) -> None:
        """Handle a written shard, one of `shards`."""


def ingest(
    tasks: Sequence[Task], job: Job, *, map_fn: MapFn = map, listener: ProgressListener | None = None
) -> Manifest:
    """Run all steps. `map_fn` is the `map` of an engine whose workers can access the output; the output is the same."""
    listener = listener or ProgressListener()
    with transaction(job):

        def spilled() -> Iterator[SpilledTask]:
            for task in map_fn(partial(spill_task, job=job), tasks):
                listener.read(task)
                yield task

        plan = plan_shards(spilled(), job)
        _regroup(plan, job, map_fn)
        wanted, shards = planning.shard_tasks(plan), []
        # Both kinds of tasks go through one call: on a Beam runner, each call is a separate pipeline.
        for shard in map_fn(partial(_finish, job=job), [*task_statistics.statistics_groups(len(tasks)), *wanted]):
            if shard is not None:
                shards.append(shard)
                listener.write(shard, len(wanted))
        return publish(shards, plan, len(tasks), job)


def _regroup(plan: WritePlan, job: Job, map_fn: MapFn) -> None:
    """Run all levels of the shuffle, and remove the files of a level once the next is complete."""
    for level in itertools.count(1):
        wanted = [task for split in plan.splits for task in shuffle.regroupings(split, level, job.temporary)]
        if not wanted:
            return
        for _ in map_fn(partial(shuffle.regroup, folder=job.temporary), wanted):
            pass
        # Every level copies all records, so at most two levels are on the disk at the same time.
        for split in plan.splits:
            if shuffle.regroupings(split, level, job.temporary):
                files.remove(shuffle.level_folder(job.temporary, level - 1, split.split))


@contextmanager
def transaction(job: Job) -> Iterator[None]:
    """Clear the output folder first, and again if the body fails. The body publishes the dataset."""
    clear(job.root)
    try:
        yield
    except BaseException:  # Ctrl-C must not leave a partial dataset either
        with files.logged_failures(job.root, f"infeed ingest --clean {job.root} removes the remaining files"):
            clear(job.root)
        raise
    try:
        files.remove(job.temporary)
    except (OSError, InfeedError) as error:
        what = f"the dataset is written, but cannot be read until its temporary files are removed: {error}"
        do = f"allow their removal, and run infeed ingest --clean {job.root}"
        raise InfeedError(what, where=job.temporary, do=do) from error


def clear(root: str) -> None:
    """Remove a dataset. A marker makes it unfinished first, so that a partly removed dataset never looks complete."""
    if files.exists(files.join(root, names.MANIFEST)):
        files.write_bytes(files.join(root, names.UNFINISHED, "clearing"), b"")
    for file in files.list_files(root):
        if files.name(file.path) in (names.MANIFEST, names.REJECTS) or names.is_statistics(files.name(file.path)):
            files.remove(file.path)
    splits = [folder for folder in files.list_folders(root) if folder.startswith(names.SPLIT_FOLDER)]
    for folder in (*splits, names.UNFINISHED):
        files.remove(files.join(root, folder))


def _check_options(job: Job, first: Task) -> None:
    """Apply every option to an empty batch, so that a wrong name fails before rows are read.

    If one fails, try the first rows of `first`, too, because that error shows a value of the column.
    """
    if job.buckets is not None:
        check_splits(job.buckets, job.options.split_by)
    elif job.options.split_by is not None:
        what = f"split_by is {job.options.split_by.how}, but the input is already split"
        do = "give one input split, or leave out split_by"
        raise InfeedError(what, where=f"splits {', '.join(job.splits)}", do=do)
    strangers = set(job.options.balance.splits) - set(job.splits) if job.options.balance else set()
    if strangers:
        what = f"there is no split {min(strangers)!r}"
        raise InfeedError(what, where="balance", do=f"use one of {', '.join(job.splits)}")
    schema = job.source.schema
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    try:
        _try_options(empty, job)
    except InfeedError:
        with suppress(StopIteration):
            _try_options(next(_read(first, job, BadRows("reject", _ANY_NUMBER))), job)
        raise


def _try_options(batch: pa.RecordBatch, job: Job) -> None:
    rows = choose_rows(batch, job.options, "", BadRows("reject", _ANY_NUMBER))
    _process(rows, None if job.buckets else job.splits[0], job)


def _prefer_mimalloc() -> None:
    """Use mimalloc unless the user chose an allocator. With jemalloc, ingest takes 25 % more CPU.

    The environment variable would also affect the Arrow inside TFX's libraries, which has no mimalloc and warns.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        with suppress(NotImplementedError):  # this build of Arrow has no mimalloc
            pa.set_memory_pool(pa.mimalloc_memory_pool())


def spill_task(task: Task, job: Job) -> SpilledTask:
    """Read one task and spill its rows. A retry after a transient error writes the same files."""
    _prefer_mimalloc()
    return tried_again(partial(_spill_task, task, job))


def _spill_task(task: Task, job: Job) -> SpilledTask:
    spilling, counted = _Spilling(task, job), 0
    try:
        for batch in _read(task, job, spilling.bad_rows):
            spilling.add(batch)
            counted += batch.num_rows
            progress.count("row read", batch.num_rows)
            del batch  # free the block before reading the next
    except AstrayError:
        spilling.bad_rows.found = Findings(astray=True)
    except ReadFailedError:
        progress.count("row read", -counted)
        raise
    return spilling.finish()


def _read(task: Task, job: Job, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    with failed_reads(place_of(task.payload)):
        yield from job.source.read(task.payload, bad_rows=bad_rows)


class _Spilling:
    def __init__(self, task: Task, job: Job) -> None:
        self.bad_rows = BadRows(job.options.on_bad_row, job.options.bad_row_limit, relative=True)
        self._task, self._job = task, job
        self._rows = self._filtered = self._runs = 0
        self._rejected: list[BadRow] = []
        self._nulls = self._rounded = np.zeros(len(job.written_schema), np.int64)
        self._run, self._spills = RunRecords(), list[Spill]()
        self._analysis = task_statistics.TaskAnalysis(job.analyzed_splits, empty_lists=job.options.compat == "tfx")

    def add(self, batch: pa.RecordBatch) -> None:
        # The batches contain the rows that an option could not use, but not those that the source could not read.
        unread = self.bad_rows.take()
        chosen = choose_rows(batch, self._job.options, place_of(self._task.payload), self.bad_rows)
        incomplete = self.bad_rows.take()
        self._rejected += unread + incomplete
        self._rows += batch.num_rows + len(unread)
        self._filtered += batch.num_rows - len(incomplete) - chosen.num_rows
        # Spill before encoding, so that memory never holds the records of a full run and of the next block.
        if not self._run.has_room(chosen.nbytes):
            self._spill()
        made = _process(chosen, self._task.split, self._job)
        written, by_split, strata, framed = made.written, made.rows, made.strata, frame_records(made.examples)
        del made  # free the examples, which are as large as the records
        self._analysis.add(written, by_split)
        self._nulls = self._nulls + [column.null_count for column in written.columns]
        decimals = self._job.source.decimals
        rounded = [example_types.count_rounded(column, decimals=decimals) for column in written.columns]
        self._rounded = self._rounded + rounded
        self._run.add(framed, by_split, strata, chosen.nbytes)

    def finish(self) -> SpilledTask:
        """Spill the remaining rows, and write statistics and rejected rows for `publish`."""
        unread = self.bad_rows.take()  # reported after the last batch
        self._rejected += unread
        self._spill()
        self._analysis.leave(self._job.temporary, self._task.order)
        if self._rejected:
            name = f"{self._task.order:08d}.jsonl"
            files.write_bytes(files.join(self._job.temporary, _REJECTS, name), to_jsonl(self._rejected))
        return SpilledTask(
            order=self._task.order,
            rows=self._rows + len(unread),
            filtered=self._filtered,
            rejected=len(self._rejected),
            first_rejected=self._rejected[0] if self._rejected else None,
            last_rejected=self._rejected[-1] if self._rejected else None,
            nulls=tuple(self._nulls.tolist()),
            rounded=tuple(self._rounded.tolist()),
            spills=Spills.of(self._spills),
            found=self.bad_rows.found,
            codes=self.bad_rows.codes,
        )

    def _spill(self) -> None:
        self._runs += 1
        self._spills += self._run.spill(self._path, self._seed)
        self._run = RunRecords()

    def _path(self, split: str | None) -> str:
        folder = shuffle.level_folder(self._job.temporary, 0, split or "all")
        return files.join(folder, f"{self._task.order:08d}-{self._runs:06d}.records")

    def _seed(self, split: str | None) -> Seed:
        number = len(self._job.splits) if split is None else self._job.splits.index(split)
        return _seed(self._job, number, self._task.order, self._runs)


def _process(batch: pa.RecordBatch, split: str | None, job: Job) -> ProcessedBatch:
    return spills.process_batch(
        batch, split, buckets=job.buckets, options=job.options, serialized=job.source.serialized
    )


def plan_shards(tasks: Iterable[SpilledTask], job: Job) -> WritePlan:
    """Plan from the sizes of all spills, and list the spills of each split for `shuffle`.

    Raises OtherKindsError if the tasks found other types than a sample, or InfeedError if there is nothing to write.
    """
    tasks = sorted(planning.limited(tasks, job.options), key=lambda task: task.order)
    if job.source.sample is not None:
        check_found([task.found for task in tasks if task.found is not None], job.source.sample)
        offsets = line_offsets((task.order, task.found) for task in tasks)
        if any(task.rejected for task in tasks):  # `publish` adds the offsets to the file of rejected rows
            files.write_bytes(files.join(job.temporary, _OFFSETS), json.dumps(list(offsets.items())).encode())
        tasks = [with_lines(task, offsets.get(task.order, 0)) for task in tasks]
    plan, by_split = planning.plan_writes(tasks, job.splits, job.buckets, job.options, job.source.place)
    for split, found in by_split.items():
        shuffle.list_spills(job.temporary, split, found)
    return plan


def _finish(task: ShardTask | StatisticsGroup, job: Job) -> Shard | None:
    """Write a shard, or add up the statistics of a group of tasks."""
    if isinstance(task, StatisticsGroup):
        task_statistics.merge_statistics(task, job.temporary, job.analyzed_splits)
        return None
    return write_shard(task, job)


def write_shard(task: ShardTask, job: Job) -> Shard:
    """Write one complete shard into the temporary folder."""
    _prefer_mimalloc()
    split, count = task.plan.split, 0
    name = names.shard_name(task.index, task.plan.shards.count, gzip=job.options.gzip_level is not None)
    file = files.join(names.split_folder(split), name)

    def shuffled() -> Iterator[pa.LargeBinaryArray]:
        nonlocal count
        for number, records in enumerate(shuffle.read_windows(task.plan, task.windows, job.temporary)):
            count += len(records)
            seed = _seed(job, job.splits.index(split), task.index, number)
            yield records if seed is None else records.take(pa.array(spills.permutation(len(records), seed)))

    written = write_records(files.join(job.temporary, file), shuffled(), gzip_level=job.options.gzip_level)
    progress.count("shard written", 1)
    return Shard(file, count, written.bytes, written.crc32c)


def _seed(job: Job, *place: int) -> tuple[int, ...] | None:
    """Return the seed of one place where rows are shuffled, or None to keep the order."""
    return None if job.options.shuffle_seed is None else (job.options.shuffle_seed, *place)


def publish(shards: Iterable[Shard], plan: WritePlan, tasks: int, job: Job) -> Manifest:
    """Move finished shards to their final names, then write the manifest. `tasks` is the number of all tasks."""
    shards = sorted(shards, key=lambda shard: shard.file)
    # Until its temporary folder is removed, the dataset counts as unfinished, so shards may appear one by one.
    for shard in shards:
        files.rename(files.join(job.temporary, shard.file), files.join(job.root, shard.file))
    if plan.rejected:
        listed = files.join(job.temporary, _OFFSETS)
        offsets = dict(json.loads(files.read_bytes(listed))) if job.source.sample is not None else {}
        with files.open_output(files.join(job.root, names.REJECTS)) as out:
            for file in files.glob(files.join(job.temporary, _REJECTS), "*.jsonl"):
                order = int(files.name(file.path).removesuffix(".jsonl"))
                out.write(shift_lines(files.read_bytes(file.path), offsets.get(order, 0)))
    splits = dict[str, Split]()
    for split in plan.splits:
        folder = names.split_folder(split.split) + "/"
        of_split = tuple(shard for shard in shards if shard.file.startswith(folder))
        splits[split.split] = Split.of(of_split, split.shards.reason)
    manifest = Manifest(
        source=job.source.provenance,
        options=schema.to_plain(job.options),
        schema=() if job.source.serialized else example_types.describe(job.written_schema, plan.nulls),
        splits=splits,
        rejected=Rejected(plan.rejected, names.REJECTS if plan.rejected else None),
        filtered=plan.filtered,
        balanced=plan.balanced,
        warnings=(*job.source.warnings, *_warnings(plan, job)),
        rows_read=plan.rows,
    )
    analyzed = [(split, splits[split]) for split in job.analyzed_splits]
    task_statistics.publish_statistics(job.temporary, job.root, tasks, analyzed)
    manifest.write(job.root)  # last, because readers take a folder with a manifest for a whole dataset
    return manifest


def _warnings(plan: WritePlan, job: Job) -> Iterator[str]:
    lost = "integers beyond 2^24, or out of range, changed by" if job.source.decimals else "values rounded to"
    for field, rounded in zip(job.written_schema, plan.rounded, strict=True):
        if rounded:
            yield f"column {field.name!r}: {field.type} {lost} float32: {rounded}"
    if note := note_on({name: codes for name, codes in plan.codes.items() if name in job.written_schema.names}):
        yield note
    for name, why in job.source.left_out.items():
        yield f"column {name!r} is excluded: {why}"
