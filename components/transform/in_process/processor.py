"""TFX's Transform of a user's `preprocessing_fn`, analyzed and written on our engine wherever all is known here.

tft traces the function and plans the analysis as a graph of nodes; `nodes.py` says what each of them does. What is not
known here tft does on Beam as ever, and the log says why.
"""

from __future__ import annotations

import inspect
import logging
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import annotators, nodes
from tensorflow_transform.beam import analysis_graph_builder, analyzer_cache, common
from tensorflow_transform.tf_metadata import metadata_io
from tfx.components.transform import executor, labels
from tfx.components.transform.stats_options_util import StatsType
from tfx.components.util import value_utils
from tfx.dsl.io import fileio
from tfx.utils import io_utils
from tfx_bsl.tfxio import tf_example_record

from infeed.components.dataset.ranges import ShardRange, record_ranges
from infeed.components.engine.choice import Cluster
from infeed.components.engine.engine import Engine, WithSetUp
from infeed.components.errors import InfeedError
from infeed.components.transform.in_process import cache
from infeed.components.transform.in_process.failures import FailedBatchError, explain, with_sample
from infeed.components.transform.in_process.nodes import (
    AnalysisContext,
    GraphEvaluator,
    Unknown,
    constants_of,
)
from infeed.components.transform.in_process.phases import (
    Apply,
    Function,
    Graph,
    Reading,
    Sink,
    Traced,
    Wanted,
    fill,
    merge_sinks,
    saved,
)
from infeed.components.transform.in_process.tft_rows import ColumnReader, TftTransformer
from infeed.components.transform.rows import TransformedShard, chosen, materialise, transformed_shards
from infeed.components.transform.statistics import Asked, write_raw, write_transformed

_NO_SIZE = "all dimensions must have known size"  # of a feature, in tft's words
_log = logging.getLogger(__name__)


@contextmanager
def on_engine(cluster: Cluster) -> Iterator[None]:
    """Inside, TFX's executor takes `EngineTransform`; it has no argument that names its processor."""
    before = executor.TransformProcessor
    executor.TransformProcessor = partial(EngineTransform, cluster)
    try:
        yield
    finally:
        executor.TransformProcessor = before


class EngineTransform(executor.TransformProcessor):
    """What TFX does with the data of one execution, on an engine of ours."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def Transform(self, inputs: Any, outputs: Any, *more: Any) -> None:  # noqa: N802 - TFX's name
        try:
            super().Transform(inputs, outputs, *more)
        except InfeedError as error:  # of the user's function; it is traced before anything is read
            patterns = value_utils.GetValues(inputs, labels.ANALYZE_DATA_PATHS_LABEL)
            raise with_sample(error, patterns) from error
        except ValueError as error:
            if _NO_SIZE not in str(error):
                raise
            do = "give it a size, such as by tf.reshape(tensor, [-1, 1]), or make it sparse or ragged"
            raise InfeedError(str(error), where="preprocessing_fn", do=do) from error

    def _RunBeamImpl(self, *arguments: Any, **named: Any) -> Any:  # noqa: N802 - TFX's name
        given = inspect.signature(super()._RunBeamImpl).bind(*arguments, **named).arguments
        make_pipeline = partial(_pipeline_for_tft, given["make_beam_pipeline_fn"])
        on_beam = partial(super()._RunBeamImpl, **{**given, "make_beam_pipeline_fn": make_pipeline})
        if reason := _obstacle(given):
            _log.warning("Transform runs on Beam: %s", reason)
            return on_beam()
        try:
            plan = _plan(given)
        except UnknownNodesError as error:
            _log.warning("Transform runs on Beam, for the analysis has what only tft on Beam knows: %s", error)
            return on_beam()
        asked = None if given["disable_statistics"] else _statistics_asked(plan, given)
        if asked and (reason := asked.beyond):
            _log.warning("Transform runs on Beam, for only TFDV makes such statistics: %s", reason)
            return on_beam()
        _run(plan, given, asked, self._cluster)
        return executor._Status.OK()


def _pipeline_for_tft(make: Callable[[], Any]) -> Any:
    """
    Raises:
      InfeedError: it is one of Beam's Dask runner, which translates neither file sources nor tagged outputs.
    """
    pipeline = make()
    if type(pipeline.runner).__name__ == "DaskRunner":
        raise InfeedError(
            "this analysis needs tft, as the log explains, and tft cannot run on Beam's DaskRunner",
            where="beam_pipeline_args of Transform",
            do="name another runner for this component, such as with_beam_pipeline_args(['--runner=FlinkRunner'])",
        )
    return pipeline


def _obstacle(given: Mapping[str, Any]) -> str:
    """Why this execution cannot do without Beam; empty where it can."""
    datasets = [*given["analyze_data_list"], *given["transform_data_list"]]
    formats = {type(dataset.tfxio) for dataset in datasets}
    if given["per_set_stats_output_paths"] or not (given["disable_statistics"] or given["stats_output_paths"]):
        return "its statistics have other folders than those of TFX's component"
    if given["force_tf_compat_v1"]:
        return "its graph is one of TensorFlow 1"
    if formats != {tf_example_record.TFExampleRecord}:
        return f"its data are not tf.Examples in TFRecords, but {', '.join(sorted(one.__name__ for one in formats))}"
    if given["materialization_format"] not in (None, labels.FORMAT_TFRECORD):
        return f"it writes {given['materialization_format']}"
    return ""


def _plan(given: Mapping[str, Any]) -> Plan:
    specs = given["analyze_data_list"][0].tfxio.TensorAdapter().OriginalTypeSpecs()
    caching: dict[str, Any] = {}
    if given["output_cache_dir"] or given["input_cache_dir"]:
        datasets = [dataset.dataset_key for dataset in given["analyze_data_list"]]
        cached = cache.find(given["input_cache_dir"], datasets) if given["input_cache_dir"] else {}
        caching = {"datasets": datasets, "cached": cached}
    function, options = given["preprocessing_fn"], given["save_options"]
    return Plan.of(function, specs, given["temp_path"], save_options=options, **caching)


@dataclass(frozen=True)
class _Statistics:
    """What is to be said of the rows before and after."""

    raw: Asked
    transformed: Asked
    beyond: str


def _statistics_asked(plan: Plan, given: Mapping[str, Any]) -> _Statistics:
    """By TFX's options, which a function of the user's may have changed."""
    change, output = given["stats_options_updater_fn"], given["transform_output_path"]
    schemas = (given["input_dataset_metadata"].schema, plan.graph.schema())
    kinds = (StatsType.PRE_TRANSFORM, StatsType.POST_TRANSFORM)
    paths: tuple[tuple[Any, ...], ...] = ((), (plan.assets, output))
    raw, transformed = (
        Asked.of(executor._InvokeStatsOptionsUpdaterFn(change, kind, schema, *more))
        for kind, schema, more in zip(kinds, schemas, paths, strict=True)
    )
    return _Statistics(raw, transformed, raw.request.beyond or transformed.request.beyond or _nested(plan))


def _nested(plan: Plan) -> str:
    for name, feature in plan.graph.outputs.items():
        if isinstance(feature, tf.RaggedTensor) and feature.shape.rank > 2:
            return f"feature {name!r} holds lists of lists"
    return ""


def _run(plan: Plan, given: Mapping[str, Any], asked: _Statistics | None, cluster: Cluster) -> None:
    output, metadata = given["transform_output_path"], given["input_dataset_metadata"]
    analyzed = {one.dataset_key: _ranges(one) for one in given["analyze_data_list"]}
    shards = _shards(given)
    first, *_ = given["analyze_data_list"]
    with chosen("transforms", shards, cluster) as engine:
        columns_reader = partial(ColumnReader.of, metadata.schema, first.tfxio)
        _keep(plan.run(OnEngine(analyzed, columns_reader, engine, plan.graph.folder), output), given)
        metadata_io.write_metadata(metadata, posixpath.join(output, tft.TFTransformOutput.RAW_METADATA_DIR))
        columns = plan.graph.features_from
        load = partial(TftTransformer, output, columns, ColumnReader.of(metadata.schema, first.tfxio, columns))
        try:
            transformed = materialise(load, shards, engine, described=asked is not None)
        except FailedBatchError as failed:
            raise explain(failed, plan.graph.traced, plan.graph.inputs) from failed
        if asked:
            splits = [_split_of(one.file_pattern) for one in given["analyze_data_list"]]
            described = {*plan.graph.analyzed, *columns}
            folders = given["stats_output_paths"]
            write_raw(splits, described, metadata.schema, asked.raw, folders, engine.map)
            write_transformed(transformed, asked.transformed, folders)


def _shards(given: Mapping[str, Any]) -> list[TransformedShard]:
    """The rows that are to be transformed, with the files that they go to."""
    writes = given["materialization_format"] is not None
    return [
        shard
        for dataset in given["transform_data_list"]
        for shard in transformed_shards(
            _ranges(dataset), posixpath.dirname(dataset.materialize_output_path) if writes else None
        )
    ]


def _ranges(dataset: Any) -> list[ShardRange]:
    """The rows of TFX's `.../Split-train/*`."""
    return record_ranges([posixpath.dirname(dataset.file_pattern)])


@dataclass(frozen=True)
class OnEngine:
    """Reads the rows of datasets on an engine: the `Reading` of an analysis.

    Attributes:
      analyzed: DatasetKey -> rows.
      reader: of some columns.
      folder: that workers see, for graphs.
    """

    analyzed: Mapping[Any, Sequence[ShardRange]]
    reader: Callable[[Sequence[str]], ColumnReader]
    engine: Engine
    folder: str

    def __call__(self, traced: Traced, wanted: Mapping[Any, Sequence[Wanted]], /) -> Mapping[Any, list[Sink]]:
        parts = [_Part(number, shard) for number, key in enumerate(wanted) for shard in self._ranges(key)]
        if not parts:
            return {}
        folder = common.get_unique_temp_path(self.folder)
        graph = PhaseGraph(self.reader(traced.inputs), folder, traced.keys, traced)
        task = WithSetUp(partial(_fill_part, list(wanted.values())), graph.load)
        found: dict[int, list[Sink]] = self.engine.reduce(task, parts, _merge_parts)
        return {key: found[number] for number, key in enumerate(wanted) if number in found}

    def _ranges(self, key: Any) -> Sequence[ShardRange]:
        if key.is_flattened_dataset_key():
            return [shard for ranges in self.analyzed.values() for shard in ranges]
        return self.analyzed[key]


@dataclass(frozen=True)
class _Part:
    """Rows of the dataset of this number."""

    dataset: int
    rows: ShardRange

    @property
    def place(self) -> str:
        return self.rows.place


@dataclass
class PhaseGraph:
    """The graph of a phase, and the reader of its columns; it travels to workers as a SavedModel.

    Attributes:
      folder: of the SavedModel, which is written when the first worker is to have it.
    """

    reader: ColumnReader
    folder: str
    keys: Sequence[str]
    traced: Traced | None

    def __getstate__(self) -> dict[str, Any]:
        if self.traced and not fileio.exists(self.folder):
            self.traced.save(self.folder)
        return {**self.__dict__, "traced": None}

    def load(self) -> tuple[Apply, ColumnReader]:
        """What a worker holds."""
        return self.traced or saved(self.folder, self.reader.columns, self.keys), self.reader


def _fill_part(
    wanted: Sequence[Sequence[Wanted]], graph: tuple[Apply, ColumnReader], part: _Part
) -> dict[int, list[Sink]]:
    apply, reader = graph
    return {part.dataset: fill(apply, wanted[part.dataset], reader.batches(part.rows))}


def _merge_parts(some: dict[int, list[Sink]], others: dict[int, list[Sink]]) -> dict[int, list[Sink]]:
    for number, sinks in others.items():
        some[number] = merge_sinks(some[number], sinks) if number in some else sinks
    return some


def _split_of(pattern: str) -> tuple[str, str]:
    """(folder of the Examples, name of the split) of TFX's `.../Split-train/*`."""
    root, split = posixpath.split(posixpath.dirname(pattern))
    return root, split.removeprefix("Split-")


def _keep(kept: Mapping[Any, cache.Encoded], given: Mapping[str, Any]) -> None:
    """Writes the cache: of the spans that were analyzed what the former one has of them, and what is new."""
    before, folder = given["input_cache_dir"], given["output_cache_dir"]
    if not folder:
        return
    for dataset in given["analyze_data_list"] if before else ():
        span = posixpath.join(before, dataset.dataset_key.key)
        if fileio.isdir(span):
            io_utils.copy_dir(span, posixpath.join(folder, dataset.dataset_key.key))
    cache.write(folder, kept)


class UnknownNodesError(Exception):
    """The analysis has nodes that are known to tft on Beam alone; the text names them."""


@dataclass(frozen=True)
class Plan:
    """An analysis, of which all is known but the rows.

    Attributes:
      graph: the function, traced.
      assets: name of an asset -> its file's name.
    """

    graph: Graph
    assets: Mapping[str, str]
    _model: Any
    _encoded: Mapping[Any, Mapping[bytes, Any]]
    _cached: Mapping[Any, cache.Entries]

    @classmethod
    def of(
        cls,
        function: Function,
        specs: Mapping[str, tf.TypeSpec],
        folder: str,
        *,
        save_options: Any = None,
        datasets: Collection[Any] = (),
        cached: Mapping[Any, cache.Entries] | None = None,
    ) -> Plan:
        """Traces the function and plans its analysis.

        Args:
          function: takes a dict of columns, and gives a dict of features.
          specs: type of each column.
          folder: for what is written on the way, the vocabularies among it; the caller removes it.
          datasets: the DatasetKeys of what is analyzed apart, so that it can be kept in the cache.
          cached: what an earlier analysis kept of them; None where none is kept of this one either.

        Raises:
          InfeedError: the function returns no features.
          UnknownNodesError: the analysis has nodes that are not known here.
        """
        graph = Graph.of(function, specs, folder, save_options)
        assets = annotators.get_asset_annotations(graph.traced)
        annotators.clear_asset_annotations(graph.traced)
        model, encoded, _ = analysis_graph_builder.build(
            graph.traced, graph.inputs, graph.outputs, datasets, None if cached is None else _by_dataset(cached)
        )
        _check_known(model)
        return cls(graph, assets, model, encoded or {}, cached or {})

    def run(self, reading: Reading, output: str) -> dict[Any, cache.Encoded]:
        """Reads the rows, once for each phase, and writes the transform graph.

        Args:
          reading: of datasets by their DatasetKeys.
          output: folder of the transform graph.

        Returns:
          what a cache is to keep of datasets that it did not have.
        """
        context = AnalysisContext(self.graph, reading, self._cached, self.graph.folder)
        traverser = nodes.Traverser(GraphEvaluator(context))
        final = traverser.visit_value_node(self._model)
        kept = {
            dataset: {key: traverser.visit_value_node(node) for key, node in entries.items()}
            for dataset, entries in self._encoded.items()
        }
        self.graph.write(constants_of(final), output, self.assets)
        return {dataset: {key: one.elements() for key, one in entries.items()} for dataset, entries in kept.items()}


def _by_dataset(cached: Mapping[Any, cache.Entries]) -> Mapping[Any, Any]:
    return {dataset: analyzer_cache.DatasetCache(entries, None) for dataset, entries in cached.items()}


def _check_known(model: Any) -> None:
    unknown = Unknown()
    nodes.Traverser(unknown).visit_value_node(model)
    if unknown.labels:
        raise UnknownNodesError(", ".join(unknown.labels))
