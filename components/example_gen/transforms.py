"""The steps of `ingest`, given to Beam: wiring only. Elements are tasks, blocks and shards; a row never is one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import apache_beam as beam

from infeed.components.dataset.manifest import Manifest
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest
from infeed.components.example_gen.planning import Block, plan_writes, shard_tasks


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
    """Root -> one manifest: reads, splits, shards and publishes everything that `tasks` name."""

    tasks: Sequence[ingest.Task]
    job: ingest.Job

    def expand(self, root: beam.Pipeline) -> "beam.PCollection[Manifest]":
        blocks = root | "Tasks" >> beam.Create(self.tasks) | "SpillBlocks" >> SpillBlocks(self.job)
        return blocks | "WriteShards" >> WriteShards(self.job)


@dataclass
class SpillBlocks(beam.PTransform):
    """Task -> Block, one for each record batch."""

    job: ingest.Job

    def expand(self, tasks: "beam.PCollection[ingest.Task]") -> "beam.PCollection[Block]":
        return tasks | "Spread" >> beam.Reshuffle() | "Spill" >> beam.FlatMap(ingest.spill_task, self.job)


@dataclass
class WriteShards(beam.PTransform):
    """Block -> one manifest, once every shard is written."""

    job: ingest.Job

    def expand(self, blocks: "beam.PCollection[Block]") -> "beam.PCollection[Manifest]":
        plan = (
            blocks
            | "AllBlocks" >> beam.combiners.ToList()  # [Block, ...]
            | "Plan" >> beam.Map(plan_writes, self.job.splits, self.job.buckets, self.job.options)  # WritePlan
        )
        shards = (
            plan
            | "ShardTasks" >> beam.FlatMap(shard_tasks)  # ShardTask
            | "Spread" >> beam.Reshuffle()
            | "Write" >> beam.Map(ingest.write_shard, beam.pvalue.AsSingleton(plan), self.job)  # Shard
        )
        return (
            shards
            | "AllShards" >> beam.combiners.ToList()  # [Shard, ...]
            | "Publish" >> beam.Map(ingest.publish, beam.pvalue.AsSingleton(plan), self.job)  # Manifest
        )
