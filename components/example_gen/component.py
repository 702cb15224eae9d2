"""ExampleGens that stand where TFX's do: same arguments, same driver, spans, caching and splits."""

import os
from dataclasses import asdict
from typing import Any

from tfx.components.example_gen import component, utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import executor
from infeed.components.example_gen.sources import images
from infeed.components.example_gen.sources.csv import CsvOptions


class CsvExampleGen(component.FileBasedExampleGen):
    """CSV files -> sharded tf.Examples.

    The types of columns and the splits are those of TFX's CsvExampleGen. An empty cell becomes a missing feature; with
    `IngestOptions(compat="tfx")` it becomes a present but empty list and every record is TFX's, byte for byte.

    Args:
      input_base: folder of the files.
      input_config: splits and patterns of the input, with {SPAN}, {VERSION} and dates; default: every file, one split.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      range_config: which span to take; default: the latest.
      options: shards, compression, shuffle.
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
        super().__init__(
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            range_config=range_config,
            custom_config=executor.pack(options or IngestOptions(), asdict(csv or CsvOptions())),
        )


class ImageExampleGen(component.FileBasedExampleGen):
    """Images -> sharded tf.Examples that keep each file's own bytes.

    The folder holds one folder of PNG or JPEG files per class, or one CSV with the columns path and label. With a CSV,
    TFX's cache looks at that file alone: touch it when an image changes under the same name.

    Args:
      input_base: folder of the class folders, or of the CSV.
      input_config: splits and patterns of the input, such as `train/*/*`; default: `*/*`, or the one CSV.
      output_config: hash buckets; default: train 2, eval 1 where the input is one split.
      range_config: which span to take; default: the latest.
      options: shards, compression, shuffle.

    Outputs:
      examples: an Examples artifact, with manifest.json beside the splits. Features: image/encoded, image/format,
        image/height, image/width, image/channels, image/filename, label (the number of the class among all classes,
        sorted) and label/text.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.ImageExecutor)

    def __init__(
        self,
        input_base: str | None = None,
        input_config: Any = None,
        output_config: Any = None,
        range_config: Any = None,
        options: IngestOptions | None = None,
    ) -> None:
        super().__init__(
            input_base=input_base,
            input_config=input_config or _one_split(input_base),
            output_config=output_config,
            range_config=range_config,
            custom_config=executor.pack(options or IngestOptions(), {}),
        )


def _one_split(input_base: Any) -> example_gen_pb2.Input:
    # A folder that is not there yet, or is a RuntimeParameter, is taken for one of class folders.
    here = isinstance(input_base, str) and os.path.isdir(input_base)
    return utils.make_default_input_config(images.image_pattern(input_base) if here else images.CLASS_FOLDERS)
