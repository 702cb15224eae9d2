"""The steps of `ingest`, given to Beam: wiring, and what one step leaves for the next. Beam never sees a row.

What a step finds out lies in files of the job's temporary folder, so that no element of Beam's grows with the input:
Flink refuses one that its sort buffer cannot hold, some ten megabytes. Each file has its task's own name and appears
whole, so a task that is tried again replaces what it left.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import apache_beam as beam

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Balanced, Shard
from infeed.components.dataset.shards import ShardPlan
from infeed.components.errors import InfeedError, infeed_error
from infeed.components.example_gen import ingest
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRow, Task
from infeed.components.example_gen.planning import ShardTask, SpilledBlock, WritePlan, shard_tasks
from infeed.components.example_gen.spills import Spill

_PLAN = "plan.json"
_ONE = (0, 1)  # done, under the one key that is summed up
_READERS = 32  # threads: an object store takes tens of milliseconds for a small file, and as many at once as are asked


def run_pipeline(tasks: Sequence[Task], job: Job, make_pipeline: Callable[[], beam.Pipeline]) -> None:
    """Everything from an empty folder to a whole dataset.

    Raises:
      InfeedError: where one was raised on a worker, without what Beam wraps round it.
    """
    try:
        with ingest.transaction(job), make_pipeline() as pipeline:
            pipeline | IngestTasks(tasks, job)
    except Exception as error:  # which of them, depends on the runner
        ours = infeed_error(error)
        if ours is None:
            raise
        raise ours from None


@dataclass
class IngestTasks(beam.PTransform):
    """Root -> the dataset's folder: reads, splits, shards and publishes everything that `tasks` name.

    Elements are tasks and counts.

    Gathers and spreads by key alone: a side input would be computed anew on every worker of the Dask runner, whose
    `Reshuffle` spreads nothing; and each step costs some 20 ms before its first element.
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
            | "Write" >> beam.FlatMap(_write, self.job)
            | "AllWritten" >> beam.CombinePerKey(sum)
            | "Publish" >> beam.Map(_publish, self.job)
        )


def _spill(task: Task, job: Job) -> tuple[int, int]:
    leave_blocks(task, ingest.spill_task(task, job), job)
    return _ONE


def _plan(spilled: tuple[int, int], job: Job) -> Iterable[tuple[int, ShardTask]]:
    _, tasks = spilled
    plan = ingest.plan_shards(left_blocks(tasks, job), job)
    leave_plan(plan, job)
    return enumerate(shard_tasks(plan))


def _write(tasks: tuple[int, Iterable[ShardTask]], job: Job) -> Iterator[tuple[int, int]]:
    for task in tasks[1]:
        leave_shard(task, ingest.write_shard(task, job), job)
        yield _ONE


def _publish(written: tuple[int, int], job: Job) -> str:
    _, shards = written
    ingest.publish(left_shards(shards, job), left_plan(job), job)
    return job.root


def leave_blocks(task: Task, blocks: Iterable[SpilledBlock], job: Job) -> None:
    """Writes down what became of a whole task."""
    found = [asdict(block) for block in blocks]
    _leave(job, f"blocks/{task.order:06d}.json", found)


def left_blocks(tasks: int, job: Job) -> list[SpilledBlock]:
    """The blocks of all `tasks`, in no order that means anything.

    Raises:
      InfeedError: a worker wrote to a disk that is not seen from here.
    """
    return [_block(fields) for blocks in _left(files.join(job.temporary, "blocks"), tasks) for fields in blocks]


def leave_plan(plan: WritePlan, job: Job) -> None:
    """Writes down the plan but for its spills: `plan_shards` has listed those, a file for each split."""
    _leave(job, _PLAN, asdict(replace(plan, spills={})))


def left_plan(job: Job) -> WritePlan:
    """The plan without its spills."""
    fields = _with_tuples(_read(files.join(job.temporary, _PLAN)))
    shards = {split: ShardPlan(**shards) for split, shards in fields["shards"].items()}
    return WritePlan(**{**fields, "balanced": Balanced(**fields["balanced"]), "shards": shards})


def leave_shard(task: ShardTask, shard: Shard, job: Job) -> None:
    """Writes down what a shard in the temporary folder holds."""
    _leave(job, f"shards/{task.split}-{task.index:05d}.json", asdict(shard))


def left_shards(shards: int, job: Job) -> list[Shard]:
    """All `shards`, in no order that means anything.

    Raises:
      InfeedError: a worker wrote to a disk that is not seen from here.
    """
    return [Shard(**fields) for fields in _left(files.join(job.temporary, "shards"), shards)]


def _leave(job: Job, name: str, fields: Any) -> None:
    files.write_bytes(files.join(job.temporary, name), json.dumps(fields, default=_label).encode())


def _left(folder: str, count: int) -> list[Any]:
    """What is written in the files of `folder`, of which there must be `count`."""
    found = [file.path for file in files.glob(folder, "*.json")]
    if len(found) != count:
        raise InfeedError(
            f"only {len(found)} of {count} results of the workers are here",
            where=folder,
            do="write to a place that all workers share, such as gs://, s3:// or a network disk",
        )
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(_read, found))


def _read(path: str) -> Any:
    return json.loads(files.read_bytes(path))


def _label(label: object) -> str:
    """A label that JSON has no type for: text will do, since labels of one column are only compared with each other."""
    return label.decode("latin-1") if isinstance(label, bytes) else str(label)


def _block(fields: dict[str, Any]) -> SpilledBlock:
    spills = tuple(Spill(**{**spill, "strata": tuple(spill["strata"])}) for spill in fields["spills"])
    return SpilledBlock(**{**_with_tuples(fields), "order": tuple(fields["order"]), "spills": spills})


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """What a block and a plan have in common, as it was before it was JSON."""
    rejected = tuple(BadRow(**row) for row in fields["rejected"])
    return {**fields, "rejected": rejected, "nulls": tuple(fields["nulls"]), "rounded": tuple(fields["rounded"])}
