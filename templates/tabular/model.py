"""A small dense network over scaled numbers and embedded words."""

from __future__ import annotations

import keras

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """Inputs [1], float32 or an int64 vocabulary index -> probabilities [classes] or a number [1]; compiled."""
    inputs = {name: keras.Input([1], name=name, dtype=tensor.dtype.name) for name, tensor in spec.inputs.items()}
    columns = [
        _embed(column, spec.vocabulary_sizes[name]) if name in spec.vocabulary_sizes else column
        for name, column in inputs.items()
    ]
    x = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
    for units in spec.hparams.get("units", (64, 32)):
        x = keras.layers.Dense(units, activation="relu")(x)
        x = keras.layers.Dropout(0.1)(x)
    model = keras.Model(inputs, _head(x, spec))
    model.compile(
        optimizer=keras.optimizers.Adam(spec.hparams.get("learning_rate", 2e-3)),
        loss="sparse_categorical_crossentropy" if spec.task == "classification" else "mse",
        metrics=["accuracy"] if spec.task == "classification" else ["mae"],
    )
    return model


def _embed(column: keras.KerasTensor, words: int) -> keras.KerasTensor:
    """Index 0 is a missing value and the last one a word not seen in training, hence two rows more than words."""
    width = min(32, 1 + words // 2)
    return keras.layers.Flatten()(keras.layers.Embedding(words + 2, width)(column))


def _head(x: keras.KerasTensor, spec: ModelSpec) -> keras.KerasTensor:
    if spec.task == "classification":
        return keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    scale = spec.hparams.get("label_std") or 1.0
    return keras.layers.Rescaling(scale, spec.hparams.get("label_mean", 0.0))(keras.layers.Dense(1)(x))
