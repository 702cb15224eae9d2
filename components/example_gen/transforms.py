"""The steps of `ingest`, given to Beam: wiring only. Elements are tasks, blocks and shards; a row never is one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import apache_beam as beam

from infeed.components.dataset.manifest import Manifest, Shard
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest
from infeed.components.example_gen.planning import Block, ShardTask, WritePlan, shard_tasks

T = TypeVar("T")


def run_pipeline(tasks: Sequence[ingest.Task], job: ingest.Job, make_pipeline: Callable[[], beam.Pipeline]) -> None:
    """Everything from an empty folder to a whole dataset.

    Raises:
      InfeedError: where one was raised on a worker, without what Beam wraps round it.
    """
    try:
        with ingest.attempt(job), make_pipeline() as pipeline:
            pipeline | IngestTasks(tasks, job)
    except RuntimeError as error:
        ours = _infeed_error(error)
        if ours is None:
            raise
        raise ours from None


def _infeed_error(error: BaseException | None) -> InfeedError | None:
    """The InfeedError inside what Beam makes of it: a RuntimeError that holds a traceback as text."""
    while error is not None and not isinstance(error, InfeedError):
        error = error.__cause__ or error.__context__
    return error


@dataclass
class IngestTasks(beam.PTransform):
    """Root -> one manifest: reads, splits, shards and publishes everything that `tasks` name.

    Gathers and spreads by key alone: a side input would be computed anew on every worker of the Dask runner, whose
    `Reshuffle` spreads nothing; and each step costs some 20 ms before its first element.
    """

    tasks: Sequence[ingest.Task]
    job: ingest.Job

    def expand(self, root: beam.Pipeline) -> "beam.PCollection[Manifest]":
        plan = (
            root
            | "Tasks" >> beam.Create(self.tasks)
            | "Spill" >> beam.FlatMap(ingest.spill_task, self.job)  # Block, one for each record batch
            | "KeyBlocks" >> beam.Map(_with_one_key)
            | "AllBlocks" >> beam.GroupByKey()
            | "Plan" >> beam.Map(_plan, self.job)  # WritePlan
        )
        shards = (
            plan
            | "ShardTasks" >> beam.FlatMap(_shard_tasks_by_number)
            | "Spread" >> beam.GroupByKey()
            | "Write" >> beam.FlatMap(_write, self.job)  # Shard
        )
        both = {
            "plan": plan | "KeyPlan" >> beam.Map(_with_one_key),
            "shards": shards | "KeyShards" >> beam.Map(_with_one_key),
        }
        return both | "AllShards" >> beam.CoGroupByKey() | "Publish" >> beam.Map(_publish, self.job)


def _with_one_key(element: T) -> tuple[int, T]:
    return 0, element


def _plan(blocks: tuple[int, Iterable[Block]], job: ingest.Job) -> WritePlan:
    return ingest.plan_shards(blocks[1], job)


def _shard_tasks_by_number(plan: WritePlan) -> Iterable[tuple[int, ShardTask]]:
    return enumerate(shard_tasks(plan))


def _write(tasks: tuple[int, Iterable[ShardTask]], job: ingest.Job) -> Iterator[Shard]:
    return (ingest.write_shard(task, job) for task in tasks[1])


def _publish(gathered: tuple[int, dict[str, Any]], job: ingest.Job) -> Manifest:
    _, both = gathered
    (plan,) = both["plan"]
    return ingest.publish(both["shards"], plan, job)
