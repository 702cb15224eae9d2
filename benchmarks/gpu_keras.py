"""Keras on JAX as our Trainer runs it, for `gpu.py`: its compiled step, its feed and its thread, without a transform.

The data are transformed before: numbers and ids in TFRecords, which the Trainer's feed reads. JPEGs are decoded by the
feed, in each epoch or, with the tier `columns`, once. Needs TensorFlow, which leaves the GPU to JAX.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import gpu_data
import jax
import keras
import tensorflow as tf
from gpu_data import Data, Sizes
from gpu_measure import Task

from infeed.components.feed.build import build, measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.meter import Meter
from infeed.components.feed.options import SINGLE_WORKER, FeedOptions, Tier
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import shard_files
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.trainer.distribution import without_accelerators
from infeed.components.trainer.on_jax.devices import Ahead, Devices, training_batches
from infeed.components.trainer.on_jax.loop import State, compiled_steps

_RATE = 1e-4


def tasks(names: Sequence[str], folder: Path, sizes: Sizes) -> Iterator[Task]:
    without_accelerators()
    makers = {"table": _table, "clicks": _clicks, "jpeg": _jpeg}
    for name in names:
        data = gpu_data.made(name, folder, sizes)
        keras.utils.set_random_seed(0)
        yield _task(name, data, folder / name, makers[name](data))


def about() -> str:
    return f"Keras {keras.__version__} on JAX {jax.__version__} on {jax.devices()[0].device_kind}"


def _table(data: Data) -> keras.Model:
    inputs = {f"x{column:02}": keras.Input([1], name=f"x{column:02}") for column in range(20)}
    model = keras.Model(inputs, _layers(keras.layers.Concatenate()(list(inputs.values())), 512, 512))
    model.compile(keras.optimizers.SGD(_RATE), "mse")
    return model


def _clicks(data: Data) -> keras.Model:
    numbers = {f"i{column:02}": keras.Input([1], name=f"i{column:02}") for column in range(13)}
    ids = {f"c{column:02}": keras.Input([1], name=f"c{column:02}", dtype="int32") for column in range(26)}
    embedded = [
        keras.layers.Flatten()(keras.layers.Embedding(gpu_data.IDS, data.sizes.embedding)(one)) for one in ids.values()
    ]
    joined = keras.layers.Concatenate()([*numbers.values(), *embedded])
    model = keras.Model(numbers | ids, _layers(joined, 512, 256))
    model.compile(keras.optimizers.SGD(_RATE), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def _jpeg(data: Data) -> keras.Model:
    side, before = data.sizes.side, keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    image = keras.Input([side, side, 3], name="image", dtype="uint8")
    pixels = keras.layers.Rescaling(1 / 255, -0.5)(image)
    if len(data.sizes.blocks) > 1:
        resnet = keras.applications.ResNet50(
            weights=None, include_top=False, pooling="avg", input_shape=image.shape[1:]
        )
        values = resnet(pixels)
    else:
        values = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(64, 7, 4, activation="relu")(pixels))
    logits = keras.layers.Dense(gpu_data.CLASSES, dtype="float32")(values)
    keras.config.set_dtype_policy(before)
    model = keras.Model({"image": image}, logits)
    model.compile(keras.optimizers.SGD(_RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _layers(values: Any, *widths: int) -> Any:
    for width in widths:
        values = keras.layers.Dense(width, activation="relu")(values)
    return keras.layers.Dense(1)(values)


def _task(name: str, data: Data, folder: Path, model: keras.Model) -> Task:
    device = keras.distribution.list_devices()[:1]
    devices = Devices(keras.distribution.DataParallel(devices=device, auto_shard_dataset=False), SINGLE_WORKER)
    model.optimizer.build(model.trainable_variables)
    state, running, batch = State(model), list[Any](), data.loaded.plan.batch_size
    functions = _of_pictures(data.sizes.side) if name == "jpeg" else _of_columns(model)
    train_step, _ = compiled_steps(model, state, lambda batch: batch)

    def step(batch: Any) -> None:
        logs, arrays = train_step(state.take(), batch)
        running[:] = logs.values()
        state.keep(arrays)

    def wait() -> None:
        jax.block_until_ready(state.take())

    def fed(tier: Tier) -> Iterator[Any]:
        ahead = Ahead(training_batches(_dataset(folder, functions, batch, tier), devices), Meter())
        try:
            while True:
                yield ahead.next(running)
        finally:
            ahead.close()

    feeds: dict[str, Callable[[], Iterable[Any]]] = {
        "the Trainer's feed, columns": lambda: fed("columns"),
        "the Trainer's feed, stream": lambda: fed("stream"),
    }
    resident = next(fed("columns"))
    return Task(name, "keras", batch, step, wait, resident, feeds)


def _of_columns(model: keras.Model) -> BatchFunctions:
    """Parse the inputs of a model, [batch, 1] each, and the label y [batch]."""
    kinds = {"int32": tf.int64, "float32": tf.float32}  # of tf.Examples
    spec = {name: tf.io.FixedLenFeature([1], kinds[one.dtype]) for name, one in model.input.items()}
    return BatchFunctions(_parser(spec | {"y": tf.io.FixedLenFeature([], tf.float32)}), _split)


def _of_pictures(side: int) -> BatchFunctions:
    """Parse JPEGs as random crops, some of them mirrored, uint8 [batch, side, side, 3], and the label y [batch]."""

    def crop(jpeg: tf.Tensor) -> tf.Tensor:
        corner = tf.random.uniform([2], maxval=gpu_data.BORDER, dtype=tf.int32)
        pixels = tf.image.decode_and_crop_jpeg(jpeg, tf.concat([corner, [side, side]], 0), channels=3)
        return tf.ensure_shape(tf.image.random_flip_left_right(pixels), [side, side, 3])

    def decode(parsed: dict[str, Any]) -> Any:
        return _split(parsed | {"image": tf.map_fn(crop, parsed["image"], fn_output_signature=tf.uint8)})

    spec = {"image": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([], tf.int64)}
    return BatchFunctions(_parser(spec), decode)


def _parser(spec: dict[str, Any]) -> Callable[[tf.Tensor], Any]:
    return lambda records: tf.io.parse_example(records, spec)


def _split(parsed: dict[str, Any]) -> Any:
    return {name: values for name, values in parsed.items() if name != "y"}, parsed["y"]


def _dataset(folder: Path, functions: BatchFunctions, batch: int, tier: Tier) -> tf.data.Dataset:
    """Return the endless batches of the Trainer's feed: (features, y [batch])."""
    shards = shard_files([str(folder / "Split-train" / "*")])
    sizes = FeedSpec(training=True, sizes=measure_records(shards, functions))
    made = build(plan(shards, sizes, FeedOptions(batch_size=batch, tier=tier), Machine.here()), functions)
    return made if isinstance(made, tf.data.Dataset) else made.dataset()
