"""ExampleGens for files that know their own types: Parquet, Avro and TFRecord."""

from dataclasses import asdict
from typing import Any

from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import executor, ingest
from infeed.components.example_gen.component import FileExampleGen
from infeed.components.example_gen.sources import avro, parquet, tfrecord
from infeed.components.example_gen.sources.parquet import ParquetOptions

_RECORDS = (
    example_gen_pb2.FORMAT_TF_EXAMPLE,
    example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE,
    example_gen_pb2.FORMAT_PROTO,
)


class ParquetExecutor(executor.Executor):
    """Parquet files in."""

    def open(self, request: executor.Request) -> ingest.Input:
        return parquet.open_parquet(
            request.input_base, request.patterns, request.options, parquet.ParquetOptions(**request.source)
        )


class AvroExecutor(executor.Executor):
    """Avro files in."""

    def open(self, request: executor.Request) -> ingest.Input:
        return avro.open_avro(request.input_base, request.patterns, request.options)


class TFRecordExecutor(executor.Executor):
    """TFRecord files in, their records untouched."""

    PAYLOAD_FORMATS = _RECORDS

    def open(self, request: executor.Request) -> ingest.Input:
        if request.buckets and request.buckets.feature:
            raise InfeedError(
                "records are imported unread, but are to be split by a feature in them",
                where=f"partition_feature_name={request.buckets.feature!r}",
                do="leave it out, and records are split by the hash of their bytes",
            )
        opened = tfrecord.open_tfrecords(request.input_base, request.patterns, request.options)
        if request.payload_format != example_gen_pb2.FORMAT_PROTO:
            sequences = request.payload_format == example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE
            tfrecord.check_examples(opened, sequences=sequences)
        return opened


class ParquetExampleGen(FileExampleGen):
    """Parquet files -> sharded tf.Examples.

    Every value survives, 0, 0.0, False, "" and bytes that are no text among them; a null is a missing feature. Nested
    structs become columns named with dots; columns that one file lacks are null there.

    Args:
      input_base, input_config, output_config, range_config, options: see `FileExampleGen`.
      parquet: which columns are read at all.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(ParquetExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        parquet: ParquetOptions | None = None,
    ) -> None:
        source = asdict(parquet or ParquetOptions())
        super().__init__(input_base, input_config, output_config, range_config, options, source)


class AvroExampleGen(FileExampleGen):
    """Avro files -> sharded tf.Examples.

    A union of null and a type is that type with nulls, records within records become columns named with dots, and
    arrays become lists; bytes stay bytes.

    Args:
      input_base, input_config, output_config, range_config, options: see `FileExampleGen`.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(AvroExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
    ) -> None:
        super().__init__(input_base, input_config, output_config, range_config, options)


class TFRecordExampleGen(FileExampleGen):
    """TFRecord files -> the same records, split and sharded anew.

    Nothing is parsed: each record's bytes are written as they were read, and their hash decides the split. Files whose
    names end in .gz are gzip.

    Args:
      input_base, input_config, output_config, range_config, options: see `FileExampleGen`.
      payload_format: what the records are: FORMAT_TF_EXAMPLE, FORMAT_TF_SEQUENCE_EXAMPLE or FORMAT_PROTO.

    Outputs:
      examples: an Examples artifact with that payload format, and manifest.json beside the splits.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(TFRecordExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        payload_format: int = example_gen_pb2.FORMAT_TF_EXAMPLE,
    ) -> None:
        super().__init__(input_base, input_config, output_config, range_config, options, payload_format=payload_format)
