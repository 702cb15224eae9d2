"""Executor of Transform: writes declared features directly, and runs TFX's executor for a user's function."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.transform import executor, executor_utils, labels
from tfx.components.util import examples_utils, tfxio_utils, value_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as specs
from tfx.utils import io_utils, json_utils

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.reading import record_ranges
from infeed.components.engine.choice import Cluster, counting
from infeed.components.engine.executor import Artifacts, EngineExecutor
from infeed.components.seams import tft as tft_seam
from infeed.components.seams import tfx as tfx_seam
from infeed.components.transform import declared
from infeed.components.transform.columns import Found
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import features_from_json, features_to_json
from infeed.components.transform.rows import TransformedShard, chosen, materialise, transformed_shards
from infeed.components.transform.statistics import Asked, without_values, write_raw, write_transformed

_log = logging.getLogger(__name__)
EMPTY_PREPROCESSING_FN = f"{__name__}.empty_preprocessing_fn"  # in TFX's notation for functions


def empty_preprocessing_fn(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return no features. TFX requires a function."""
    return {}


def pack_config(
    features: Sequence[Feature], custom_config: Mapping[str, Any] | None, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Pack features and options into TFX's custom_config. The user's function receives only its part."""
    return {"features": features_to_json(features), "custom_config": custom_config, "digests": digests}


class TransformExecutor(EngineExecutor, executor.Executor):
    """Write declared features directly. If there is a user's function, run TFX's executor for both."""

    _found: Found = {}  # analyses of the features next to a function

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        cluster = self.cluster(artifact_utils.get_single_instance(output_dict[specs.TRANSFORM_GRAPH_KEY]))
        features, without_features = _unpack_config(exec_properties)
        if tfx_seam.USER_FUNCTIONS.usable():
            tfx_seam.find_functions_by(self, self.preprocessing_fn, stats_options_updater_fn)
        else:
            exec_properties = without_features
        with user_code.translate_errors(), _on_engine(cluster):  # includes errors of a module file, which TFX loads
            if not features:
                super().Do(input_dict, output_dict, exec_properties)
                return
            examples = _examples(input_dict, exec_properties)
            if reason := _needs_tft(examples.schema, output_dict, exec_properties):
                tfx_seam.USER_FUNCTIONS.require("declare all features, or compute all features in the function")
                _log.warning("tft writes the graph, because %s", reason)
                with files.temporary(declared.counting_folder(cluster.shared)) as folder:
                    ranges = record_ranges(examples.folders, counting(cluster))
                    with chosen("analyzes", ranges, cluster) as engine:
                        self._found = declared.constants_of(features, examples, engine, folder)
                    super().Do(input_dict, output_dict, exec_properties)
            else:
                _write(features, examples, cluster, input_dict, output_dict, exec_properties)

    def preprocessing_fn(self, inputs: Mapping[str, Any], find: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that TFX's arguments `inputs` name, joined with the declared features."""
        features, inputs = _unpack_config(inputs)
        own = _named(inputs, labels.PREPROCESSING_FN) or find(inputs)
        if not features:
            return own
        vocabularies = os.path.join(self.temporary_folder(), "vocabularies")
        return declared.make_preprocessing_fn(features, own, self._found, vocabularies)


def stats_options_updater_fn(inputs: Mapping[str, Any], find: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the user's function that changes the options of the statistics. None if there is none."""
    _, inputs = _unpack_config(inputs)
    return _named(inputs, labels.STATS_OPTIONS_UPDATER_FN) or find(inputs)


def _on_engine(cluster: Cluster) -> AbstractContextManager[None]:
    """Run the data processing of TFX's executor on our engine, if the versions of TFX and tft are supported."""
    if not (tfx_seam.TRANSFORM.usable() and tft_seam.ANALYSIS.usable()):
        return nullcontext()
    # Imported late, because it imports the names of the seams.
    from infeed.components.transform.in_process.processor import on_engine

    return on_engine(cluster)


def _unpack_config(inputs: Mapping[str, Any]) -> tuple[list[Feature], dict[str, Any]]:
    """Return the features, and TFX's inputs with the user's part of custom_config."""
    config = json_utils.loads(value_utils.GetSoleValue(inputs, labels.CUSTOM_CONFIG))
    own = json_utils.dumps(config["custom_config"])
    return features_from_json(config["features"]), {**inputs, labels.CUSTOM_CONFIG: own}


def _examples(input_dict: Mapping[str, list[Any]], exec_properties: Mapping[str, Any]) -> declared.Examples:
    """Return the rows from which features are computed. Raise InfeedError if they are not tf.Examples in TFRecords."""
    artifacts = input_dict[specs.EXAMPLES_KEY]
    payload, _ = tfxio_utils.resolve_payload_format_and_data_view_uri(artifacts)
    formats = {examples_utils.get_file_format(artifact) for artifact in artifacts}
    if payload != example_gen_pb2.FORMAT_TF_EXAMPLE or formats != {"tfrecords_gzip"}:
        name = example_gen_pb2.PayloadFormat.Name(payload)
        do = "declare features of tf.Examples in TFRecord files, or give a preprocessing_fn instead"
        raise InfeedError(
            f"the Examples are in the format {name} in {', '.join(sorted(formats))}", where="Transform", do=do
        )
    folder = artifact_utils.get_single_uri(input_dict[specs.SCHEMA_KEY])
    schema = io_utils.parse_pbtxt_file(io_utils.get_only_uri_in_dir(folder), schema_pb2.Schema())
    splits = executor_utils.ResolveSplitsConfig(exec_properties.get(specs.SPLITS_CONFIG_KEY), artifacts)
    return declared.Examples([artifact.uri for artifact in artifacts], list(splits.analyze), schema)


def _needs_tft(schema: schema_pb2.Schema, output_dict: Mapping[str, Any], exec_properties: Mapping[str, Any]) -> str:
    """Return the requested option that only tft supports, or "" if the graph can be written directly."""
    own = exec_properties.get(specs.PREPROCESSING_FN_KEY)
    if own != EMPTY_PREPROCESSING_FN or exec_properties.get(specs.MODULE_FILE_KEY):
        return "there is a preprocessing function in addition to the features"
    if not exec_properties.get(specs.DISABLE_STATISTICS_KEY):
        if exec_properties.get(specs.STATS_OPTIONS_UPDATER_FN_KEY):
            return "a function changes the options of its statistics"
        if beyond := Asked.by_default(schema).request.beyond:
            return f"only TFDV can compute these statistics: {beyond}"
    if output_dict.get(specs.UPDATED_ANALYZER_CACHE_KEY):
        return "a cache of analyzers is requested"
    return ""


def _write(
    features: Sequence[Feature],
    examples: declared.Examples,
    cluster: Cluster,
    input_dict: Artifacts,
    output_dict: Artifacts,
    exec_properties: Mapping[str, Any],
) -> None:
    executor_utils.MatchNumberOfTransformedExamplesArtifacts(input_dict, output_dict)
    graph_folder = artifact_utils.get_single_uri(output_dict[specs.TRANSFORM_GRAPH_KEY])
    disabled = bool(exec_properties.get(specs.DISABLE_STATISTICS_KEY))
    folders = executor_utils.GetStatsOutputPathEntries(disabled, output_dict)
    artifacts, targets = input_dict[specs.EXAMPLES_KEY], output_dict.get(specs.TRANSFORMED_EXAMPLES_KEY, [])
    splits = executor_utils.ResolveSplitsConfig(exec_properties.get(specs.SPLITS_CONFIG_KEY), artifacts).transform
    executor_utils.SetSplitNames(splits, targets)
    shards: list[TransformedShard] = []
    for source, target in itertools.zip_longest(artifacts, targets):
        for split in splits:
            folder = artifact_utils.get_split_uris([target], split)[0] if target else None
            shards += transformed_shards(names.split_dir(source.uri, split), folder, cluster)
    with chosen("transforms", shards, cluster) as engine:
        graph = declared.write(graph_folder, features, examples, engine)
        transformed = materialise(graph.load, shards, engine, described=bool(folders))
        if folders:
            columns = {column for feature in features for column in feature.inputs}
            analyzed = [(root, split) for split in examples.analyzed for root in examples.roots]
            asked = Asked.by_default(examples.schema)
            write_raw(analyzed, columns, examples.schema, asked, folders, engine.map)
            schema = tft.TFTransformOutput(graph_folder).transformed_metadata.schema
            write_transformed(transformed, Asked.by_default(without_values(schema)), folders)


def _named(inputs: Mapping[str, Any], option: str) -> Callable[..., Any] | None:
    """Return the function that the option names, in any notation of `user_code`. None if unset."""
    reference = value_utils.GetSoleValue(inputs, option, strict=False)
    return executor_utils.MaybeBindCustomConfig(inputs, user_code.load(reference, option)) if reference else None
