"""A small convolutional network for small pictures.

`build_model` is called once, before training. It may return any compiled Keras 3 model whose inputs are named like the
features of `spec.inputs`: what `features.py` asks for, as the Trainer feeds it.

`spec` says all that there is to fit: `inputs`, shapes and dtypes without the batch dimension; `task`; `classes` in the
order of their indexes; `steps`, how many are planned; and your own `hparams`, which a config sets so:
`hparams: {learning_rate: 0.001}`
"""

from __future__ import annotations

import keras

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """float32 image [height, width, channels] -> probabilities [classes], compiled."""
    image = keras.Input(spec.inputs["image"].shape, name="image")
    x = image
    filters = 32
    # Halved until some four pixels are left of the shorter side, so that the depth fits pictures of any size.
    while min(x.shape[1:3]) > 4:
        x = _block(x, filters)
        x = keras.layers.MaxPooling2D()(x)
        filters = min(2 * filters, 256)
    x = _block(x, filters)
    # Not Flatten: the mean of each filter needs few weights, and does not mind where in the picture something is.
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    output = keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    model = keras.Model({"image": image}, output)
    # `hparams` are the user's own, from the project's config, and those that a search tries.
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
    """Twice a convolution. It has no bias: the normalization after it adds an offset of its own."""
    for _ in range(2):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        # Keras' momentum of 0.99 needs hundreds of steps before evaluation sees the right mean.
        x = keras.layers.BatchNormalization(momentum=0.9)(x)
        x = keras.layers.ReLU()(x)
    return x
