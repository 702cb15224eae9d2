"""Executors: one typed request out of TFX's untyped properties, one opened input, one Beam pipeline."""

import abc
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from google.protobuf import wrappers_pb2
from tfx import types
from tfx.components.example_gen import utils, write_split
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest
from infeed.components.example_gen.inputs import open_files
from infeed.components.example_gen.sources import binary, csv, images, jsonl, text
from infeed.components.example_gen.transforms import run_pipeline

Artifacts = dict[str, list[types.Artifact]]


@dataclass(frozen=True)
class Request:
    """What the component was asked for.

    Args:
      patterns: split -> pattern under `input_base`; the split is None where `buckets` splits the rows.
      source: options of one kind of source, as its `open` reads them.
    """

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
        custom = _unpack(exec_properties.get(properties.CUSTOM_CONFIG_KEY))
        options = custom.get("options")
        return cls(
            input_base=exec_properties.get(properties.INPUT_BASE_KEY, ""),  # a query has none
            patterns={None if buckets else split.name: split.pattern for split in input_config.splits},
            splits=tuple(utils.generate_output_split_names(input_config, output_config)),
            buckets=buckets,
            options=IngestOptions.from_dict(options) if options else IngestOptions(),
            source=custom.get("source", {}),
            payload_format=_payload_format(exec_properties, payload_formats),
            file_format=exec_properties.get(properties.OUTPUT_FILE_FORMAT_KEY, example_gen_pb2.FORMAT_TFRECORDS_GZIP),
        )


class Executor(base_beam_executor.BaseBeamExecutor, abc.ABC):
    """Writes an Examples artifact as TFX's ExampleGens do, with a manifest beside its splits.

    A source is one subclass: `open` turns the request into files, a schema and a function that reads them.
    """

    PAYLOAD_FORMATS: Sequence[int] = (example_gen_pb2.FORMAT_TF_EXAMPLE,)

    @abc.abstractmethod
    def open(self, request: Request) -> ingest.Input:
        """Finds and checks the input; raises InfeedError before anything long starts."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        request = Request.of(exec_properties, self.PAYLOAD_FORMATS)
        self._log_startup(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        _ingest(self.open(request), request, artifact.uri, self._make_beam_pipeline)
        _describe(artifact, request)


class FileExecutor(Executor, abc.ABC):
    """A source of one's own: all it takes is a name and a function that reads a file."""

    KIND: str

    @staticmethod
    @abc.abstractmethod
    def read(path: str) -> Iterable[pa.RecordBatch]:
        """The rows of one file, in batches that each fit into memory; their types as `dataset.columns` lists them."""

    def open(self, request: Request) -> ingest.Input:
        return open_files(self.KIND, request.input_base, request.patterns, self.read)


class CsvExecutor(Executor):
    """CSV files in."""

    def open(self, request: Request) -> ingest.Input:
        return csv.open_csv(request.input_base, request.patterns, request.options, csv.CsvOptions(**request.source))


class JsonlExecutor(Executor):
    """JSON Lines files in."""

    def open(self, request: Request) -> ingest.Input:
        own = jsonl.JsonlOptions(**request.source)
        return jsonl.open_jsonl(request.input_base, request.patterns, request.options, own)


class TextExecutor(Executor):
    """Text files in."""

    def open(self, request: Request) -> ingest.Input:
        return text.open_text(request.input_base, request.patterns, request.options, text.TextOptions(**request.source))


class BinaryExecutor(Executor):
    """Any files in."""

    def open(self, request: Request) -> ingest.Input:
        return binary.open_binary(request.input_base, request.patterns, request.options)


class ImageExecutor(Executor):
    """Images in."""

    def open(self, request: Request) -> ingest.Input:
        own = images.ImageOptions(**request.source)
        return images.open_images(request.input_base, request.patterns, request.options, own)


def pack(
    options: IngestOptions, source: Mapping[str, Any], fingerprint: str | None = None
) -> example_gen_pb2.CustomConfig:
    """Typed options -> the one proto that TFX carries for us; `Request.of` reads it, but for the fingerprint."""
    fields: dict[str, Any] = {"options": options.as_dict(), "source": dict(source)}
    if fingerprint is not None:
        fields["fingerprint"] = fingerprint
    config = example_gen_pb2.CustomConfig()
    config.custom_config.Pack(wrappers_pb2.StringValue(value=json.dumps(fields, sort_keys=True)))
    return config


def _ingest(opened: ingest.Input, request: Request, root: str, make_pipeline: Callable[[], beam.Pipeline]) -> None:
    job = ingest.Job.of(opened, root=root, splits=request.splits, buckets=request.buckets, options=request.options)
    run_pipeline(opened.tasks, job, make_pipeline)


def _describe(artifact: types.Artifact, request: Request) -> None:
    artifact.split_names = artifact_utils.encode_split_names(list(request.splits))
    examples_utils.set_payload_format(artifact, request.payload_format)
    examples_utils.set_file_format(artifact, write_split.to_file_format_str(request.file_format))


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
            f"output_data_format={name(asked)}", do=f"choose of {', '.join(name(one) for one in allowed)}"
        )
    return int(asked)


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
