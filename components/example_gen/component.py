"""ExampleGens of files, one a format, that stand where TFX's do: same arguments, driver, spans, caching and splits.

Each has the output `examples`: an Examples artifact, with manifest.json beside the splits. What their arguments have in
common, `FileExampleGen` says.
"""

import os
from dataclasses import is_dataclass
from typing import Any

from tfx.components.example_gen import component, utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components import user_code
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import is_function
from infeed.components.errors import InfeedError
from infeed.components.example_gen.executor import Executor, TFRecordExecutor, check_arguments, pack
from infeed.components.example_gen.formats import FORMATS, default_pattern, options_of
from infeed.components.example_gen.sources import folders
from infeed.components.example_gen.sources.csv.rows import CsvOptions
from infeed.components.example_gen.sources.folders import TextOptions
from infeed.components.example_gen.sources.images.codec import ImageOptions
from infeed.components.example_gen.sources.images.reader import fingerprint_of_named
from infeed.components.example_gen.sources.jsonl import JsonlOptions
from infeed.components.example_gen.sources.parquet import ParquetOptions


class FileExampleGen(component.FileBasedExampleGen):
    """What every ExampleGen of files is: a subclass names its format, or an executor of its own.

    Args:
      input_base: folder of the files.
      input_config: splits and patterns of the input, with {SPAN}, {VERSION} and dates; default: every file, one split;
        of formats whose files lie in class folders, `*/*`, or `*` where no folder holds files.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      custom_config: refused: `options` and `source` take its place.
      range_config: which span to take; default: the latest.
      output_data_format: what the records are, where the executor writes more than tf.Examples.
      output_file_format: FORMAT_TFRECORDS_GZIP.
      custom_executor_spec: a BeamExecutorSpec of a FileExecutor, in place of the class's own.
      options: shards, compression, shuffle, bad rows.
      format: what the files are, by the name that `infeed ingest --format` knows; default: the class's own.
      source: the format's own options, such as CsvOptions, or a mapping of them; an executor of your own finds what the
        mapping holds, of JSON's types, in `Request.source`.
      fingerprint: of what the input depends on beside the files that the patterns find, which is all TFX's cache sees.

    Raises:
      InfeedError: an argument of TFX's FileBasedExampleGen that means something else here, with what to write instead.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    FORMAT = ""  # of a subclass

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        custom_config: Any = None,
        range_config: Any = None,
        output_data_format: int = example_gen_pb2.FORMAT_TF_EXAMPLE,
        output_file_format: int = example_gen_pb2.FORMAT_TFRECORDS_GZIP,
        custom_executor_spec: executor_spec.ExecutorSpec | None = None,
        *,
        options: IngestOptions | None = None,
        format: str | None = None,
        source: Any = None,
        fingerprint: str | None = None,
    ) -> None:
        format = format or self.FORMAT
        runs = custom_executor_spec or self.EXECUTOR_SPEC
        asked = custom_config, output_data_format, output_file_format
        check_arguments(type(self).__name__, runs, *asked, format=format)
        if format and not is_dataclass(source):
            defaults = options_of(format, source or {})  # a wrong option is an error already here
            source = source or defaults
        super().__init__(
            input_base=input_base,
            input_config=input_config or _class_folders(format, input_base),
            output_config=output_config,
            custom_config=pack(format, options or IngestOptions(), source, _fingerprint(fingerprint, options)),
            range_config=range_config,
            output_data_format=output_data_format,
            custom_executor_spec=custom_executor_spec,
        )


class CsvExampleGen(FileExampleGen):
    """CSV files -> sharded tf.Examples.

    The types of columns and the splits are those of TFX's CsvExampleGen. An empty cell becomes a missing feature; with
    `IngestOptions(compat="tfx")` it becomes a present but empty list and every record is TFX's, byte for byte.

    Args:
      csv: how the files are written.
    """

    FORMAT = "csv"

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        csv: CsvOptions | None = None,
    ) -> None:
        super().__init__(input_base, input_config, output_config, None, range_config, options=options, source=csv)


class JsonlExampleGen(FileExampleGen):
    """JSON Lines files, one object a line -> sharded tf.Examples.

    Objects inside objects become columns named with dots, lists become lists; null is a missing feature.

    Args:
      jsonl: how the files are written.
    """

    FORMAT = "jsonl"

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        jsonl: JsonlOptions | None = None,
    ) -> None:
        super().__init__(input_base, input_config, output_config, None, range_config, options=options, source=jsonl)


class TextExampleGen(FileExampleGen):
    """Text files -> sharded tf.Examples, one a line or one a file.

    Features: text, filename and, where the pattern ranges over folders, label (the number of the class among all
    classes, sorted) and label/text.

    Args:
      text: a line or a file an example, and the encoding.
    """

    FORMAT = "text"

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        text: TextOptions | None = None,
    ) -> None:
        super().__init__(input_base, input_config, output_config, None, range_config, options=options, source=text)


class BinaryExampleGen(FileExampleGen):
    """Any files -> sharded tf.Examples that hold each file's bytes.

    Features: data, filename and, where the pattern ranges over folders, label and label/text, as of TextExampleGen.
    """

    FORMAT = "binary"

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
    ) -> None:
        super().__init__(input_base, input_config, output_config, None, range_config, options=options)


class ImageExampleGen(FileExampleGen):
    """Images -> sharded tf.Examples that keep each file's own bytes, or hold its pixels.

    The folder holds one folder of PNG or JPEG files per class, or one CSV with the columns path and label, or images
    without classes. Features: image/encoded and image/format, or image/raw; image/height, image/width, image/channels,
    image/filename; and, where there are classes, label (the number of the class among all classes, sorted) and
    label/text.

    Args:
      input_config: default: the one CSV, `*/*`, or `*` where no folder holds files.
      images: what is written of an image.
    """

    FORMAT = "images"

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        images: ImageOptions | None = None,
    ) -> None:
        input_config = input_config or _class_folders(self.FORMAT, input_base)
        super().__init__(
            input_base,
            input_config,
            output_config,
            range_config=range_config,
            options=options,
            source=images,
            fingerprint=_fingerprint_of_named(input_base, input_config),
        )


class ParquetExampleGen(FileExampleGen):
    """Parquet files -> sharded tf.Examples, by the arguments of TFX's FileBasedExampleGen.

    Every value survives, 0, 0.0, False, "" and bytes that are no text among them; a null is a missing feature. Nested
    structs become columns named with dots; columns that one file lacks are null there.

    Args:
      parquet: which columns are read at all.
    """

    FORMAT = "parquet"

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        custom_config: Any = None,
        range_config: Any = None,
        output_data_format: int = example_gen_pb2.FORMAT_TF_EXAMPLE,
        output_file_format: int = example_gen_pb2.FORMAT_TFRECORDS_GZIP,
        custom_executor_spec: executor_spec.ExecutorSpec | None = None,
        *,
        options: IngestOptions | None = None,
        parquet: ParquetOptions | None = None,
    ) -> None:
        super().__init__(
            input_base,
            input_config,
            output_config,
            custom_config,
            range_config,
            output_data_format,
            output_file_format,
            custom_executor_spec,
            options=options,
            source=parquet,
        )


class AvroExampleGen(FileExampleGen):
    """Avro files -> sharded tf.Examples, by the arguments of FileExampleGen.

    A union of null and a type is that type with nulls, records within records become columns named with dots, and
    arrays become lists; bytes stay bytes.
    """

    FORMAT = "avro"


class TFRecordExampleGen(FileExampleGen):
    """TFRecord files -> the same records, split and sharded anew.

    Nothing is parsed: each record's bytes are written as they were read, and their hash decides the split. Files whose
    names end in .gz are gzip.

    Args:
      payload_format: what the records are: FORMAT_TF_EXAMPLE, FORMAT_TF_SEQUENCE_EXAMPLE or FORMAT_PROTO.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(TFRecordExecutor)
    FORMAT = "tfrecord"

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        payload_format: int = example_gen_pb2.FORMAT_TF_EXAMPLE,
        options: IngestOptions | None = None,
    ) -> None:
        super().__init__(input_base, input_config, output_config, None, range_config, payload_format, options=options)


class ImportExampleGen(TFRecordExampleGen):
    """TFRecordExampleGen by the name that TFX gives it."""


def _fingerprint(of_input: str | None, options: IngestOptions | None) -> str | None:
    """Of all that TFX's cache does not see: the source of a filter that is a function as well."""
    if not options or not options.filter or not is_function(options.filter):
        return of_input
    return " ".join(filter(None, [of_input, user_code.digest(options.filter, "filter")]))


def _class_folders(format: str, input_base: Any) -> example_gen_pb2.Input | None:
    """One split of the files that lie in class folders; None, TFX's default of all files, of formats without those."""
    if format not in FORMATS or not FORMATS[format].folders:
        return None
    # A folder that is not there yet, or is a RuntimeParameter, is taken for one of class folders.
    pattern = default_pattern(format, input_base) if _is_here(input_base) else folders.CLASS_FOLDERS
    return utils.make_default_input_config(pattern)


def _fingerprint_of_named(input_base: Any, input_config: Any) -> str | None:
    """Of the images that a CSV names, as they are now."""
    if not _is_here(input_base) or not isinstance(input_config, example_gen_pb2.Input):
        return None
    try:
        return fingerprint_of_named(input_base, [split.pattern for split in input_config.splits])
    except InfeedError:  # which the executor tells, if it is still so when the node runs
        return None


def _is_here(input_base: Any) -> bool:
    return isinstance(input_base, str) and os.path.isdir(input_base)
