"""Image ExampleGen with one Beam element per file, as in TFX's guide to custom executors, to compare with ours."""

from __future__ import annotations

import glob
import io
import os
from typing import Any

import apache_beam as beam
import tensorflow as tf
from PIL import Image
from tfx.components.example_gen import base_example_gen_executor, component
from tfx.components.example_gen.utils import make_default_input_config
from tfx.dsl.components.base import executor_spec


def to_example(path: str, classes: dict[str, int]) -> tf.train.Example:
    """Return an example with the same features as ours."""
    with open(path, "rb") as file:
        data = file.read()
    folder, name = path.split(os.sep)[-2:]
    with Image.open(io.BytesIO(data)) as image:
        form, width, height, channels = str(image.format).lower(), image.width, image.height, len(image.getbands())
    ints = {"image/height": height, "image/width": width, "image/channels": channels, "label": classes[folder]}
    texts: dict[str, str | bytes] = {
        "image/encoded": data,
        "image/format": form,
        "image/filename": f"{folder}/{name}",
        "label/text": folder,
    }
    features = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value])) for name, value in ints.items()}
    for key, value in texts.items():
        content = value if isinstance(value, bytes) else value.encode()
        features[key] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
    return tf.train.Example(features=tf.train.Features(feature=features))


@beam.ptransform_fn
def _files_to_examples(pipeline: Any, exec_properties: dict[str, Any], split_pattern: str) -> Any:
    root = exec_properties["input_base"]
    classes = {name: number for number, name in enumerate(sorted(os.listdir(root)))}
    paths = sorted(glob.glob(os.path.join(root, split_pattern)))
    return pipeline | beam.Create(paths) | beam.Reshuffle() | beam.Map(to_example, classes)


class _Executor(base_example_gen_executor.BaseExampleGenExecutor):
    def GetInputSourceToExamplePTransform(self) -> Any:
        return _files_to_examples


class PerImageExampleGen(component.FileBasedExampleGen):
    """ExampleGen for class folders of images, with one element per file."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(_Executor)

    def __init__(self, input_base: str) -> None:
        super().__init__(input_base=input_base, input_config=make_default_input_config("*/*"))
