"""Stages on whole batches: batch records, parse, transform, call user functions, augment, pad and prefetch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.records import is_gzip
from infeed.components.feed.options import FeedOptions, MapFunction
from infeed.components.feed.stages.base import Batch, BuildContext
from infeed.components.feed.user_maps import SEED_MASK, SEED_USES, NumpyMap, Target, TensorFlowMap, with_rows

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


if TYPE_CHECKING:
    import tensorflow as tf

    from infeed.components.feed.row_batches import RowBatches

Call = Callable[[Any, Any, Any], dict[str, Any]]  # features, seeds, step number -> features


@dataclass(frozen=True)
class MapFeatures:
    """Call a user's function on the features of every batch. The label and the weight are unchanged."""

    option: str  # `map_examples` or `map_batches`
    given: MapFunction  # the option's value
    training: bool = True
    earlier: tuple[MapFeatures, ...] = ()  # earlier stages of this kind

    @property
    def name(self) -> str:
        return self.option

    @property
    def does(self) -> str:
        is_example = self.option == "map_examples"
        how = "in a loop of the graph" if is_example else "in the graph"
        if self.given.kind == "numpy":
            how = "in another process" if self.given.processes == 1 else f"in {self.given.processes} other processes"
        return f"calls {self.given.name} on each {'example' if is_example else 'batch'}, {how}"

    @property
    def reason(self) -> str:
        if not self.training:
            return f"set by FeedOptions.{self.option}, evaluation: true"
        return f"set by FeedOptions.{self.option}; after the cache, so a random function differs in each epoch"

    def apply(self, before: tf.data.Dataset | RowBatches, context: BuildContext) -> tf.data.Dataset | RowBatches:
        import tensorflow as tf

        target = Target.of(self.option, self.given)
        call: Call = NumpyMap(target, self._sample(context)) if self.given.kind == "numpy" else TensorFlowMap(target)

        @tf.autograph.experimental.do_not_convert
        def mapped(number: tf.Tensor, batch: Batch) -> Batch:
            features, *rest = batch
            made = call(features, self._seeds(number, tf.shape(rest[0], tf.int64)[0], context), number)
            made = {name: with_rows(name, value, rest[0].shape[0], target) for name, value in made.items()}
            context.functions.check_map(features, made, target.where)
            return made, *rest

        if not isinstance(before, tf.data.Dataset):
            return before.map_numbered(mapped)
        numbered = before.enumerate(context.start_step if context.training else 0)
        # More calls than processes would only wait for a process.
        parallel = self.given.processes if self.given.kind == "numpy" else tf.data.AUTOTUNE
        return numbered.map(mapped, num_parallel_calls=parallel, deterministic=True)

    def _seeds(self, number: tf.Tensor, rows: tf.Tensor, context: BuildContext) -> tf.Tensor:
        """Derive the seeds of a step: int64 [2] of this worker's batch, or [rows, 2] of its examples.

        The seed of an example does not depend on the number of workers. The seeds of batches differ among workers.
        """
        import tensorflow as tf

        run = tf.constant([context.batch.seed, SEED_USES[self.option]], tf.int64)
        key = tf.random.experimental.stateless_fold_in(run, tf.constant(0, tf.int64))[0]
        key = tf.bitwise.bitwise_and(key, tf.constant(SEED_MASK, tf.int64))
        batch, workers = context.batch, context.batch.workers
        if self.option == "map_batches":
            return tf.stack([key, number * workers.count + workers.index])
        # Number examples over the global batch, so that the seeds are the same for any number of workers.
        first = number * batch.size + workers.index * batch.part
        return tf.stack([tf.fill([rows], key), first + tf.range(rows)], axis=1)

    def _sample(self, context: BuildContext) -> dict[str, Any]:
        """Return the features of the first records as the function receives them."""
        import tensorflow as tf

        path, rows = context.shards[0].path, context.batch.part
        records = tf.data.TFRecordDataset(path, compression_type="GZIP" if is_gzip(path) else "").batch(rows)
        functions = context.functions
        batch = context.mapped(records.take(1), lambda some: functions.transform(functions.parse(some)))
        for stage in self.earlier:
            batch = stage.apply(batch, context)
        features: dict[str, Any] = next(iter(batch))[0]
        return features


def map_stages(options: FeedOptions, *, training: bool) -> tuple[MapFeatures, ...]:
    """Return the stages of the user functions, in order."""
    stages: tuple[MapFeatures, ...] = ()
    for option, given in options.maps.items():
        if training or given.evaluation:
            stages = (*stages, MapFeatures(option, given, training, stages))
    return stages
