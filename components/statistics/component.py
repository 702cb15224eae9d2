"""StatisticsGen with the interface of TFX's, computed from the column statistics of ingest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tfx.components
from tfx import types
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils

from infeed.components.base import machine
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.statistics.table_statistics import tables_of
from infeed.components.dataset.statistics.tfdv import StatisticsRequest
from infeed.components.engine.choice import ChosenMap
from infeed.components.engine.executor import Artifacts, EngineExecutor, unread_format
from infeed.components.statistics.inference import describe

EXAMPLES, SCHEMA, STATISTICS = "examples", "schema", "statistics"
STATS_OPTIONS, EXCLUDE_SPLITS, SAMPLE_RATES = "stats_options_json", "exclude_splits", "sample_rate_by_split"
SHARDED = "sharded_stats_output"
FILE = "FeatureStats.pb"


class StatisticsExecutor(EngineExecutor):
    """Write `Split-NAME/FeatureStats.pb` for each split, or fall back to TFX's executor."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        schema = read_schema(input_dict[SCHEMA]) if input_dict.get(SCHEMA) else None
        request = StatisticsRequest.of(exec_properties.get(STATS_OPTIONS), schema)
        examples = artifact_utils.get_single_instance(input_dict[EXAMPLES])
        reason = request.beyond or beyond(examples, exec_properties)
        if reason:
            arguments = input_dict, output_dict, exec_properties
            self.leave_to_tfx("statistics_gen", "statistics are computed", reason, *arguments)
            return
        output = artifact_utils.get_single_instance(output_dict[STATISTICS])
        if not (splits := included_splits(examples, exec_properties)):
            names = ", ".join(artifact_utils.decode_split_names(examples.split_names)) or "none"
            raise InfeedError(f"all splits are excluded: {names}", where=EXCLUDE_SPLITS, do="exclude fewer splits")
        # The properties that TFX's executor sets and that readers expect.
        output.split_names = artifact_utils.encode_split_names(splits)
        output.span = examples.span
        output.set_string_custom_property("stats_dashboard_link", "")
        output.set_json_value_custom_property(SAMPLE_RATES, json_utils.dumps(dict.fromkeys(splits, 1.0)))
        each = ChosenMap("describes", machine.STATISTICS_BYTES, self.cluster(output))
        tables = tables_of([(examples.uri, split) for split in splits], map_fn=each)
        for split, table in zip(splits, tables, strict=True):
            found = describe(table, request)
            target = files.join(artifact_utils.get_split_uri([output], split), FILE)
            files.write_bytes(target, found.SerializeToString(deterministic=True))


def beyond(examples: types.Artifact, exec_properties: Mapping[str, Any]) -> str:
    """Return why only TFX's own executor can compute the statistics, or ""."""
    if unread := unread_format([examples]):
        return unread
    if json_utils.loads(exec_properties.get(SAMPLE_RATES) or "null"):
        return f"{SAMPLE_RATES} is {exec_properties[SAMPLE_RATES]}"
    return f"{SHARDED} is True" if exec_properties.get(SHARDED) else ""


def included_splits(artifact: types.Artifact, exec_properties: Mapping[str, Any]) -> list[str]:
    """Return the splits without those of `exclude_splits`. Raise InfeedError if that is not a list."""
    excluded = json_utils.loads(exec_properties.get(EXCLUDE_SPLITS) or "null") or []
    if not isinstance(excluded, list):
        raise InfeedError(f"exclude_splits is {excluded!r}", where=EXCLUDE_SPLITS, do="use a list of split names")
    return [name for name in artifact_utils.decode_split_names(artifact.split_names) if name not in excluded]


def read_schema(artifacts: Sequence[types.Artifact]) -> Any:
    return io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(artifacts)))


class StatisticsGen(tfx.components.StatisticsGen):
    """Describes the columns of each split, for SchemaGen, ExampleValidator and people.

        StatisticsGen(examples=example_gen.outputs["examples"])

    The arguments and the output `statistics` are those of TFX's StatisticsGen. The values come from the column
    statistics of ingest, so no record is read. Examples of other writers are read once, without Beam, and their
    statistics are cached.

    The component falls back to TFX's own executor on Beam, and logs the reason, for slices, weights, samples,
    statistics of semantic domains, a smaller `epsilon`, a schema with sparse, weighted, nested or natural language
    features, records that are not tf.Examples, and splits by a file name pattern.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(StatisticsExecutor)
