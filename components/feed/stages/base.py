"""Interface of the stages of an input pipeline, and the context in which they run.

A stage is a small frozen dataclass. `plan` lists and prints the stages, and `build` applies them in order. Planning
needs no TensorFlow, so a stage imports TensorFlow only in `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from infeed.components.feed.options import GlobalBatch, WorkerContext
from infeed.components.feed.sampling import SamplingWeights
from infeed.components.feed.shards import RecordRange, ShardFile, worker_ranges

if TYPE_CHECKING:
    import tensorflow as tf

    from infeed.components.feed.columns import Columns
    from infeed.components.feed.row_batches import RowBatches

Batch: TypeAlias = Any  # a dict of tensors, or (features, label) of them: [batch, ...] each
EpochReader: TypeAlias = "Callable[[tf.Tensor], tf.data.Dataset]"  # number of an epoch, int64 [] -> its records
Made: TypeAlias = "tf.data.Dataset | RowBatches | Columns | EpochReader | list[EpochReader] | None"  # output of a stage

Before = TypeVar("Before", contravariant=True)
After = TypeVar("After", bound=Made, covariant=True)


class Stage(Protocol[Before, After]):
    """Stage of an input pipeline. It converts the output of the previous stage to the input of the next.

    `Before` and `After` are types of `Made`. The first stage takes None, and the last stage returns the batches.
    """

    @property
    def name(self) -> str:
        """Name of the stage in the plan and in `input_profile.json`, one word."""

    @property
    def does(self) -> str:
        """Action of the stage, as a clause that follows its name: `gathers 128 records`."""

    @property
    def reason(self) -> str:
        """Reason for the stage and for its position."""

    def apply(self, before: Before, context: BuildContext) -> After:
        """Apply the stage."""


@dataclass(frozen=True)
class BatchFunctions:
    """Functions on whole batches that stages call."""

    parse: Callable[[tf.Tensor], Batch]  # serialized records, string [batch] -> dict of raw features
    transform: Callable[[Batch], Batch]  # raw features -> (features, label)
    # (features, label), step number int64 [], workers -> (features, label), changed at random and normalized. The input
    # is the worker's part of the global batch.
    augment: Callable[[Batch, tf.Tensor, WorkerContext], Batch] | None = None
    # (features, label) -> (features, label): the deterministic part of `augment`.
    normalise: Callable[[Batch], Batch] | None = None
    key: str = ""  # identifies the work of `parse` and `transform`. Part of the key of the disk cache.
    # Features before and after a user's function, its option -> None. Raises InfeedError if the batches cannot be used.
    check_map: Callable[[Mapping[str, Any], Mapping[str, Any], str], None] = lambda before, after, where: None


@dataclass(frozen=True)
class BuildContext:
    """Context of a stage."""

    shards: tuple[ShardFile, ...]
    batch: GlobalBatch  # the batch, and the worker that builds the pipeline
    training: bool  # whether this is training data (endless, shuffled) or evaluation data (complete, in order, once)
    functions: BatchFunctions
    # The workers that share the reading. If rows are kept, each worker reads all rows, and the workers share the row
    # numbers instead.
    readers: WorkerContext
    start_step: int  # in training, number of the first batch

    @cached_property
    def ranges(self) -> tuple[RecordRange, ...]:
        """Ranges of the files that this worker reads."""
        # In evaluation, workers wait for each other, so they divide the records evenly.
        return worker_ranges(self.shards, self.readers, evenly=not self.training)

    def ranges_of_splits(self, weights: SamplingWeights) -> list[tuple[RecordRange, ...]]:
        """Return the ranges that this worker reads of each split."""
        splits = [[shard for shard in self.shards if shard.split == name] for name in weights.names]
        return [worker_ranges(shards, self.readers) for shards in splits]

    @property
    def records(self) -> int:
        """Number of records that this worker reads in an epoch."""
        return sum(one.records for one in self.ranges)

    @property
    def first_record(self) -> int:
        """Number of records that this worker has used in training before the first batch."""
        return self.start_step * self.batch.part

    def mapped(self, dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        """Apply a function to whole batches in parallel."""
        from infeed.components.feed.columns import mapped

        return mapped(dataset, function)

    def derive_seed(self, epoch: tf.Tensor, use: tf.Tensor | int) -> tf.Tensor:
        """Derive a seed, int64 [2], from an epoch for one purpose."""
        import tensorflow as tf

        # seed + epoch would repeat, so the epoch is folded in.
        both = tf.stack([tf.cast(self.batch.seed, tf.int64), epoch])
        return tf.random.experimental.stateless_fold_in(both, use)
