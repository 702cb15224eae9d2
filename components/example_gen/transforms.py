"""Ingest on Beam: the pipeline, and the files that its steps exchange.

Records travel by `GroupByKey`, in chunks keyed by shard. All other results are files in the job's temporary folder,
so no Beam element grows with the input: Flink rejects elements larger than its sort buffer, about ten megabytes. Each
task writes its own file atomically, so a retry replaces the file.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
import numpy as np

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.manifest import Shard
from infeed.components.engine.beam_runner import Named, telling_failures
from infeed.components.engine.running import Running, WorkerAnswer
from infeed.components.example_gen import ingest
from infeed.components.example_gen.chunks import Chunk, chunks_of, windows_of
from infeed.components.example_gen.codes import Codes
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRow, Findings, Task
from infeed.components.example_gen.planning import ShardTask, SpilledTask, SplitPlan, WritePlan, shard_tasks
from infeed.components.example_gen.settling import OtherKindsError
from infeed.components.example_gen.shuffle import PlacedSpill, SpillTable
from infeed.components.example_gen.spills import Spills
from infeed.components.example_gen.task_statistics import StatisticsGroup, merge_statistics, statistics_groups

_PLAN = "plan.json"
_KINDS = "kinds.json"
_ONE = (0, 1)  # one finished item, under the single key that is summed
_READERS = 32  # threads. Small reads from an object store take tens of milliseconds each, in parallel


@dataclass(frozen=True)
class SpillTask:
    """A spill to distribute, and its index in the split."""

    plan: SplitPlan
    number: int
    spill: PlacedSpill


Work = ShardTask | SpillTask | StatisticsGroup
Place = tuple[str, int]  # (split, index) of a shard


def run_pipeline(
    tasks: Sequence[Task], job: Job, make_pipeline: Callable[[], beam.Pipeline], named: Named | None = None
) -> None:
    """Ingest all tasks into an empty folder by a Beam pipeline, locally if no runner is named.

    Raises InfeedError if a worker or the runner fails, or OtherKindsError like `plan_shards`.
    """
    with ingest.transaction(job):
        with telling_failures(named or Named()):
            pipeline = make_pipeline()
            pipeline | IngestTasks(tasks, job)
            if named and named.is_cluster:
                Running(pipeline, named, WorkerAnswer(job.temporary)).wait()
            else:
                pipeline.run().wait_until_finish()
        kinds = files.join(job.temporary, _KINDS)
        if job.source.sample is not None and files.exists(kinds):
            raise OtherKindsError(_read(kinds))


@dataclass
class IngestTasks(beam.PTransform):
    """Read, split, shard, and publish the input of `tasks`.

    Elements are tasks, counts, and chunks of records. The transform gathers and distributes by key alone: the Dask
    runner computes a side input on every worker and ignores `Reshuffle`.
    """

    tasks: Sequence[Task]
    job: Job

    def expand(self, root: beam.Pipeline) -> "beam.PCollection[str]":
        return (
            root
            | "Tasks" >> beam.Create(self.tasks)
            | "Spill" >> beam.Map(_spill, self.job)
            | "AllSpilled" >> beam.CombinePerKey(sum)
            | "Plan" >> beam.FlatMap(_plan, self.job)
            | "Spread" >> beam.GroupByKey()
            | "Deal" >> beam.FlatMap(_deal, self.job)
            | "Shuffle" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write, self.job)
            | "AllWritten" >> beam.CombinePerKey(sum)
            | "Publish" >> beam.Map(_publish, len(self.tasks), self.job)
        )


def _spill(task: Task, job: Job) -> tuple[int, int]:
    with WorkerAnswer(job.temporary).working():
        leave_task(ingest.spill_task(task, job), job)
    return _ONE


def _plan(spilled: tuple[int, int], job: Job) -> Iterable[tuple[int, Work]]:
    _, tasks = spilled
    try:
        with WorkerAnswer(job.temporary).working():
            plan = ingest.plan_shards(left_tasks(tasks, job), job)
    except OtherKindsError as error:  # runners preserve only the text of an exception
        _leave(job, _KINDS, error.kinds)
        return ()
    leave_plan(plan, job)
    tables = ((split, SpillTable.read(job.scratch, split.split)) for split in plan.splits)
    spills = (SpillTask(split, number, table[number]) for split, table in tables for number in range(len(table)))
    work: Iterable[Work] = itertools.chain(statistics_groups(tasks), shard_tasks(plan), spills)
    return enumerate(work)


def _deal(work: tuple[int, Iterable[Work]], job: Job) -> Iterator[tuple[Place, ShardTask | Chunk]]:
    """Yield the records of spills, keyed by shard. Each shard also gets its task, so that empty shards are written."""
    for task in work[1]:
        if isinstance(task, StatisticsGroup):
            merge_statistics(task, job.scratch, job.analyzed_splits)
        elif isinstance(task, ShardTask):
            yield (task.plan.split, task.index), task
        else:
            for shard, chunk in chunks_of(task.plan, task.number, task.spill):
                yield (task.plan.split, shard), chunk


def _write(grouped: tuple[Place, Iterable[ShardTask | Chunk]], job: Job) -> tuple[int, int]:
    (split, index), found = grouped
    plan = next(one for one in left_plan(job).splits if one.split == split)
    task = ShardTask(plan, index)
    chunks = (one for one in found if isinstance(one, Chunk))
    with WorkerAnswer(job.temporary).working():
        leave_shard(task, ingest.write_shard(task, windows_of(task, chunks), job), job)
    return _ONE


def _publish(written: tuple[int, int], tasks: int, job: Job) -> str:
    _, shards = written
    with WorkerAnswer(job.temporary).working():
        ingest.publish(left_shards(shards, job), left_plan(job), tasks, job)
    return job.root


def leave_task(task: SpilledTask, job: Job) -> None:
    _leave(job, f"tasks/{task.order:08d}.json", asdict(task))


def left_tasks(tasks: int, job: Job) -> Iterator[SpilledTask]:
    """Yield the outcomes of all tasks, in arbitrary order."""
    for fields in _left(files.join(job.temporary, "tasks"), tasks):
        bad = {name: BadRow(**fields[name]) for name in ("first_rejected", "last_rejected") if fields[name]}
        found = Findings(**fields["found"]) if fields["found"] else None
        of_task = fields["spills"]
        paths, strata = ([tuple(pair) for pair in of_task[name]] for name in ("files", "strata"))
        file, stratum = (np.array(of_task[name], np.int32) for name in ("file", "stratum"))
        sizes = (np.array(of_task[name], np.int64) for name in ("start", "records", "bytes"))
        spills = Spills(paths, strata, file, stratum, *sizes)
        counts = {name: tuple(fields[name]) for name in ("nulls", "rounded")}
        codes = {name: Codes(**of_column) for name, of_column in fields["codes"].items()}
        yield SpilledTask(**{**fields, **counts, **bad, "spills": spills, "found": found, "codes": codes})


def leave_plan(plan: WritePlan, job: Job) -> None:
    """Write the plan. `plan_shards` has listed the spills."""
    _leave(job, _PLAN, asdict(plan))


def left_plan(job: Job) -> WritePlan:
    return schema.read_json(WritePlan, files.read_bytes(files.join(job.temporary, _PLAN)))


def leave_shard(task: ShardTask, shard: Shard, job: Job) -> None:
    _leave(job, f"shards/{task.plan.split}-{task.index:08d}.json", asdict(shard))


def left_shards(shards: int, job: Job) -> list[Shard]:
    """Return the descriptions of all shards, in arbitrary order."""
    return [Shard(**fields) for fields in _left(files.join(job.temporary, "shards"), shards)]


def _leave(job: Job, name: str, fields: Any) -> None:
    files.write_bytes(files.join(job.temporary, name), json.dumps(fields, default=_jsonable).encode())


def _left(folder: str, count: int) -> Iterator[Any]:
    """Yield the contents of all files. Raises InfeedError if a worker wrote to a disk that this process cannot read."""
    found = [file.path for file in files.glob(folder, "*.json")]
    if len(found) != count:
        do = "write to storage that all workers share, such as gs://, s3://, or a network disk"
        raise InfeedError(f"only {len(found)} of {count} worker results exist", where=folder, do=do)
    with ThreadPoolExecutor(_READERS) as readers:
        for first in range(0, len(found), _READERS):  # in batches, so that only a few are in memory
            yield from readers.map(_read, found[first : first + _READERS])


def _read(path: str) -> Any:
    return json.loads(files.read_bytes(path))


def _jsonable(value: object) -> Any:
    """Convert a column to a list, and a label to text. Labels are only compared with each other."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
