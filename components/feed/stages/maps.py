"""Stages that call user functions on features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infeed.components.dataset.records import is_gzip
from infeed.components.feed.options import FeedOptions, MapFunction
from infeed.components.feed.stages.base import Batch, BuildContext
from infeed.components.feed.user_maps import SEED_MASK, SEED_USES, NumpyMap, Target, TensorFlowMap, with_rows

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
