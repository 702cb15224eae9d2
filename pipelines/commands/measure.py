"""`infeed measure`: measure the input pipeline of a dataset or of a user's tf.data pipeline, stage by stage."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.table import Table

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError, naming_extras, required
from infeed.components.base.units import size
from infeed.components.dataset import files
from infeed.components.dataset.input_profile import pipeline_rate
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.reading import first_examples, open_dataset
from infeed.components.dataset.records import is_gzip
from infeed.components.feed.capacity import Machine
from infeed.components.feed.options import FeedOptions, MapFunction, MapKind
from infeed.components.feed.plan import FeedSpec, InputPlan, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.batches import TransformFeatures
from infeed.components.input_report.stages import beside_step, keeps_up, pace
from infeed.pipelines.console.exit_codes import Command
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import Terminal, echo, quiet

if TYPE_CHECKING:
    from infeed.components.dataset.input_profile import StageCost, Trial
    from infeed.components.feed.measure import Measured
    from infeed.components.feed.stages.base import BatchFunctions

_WINDOW = 10_000  # records that `stream` shuffles together, so that a turn need not fill a window of 100,000
_ELEMENTS = 4  # windows or calls in a turn, at least
_CALL = 4096  # examples of a call that makes several batches, at most
_MOST_STEP_SECONDS = 3.0  # for the training step of a model
_SAMPLE = 500  # examples that tell the features of a dataset without a schema


@click.command(
    name="measure",
    cls=Command,
    examples=(
        "infeed measure mine.py:make_dataset",
        "infeed measure data --batch-size 256 --against tfx",
        "infeed measure data --model mine.py:make_model --label price",
    ),
)
@click.argument("dataset", type=InputPath(), metavar="DATASET")
@click.option("--split", metavar="NAME", help="Split to read.  [default: the first]")
@click.option("--batch-size", type=click.IntRange(min=1), default=128, show_default=True, help="Examples in a batch.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Time of the measurement."
)
@click.option(
    "--tier",
    type=click.Choice(["columns", "disk", "stream"]),
    default="stream",
    show_default=True,
    help="Where the feed keeps the split.",
)
@click.option("--map-examples", metavar="FUNCTION", help="Function to call on each example: mine.py:function.")
@click.option("--map-batches", metavar="FUNCTION", help="Function to call on each batch: mine.py:function.")
@click.option(
    "--map-kind",
    type=click.Choice(get_args(MapKind)),
    default="tensorflow",
    show_default=True,
    help="Kind of these functions.",
)
@click.option(
    "--against",
    type=click.Choice(["naive", "tfx"]),
    help="Measure another reader of the same files as well: the loop of most tutorials, or TFX's own.",
)
@click.option(
    "--model",
    type=InputPath(),
    metavar="MODEL",
    help="Compiled Keras model that is trained on a batch, to tell whether the input or its step is slower: a .keras "
    "file or a function, mine.py:make_model.",
)
@click.option("--label", metavar="NAME", help="Feature that is the label of the model.")
@click.option("--json", "as_json", is_flag=True, help="Print the measurement as JSON.")
def command(
    dataset: str,
    split: str | None,
    batch_size: int,
    seconds: float,
    against: str | None,
    model: str | None,
    label: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure the input pipeline of a dataset: its rate, and the cost of each stage.

    DATASET is a dataset of `infeed ingest`, a TFX Examples artifact, a folder of TFRecord files, one file, or a
    function that returns a tf.data.Dataset: `mine.py:make_dataset` or `package.module:make_dataset`.
    """
    options = _options(batch_size, given)
    if label and not model:
        raise InfeedError("a label without a model", where="--label", do="add --model, or leave the option out")
    with os.fdopen(os.dup(2), "w") as stderr, quiet(os.devnull), naming_extras():
        step = _step_rate(model, label) if model else None
        if ":" in dataset and "://" not in dataset and not files.exists(dataset):
            if against:
                raise InfeedError("a function names no files", where="--against", do="leave the option out")
            measure = partial(_measure_function, dataset, _load_function(dataset))
        else:
            measure = partial(_measure_files, _Measurable.open(dataset, split), options, against)
        print(f"measuring for about {seconds:g} seconds", file=stderr, flush=True)
        found = measure(seconds=seconds, step=step)
    _show(found, as_json)


@dataclasses.dataclass(frozen=True)
class _Measurement:
    measured: Measured  # without the rival
    described: str  # the plan
    advice: str = ""  # of the plan, about the files
    trials: Sequence[Trial] = ()
    step: float | None = None  # examples a second of the model's training step
    rival: tuple[str, float] | None = None  # name of another reader, and its examples a second

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


_StepRate = Callable[[Any, float], float]  # of a batch and seconds: examples a second that a training step takes


def _step_rate(named: str, label: str | None) -> _StepRate:
    from infeed.components.trainer.step_rate import load_model, measure_step

    model = load_model(named)

    def rate(batch: Any, seconds: float) -> float:
        return measure_step(model, batch, named, label, min(_MOST_STEP_SECONDS, seconds / 5)).examples_per_second

    return rate


def _load_function(name: str) -> Any:
    """Return the tf.data.Dataset that a function returns."""
    import tensorflow as tf

    batches = user_code.load(name, "DATASET")()
    if not isinstance(batches, tf.data.Dataset):
        raise InfeedError(f"the function returned {type(batches).__name__}", where=name, do="return a tf.data.Dataset")
    return batches


def _measure_function(name: str, batches: Any, *, seconds: float, step: _StepRate | None) -> _Measurement:
    from infeed.components.feed import measure

    rate = step(next(iter(batches)), seconds) if step else None
    return _Measurement(measure.measure(measure.dataset_cuts(batches), seconds=seconds), name, step=rate)


def _measure_files(
    split: _Measurable, options: FeedOptions, against: str | None, *, seconds: float, step: _StepRate | None
) -> _Measurement:
    from infeed.components.feed import measure
    from infeed.components.feed.trials import try_changes

    plan_with, functions = split.planner()
    cuts = measure.plan_cuts(plan_with(options, _WINDOW), functions)
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
        return _Measurement(own, planned.describe(), planned.advice, (), rate, rival)
    trials = try_changes(
        own.stages,
        dataclasses.replace(whole, rival=False),
        options,
        lambda changed: plan_with(changed, most if changed.tier == "stream" else _WINDOW),
        functions,
        seconds=seconds / len(cuts),
    )
    return _Measurement(own, planned.describe(), planned.advice, trials, rate, rival)


def _options(batch_size: int, given: dict[str, Any]) -> FeedOptions:
    maps: dict[str, Any] = {
        name: MapFunction(given[name], given["map_kind"]) for name in ("map_examples", "map_batches") if given[name]
    }
    streams = given["tier"] == "stream"
    return FeedOptions(
        batch_size,
        tier=given["tier"],
        cache_records=False if streams else None,  # each turn measures an epoch that reads
        shuffle_records=_WINDOW if streams else None,
        **maps,
    )


@dataclasses.dataclass(frozen=True)
class _Measurable:
    """A split on disk."""

    root: str
    manifest: Manifest
    name: str

    @classmethod
    def open(cls, path: str, split: str | None) -> _Measurable:
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

        The function takes options, and the examples of a window and of a call that makes several batches, at most.
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
        """Return how tf.io.parse_example reads the features: from the schema, or else from the first examples."""
        import tensorflow as tf

        types = {"int": tf.int64, "float": tf.float32, "bytes": tf.string}
        columns = [(one.name, one.type, None if one.nulls else one.shape) for one in self.manifest.schema]
        known = {name: (types[kind], shape) for name, kind, shape in columns or self._sampled()}
        if not known:
            raise InfeedError("the records hold no tf.Example features", where=self.root, do="check what wrote them")
        return {
            name: tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
            if shape is None
            else tf.io.FixedLenFeature(shape, kind)
            for name, (kind, shape) in known.items()
        }

    def _sampled(self) -> Iterator[tuple[str, str, tuple[int] | None]]:
        """Yield name, type and shape of the features of the first examples; the shape is None if lengths differ."""
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
        .shuffle(_WINDOW)
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
    options = tfxio.TensorFlowDatasetOptions(batch_size=batch_size, shuffle=True, shuffle_buffer_size=_WINDOW)
    return factory(paths, options, schema)


def _show(found: _Measurement, as_json: bool) -> None:
    stages, rate = found.measured.stages, pipeline_rate(found.measured.stages)
    if as_json:
        told = {"plan": found.described, "examples_per_second": rate, "bound_by": found.bound_by}
        told |= {"verdict": found.verdict, "step_examples_per_second": found.step}
        told |= {"stages": list(map(dataclasses.asdict, stages)), "trials": list(map(dataclasses.asdict, found.trials))}
        name, other = found.rival or ("", 0.0)
        rival = {"name": name, "examples_per_second": other, "times": rate / other} if found.rival else None
        echo(json.dumps({**told, "against": rival}))
        return
    console = Terminal(highlight=False, markup=False)
    console.print(found.described, soft_wrap=True)
    console.print(_table(stages))
    console.print(found.verdict, soft_wrap=True)
    if found.rival:
        name, other = found.rival
        ratio = f"this pipeline makes {rate / other:.1f} times as many"
        console.print(f"The reader of {name} makes {other:,.0f} examples a second; {ratio}.", soft_wrap=True)


def _table(stages: Sequence[StageCost]) -> Table:
    table = Table("stage", box=None, header_style="bold", pad_edge=False)
    for name in ("µs/example", "±", "CPU s/1,000", "examples/s", "output", "memory"):
        table.add_column(name, justify="right")
    for one in stages:
        cost = "within noise" if one.hidden else f"{one.microseconds:,.2f}"
        rate, output = f"{one.examples_per_second:,.0f}", size(one.bytes_per_example)
        memory = "unknown" if one.memory_bytes is None else size(one.memory_bytes)
        table.add_row(one.label, cost, f"{one.spread:,.2f}", f"{one.cpu_seconds:.4f}", rate, output, memory)
    return table
