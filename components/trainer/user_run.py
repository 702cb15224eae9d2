"""Feed for a user's `run_fn`, with the profile that InputReport reads.

    def run_fn(fn_args):
        data = infeed.components.datasets(fn_args, label="tips", feed=FeedOptions(batch_size=256))
        model.fit(data.train, steps_per_epoch=data.steps_per_epoch, validation_data=data.evaluation, epochs=5)
        model.export(fn_args.serving_model_dir)

An unchanged `run_fn` that reads with `fn_args.data_accessor.tf_dataset_factory`, as in TFX's examples, also uses our
feed, if the batches equal those of TFX's reader.
"""

from __future__ import annotations

import hashlib
import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.tf_metadata import schema_utils

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import InputProfile
from infeed.components.feed.build import Feed, plan_feed
from infeed.components.feed.capacity import RecordSizes
from infeed.components.feed.meter import Tap
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.feed.plan import FeedSpec, InputPlan
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.trainer.cluster import worker_context
from infeed.components.trainer.data import make_feed
from infeed.components.trainer.epochs import tapped_epochs
from infeed.components.trainer.graph import open_graph
from infeed.components.trainer.options import ExamplesAre, Output, Task, TrainOptions

_log = logging.getLogger(__name__)
_HANDED_OVER = 50  # batches per turn. The median of five turns excludes the start-up work of TensorFlow


@dataclass(frozen=True)
class Datasets:
    """Data of a `run_fn`: (features {name: [batch, ...]}, label [batch, ...]), with the weight if there is one.

    With several outputs, the label is {output: [batch, ...]}.

    Attributes:
      train: endless full batches, reshuffled in each epoch.
      evaluation: each record once, in order. The last batch may be short.
      steps_per_epoch: batches of `train` in an epoch.
      classes: words of the label's vocabulary in index order. Empty without a vocabulary, and for several labels.
    """

    train: tf.data.Dataset
    evaluation: tf.data.Dataset
    steps_per_epoch: int
    classes: tuple[str, ...]


def datasets(
    fn_args: Any,
    transform_output: tft.TFTransformOutput | None = None,
    *,
    label: str | Mapping[str, Output],
    feed: FeedOptions | None = None,
    task: Task = "classification",
    augment: Augment | None = None,
    normalise: Normalise | None = None,
    images: Sequence[str] = ("image",),
    masks: Sequence[str] = (),
    boxes: Sequence[str] = (),
    examples_are: ExamplesAre = "raw",
) -> Datasets:
    """Return a Trainer's Examples as datasets, transformed by its transform graph if there is one.

    Under infeed's Trainer, the wait for batches is measured, and the model run gets a profile. With several workers,
    each worker gets its part of every global batch. Distribute it with `strategy.distribute_datasets_from_function`.

    Args:
      fn_args: argument of `run_fn`.
      transform_output: transform graph that the `run_fn` has already loaded. None loads that of `fn_args`.
      label, feed, task, augment, normalise, images, masks, boxes, examples_are: as in TrainOptions.

    Raises:
      InfeedError: an option, the data or the schema is invalid.
    """
    options = TrainOptions(
        model_fn="",
        label=label,
        task=task,
        feed=feed or FeedOptions(),
        augment=augment,
        normalise=normalise,
        images=images,
        masks=masks,
        boxes=boxes,
        examples_are=examples_are,
    )
    path = fn_args.transform_graph_path
    if transform_output:  # its SavedModel is a folder of the artifact, whose path is needed
        path = str(transform_output.transform_savedmodel_dir).rstrip("/").rpartition("/")[0]
    graph = open_graph(path, fn_args.schema_path, options.labels, options.feed.weight)
    train = make_feed(fn_args.train_files, graph, options, training=True, num_steps=fn_args.train_steps)
    evaluation = make_feed(fn_args.eval_files, graph, options, training=False)
    workers, run = worker_context(), UserRun.of(fn_args)
    batches = train.dataset(workers=workers)
    return Datasets(
        train=run.measured(batches, train.plan) if run else batches,
        evaluation=evaluation.dataset(workers=workers),
        steps_per_epoch=train.plan.steps_per_epoch,
        classes=graph.classes,
    )


class UserRun:
    """Feed of a user's `run_fn`, with a measurement of the wait. `data_accessor` reads through the feed."""

    def __init__(self, fn_args: Any) -> None:
        self._tfx_reader = fn_args.data_accessor.tf_dataset_factory
        self._train_files = list(fn_args.train_files)
        self._fed: list[tuple[InputPlan, Tap, Any]] = []
        fn_args.data_accessor = fn_args.data_accessor._replace(tf_dataset_factory=self.tf_dataset_factory)

    @classmethod
    def of(cls, fn_args: Any) -> UserRun | None:
        """Return the run that these arguments belong to. None if another Trainer created them."""
        owner = getattr(getattr(fn_args.data_accessor, "tf_dataset_factory", None), "__self__", None)
        return owner if isinstance(owner, cls) else None

    def measured(self, batches: tf.data.Dataset, plan: InputPlan) -> tf.data.Dataset:
        """Return the same training batches with a measurement for the profile."""
        _log.info("input pipeline of training:\n%s", plan.describe())
        tap = Tap(plan.steps_per_epoch)
        self._fed.append((plan, tap, batches.element_spec))
        return tap.measured(batches)

    def tf_dataset_factory(self, file_pattern: Any, options: Any, schema: Any = None) -> tf.data.Dataset:
        """Return the dataset of TFX's function of this name, from our feed if possible."""
        theirs = self._tfx_reader(file_pattern, options, schema)
        patterns = [file_pattern] if isinstance(file_pattern, str) else list(file_pattern)
        try:
            feed = feed_like_tfx(patterns, options, schema)
            ours = feed.dataset()
            _check_same_batches(ours.element_spec, theirs.element_spec)
        except InfeedError as reason:
            _log.warning("TFX's own reader reads %s: %s", ", ".join(patterns), reason.what)
            return theirs
        return self.measured(ours, feed.plan) if patterns == self._train_files else ours

    def write_profile(self, folder: str) -> None:
        """Write `input_profile.json` for the first training data that was read, if any."""
        read = [(plan, tapped_epochs(tap, plan.batch.size), spec) for plan, tap, spec in self._fed]
        plan, epochs, spec = next((one for one in read if one[1]), (None, (), None))
        if plan is None or worker_context().index > 0:
            return
        hosts = worker_context().count
        InputProfile(
            strategy="run_fn",
            replicas=hosts,
            hosts=hosts,
            batch_size=plan.batch.size,
            steps_per_epoch=plan.steps_per_epoch,
            epochs=epochs,
            ceiling=None,
            plan=plan.summary(),
            bytes=plan.bytes,
            handover_seconds=measure_handover(spec, plan.batch.size),
        ).write(folder)


def measure_handover(spec: Any, batch_size: int) -> float:
    """Return the seconds per step that count as waiting even if the batch is ready, for this element spec."""
    parts = []
    with tf.device("cpu:0"):
        for one in tf.nest.flatten(spec, expand_composites=True):
            shape = one.shape.as_list() if one.shape.rank is not None else []
            parts.append(tf.zeros([batch_size if size is None else size for size in shape], one.dtype))
    tap = Tap(_HANDED_OVER)
    for _ in tap.measured(tf.data.Dataset.from_tensors(tuple(parts)).repeat().prefetch(2)).take(5 * _HANDED_OVER):
        pass
    return statistics.median(waited / steps for steps, _, waited in tap.epochs)


def feed_like_tfx(patterns: Sequence[str], options: Any, schema: Any) -> Feed:
    """Return our feed for TensorFlowDatasetOptions.

    Raise InfeedError if TFX must read: there is no schema, our batches would differ, or the files are not readable.
    """
    # Our feed shuffles endless batches, or reads once in order. Anything else would differ from TFX's batches.
    training = options.shuffle and options.num_epochs is None
    once = not options.shuffle and options.num_epochs == 1 and not options.drop_final_batch
    if not (training or once):
        once_or_more = f"shuffle={options.shuffle}, num_epochs={options.num_epochs}"
        asked = f"{once_or_more}, drop_final_batch={options.drop_final_batch}"
        raise _not_ours(asked, "shuffle without num_epochs, or read once with shuffle=False, num_epochs=1")
    if not (schema and options.label_key):
        raise _not_ours("there is no schema or no label_key", "give both")

    label, parsing_spec = options.label_key, schema_utils.schema_as_feature_spec(schema).feature_spec

    def spec(_: int, sample: RecordSizes, left_out: tuple[str, ...]) -> FeedSpec:
        return FeedSpec(training, sample, left_out=left_out)

    def parse(records: tf.Tensor) -> dict[str, Any]:
        return tf.io.parse_example(records, parsing_spec)  # type: ignore[no-any-return]

    def split_off_label(raw: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        return {name: value for name, value in raw.items() if name != label}, raw[label]

    key = hashlib.sha256(repr((label, schema.SerializeToString(deterministic=True))).encode()).hexdigest()
    feed_options = FeedOptions(batch_size=options.batch_size, seed=options.shuffle_seed or 0)
    return plan_feed(patterns, BatchFunctions(parse, split_off_label, key=key), feed_options, spec)


def _check_same_batches(ours: Any, theirs: Any) -> None:
    """Raise InfeedError unless our batches have the names, types and shapes of TFX's batches."""
    try:
        tf.nest.assert_same_structure(ours, theirs)  # compares whole sparse and ragged tensors, not their components
    except (ValueError, TypeError) as error:
        raise _not_ours("other features", "compare the schema") from error
    pairs = zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True)
    different = next(((a, b) for a, b in pairs if not a.is_compatible_with(b)), None)
    if different:
        raise _not_ours(f"the batches have {different[1]}, but our feed gives {different[0]}", "compare the schema")


def _not_ours(asked: str, do: str) -> InfeedError:
    return InfeedError(f"our feed cannot give the requested batches: {asked}", where="tf_dataset_factory", do=do)
