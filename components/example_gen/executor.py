"""Executors: one typed request out of TFX's untyped properties, one opened input, one Beam pipeline."""

import abc
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
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
from infeed.components.example_gen import ingest, inputs
from infeed.components.example_gen.sources.csv import CsvOptions
from infeed.components.example_gen.transforms import IngestTasks

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
    def of(cls, exec_properties: Mapping[str, Any]) -> "Request":
        """Raises InfeedError on an output format that is not written here."""
        properties = standard_component_specs
        input_config = _proto(exec_properties[properties.INPUT_CONFIG_KEY], example_gen_pb2.Input())
        output_config = _proto(exec_properties[properties.OUTPUT_CONFIG_KEY], example_gen_pb2.Output())
        buckets = _buckets(output_config.split_config)
        custom = _unpack(exec_properties.get(properties.CUSTOM_CONFIG_KEY))
        options = custom.get("options")
        return cls(
            input_base=exec_properties[properties.INPUT_BASE_KEY],
            patterns={None if buckets else split.name: split.pattern for split in input_config.splits},
            splits=tuple(utils.generate_output_split_names(input_config, output_config)),
            buckets=buckets,
            options=IngestOptions.from_dict(options) if options else IngestOptions(),
            source=custom.get("source", {}),
            payload_format=_payload_format(exec_properties),
            file_format=exec_properties.get(properties.OUTPUT_FILE_FORMAT_KEY, example_gen_pb2.FORMAT_TFRECORDS_GZIP),
        )


class Executor(base_beam_executor.BaseBeamExecutor, abc.ABC):
    """Writes an Examples artifact as TFX's ExampleGens do, with a manifest beside its splits.

    A source is one subclass: `open` turns the request into files, a schema and a function that reads them.
    """

    @abc.abstractmethod
    def open(self, request: Request) -> ingest.Input:
        """Finds and checks the input; raises InfeedError before anything long starts."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        request = Request.of(exec_properties)
        self._log_startup(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        _ingest(self.open(request), request, artifact.uri, self._make_beam_pipeline)
        _describe(artifact, request)


class CsvExecutor(Executor):
    """CSV files in."""

    def open(self, request: Request) -> ingest.Input:
        return inputs.open_csv(request.input_base, request.patterns, request.options, CsvOptions(**request.source))


class ImageExecutor(Executor):
    """Images in class folders, or named by a CSV, in."""

    def open(self, request: Request) -> ingest.Input:
        return inputs.open_images(request.input_base, request.patterns, request.options)


def pack(options: IngestOptions, source: Mapping[str, Any]) -> example_gen_pb2.CustomConfig:
    """Typed options -> the one proto that TFX carries for us; `Request.of` reads it."""
    text = json.dumps({"options": options.as_dict(), "source": dict(source)}, sort_keys=True)
    config = example_gen_pb2.CustomConfig()
    config.custom_config.Pack(wrappers_pb2.StringValue(value=text))
    return config


def _ingest(opened: ingest.Input, request: Request, root: str, make_pipeline: Callable[[], beam.Pipeline]) -> None:
    job = ingest.Job.of(opened, root=root, splits=request.splits, buckets=request.buckets, options=request.options)
    ingest.prepare(job)
    try:
        with make_pipeline() as pipeline:
            pipeline | IngestTasks(opened.tasks, job)
    except RuntimeError as error:
        ours = _infeed_error(error)
        if ours is None:
            raise
        raise ours from None
    finally:
        ingest.clean_up(job)


def _infeed_error(error: BaseException | None) -> InfeedError | None:
    """The InfeedError inside what Beam makes of it: a RuntimeError that holds a traceback as text."""
    while error is not None and not isinstance(error, InfeedError):
        error = error.__cause__ or error.__context__
    return error


def _describe(artifact: types.Artifact, request: Request) -> None:
    artifact.split_names = artifact_utils.encode_split_names(list(request.splits))
    examples_utils.set_payload_format(artifact, request.payload_format)
    examples_utils.set_file_format(artifact, write_split.to_file_format_str(request.file_format))


def _buckets(config: example_gen_pb2.SplitConfig) -> Buckets | None:
    if not config.splits:
        return None
    shares = tuple((split.name, split.hash_buckets) for split in config.splits)
    return Buckets(shares, config.partition_feature_name or None)


def _payload_format(exec_properties: Mapping[str, Any]) -> int:
    asked = exec_properties.get(standard_component_specs.OUTPUT_DATA_FORMAT_KEY, example_gen_pb2.FORMAT_TF_EXAMPLE)
    if asked != example_gen_pb2.FORMAT_TF_EXAMPLE:
        raise InfeedError(
            f"output_data_format={example_gen_pb2.PayloadFormat.Name(asked)}", do="leave it at FORMAT_TF_EXAMPLE"
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
