"""What a stage of an input pipeline is, and what it is given when it is applied.

A stage is a small frozen dataclass. `plan` puts stages into a list and prints them, `build` applies them one after the
other. A plan is also made where there is no TensorFlow, so stages import it where they are applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from infeed.components.feed.options import WorkerContext
from infeed.components.feed.sampling import SamplingWeights
from infeed.components.feed.shards import RecordRange, ShardFile, worker_ranges

if TYPE_CHECKING:
    import tensorflow as tf

    from infeed.components.feed.columns import Columns
    from infeed.components.feed.row_batches import RowBatches

Batch: TypeAlias = Any  # a dict of tensors, or (features, label) of them: [batch, ...] each
EpochReader: TypeAlias = "Callable[[tf.Tensor], tf.data.Dataset]"  # an epoch's number, int64 [] -> what it reads
Made: TypeAlias = (
    "tf.data.Dataset | RowBatches | Columns | EpochReader | list[EpochReader] | None"  # what stages hand on
)

Before = TypeVar("Before", contravariant=True)
After = TypeVar("After", bound=Made, covariant=True)


class Stage(Protocol[Before, After]):
    """One stage: it takes what the stage before it made, and makes what the stage behind it takes.

    `Before` and `After` are each one of `Made`: None before the first stage, and behind the last one the batches.
    """

    @property
    def name(self) -> str:
        """One word for it, in the plan and in `input_profile.json`."""

    @property
    def does(self) -> str:
        """What it does, as a clause that goes on after the name: `gathers 128 records`."""

    @property
    def reason(self) -> str:
        """Why it is there, and there in the order."""

    def apply(self, before: Before, context: BuildContext) -> After:
        """Does it."""


@dataclass(frozen=True)
class BatchFunctions:
    """The functions on whole batches that stages call.

    Attributes:
      parse: serialized records, string [batch] -> dict of raw features.
      transform: raw features -> (features, label).
      augment: (features, label), step number int64 [], workers -> (features, label), at random and normalised. A
        worker is given its part of the global batch of that step.
      normalise: (features, label) -> (features, label), the part of `augment` that is not random.
      key: names all that `parse` and `transform` do; what they made of a split is kept on disk under it.
    """

    parse: Callable[[tf.Tensor], Batch]
    transform: Callable[[Batch], Batch]
    augment: Callable[[Batch, tf.Tensor, WorkerContext], Batch] | None = None
    normalise: Callable[[Batch], Batch] | None = None
    key: str = ""


@dataclass(frozen=True)
class BuildContext:
    """What every stage may ask for.

    Attributes:
      shards: the files of the split.
      batch_size: records of a global batch, over all workers.
      seed: of the run.
      training: whether this is training data (endless, shuffled) or evaluation data (complete, in order, once).
      functions: what is done with whole batches.
      workers: which worker builds this; it makes its own part of every global batch.
      readers: who shares the reading. It is `workers` but where rows are kept: then each worker keeps all of them, and
        row numbers are shared out instead.
      start_step: in training, number of the first batch.
    """

    shards: tuple[ShardFile, ...]
    batch_size: int
    seed: int
    training: bool
    functions: BatchFunctions
    workers: WorkerContext
    readers: WorkerContext
    start_step: int

    @property
    def worker_batch_size(self) -> int:
        """Records of this worker's part of a global batch."""
        return self.workers.per_worker_batch_size(self.batch_size)

    @cached_property
    def ranges(self) -> tuple[RecordRange, ...]:
        """What of the files this worker reads."""
        # Workers that evaluate wait for each other, so their shares of the records are as even as can be.
        return worker_ranges(self.shards, self.readers, evenly=not self.training)

    def ranges_of_splits(self, weights: SamplingWeights) -> list[tuple[RecordRange, ...]]:
        """The same, of each split by itself."""
        splits = [[shard for shard in self.shards if shard.split == name] for name in weights.names]
        return [worker_ranges(shards, self.readers) for shards in splits]

    @property
    def records(self) -> int:
        """Records that this worker reads in an epoch."""
        return sum(one.records for one in self.ranges)

    @property
    def first_record(self) -> int:
        """Records that this worker has taken in training before the first batch."""
        return self.start_step * self.worker_batch_size

    def mapped(self, dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        """Applies a function on whole batches in parallel."""
        from infeed.components.feed.columns import mapped

        return mapped(dataset, function)

    def derive_seed(self, epoch: tf.Tensor, use: tf.Tensor | int) -> tf.Tensor:
        """A seed, int64 [2], for one use of an epoch."""
        import tensorflow as tf

        # Folded in, not added: sums of seed and epoch would repeat each other.
        both = tf.stack([tf.cast(self.seed, tf.int64), epoch])
        return tf.random.experimental.stateless_fold_in(both, use)
