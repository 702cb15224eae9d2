"""Executors: one typed request out of TFX's untyped properties, one opened input, one engine.

`check_arguments` refuses those of TFX's ExampleGens that mean something else here, with what to write instead.
"""

import abc
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import pyarrow as pa
from google.protobuf import wrappers_pb2
from tfx import types
from tfx.components.example_gen import utils, write_split
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from infeed.components import schema
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.engine.choice import Cluster, choose
from infeed.components.engine.on_beam import OnBeam
from infeed.components.engine_executor import EngineExecutor
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest
from infeed.components.example_gen.formats import FORMATS, open_patterns
from infeed.components.example_gen.inputs import OpenedSource, open_files
from infeed.components.example_gen.local import work_of
from infeed.components.example_gen.settling import settled
from infeed.components.example_gen.sources.tfrecord import check_examples
from infeed.components.example_gen.transforms import run_pipeline

Artifacts = dict[str, list[types.Artifact]]
_IN_PLACE_OF = {  # executors that people give to TFX's FileBasedExampleGen
    "tfx.components.example_gen.custom_executors.parquet_executor": "ParquetExampleGen",
    "tfx.components.example_gen.custom_executors.avro_executor": "AvroExampleGen",
    "tfx.components.example_gen.csv_example_gen.executor": "CsvExampleGen",
    "tfx.components.example_gen.import_example_gen.executor": "ImportExampleGen",
}


@dataclass(frozen=True)
class Request:
    """What the component was asked for.

    Attributes:
      format: a name in `formats.FORMATS`; empty where the executor opens its source itself.
      patterns: split -> pattern under `input_base`, or query; the split is None where `buckets` splits the rows.
      splits: all that are written, those that the input has as they are after those of the buckets.
      source: the source's own options, of JSON's types.
    """

    format: str
    input_base: str
    patterns: Mapping[str | None, str]
    splits: tuple[str, ...]
    buckets: Buckets | None
    options: IngestOptions
    source: Mapping[str, Any]
    payload_format: int
    file_format: int

    @classmethod
    def of(
        cls, exec_properties: Mapping[str, Any], payload_formats: Sequence[int] = (example_gen_pb2.FORMAT_TF_EXAMPLE,)
    ) -> "Request":
        """Raises InfeedError on a payload that is not one of `payload_formats`."""
        properties = standard_component_specs
        input_config = _proto(exec_properties[properties.INPUT_CONFIG_KEY], example_gen_pb2.Input())
        output_config = _proto(exec_properties[properties.OUTPUT_CONFIG_KEY], example_gen_pb2.Output())
        buckets = _buckets(output_config.split_config)
        patterns, splits = _splits(input_config, output_config, buckets)
        custom = _unpack(exec_properties.get(properties.CUSTOM_CONFIG_KEY))
        return cls(
            format=custom.get("format", ""),
            input_base=_input_base(exec_properties),
            patterns=patterns,
            splits=splits,
            buckets=buckets,
            options=schema.read(IngestOptions, custom.get("options", {}), "options"),
            source=custom.get("source", {}),
            payload_format=_payload_format(exec_properties, payload_formats),
            file_format=exec_properties.get(properties.OUTPUT_FILE_FORMAT_KEY, example_gen_pb2.FORMAT_TFRECORDS_GZIP),
        )


class Executor(EngineExecutor):
    """Writes an Examples artifact as TFX's ExampleGens do, with a manifest beside its splits.

    What it reads is of the format that the component names. A subclass may override `open`, as `FileExecutor` does.
    """

    PAYLOAD_FORMATS: Sequence[int] = (example_gen_pb2.FORMAT_TF_EXAMPLE,)

    def open(self, request: Request) -> OpenedSource:
        """Finds and checks the input; raises InfeedError before anything long starts."""
        place = (request.format, request.input_base, request.patterns)
        return open_patterns(*place, request.options, request.source, sampled=True)

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        request = Request.of(exec_properties, self.PAYLOAD_FORMATS)
        self._log_startup(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        _ingest(self.open(request), request, self.cluster(artifact))
        _describe(artifact, request)
        _record_input(artifact, exec_properties)


class FileExecutor(Executor, abc.ABC):
    """A source of one's own: all it takes is a name and a function that reads a file."""

    KIND: str

    @staticmethod
    @abc.abstractmethod
    def read(path: str) -> Iterable[pa.RecordBatch]:
        """The rows of one file, in batches that each fit into memory, of the types that docs/types.md lists."""

    def open(self, request: Request) -> OpenedSource:
        return open_files(self.KIND, request.input_base, request.patterns, self.read)


class TFRecordExecutor(Executor):
    """TFRecord files in, their records untouched, whatever they hold."""

    PAYLOAD_FORMATS = (
        example_gen_pb2.FORMAT_TF_EXAMPLE,
        example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE,
        example_gen_pb2.FORMAT_PROTO,
    )

    def open(self, request: Request) -> OpenedSource:
        if request.buckets and request.buckets.feature:
            raise InfeedError(
                "records are imported unread, but are to be split by a feature in them",
                where=f"partition_feature_name={request.buckets.feature!r}",
                do="leave it out, and records are split by the hash of their bytes",
            )
        opened = super().open(request)
        if request.payload_format != example_gen_pb2.FORMAT_PROTO:
            sequences = request.payload_format == example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE
            check_examples(opened, sequences=sequences)
        return opened


def pack(
    format: str, options: IngestOptions, source: Any = None, fingerprint: str | None = None
) -> example_gen_pb2.CustomConfig:
    """Typed options -> the one proto that TFX carries for us; `Request.of` reads it, but for the fingerprint.

    Args:
      source: the source's own options, as a dataclass or of JSON's types.
    """
    own = schema.to_plain(source) if is_dataclass(source) else dict(source or {})
    fields: dict[str, Any] = {"format": format, "options": schema.to_plain(options), "source": own}
    if fingerprint is not None:
        fields["fingerprint"] = fingerprint
    config = example_gen_pb2.CustomConfig()
    config.custom_config.Pack(wrappers_pb2.StringValue(value=json.dumps(fields, sort_keys=True)))
    return config


def check_arguments(
    component: str,
    executor_spec: Any,
    custom_config: Any,
    output_data_format: int = example_gen_pb2.FORMAT_TF_EXAMPLE,
    output_file_format: int = example_gen_pb2.FORMAT_TFRECORDS_GZIP,
    *,
    format: str,
) -> None:
    """
    Args:
      component: name of the component's class.
      executor_spec: what will run: the component's own, or the custom_executor_spec that was given.
      format: of the input.

    Raises:
      InfeedError: an executor that is none of ours, a custom_config, a format that the executor does not write, or none
        to open the input by.
    """
    _check_custom_config(component, custom_config)
    executor = _executor(component, executor_spec)
    _check_formats(component, executor, output_data_format, output_file_format)
    if format not in FORMATS and (format or executor.open is Executor.open):
        raise InfeedError(
            f"format is {format!r}" if format else "neither a format nor an executor is given",
            where=component,
            do=f"give format=, one of {', '.join(FORMATS)}, or custom_executor_spec=BeamExecutorSpec(X), X being a"
            " FileExecutor of infeed.components",
        )


def _ingest(opened: OpenedSource, request: Request, cluster: Cluster) -> None:
    # A function of the user's own may be one that other processes cannot import.
    alone = "" if request.format else "an executor of one's own reads the source"
    with choose(replace(work_of(opened), alone=alone), cluster) as engine:

        def attempt(source: OpenedSource) -> None:
            job = ingest.Job.of(
                source, root=cluster.shared, splits=request.splits, buckets=request.buckets, options=request.options
            )
            if isinstance(engine, OnBeam):
                run_pipeline(source.tasks, job, cluster.make_pipeline, engine.runner)
            else:
                ingest.ingest(source.tasks, job, map_fn=engine.map)

        settled(opened, attempt)


def _describe(artifact: types.Artifact, request: Request) -> None:
    artifact.split_names = artifact_utils.encode_split_names(list(request.splits))
    examples_utils.set_payload_format(artifact, request.payload_format)
    examples_utils.set_file_format(artifact, write_split.to_file_format_str(request.file_format))


def _record_input(artifact: types.Artifact, exec_properties: Mapping[str, Any]) -> None:
    """Record span and fingerprint as TFX's driver does, if they are known and no driver has recorded them."""
    name = utils.FINGERPRINT_PROPERTY_NAME
    if exec_properties.get(name) and not artifact.has_custom_property(name):
        artifact.set_string_custom_property(name, exec_properties[name])
        artifact.set_int_custom_property(utils.SPAN_PROPERTY_NAME, int(exec_properties[utils.SPAN_PROPERTY_NAME]))


def _splits(
    input_config: example_gen_pb2.Input, output_config: example_gen_pb2.Output, buckets: Buckets | None
) -> tuple[dict[str | None, str], tuple[str, ...]]:
    """The patterns, None being the split that the buckets divide, and the names of all splits that are written.

    TFX divides the rows of one input split only. Of several, the buckets divide the one that is called as one of them,
    such as train into train and eval, and the others stay as they are.
    """
    if not buckets or len(input_config.splits) < 2:
        names = tuple(utils.generate_output_split_names(input_config, output_config))
        return {None if buckets else split.name: split.pattern for split in input_config.splits}, names
    divided, whole = list[str](), list[str]()
    for split in input_config.splits:
        (divided if split.name in buckets.names else whole).append(split.name)
    if len(divided) != 1 or len(set(whole)) < len(whole):
        raise InfeedError(
            f"the splits of the output, {', '.join(buckets.names)}, divide {len(divided)} of those of the input,"
            f" {', '.join(split.name for split in input_config.splits)}",
            where="output_config",
            do="give one split of the input the name of one of the output, which its rows are divided into",
        )
    patterns = {None if split.name in divided else split.name: split.pattern for split in input_config.splits}
    return patterns, (*buckets.names, *whole)


def _buckets(config: example_gen_pb2.SplitConfig) -> Buckets | None:
    if not config.splits:
        return None
    shares = tuple((split.name, split.hash_buckets) for split in config.splits)
    return Buckets(shares, config.partition_feature_name or None)


def _payload_format(exec_properties: Mapping[str, Any], allowed: Sequence[int]) -> int:
    asked = exec_properties.get(standard_component_specs.OUTPUT_DATA_FORMAT_KEY, example_gen_pb2.FORMAT_TF_EXAMPLE)
    if asked not in allowed:
        name = example_gen_pb2.PayloadFormat.Name
        raise InfeedError(
            f"output_data_format is {name(asked)}", do=f"choose of {', '.join(name(one) for one in allowed)}"
        )
    return int(asked)


def _input_base(exec_properties: Mapping[str, Any]) -> str:
    """As workers find it whatever folder they work in; a query has none."""
    base: str = exec_properties.get(standard_component_specs.INPUT_BASE_KEY, "")
    return files.absolute(base) if base else base


def _unpack(custom_config: str | None) -> dict[str, Any]:
    if not custom_config:
        return {}
    text = wrappers_pb2.StringValue()
    if not _proto(custom_config, example_gen_pb2.CustomConfig()).custom_config.Unpack(text):
        raise InfeedError("custom_config of another component", do="give options= to the component instead")
    unpacked: dict[str, Any] = json.loads(text.value)
    return unpacked


def _proto(text: str, message: Any) -> Any:
    return proto_utils.json_to_proto(text, message)


def _check_custom_config(component: str, custom_config: Any) -> None:
    if custom_config is not None:
        raise InfeedError(
            "custom_config is given, in which this component keeps its own options",
            where=component,
            do="write options=IngestOptions(...) for how rows are written; an executor of your own gets what"
            " FileExampleGen(source={...}) is given as Request.source",
        )


def _executor(component: str, spec: Any) -> type[Executor]:
    found = getattr(spec, "executor_class", None)
    if isinstance(found, type) and issubclass(found, Executor):
        return found
    name = f"{found.__module__}.{found.__name__}" if isinstance(found, type) else type(spec).__name__
    ours = _IN_PLACE_OF.get(getattr(found, "__module__", ""))
    advice = (
        f"write {ours}(...) of infeed.components without custom_executor_spec"
        if ours
        else "give custom_executor_spec=BeamExecutorSpec(X), X being a FileExecutor of infeed.components;"
        " an executor of TFX goes to TFX's own component, whose Examples all others take"
    )
    raise InfeedError(f"custom_executor_spec {name} is no executor of infeed", where=component, do=advice)


def _check_formats(component: str, executor: type[Executor], output_data_format: int, file_format: int) -> None:
    if output_data_format not in executor.PAYLOAD_FORMATS:
        formats = ", ".join(example_gen_pb2.PayloadFormat.Name(one) for one in executor.PAYLOAD_FORMATS)
        raise InfeedError(
            f"the format of records is {_name(example_gen_pb2.PayloadFormat, output_data_format)}",
            where=f"{component}, output_data_format or payload_format",
            do=f"{component} writes {formats}; Parquet files are read by ParquetExampleGen",
        )
    if file_format != example_gen_pb2.FORMAT_TFRECORDS_GZIP:
        raise InfeedError(
            f"output_file_format is {_name(example_gen_pb2.FileFormat, file_format)}",
            where=component,
            do="leave it out: shards are TFRecords, gzip unless options=IngestOptions(compression='none') is given",
        )


def _name(enum: Any, value: Any) -> str:
    return str(enum.Name(value)) if value in enum.values() else repr(value)
