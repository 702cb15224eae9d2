"""TFX's Transform of a user's `preprocessing_fn`, analyzed and written on our engine.

tft traces the function and plans the analysis as a graph of nodes. `plan.py` computes each node. If the engine does
not support a node or an option, tft runs on Beam, and the log gives the reason.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.tf_metadata import metadata_io
from tfx.components.transform import labels
from tfx.components.transform.stats_options_util import StatsType
from tfx.components.util import value_utils
from tfx.dsl.io import fileio
from tfx.utils import io_utils
from tfx_bsl.tfxio import tf_example_record

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.reading import record_ranges
from infeed.components.engine.choice import Cluster, counting
from infeed.components.seams import tft as tft_seam
from infeed.components.seams import tfx as tfx_seam
from infeed.components.transform.in_process import cache
from infeed.components.transform.in_process.graphs import Function, Graph
from infeed.components.transform.in_process.plan import OnEngine, Plan, UnknownNodesError
from infeed.components.transform.rows import (
    ColumnReader,
    FailedBatchError,
    TftTransformer,
    TransformedShard,
    chosen,
    explain,
    materialise,
    rows_to_read,
    transformed_shards,
    with_sample,
)
from infeed.components.transform.statistics import Asked, write_raw, write_transformed

_log = logging.getLogger(__name__)


def on_engine(cluster: Cluster) -> AbstractContextManager[None]:
    """Make TFX's Transform analyze and write on our engine."""
    first = _First()
    return tfx_seam.transform_by(partial(_transform, cluster, first), _explained, first.columns)


class _First:
    """First trace of a function, which TFX's check and the analysis share."""

    def __init__(self) -> None:
        self._graph: Graph | None = None

    def columns(self, outputs: Mapping[str, Any], function: Function, specs: Mapping[str, tf.TypeSpec]) -> list[str]:
        """Trace the function. Return the columns that its analysis depends on."""
        self._graph = Graph.of(function, specs, value_utils.GetSoleValue(outputs, labels.TEMP_OUTPUT_LABEL))
        return self._graph.analyzed

    def graph(self, function: Function, specs: Mapping[str, tf.TypeSpec], folder: str) -> Graph:
        """Return the graph of a function. Trace it unless `columns` did."""
        graph, self._graph = self._graph, None
        if graph and (graph.function, graph.specs, graph.folder) == (function, specs, folder):
            return graph
        return Graph.of(function, specs, folder)


@contextmanager
def _explained(inputs: Mapping[str, Any]) -> Iterator[None]:
    """Add sample rows to errors of the user's function, which TFX traces before it reads data."""
    try:
        yield
    except InfeedError as error:
        patterns = value_utils.GetValues(inputs, labels.ANALYZE_DATA_PATHS_LABEL)
        raise with_sample(error, patterns) from error
    except ValueError as error:
        if not tft_seam.is_unsized_feature(error):
            raise
        do = "set its shape, such as by tf.reshape(tensor, [-1, 1]), or make it sparse or ragged"
        raise InfeedError(str(error), where="preprocessing_fn", do=do) from error


def _transform(cluster: Cluster, first: _First, given: Mapping[str, Any], by_tft: Callable[..., Any]) -> None:
    """Replace TFX's function with the arguments `given`, or run it on Beam."""

    def on_beam(reason: str) -> None:
        _log.warning("Transform runs on Beam: %s", reason)
        by_tft(**{**given, "make_beam_pipeline_fn": partial(_pipeline_for_tft, given["make_beam_pipeline_fn"])})

    if reason := _obstacle(given):
        return on_beam(reason)
    specs = given["analyze_data_list"][0].tfxio.TensorAdapter().OriginalTypeSpecs()
    caching: dict[str, Any] = {}
    if given["output_cache_dir"] or given["input_cache_dir"]:
        datasets = [dataset.dataset_key for dataset in given["analyze_data_list"]]
        cached = cache.find(given["input_cache_dir"], datasets) if given["input_cache_dir"] else {}
        caching = {"datasets": datasets, "cached": cached}
    graph = first.graph(given["preprocessing_fn"], specs, given["temp_path"])
    try:
        plan = Plan.of(graph, save_options=given["save_options"], **caching)
    except UnknownNodesError as error:
        return on_beam(f"the analysis requires tft on Beam: {error}")
    asked = None if given["disable_statistics"] else _statistics_asked(plan, given)
    if asked and asked.beyond:
        return on_beam(f"only TFDV can compute these statistics: {asked.beyond}")
    return _run(plan, given, asked, cluster)


def _pipeline_for_tft(make: Callable[[], Any]) -> Any:
    """Create a Beam pipeline. Raise InfeedError for the Dask runner, which has no file sources and tagged outputs."""
    pipeline = make()
    if type(pipeline.runner).__name__ == "DaskRunner":
        what = "this analysis needs tft, as the log explains, but tft does not run on Beam's DaskRunner"
        do = "set another runner for this component, such as with_beam_pipeline_args(['--runner=FlinkRunner'])"
        raise InfeedError(what, where="beam_pipeline_args of Transform", do=do)
    return pipeline


def _obstacle(given: Mapping[str, Any]) -> str:
    """Return why this execution needs Beam. Empty if it does not."""
    datasets = [*given["analyze_data_list"], *given["transform_data_list"]]
    formats = {type(dataset.tfxio) for dataset in datasets}
    if given["per_set_stats_output_paths"] or not (given["disable_statistics"] or given["stats_output_paths"]):
        return "the folders of its statistics differ from those of TFX's component"
    if given["force_tf_compat_v1"]:
        return "its graph is for TensorFlow 1"
    if formats != {tf_example_record.TFExampleRecord}:
        return f"its data is not tf.Examples in TFRecords, but {', '.join(sorted(one.__name__ for one in formats))}"
    if given["materialization_format"] not in (None, labels.FORMAT_TFRECORD):
        return f"it writes {given['materialization_format']}"
    return ""


@dataclass(frozen=True)
class _Statistics:
    """Options of the statistics before and after the transform."""

    raw: Asked
    transformed: Asked
    beyond: str  # why only TFDV can compute them. Empty if we can


def _statistics_asked(plan: Plan, given: Mapping[str, Any]) -> _Statistics:
    """Return TFX's options with the changes of the user's function."""
    options = partial(tfx_seam.stats_options, given["stats_options_updater_fn"])
    raw = Asked.of(options(StatsType.PRE_TRANSFORM, given["input_dataset_metadata"].schema))
    schema, output = plan.graph.schema(), given["transform_output_path"]
    transformed = Asked.of(options(StatsType.POST_TRANSFORM, schema, plan.assets, output))
    beyond = raw.request.beyond or transformed.request.beyond
    for name, feature in plan.graph.outputs.items():
        if isinstance(feature, tf.RaggedTensor) and feature.shape.rank > 2:
            beyond = beyond or f"feature {name!r} holds lists of lists"
    return _Statistics(raw, transformed, beyond)


def _run(plan: Plan, given: Mapping[str, Any], asked: _Statistics | None, cluster: Cluster) -> None:
    output, metadata = given["transform_output_path"], given["input_dataset_metadata"]
    sources = {one.dataset_key: posixpath.dirname(one.file_pattern) for one in given["analyze_data_list"]}
    analyzed = {key: record_ranges([source], counting(cluster)) for key, source in sources.items()}
    shards: list[TransformedShard] = []
    for dataset in given["transform_data_list"]:
        writes = given["materialization_format"] is not None
        folder = posixpath.dirname(dataset.materialize_output_path) if writes else None
        shards += transformed_shards(posixpath.dirname(dataset.file_pattern), folder, cluster)
    first, *_ = given["analyze_data_list"]
    with chosen("transforms", shards, cluster) as engine:
        reading = OnEngine(analyzed, partial(ColumnReader.of, metadata.schema, first.tfxio), engine, plan.graph.folder)
        # Announce all passes, so that workers on a cluster start only once.
        engine.announce([*[reading.all_parts] * plan.phases, rows_to_read(shards, described=asked is not None)])
        _keep(plan.run(reading, output), given)
        metadata_io.write_metadata(metadata, posixpath.join(output, tft.TFTransformOutput.RAW_METADATA_DIR))
        columns = plan.graph.features_from
        load = partial(TftTransformer, output, columns, ColumnReader.of(metadata.schema, first.tfxio, columns))
        try:
            transformed = materialise(load, shards, engine, described=asked is not None)
        except FailedBatchError as failed:
            raise explain(failed, plan.graph.traced, plan.graph.inputs) from failed
        if asked:
            places = map(posixpath.split, sources.values())  # TFX's pattern is `.../Split-train/*`
            splits = [(root, split.removeprefix("Split-")) for root, split in places]
            described = {*plan.analyzed, *columns}
            folders = given["stats_output_paths"]
            write_raw(splits, described, metadata.schema, asked.raw, folders, engine.map)
            write_transformed(transformed, asked.transformed, folders)


def _keep(kept: Mapping[Any, cache.Encoded], given: Mapping[str, Any]) -> None:
    """Write the cache: earlier entries of the analyzed spans, and the new ones."""
    before, folder = given["input_cache_dir"], given["output_cache_dir"]
    if not folder:
        return
    for dataset in given["analyze_data_list"] if before else ():
        span = posixpath.join(before, dataset.dataset_key.key)
        if fileio.isdir(span):
            io_utils.copy_dir(span, posixpath.join(folder, dataset.dataset_key.key))
    cache.write(folder, kept)
