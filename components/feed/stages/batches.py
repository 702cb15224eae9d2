"""Stages on whole batches: batch records, parse, transform, augment, pad and prefetch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from infeed.components.base.errors import InfeedError
from infeed.components.feed.stages.base import Batch, BuildContext

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class BatchRecords:
    """Batch blocks of records: string [block] -> string [batch]."""

    size: int  # records gathered in one call, over all workers
    reason: str  # reason for this size
    drop_remainder: bool = False  # whether to drop a short last batch. Endless training data has none.
    batches: int = 1  # number of training batches in one call. `SplitBatches` splits them.

    name = "batch"

    @property
    def does(self) -> str:
        return f"gathers {self.size:,} records" + (f", {self.batches} batches" if self.batches > 1 else "")

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        import tensorflow as tf

        size = self.size // context.readers.count
        dataset = before.rebatch(size, drop_remainder=self.drop_remainder)
        if self.drop_remainder:
            return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(-(-context.records // size)))
        records = sum(shard.records for shard in context.shards)
        most = -(-records // context.readers.count)  # maximum number of evaluation records of one worker
        if -(-context.records // size) == -(-most // size):
            return dataset
        # Every worker needs the same number of batches. Otherwise the others would wait forever.
        return dataset.concatenate(tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)))


@dataclass(frozen=True)
class ParseExamples:
    """Parse serialized Examples: string [batch] -> raw features."""

    name = "parse"
    does = "parses whole batches in parallel"
    reason = "a single vectorized call is faster than one for each record"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        return context.mapped(before, context.functions.parse)


@dataclass(frozen=True)
class TransformFeatures:
    """Apply the transform graph: raw features -> ({name: [batch, ...]}, label [batch])."""

    name = "transform"
    does = "applies the transform graph to whole batches in parallel"
    reason = "the same graph as in serving"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        from infeed.components.feed.columns import with_known_widths

        parse, transform = context.functions.parse, context.functions.transform
        # A saved graph loses the width of a sparse feature, and the rows do not determine it.
        return with_known_widths(context.mapped(before, transform), lambda records: transform(parse(records)))


@dataclass(frozen=True)
class SplitBatches:
    """Split the batches of one call: [batches * batch, ...] -> [batch, ...]."""

    batches: int
    size: int

    name = "cut"
    reason = "a call costs more than a small batch"

    @property
    def does(self) -> str:
        return f"splits each call's output into {self.batches} batches of {self.size:,}"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        from infeed.components.feed.columns import split_batches

        split = partial(split_batches, batches=self.batches, size=context.batch.part)
        return context.mapped(before, lambda *batch: split(batch)).unbatch()


@dataclass(frozen=True)
class AugmentImages:
    """Augment images with new random changes in each epoch, and normalize them. `does` describes the changes."""

    does: str

    name = "augment"
    reason = "after the cache, seeded by each image's position, so that runs are reproducible"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        augment = context.functions.augment
        assert augment is not None, "a plan with augmentation requires functions that describe it"
        numbered = before.enumerate(context.start_step)
        return context.mapped(numbered, lambda number, batch: augment(batch, number, context.batch.workers))


@dataclass(frozen=True)
class NormaliseImages:
    """Normalize images without random changes. `does` describes the normalization."""

    does: str

    name = "normalise"
    reason = "the same numbers in training, evaluation and serving"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        normalise = context.functions.normalise
        assert normalise is not None, "a plan with normalization requires functions that describe it"
        return context.mapped(before, lambda *batch: normalise(batch))


@dataclass(frozen=True)
class PadBatches:
    """Pad the last short batch with weight 0: (features, label) -> (features, label, weight float32 [batch]).

    Raises InfeedError if a feature is not a dense number of a fixed shape.
    """

    size: int

    name = "fill"
    reason = "the device requires one shape for all batches"

    @property
    def does(self) -> str:
        return f"pads the last, short batch to {self.size:,} rows with weight 0"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        from infeed.components.feed.columns import is_static_number, pad_batch

        for name, spec in before.element_spec[0].items():
            if not is_static_number(spec):
                what = f"feature {name!r} is not a dense number with a fixed shape: {spec}"
                do = "convert the feature in Transform: apply a vocabulary to text, pad lists"
                raise InfeedError(what, where="static shapes", do=do)
        size = context.batch.part
        return context.mapped(before, lambda *batch: pad_batch(batch, size))


@dataclass(frozen=True)
class Prefetch:
    """Prefetch batches. tf.data tunes their number."""

    reason: str = "last, so that all earlier steps overlap with training"

    name = "prefetch"
    does = "prepares the next batches while the step runs"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        import tensorflow as tf

        return before.prefetch(tf.data.AUTOTUNE)


@dataclass(frozen=True)
class PrefetchToDevice:
    """Prefetch the next batch to accelerators. This stage only documents the work of tf.distribute.

    `devices` are the short names of the accelerators, for example `GPU:0`.
    """

    devices: tuple[str, ...]

    name = "device"
    reason = "the step's batch is already on the device; text stays on the host"

    @property
    def does(self) -> str:
        does = f"copies the next batch to {self.devices[0]}"
        if len(self.devices) > 1:
            does = f"distributes the next batch to {', '.join(self.devices)}"
        return f"{does} while the step runs"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        return before


@dataclass(frozen=True)
class CallInputFunction:
    """Take the batches of a user's `function`, which replaces every reading stage."""

    function: str

    name = "input_fn"
    reason = "set by TrainOptions.input_fn"

    @property
    def does(self) -> str:
        return f"takes the batches of {self.function}"

    def apply(self, before: Batch, context: BuildContext) -> tf.data.Dataset:
        return before
