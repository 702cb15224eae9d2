"""Transform of a dataset in a folder, without TFX: the transform graph, and optionally the transformed rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial

import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.beam import analyzer_cache
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io
from tfx_bsl.tfxio import tf_example_record

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.reading import record_ranges, split_names
from infeed.components.engine.engine import Engine
from infeed.components.seams import tft as tft_seam
from infeed.components.transform import declared
from infeed.components.transform.declared import Examples, Function
from infeed.components.transform.feature import Feature
from infeed.components.transform.rows import RowTransformer, TransformedShard, chosen, materialise, transformed_shards


def transform(
    dataset: str,
    schema: schema_pb2.Schema,
    features: Sequence[Feature],
    function: Function | None,
    output: str,
    rows: str | None = None,
) -> None:
    """Write the transform graph of a dataset to the folder `output`, with constants of its split train.

    Args:
      schema: schema of all its splits.
      features: declared features. May be empty if there is a function.
      function: preprocessing function as in tft, or None.
      rows: folder for the transformed rows of all splits. None writes none.

    Raises:
      InfeedError: the features or the function do not fit the dataset, or only tft on Beam can analyze the function.
    """
    examples = Examples([dataset], ["train"], schema)
    shards: list[TransformedShard] = []
    for split in split_names(dataset):
        folder = names.split_dir(rows, split) if rows else None
        shards += transformed_shards(names.split_dir(dataset, split), folder, None)
    with chosen("transforms", shards, None) as engine:
        if function:
            load: Callable[[], RowTransformer] = _write_traced(output, features, function, examples, engine)
        else:
            load = declared.write(output, features, examples, engine).load
        materialise(load, shards, engine, described=False)


def _write_traced(
    output: str, features: Sequence[Feature], function: Function, examples: Examples, engine: Engine
) -> Callable[[], RowTransformer]:
    """Write the graph of a function and optional features, as tft writes it."""
    tft_seam.ANALYSIS.require("use infeed run, which falls back to TFX")
    # Imported late, because they import the names of the seam.
    from infeed.components.transform.in_process.graphs import Graph
    from infeed.components.transform.in_process.plan import OnEngine, Plan, UnknownNodesError
    from infeed.components.transform.rows import ColumnReader, TftTransformer

    with tempfile.TemporaryDirectory() as scratch:
        if features:
            found = declared.constants_of(features, examples, engine, files.join(scratch, "counts"))
            vocabularies = files.join(scratch, "vocabularies")
            function = declared.make_preprocessing_fn(features, function, found, vocabularies)
        patterns = [files.join(folder, "*") for folder in examples.folders]
        view = tf_example_record.TFExampleRecord(patterns, schema=examples.schema)
        reader = partial(ColumnReader.of, examples.schema, view)
        ranges = {analyzer_cache.DatasetKey("train"): record_ranges(examples.folders, engine.map)}
        whole = function
        try:
            specs = view.TensorAdapter().OriginalTypeSpecs()
            plan = Plan.of(Graph.of(lambda raw: whole(dict(raw)), specs, scratch))
        except UnknownNodesError as error:
            what = f"only tft on Beam can analyze the function: {error}"
            raise InfeedError(what, where="preprocessing_fn", do="use infeed run, which falls back to TFX") from error
        plan.run(OnEngine(ranges, reader, engine, scratch), output)
    raw = files.join(output, tft.TFTransformOutput.RAW_METADATA_DIR)
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(examples.schema), raw)
    columns = plan.graph.features_from
    return partial(TftTransformer, output, columns, reader(columns))
