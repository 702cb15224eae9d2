"""ExampleGens that stand where TFX's do: same arguments, same driver, spans, caching and splits."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tfx.components.example_gen import component, utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import executor
from infeed.components.example_gen.sources import folders
from infeed.components.example_gen.sources.csv import CsvOptions
from infeed.components.example_gen.sources.images import ImageOptions, fingerprint_of_named
from infeed.components.example_gen.sources.images import default_pattern as default_image_pattern
from infeed.components.example_gen.sources.jsonl import JsonlOptions
from infeed.components.example_gen.sources.text import TextOptions


class FileExampleGen(component.FileBasedExampleGen):
    """What every ExampleGen of files is: a subclass names its executor and, where it has some, its own options.

    Args:
      input_base: folder of the files.
      input_config: splits and patterns of the input, with {SPAN}, {VERSION} and dates; default: every file, one split.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      range_config: which span to take; default: the latest.
      options: shards, compression, shuffle, bad rows.
      source: the source's own options, of JSON's types; the executor finds them in `Request.source`.
      fingerprint: of what the input depends on beside the files that the patterns find, which is all TFX's cache sees.
      payload_format: what the records are, where the executor writes more than tf.Examples.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits.
    """

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        source: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
        payload_format: int = example_gen_pb2.FORMAT_TF_EXAMPLE,
    ) -> None:
        super().__init__(
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            range_config=range_config,
            custom_config=executor.pack(options or IngestOptions(), source or {}, fingerprint),
            output_data_format=payload_format,
        )


class CsvExampleGen(FileExampleGen):
    """CSV files -> sharded tf.Examples.

    The types of columns and the splits are those of TFX's CsvExampleGen. An empty cell becomes a missing feature; with
    `IngestOptions(compat="tfx")` it becomes a present but empty list and every record is TFX's, byte for byte.

    Args:
      input_base, input_config, output_config, range_config, options: see `FileExampleGen`.
      csv: how the files are written.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.CsvExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        csv: CsvOptions | None = None,
    ) -> None:
        super().__init__(input_base, input_config, output_config, range_config, options, asdict(csv or CsvOptions()))


class JsonlExampleGen(FileExampleGen):
    """JSON Lines files, one object a line -> sharded tf.Examples.

    Objects inside objects become columns named with dots, lists become lists; null is a missing feature.

    Args:
      input_base, input_config, output_config, range_config, options: see `FileExampleGen`.
      jsonl: how the files are written.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.JsonlExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        jsonl: JsonlOptions | None = None,
    ) -> None:
        source = asdict(jsonl or JsonlOptions())
        super().__init__(input_base, input_config, output_config, range_config, options, source)


class TextExampleGen(FileExampleGen):
    """Text files -> sharded tf.Examples, one a line or one a file.

    Args:
      input_base, output_config, range_config, options: see `FileExampleGen`.
      input_config: default: `*/*`, a folder per class, or `*` where no folder holds files.
      text: a line or a file an example, and the encoding.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits. Features: text, filename and, where the
        pattern ranges over folders, label (the number of the class among all classes, sorted) and label/text.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.TextExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        text: TextOptions | None = None,
    ) -> None:
        input_config = input_config or _one_split(input_base, folders.default_pattern)
        super().__init__(input_base, input_config, output_config, range_config, options, asdict(text or TextOptions()))


class BinaryExampleGen(FileExampleGen):
    """Any files -> sharded tf.Examples that hold each file's bytes.

    Args:
      input_base, output_config, range_config, options: see `FileExampleGen`.
      input_config: default: `*/*`, a folder per class, or `*` where no folder holds files.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits. Features: data, filename and, where the
        pattern ranges over folders, label (the number of the class among all classes, sorted) and label/text.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.BinaryExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
    ) -> None:
        input_config = input_config or _one_split(input_base, folders.default_pattern)
        super().__init__(input_base, input_config, output_config, range_config, options)


class ImageExampleGen(FileExampleGen):
    """Images -> sharded tf.Examples that keep each file's own bytes, or hold its pixels.

    The folder holds one folder of PNG or JPEG files per class, or one CSV with the columns path and label, or images
    without classes.

    Args:
      input_base, output_config, range_config, options: see `FileExampleGen`.
      input_config: default: the one CSV, `*/*`, or `*` where no folder holds files.
      images: what is written of an image.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits. Features: image/encoded and image/format, or
        image/raw; image/height, image/width, image/channels, image/filename; and, where there are classes, label (the
        number of the class among all classes, sorted) and label/text.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.ImageExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
        images: ImageOptions | None = None,
    ) -> None:
        input_config = input_config or _one_split(input_base, default_image_pattern)
        source, named = asdict(images or ImageOptions()), _fingerprint_of_named(input_base, input_config)
        super().__init__(input_base, input_config, output_config, range_config, options, source, named)


def _one_split(input_base: Any, find_pattern: Callable[[str], str]) -> example_gen_pb2.Input:
    # A folder that is not there yet, or is a RuntimeParameter, is taken for one of class folders.
    pattern = find_pattern(input_base) if _is_here(input_base) else folders.CLASS_FOLDERS
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
