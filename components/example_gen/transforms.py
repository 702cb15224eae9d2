"""The steps of `ingest`, given to Beam: wiring only. Elements are tasks, blocks and shards; a row never is one."""

from collections.abc import Sequence
from dataclasses import dataclass

import apache_beam as beam

from infeed.components.dataset.manifest import Manifest
from infeed.components.example_gen import ingest


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

    def expand(self, tasks: "beam.PCollection[ingest.Task]") -> "beam.PCollection[ingest.Block]":
        return tasks | "Spread" >> beam.Reshuffle() | "Spill" >> beam.FlatMap(ingest.spill_task, self.job)


@dataclass
class WriteShards(beam.PTransform):
    """Block -> one manifest, once every shard is written."""

    job: ingest.Job

    def expand(self, blocks: "beam.PCollection[ingest.Block]") -> "beam.PCollection[Manifest]":
        plan = (
            blocks
            | "AllBlocks" >> beam.combiners.ToList()  # [Block, ...]
            | "Plan" >> beam.Map(ingest.plan_writes, self.job)  # WritePlan
        )
        shards = (
            plan
            | "ShardTasks" >> beam.FlatMap(ingest.shard_tasks)  # ShardTask
            | "Spread" >> beam.Reshuffle()
            | "Write" >> beam.Map(ingest.write_shard, beam.pvalue.AsSingleton(plan), self.job)  # Shard
        )
        return (
            shards
            | "AllShards" >> beam.combiners.ToList()  # [Shard, ...]
            | "Publish" >> beam.Map(ingest.publish, beam.pvalue.AsSingleton(plan), self.job)  # Manifest
        )
