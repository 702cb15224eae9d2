"""Executors of the ExampleGens: parse TFX's properties into a request, open the input, and run the ingest.

`check_arguments` rejects arguments of TFX's ExampleGens that are not supported here and names the replacement.
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
from tfx.utils.proto_utils import json_to_proto

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.engine.choice import Cluster, choose
from infeed.components.engine.executor import EngineExecutor
from infeed.components.example_gen import ingest
from infeed.components.example_gen.formats import FORMATS, open_patterns
from infeed.components.example_gen.inputs import OpenedSource, open_files
from infeed.components.example_gen.local import work_of
from infeed.components.example_gen.planning import settled
from infeed.components.example_gen.sources.tfrecord import check_examples
from infeed.components.example_gen.windows import SpanWindow, settings_of

Artifacts = dict[str, list[types.Artifact]]
_IN_PLACE_OF = {  # executors of TFX -> our component for the same format
    "tfx.components.example_gen.custom_executors.parquet_executor": "ParquetExampleGen",
    "tfx.components.example_gen.custom_executors.avro_executor": "AvroExampleGen",
    "tfx.components.example_gen.csv_example_gen.executor": "CsvExampleGen",
    "tfx.components.example_gen.import_example_gen.executor": "ImportExampleGen",
}


@dataclass(frozen=True)
class Request:
    """The parsed exec properties of an ExampleGen."""

    format: str  # a name in `formats.FORMATS`. Empty if the executor opens its source itself
    input_base: str
    patterns: Mapping[str | None, str]  # split -> file pattern, or query. The key is None if `buckets` splits the rows
    splits: tuple[str, ...]  # all splits to write. Splits of the input that stay whole follow those of the buckets
    buckets: Buckets | None
    options: IngestOptions
    source: Mapping[str, Any]  # options of the format, as JSON types
    payload_format: int
    file_format: int

    @classmethod
    def of(
        cls, exec_properties: Mapping[str, Any], payload_formats: Sequence[int] = (example_gen_pb2.FORMAT_TF_EXAMPLE,)
    ) -> "Request":
        """Raise InfeedError if the payload format is not one of `payload_formats`."""
        properties = standard_component_specs
        input_config = json_to_proto(exec_properties[properties.INPUT_CONFIG_KEY], example_gen_pb2.Input())
        output_config = json_to_proto(exec_properties[properties.OUTPUT_CONFIG_KEY], example_gen_pb2.Output())
        divided = output_config.split_config
        shares = tuple((split.name, split.hash_buckets) for split in divided.splits)
        buckets = Buckets(shares, divided.partition_feature_name or None) if shares else None
        patterns, splits = _splits(input_config, output_config, buckets)
        custom = _unpack(exec_properties.get(properties.CUSTOM_CONFIG_KEY))
        input_base = exec_properties.get(properties.INPUT_BASE_KEY, "")
        options = schema.read(IngestOptions, custom.get("options", {}), "options")
        payload_format = exec_properties.get(properties.OUTPUT_DATA_FORMAT_KEY, example_gen_pb2.FORMAT_TF_EXAMPLE)
        if payload_format not in payload_formats:
            asked, *others = map(example_gen_pb2.PayloadFormat.Name, (payload_format, *payload_formats))
            raise InfeedError(f"output_data_format is {asked}", do=f"use one of {', '.join(others)}")
        return cls(
            format=custom.get("format", ""),
            input_base=files.absolute(input_base) if input_base else "",  # workers may run in another folder
            patterns=patterns,
            splits=splits,
            buckets=buckets,
            options=options,
            source=custom.get("source", {}),
            payload_format=int(payload_format),
            file_format=exec_properties.get(properties.OUTPUT_FILE_FORMAT_KEY, example_gen_pb2.FORMAT_TFRECORDS_GZIP),
        )


class Executor(EngineExecutor):
    """Write an Examples artifact as TFX's ExampleGens do, with a manifest beside its splits.

    The component names the format of the input. A subclass may override `open`, as `FileExecutor` does.
    """

    PAYLOAD_FORMATS: Sequence[int] = (example_gen_pb2.FORMAT_TF_EXAMPLE,)

    def open(self, request: Request) -> OpenedSource:
        """Find and check the input. Raises InfeedError before any long work starts."""
        place = (request.format, request.input_base, request.patterns)
        feature = request.buckets.feature if request.buckets else None
        return open_patterns(*place, request.options, request.source, sampled=True, partition_feature=feature)

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        request = Request.of(exec_properties, self.PAYLOAD_FORMATS)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        cluster = self.cluster(artifact)
        if request.options.spans:
            newest = self._ingest_spans(request, exec_properties, artifact.uri, cluster)
        else:
            _ingest(self.open(request), request, cluster, cluster.shared)
        artifact.split_names = artifact_utils.encode_split_names(list(request.splits))
        examples_utils.set_payload_format(artifact, request.payload_format)
        examples_utils.set_file_format(artifact, write_split.to_file_format_str(request.file_format))
        fingerprint = utils.FINGERPRINT_PROPERTY_NAME
        # Record span and fingerprint as TFX's driver does, unless a driver has recorded them already.
        if exec_properties.get(fingerprint) and not artifact.has_custom_property(fingerprint):
            artifact.set_string_custom_property(fingerprint, exec_properties[fingerprint])
            artifact.set_int_custom_property(utils.SPAN_PROPERTY_NAME, int(exec_properties[utils.SPAN_PROPERTY_NAME]))
        if request.options.spans:
            artifact.set_int_custom_property(utils.SPAN_PROPERTY_NAME, newest)

    def _ingest_spans(self, request: Request, exec_properties: Mapping[str, Any], target: str, cluster: Cluster) -> int:
        """Write the window of spans that the request names, and return the number of the latest span."""
        assert request.options.spans, "only for inputs with spans"

        def ingest_span(pattern: str, root: str) -> None:
            part = replace(request, patterns=dict.fromkeys(request.patterns, pattern))
            part = replace(part, options=replace(request.options, spans=None))
            _ingest(self.open(part), part, cluster, root)

        fingerprint = _unpack(exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)).get("fingerprint")
        # Everything that determines the Examples is part of the key under which a span is kept.
        settings = settings_of(request.format, request.source, request.options, request.buckets, fingerprint)
        return SpanWindow(request.options.spans, request.input_base, settings).write(target, ingest_span)


class FileExecutor(Executor, abc.ABC):
    """Base of executors that read a custom format: a name, and a function that reads one file."""

    KIND: str

    @staticmethod
    @abc.abstractmethod
    def read(path: str) -> Iterable[pa.RecordBatch]:
        """Yield the rows of one file, in batches that fit into memory, of the types listed in docs/types.md."""

    def open(self, request: Request) -> OpenedSource:
        return open_files(self.KIND, request.input_base, request.patterns, self.read)


class TFRecordExecutor(Executor):
    """Import TFRecord files and copy their records unchanged."""

    PAYLOAD_FORMATS = (
        example_gen_pb2.FORMAT_TF_EXAMPLE,
        example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE,
        example_gen_pb2.FORMAT_PROTO,
    )

    def open(self, request: Request) -> OpenedSource:
        opened = super().open(request)
        if request.payload_format != example_gen_pb2.FORMAT_PROTO:
            sequences = request.payload_format == example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE
            check_examples(opened, sequences=sequences)
        return opened


def pack(
    format: str, options: IngestOptions, source: Any = None, fingerprint: str | None = None
) -> example_gen_pb2.CustomConfig:
    """Pack options into TFX's custom_config, with `source` as a dataclass or as JSON types, and a fingerprint."""
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
    """Reject arguments that this component does not support, by its class name.

    Raises:
      InfeedError: the executor is not ours, custom_config is given, the executor does not write the payload format, or
        there is no format to open the input.
    """
    if custom_config is not None:
        raise InfeedError(
            "custom_config is given, but this component stores its own options there",
            where=component,
            do="use options=IngestOptions(...). A custom executor reads the mapping given as"
            " FileExampleGen(source={...}) from Request.source",
        )
    executor = _executor(component, executor_spec)
    if output_data_format not in executor.PAYLOAD_FORMATS:
        formats = ", ".join(example_gen_pb2.PayloadFormat.Name(one) for one in executor.PAYLOAD_FORMATS)
        what = f"the payload format is {_enum_name(example_gen_pb2.PayloadFormat, output_data_format)}"
        do = f"use one of {formats}. ParquetExampleGen reads Parquet files"
        raise InfeedError(what, where=f"{component}, output_data_format or payload_format", do=do)
    if output_file_format != example_gen_pb2.FORMAT_TFRECORDS_GZIP:
        what = f"output_file_format is {_enum_name(example_gen_pb2.FileFormat, output_file_format)}"
        do = "leave it out. To write uncompressed shards, use options=IngestOptions(compression='none')"
        raise InfeedError(what, where=component, do=do)
    if format not in FORMATS and (format or executor.open is Executor.open):
        raise InfeedError(
            f"format is {format!r}" if format else "neither a format nor an executor is given",
            where=component,
            do=f"set format to one of {', '.join(FORMATS)}, or use custom_executor_spec=BeamExecutorSpec(X) with a"
            " FileExecutor X of infeed.components",
        )


def _ingest(opened: OpenedSource, request: Request, cluster: Cluster, root: str) -> None:
    # Other processes may be unable to import a user's executor.
    alone = "" if request.format else "a custom executor reads the source"
    shared = files.join(root, names.UNFINISHED)  # removed with all temporary files
    with choose(replace(work_of(opened), alone=alone), replace(cluster, shared=shared)) as engine:

        def attempt(source: OpenedSource) -> None:
            job = ingest.Job.of(
                source, root=root, splits=request.splits, buckets=request.buckets, options=request.options
            )
            ingest.ingest(source.tasks, job, map_fn=engine.map)

        settled(opened, attempt)


def _splits(
    input_config: example_gen_pb2.Input, output_config: example_gen_pb2.Output, buckets: Buckets | None
) -> tuple[dict[str | None, str], tuple[str, ...]]:
    """Return the pattern of each input split and the names of all splits to write. The key None is the divided split.

    TFX divides the rows of a single input split only. If the input has several splits, the buckets divide the split
    that shares a name with a bucket, such as train into train and eval. The other splits stay whole.
    """
    if not buckets or len(input_config.splits) < 2:
        names = tuple(utils.generate_output_split_names(input_config, output_config))
        return {None if buckets else split.name: split.pattern for split in input_config.splits}, names
    divided, whole = list[str](), list[str]()
    for split in input_config.splits:
        (divided if split.name in buckets.names else whole).append(split.name)
    if len(divided) != 1 or len(set(whole)) < len(whole):
        raise InfeedError(
            f"the output splits {', '.join(buckets.names)} divide {len(divided)} of the input splits"
            f" {', '.join(split.name for split in input_config.splits)}, not one",
            where="output_config",
            do="give the input split to divide the name of an output split",
        )
    patterns = {None if split.name in divided else split.name: split.pattern for split in input_config.splits}
    return patterns, (*buckets.names, *whole)


def _unpack(custom_config: str | None) -> dict[str, Any]:
    if not custom_config:
        return {}
    text = wrappers_pb2.StringValue()
    if not json_to_proto(custom_config, example_gen_pb2.CustomConfig()).custom_config.Unpack(text):
        raise InfeedError("custom_config was made by another component", do="use options= of this component")
    unpacked: dict[str, Any] = json.loads(text.value)
    return unpacked


def _executor(component: str, spec: Any) -> type[Executor]:
    found = getattr(spec, "executor_class", None)
    if isinstance(found, type) and issubclass(found, Executor):
        return found
    name = f"{found.__module__}.{found.__name__}" if isinstance(found, type) else type(spec).__name__
    ours = _IN_PLACE_OF.get(getattr(found, "__module__", ""))
    advice = (
        f"use {ours}(...) of infeed.components without custom_executor_spec"
        if ours
        else "use BeamExecutorSpec(X), where X is a FileExecutor of infeed.components,"
        " or TFX's own component, whose Examples our other components accept"
    )
    raise InfeedError(f"custom_executor_spec is {name}, which is not an executor of infeed", where=component, do=advice)


def _enum_name(enum: Any, value: Any) -> str:
    return str(enum.Name(value)) if value in enum.values() else repr(value)
