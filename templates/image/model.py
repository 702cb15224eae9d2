"""A small convolutional network for small images.

The Trainer calls `build_model` once, before training. The function may return any compiled Keras 3 model whose inputs
have the names in `spec.inputs`, which are the features of `features.py`.

`spec` describes the data: `inputs` (shapes and dtypes without the batch dimension), `task`, `classes` in the order of
their indices, `steps` (the planned number), and `hparams`, which the config sets: `hparams: {learning_rate: 0.001}`.
"""

from __future__ import annotations

import keras

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """Return a compiled model: float32 image [height, width, channels] -> probabilities [classes]."""
    image = keras.Input(spec.inputs["image"].shape, name="image")
    x = image
    filters = 32
    # Each block halves the image until its shorter side has about four pixels, so the depth fits any image size.
    while min(x.shape[1:3]) > 4:
        x = _block(x, filters)
        x = keras.layers.MaxPooling2D()(x)
        filters = min(2 * filters, 256)
    x = _block(x, filters)
    # The mean of each filter needs fewer weights than Flatten, and does not depend on the position in the image.
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    output = keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    model = keras.Model({"image": image}, output)
    # `hparams` come from the config, and from the trials of a tuner.
    rate = spec.hparams.get("learning_rate", 2e-3)
    model.compile(
        optimizer=keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(rate, spec.steps) if spec.steps else rate
        ),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def _block(x: keras.KerasTensor, filters: int) -> keras.KerasTensor:
    """Apply two convolutions, without a bias because the batch normalization adds an offset."""
    for _ in range(2):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        # With Keras' default of 0.99, the moving mean is wrong for the first hundreds of steps.
        x = keras.layers.BatchNormalization(momentum=0.9)(x)
        x = keras.layers.ReLU()(x)
    return x
