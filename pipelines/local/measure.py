"""Measure the input pipeline of a dataset or of a user's function, stage by stage, and compare it with a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.reading import first_examples, open_dataset
from infeed.components.dataset.records import is_gzip
from infeed.components.feed.capacity import Machine
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import FeedSpec, InputPlan, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.batches import TransformFeatures
from infeed.components.input_report.stages import beside_step, keeps_up, pace

if TYPE_CHECKING:
    from infeed.components.dataset.input_profile import Trial
    from infeed.components.feed.measure import Measured
    from infeed.components.feed.stages.base import BatchFunctions

WINDOW = 10_000  # shuffle window of the tier `stream`; a turn would take too long to fill the usual 100,000 records
_ELEMENTS = 4  # minimum number of windows, or of calls, in a turn
_CALL = 4096  # maximum number of examples of a call that makes several batches
_MOST_STEP_SECONDS = 3.0  # time limit for measuring a model's training step
_SAMPLE = 500  # examples from which the features of a dataset without a schema are inferred


@dataclass(frozen=True)
class Measurement:
    """Costs of the stages, the plan, and the rates of the model and of another reader."""

    measured: Measured  # costs of the stages, without the other reader
    described: str  # text of the plan, or name of the user's function
    advice: str = ""  # the plan's advice about the files
    trials: Sequence[Trial] = ()
    step: float | None = None  # examples per second of the model's training step
    rival: tuple[str, float] | None = None  # name of another reader, and its examples per second

    @property
    def bound_by(self) -> str:
        if self.step is not None and keeps_up(self.measured.stages, self.step):
            return "training step"
        return self.measured.bound_by

    @property
    def verdict(self) -> str:
        stages, slowest = self.measured.stages, self.measured.bound_by
        if self.step is None:
            return pace(stages, slowest, self.trials, self.advice)
        return beside_step(stages, slowest, self.trials, self.step, self.advice)


StepRate = Callable[[Any, float], float]  # (batch, seconds to measure) -> examples per second of a training step


def step_rate(named: str, label: str | None) -> StepRate:
    """Load a compiled Keras model, and return a function that measures its training step."""
    from infeed.components.trainer.step_rate import load_model, measure_step

    model = load_model(named)

    def rate(batch: Any, seconds: float) -> float:
        return measure_step(model, batch, named, label, min(_MOST_STEP_SECONDS, seconds / 5)).examples_per_second

    return rate


def load_function(name: str) -> Any:
    """Call a user's function and return its tf.data.Dataset. Raises InfeedError if it returns something else."""
    import tensorflow as tf

    batches = user_code.load(name, "DATASET")()
    if not isinstance(batches, tf.data.Dataset):
        raise InfeedError(f"the function returned {type(batches).__name__}", where=name, do="return a tf.data.Dataset")
    return batches


def measure_function(name: str, batches: Any, *, seconds: float, step: StepRate | None) -> Measurement:
    """Measure the dataset of a user's function after each of its transformations, for `seconds` in total."""
    from infeed.components.feed import measure

    rate = step(next(iter(batches)), seconds) if step else None
    return Measurement(measure.measure(measure.dataset_cuts(batches), seconds=seconds), name, step=rate)


def measure_files(
    split: SplitOnDisk, options: FeedOptions, against: str | None, *, seconds: float, step: StepRate | None
) -> Measurement:
    """Measure the feed of a split, and try changes of its options. `against` is another reader: naive, tfx or None."""
    from infeed.components.feed import measure
    from infeed.components.feed.trials import try_changes

    plan_with, functions = split.planner()
    cuts = measure.plan_cuts(plan_with(options, WINDOW), functions)
    # The length of a turn decides the size of windows and calls, so plan again once it is known.
    turn = measure.examples_of_a_turn(cuts[-1], seconds / (len(cuts) * measure.TURNS))
    most = max(1, turn // _ELEMENTS)
    planned = plan_with(options, most)
    cuts = measure.plan_cuts(planned, functions)
    whole = measure.rival_cut(cuts)
    features, _ = next(iter(whole.dataset))
    rate = step(features, seconds) if step else None
    rivals = [measure.rival_cut(measure.dataset_cuts(split.other(against, options.batch_size)))] if against else []
    found = measure.measure([*cuts, *rivals], seconds=seconds)
    own = dataclasses.replace(found, stages=found.stages[: len(cuts)])
    rival = (against, found.stages[-1].examples_per_second) if against else None
    if rate is not None and keeps_up(own.stages, rate):  # a change of the input would gain nothing
        return Measurement(own, planned.describe(), planned.advice, (), rate, rival)
    trials = try_changes(
        own.stages,
        dataclasses.replace(whole, rival=False),
        options,
        lambda changed: plan_with(changed, most if changed.tier == "stream" else WINDOW),
        functions,
        seconds=seconds / len(cuts),
    )
    return Measurement(own, planned.describe(), planned.advice, trials, rate, rival)


@dataclass(frozen=True)
class SplitOnDisk:
    """A split on disk."""

    root: str
    manifest: Manifest
    name: str

    @classmethod
    def open(cls, path: str, split: str | None) -> SplitOnDisk:
        """Open a dataset and a split, by default its first. Raises InfeedError if one of them does not exist."""
        opened = open_dataset(path)
        if opened is None:
            do = "write one with infeed ingest, or name a function"
            raise InfeedError("not a TFRecord dataset", where=path, do=do)
        root, manifest = opened
        if split and split not in manifest.splits:
            do = f"choose one of {', '.join(manifest.splits)}"
            raise InfeedError(f"no split {split!r}", where=root, do=do)
        return cls(root, manifest, split or next(iter(manifest.splits)))

    @property
    def shards(self) -> list[ShardFile]:
        return [
            ShardFile(files.join(self.root, one.file), one.records, one.bytes, one.crc32c, self.name)
            for one in self.manifest.splits[self.name].shards
            if one.records
        ]

    def planner(self) -> tuple[Callable[[FeedOptions, int], InputPlan], BatchFunctions]:
        """Return a function that plans the feed of this split without a transform graph, and the plan's functions.

        The function takes options, and the maximum number of examples in a window or in a call of several batches.
        """
        import tensorflow as tf

        from infeed.components.feed.build import measure_records
        from infeed.components.feed.stages.base import BatchFunctions

        spec = self.parsing_spec()

        def parse(records: Any) -> Any:
            return tf.io.parse_example(records, spec), tf.zeros(tf.shape(records), tf.int64)

        functions = BatchFunctions(parse, lambda batch: batch, key=repr(sorted(spec.items())))
        sizes = measure_records(self.shards, functions)

        def plan_with(options: FeedOptions, most: int) -> InputPlan:
            feed = FeedSpec(True, dataclasses.replace(sizes, can_split=sizes.can_split and most >= _CALL))
            if options.shuffle_records:
                options = dataclasses.replace(options, shuffle_records=min(options.shuffle_records, most))
            planned = plan(self.shards, feed, options, Machine.here(cache_dir=options.cache_dir))
            # Without a transform graph, this stage does nothing.
            stages = tuple(one for one in planned.stages if not isinstance(one, TransformFeatures))
            return dataclasses.replace(planned, stages=stages)

        return plan_with, functions

    def parsing_spec(self) -> dict[str, Any]:
        """Return the spec for tf.io.parse_example, from the schema or else from the first examples.

        Raises InfeedError if the records hold no features.
        """
        import tensorflow as tf

        types = {"int": tf.int64, "float": tf.float32, "bytes": tf.string}
        columns = [(one.name, one.type, None if one.nulls else one.shape) for one in self.manifest.schema]
        known = {name: (types[kind], shape) for name, kind, shape in columns or self._sampled()}
        if not known:
            do = "check the program that wrote them"
            raise InfeedError("the records hold no tf.Example features", where=self.root, do=do)
        return {
            name: tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
            if shape is None
            else tf.io.FixedLenFeature(shape, kind)
            for name, (kind, shape) in known.items()
        }

    def _sampled(self) -> Iterator[tuple[str, str, tuple[int] | None]]:
        """Yield name, type and shape of each feature of the first examples. The shape is None if lengths differ."""
        examples = [one.features for one in first_examples(self.root, self.manifest, self.name, _SAMPLE)]
        for name in dict.fromkeys(name for one in examples for name in one):
            found = [one[name] for one in examples if name in one]
            lengths = {len(one.values) for one in found} | ({0} if len(found) < len(examples) else set())
            kind = next((one.type for one in found if one.type), None)
            if kind:
                yield name, kind, (min(lengths),) if len(lengths) == 1 else None

    def other(self, against: str, batch_size: int) -> Any:
        """Return the batches of another reader of the same files."""
        paths = [one.path for one in self.shards]
        reader = _naive if against == "naive" else _of_tfx
        return reader(paths, self.parsing_spec(), batch_size)


def _naive(paths: list[str], spec: dict[str, Any], batch_size: int) -> Any:
    import tensorflow as tf

    compression = "GZIP" if is_gzip(paths[0]) else ""
    parsed = (
        tf.data.TFRecordDataset(paths, compression_type=compression)
        .shuffle(WINDOW)
        .map(lambda record: tf.io.parse_single_example(record, spec))
    )
    is_ragged = any(isinstance(one, tf.io.RaggedFeature) for one in spec.values())
    batched = parsed.ragged_batch(batch_size) if is_ragged else parsed.batch(batch_size)
    return batched.repeat()


def _of_tfx(paths: list[str], spec: dict[str, Any], batch_size: int) -> Any:
    required("tfx")
    import tensorflow as tf
    from tensorflow_transform.tf_metadata import schema_utils
    from tfx.components.util import tfxio_utils
    from tfx.types import standard_artifacts
    from tfx_bsl.public import tfxio

    ragged = {name: tf.io.VarLenFeature(one.dtype) for name, one in spec.items() if hasattr(one, "row_splits_dtype")}
    schema = schema_utils.schema_from_feature_spec({**spec, **ragged})
    factory = tfxio_utils.get_tf_dataset_factory_from_artifact([standard_artifacts.Examples()], [])
    options = tfxio.TensorFlowDatasetOptions(batch_size=batch_size, shuffle=True, shuffle_buffer_size=WINDOW)
    return factory(paths, options, schema)
