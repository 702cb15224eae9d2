"""Other learner of `quality.py` for images: a small ResNet in Keras."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt
from clock import Stopwatch

Array = npt.NDArray[Any]
_FILTERS = (16, 32, 64)  # filters of each stage, as in "Deep Residual Learning for Image Recognition", section 4.2
_BLOCKS = 2  # blocks per stage, which make 14 layers
_BATCH = 64
_RATE = 2e-3


def resnet(shape: tuple[int, ...], classes: int, seed: int) -> Any:
    """Build a small ResNet: two blocks per stage, and half the image size from stage to stage."""
    import keras

    keras.utils.set_random_seed(seed)
    image = keras.Input(shape)
    x = keras.layers.RandomRotation(10 / 360, fill_mode="constant", fill_value=-1)(image)
    x = keras.layers.RandomTranslation(1 / 8, 1 / 8, fill_mode="constant", fill_value=-1)(x)
    x = _convolution(x, _FILTERS[0], 1)
    for filters in _FILTERS:
        for block in range(_BLOCKS):
            stride = 2 if block == 0 and filters != _FILTERS[0] else 1
            y = _convolution(x, filters, stride)
            y = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
            y = keras.layers.BatchNormalization(momentum=0.9)(y)
            if stride != 1:
                x = keras.layers.Conv2D(filters, 1, strides=stride, use_bias=False)(x)
            x = keras.layers.ReLU()(x + y)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, keras.layers.Dense(classes, activation="softmax")(x))


def _convolution(x: Any, filters: int, stride: int) -> Any:
    import keras

    x = keras.layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    return keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9)(x))


def train(model: Any, pixels: Array, label: Array, seed: int, seconds: float) -> None:
    """Train in place until the CPU seconds are used up, when the learning rate reaches 0."""
    import keras
    import tensorflow as tf

    watch = Stopwatch()

    def spend(batch: int, logs: Any) -> None:
        share = min(watch.cpu / seconds, 1.0)
        model.optimizer.learning_rate.assign(_RATE * (1 + math.cos(math.pi * share)) / 2)
        model.stop_training = share == 1

    rows = tf.data.Dataset.from_tensor_slices((pixels, label)).shuffle(len(label), seed).repeat().batch(_BATCH)
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy", jit_compile=False)
    spending = keras.callbacks.LambdaCallback(on_train_batch_begin=spend)
    while watch.cpu < seconds:
        model.fit(rows, steps_per_epoch=50, epochs=1, verbose=0, callbacks=[spending])
