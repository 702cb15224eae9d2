"""ExampleGens of files, one per format.

They take the arguments of TFX's own ExampleGens and support their spans, caching, and splits. Each has the output
`examples`, an Examples artifact with manifest.json beside the splits. `FileExampleGen` documents the common arguments.
"""

import os
from dataclasses import is_dataclass
from typing import Any, Generic, TypeVar

from tfx.components.example_gen import component, utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import is_function
from infeed.components.example_gen.databases import ReaderExampleGen
from infeed.components.example_gen.executor import Executor, TFRecordExecutor, check_arguments, pack
from infeed.components.example_gen.formats import FORMATS, default_pattern, options_of
from infeed.components.example_gen.sources import folders
from infeed.components.example_gen.sources.arrow import ArrowOptions
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.folders import TextOptions
from infeed.components.example_gen.sources.image_codec import ImageOptions
from infeed.components.example_gen.sources.image_files import fingerprint_of_named
from infeed.components.example_gen.sources.jsonl import JsonlOptions
from infeed.components.example_gen.sources.parquet import ParquetOptions

Options = TypeVar("Options")


class FileExampleGen(component.FileBasedExampleGen, Generic[Options]):
    """Base of all ExampleGens of files. A subclass names its format or its own executor.

    Args:
      input_base: folder of the files.
      input_config: splits and file patterns, which may contain {SPAN}, {VERSION}, and dates. Defaults to all files in
        one split. Formats with class folders default to `*/*`, or `*` if no subfolder holds files.
      output_config: hash buckets. Defaults to train 2, eval 1 if the input is one split.
      custom_config: not supported. Use `options` and `source`.
      range_config: the span to read. Defaults to the latest.
      output_data_format: payload format, if the executor writes more than tf.Examples.
      output_file_format: FORMAT_TFRECORDS_GZIP.
      custom_executor_spec: BeamExecutorSpec of a FileExecutor that replaces the default executor.
      options: shards, compression, shuffle, bad rows.
      format: format of the files, as `infeed ingest --format` names them. Defaults to the format of the class.
      source: options of the format, such as CsvOptions, or a mapping. A custom executor reads the mapping from
        `Request.source`; its values are JSON types.
      fingerprint: fingerprint of inputs other than the matched files. TFX's cache key covers only the files.
      named: `source` under the name of the format, for example `csv=CsvOptions()`.

    Raises:
      InfeedError: an argument of TFX's FileBasedExampleGen is not supported here. The error names the replacement.
      TypeError: there is no such argument.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    FORMAT = ""  # set by subclasses

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
        **named: Options | None,
    ) -> None:
        source = self._source(source, named)
        format = format or self.FORMAT
        runs = custom_executor_spec or self.EXECUTOR_SPEC
        asked = custom_config, output_data_format, output_file_format
        check_arguments(type(self).__name__, runs, *asked, format=format)
        if format and not is_dataclass(source):
            defaults = options_of(format, source or {})  # so that a wrong option fails early
            source = source or defaults
        if not input_config and format in FORMATS and FORMATS[format].folders:
            # Assume class folders if the folder does not exist yet or is a RuntimeParameter.
            pattern = default_pattern(format, input_base or "") if _is_here(input_base) else folders.CLASS_FOLDERS
            input_config = utils.make_default_input_config(pattern)
        fingerprint = fingerprint or self._fingerprint_of_others(input_base, input_config)
        if options and options.filter and is_function(options.filter):  # TFX's cache key does not cover its source code
            code = user_code.digest(options.filter, "filter")
            fingerprint = f"{fingerprint} {code}" if fingerprint else code
        super().__init__(
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            custom_config=pack(format, options or IngestOptions(), source, fingerprint),
            range_config=range_config,
            output_data_format=output_data_format,
            custom_executor_spec=custom_executor_spec,
        )

    @classmethod
    def _source(cls, source: Any, named: dict[str, Any]) -> Any:
        own = cls.FORMAT if cls.FORMAT and FORMATS[cls.FORMAT].settings else None
        if unknown := sorted(named.keys() - {own}):
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {unknown[0]!r}")
        return source or (named.get(own) if own else None)

    def _fingerprint_of_others(self, input_base: Any, input_config: Any) -> str | None:
        """Return the fingerprint of files that the matched files name."""
        return None


class _FormatExampleGen(FileExampleGen[Options]):
    """ExampleGen with the arguments of TFX's CsvExampleGen, `options`, and the options of its format."""

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        source: Options | None = None,
        **named: Options | None,
    ) -> None:
        source = self._source(source, named)
        super().__init__(
            input_base, input_config, output_config, range_config=range_config, options=options, source=source
        )


class CsvExampleGen(_FormatExampleGen[CsvOptions]):
    """Convert CSV files to sharded tf.Examples.

    Column types and splits are those of TFX's CsvExampleGen. An empty cell becomes a missing feature. With
    `IngestOptions(compat="tfx")` an empty cell becomes an empty list, and records equal TFX's byte for byte.

    Args:
      csv: options of the CSV reader.
    """

    FORMAT = "csv"


class JsonlExampleGen(_FormatExampleGen[JsonlOptions]):
    """Convert JSON Lines files, one object a line, to sharded tf.Examples.

    Nested objects become columns with dotted names, lists become lists, and null becomes a missing feature.

    Args:
      jsonl: options of the JSON Lines reader.
    """

    FORMAT = "jsonl"


class TextExampleGen(_FormatExampleGen[TextOptions]):
    """Convert text files to sharded tf.Examples, one for each line or each file.

    Features: text, filename and, if the pattern covers class folders, label (index of the class in sorted order) and
    label/text.

    Args:
      text: options of the text reader.
    """

    FORMAT = "text"


class BinaryExampleGen(_FormatExampleGen[None]):
    """Convert files of any kind to sharded tf.Examples with their bytes.

    Features: data, filename and, if the pattern covers class folders, label and label/text as in TextExampleGen.
    """

    FORMAT = "binary"


class ImageExampleGen(_FormatExampleGen[ImageOptions]):
    """Convert images to sharded tf.Examples that hold the encoded files or the pixels.

    The input folder holds one folder of PNG or JPEG files per class, one CSV with the columns path and label, or
    unlabeled images. Features: image/encoded and image/format, or image/raw; image/height, image/width, image/channels,
    image/filename; and, if there are classes, label (index of the class in sorted order) and label/text.

    Args:
      input_config: defaults to the CSV, `*/*`, or `*` if no subfolder holds files.
      images: options of the image reader.
    """

    FORMAT = "images"

    def _fingerprint_of_others(self, input_base: Any, input_config: Any) -> str | None:
        """Return the fingerprint of the images that a CSV names."""
        if not _is_here(input_base) or not isinstance(input_config, example_gen_pb2.Input):
            return None
        try:
            return fingerprint_of_named(input_base, [split.pattern for split in input_config.splits])
        except InfeedError:  # the executor reports the error when the node runs
            return None


class ParquetExampleGen(FileExampleGen[ParquetOptions]):
    """Convert Parquet files to sharded tf.Examples. Takes the arguments of TFX's FileBasedExampleGen.

    Every value is preserved, including 0, 0.0, False, "", and bytes that are not valid text. A null becomes a missing
    feature. Nested structs become columns with dotted names. A column that a file does not have is null in its rows.

    Args:
      parquet: options of the Parquet reader.
    """

    FORMAT = "parquet"


class ArrowExampleGen(FileExampleGen[ArrowOptions]):
    """Convert Arrow IPC files and streams, Feather 2, Hugging Face's saved datasets, or data that a function returns.

    Values become features as ParquetExampleGen's do.

    Args:
      arrow: options of the Arrow reader.
      reader: `package.module:function`, instead of files. The function returns data with an Arrow interface, or yields
          dicts or record batches. The other arguments are then `output_config`, `range_config`, `options`, and
          `source` (ReaderOptions). The cache key contains the code of the function and the version of its data.
    """

    FORMAT = "arrow"

    def __new__(cls, *arguments: Any, reader: str | None = None, **named: Any) -> Any:
        """Return another class for a reader, because TFX's drivers decide by the class whether to search for files."""
        return super().__new__(cls) if reader is None else ReaderExampleGen(reader, *arguments, **named)


class AvroExampleGen(FileExampleGen[None]):
    """Convert Avro files to sharded tf.Examples. Takes the arguments of FileExampleGen.

    A union of null and a type becomes a nullable column, nested records become columns with dotted names, arrays become
    lists, and bytes stay bytes.
    """

    FORMAT = "avro"


class TFRecordExampleGen(FileExampleGen[None]):
    """Split and reshard the records of TFRecord files.

    Records are copied without parsing, and the hash of their bytes determines the split. Files that are
    compressed by gzip are read with and without .gz in their names.

    Args:
      payload_format: FORMAT_TF_EXAMPLE, FORMAT_TF_SEQUENCE_EXAMPLE, or FORMAT_PROTO.
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
    """Alias of TFRecordExampleGen under the name that TFX uses."""


def _is_here(input_base: Any) -> bool:
    return isinstance(input_base, str) and os.path.isdir(input_base)
