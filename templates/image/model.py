"""A small convolutional network for small pictures."""

from __future__ import annotations

import keras

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """float32 image [height, width, channels] -> probabilities [classes], compiled."""
    image = keras.Input(spec.inputs["image"].shape, name="image")
    x = image
    filters = 32
    while min(x.shape[1:3]) > 4:
        x = _block(x, filters)
        x = keras.layers.MaxPooling2D()(x)
        filters = min(2 * filters, 256)
    x = _block(x, filters)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    output = keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    model = keras.Model({"image": image}, output)
    model.compile(
        optimizer=keras.optimizers.Adam(spec.hparams.get("learning_rate", 2e-3)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def _block(x: keras.KerasTensor, filters: int) -> keras.KerasTensor:
    for _ in range(2):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization(momentum=0.9)(x)
        x = keras.layers.ReLU()(x)
    return x
