"""A dense network of scaled numbers, their piecewise linear encodings, and embedded words.

The Trainer calls `build_model` once, before training. The function may return any compiled Keras 3 model whose inputs
have the names in `spec.inputs`, which are the features of `features.py`.

`spec` describes the data: `inputs` (shapes and dtypes without the batch dimension), `vocabulary_sizes` (number of words
of each vocabulary feature), `task`, `classes` in the order of their indices, `hparams`, and `steps` (the planned
number).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import numpy as np

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """Return a compiled model: inputs [n], float32 or int64 -> probabilities [classes] or a number [1]."""
    # The keys name the inputs, because Keras rejects an input named like a layer or operation, such as `dense`.
    inputs = {name: keras.Input(tensor.shape, dtype=tensor.dtype.name) for name, tensor in spec.inputs.items()}
    words = {name: size for name, size in spec.vocabulary_sizes.items() if spec.inputs[name].dtype.is_integer}
    numbers = [column for name, column in inputs.items() if name not in words]
    columns = [
        *numbers,
        *_encode(inputs, spec.hparams.get("boundaries", {}), spec.hparams.get("places", 1)),
        *_embed(inputs, words, spec.hparams.get("embedding_width")),
    ]
    x = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
    # `hparams` come from the config, and from the trials of a tuner.
    for units in spec.hparams.get("units", (256, 128)):
        x = keras.layers.Dense(units, activation="relu")(x)
        x = keras.layers.Dropout(0.1)(x)
    # In a list, because Keras expects the inputs of a dict to be named like its keys.
    model = keras.Model([inputs], _head(x, spec))
    rate = spec.hparams.get("learning_rate", 2e-3)
    model.compile(
        optimizer=keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(rate, spec.steps) if spec.steps else rate
        ),
        loss="sparse_categorical_crossentropy" if spec.task == "classification" else "mse",
        metrics=["accuracy"] if spec.task == "classification" else ["mae"],
    )
    return model


def _encode(
    inputs: Mapping[str, keras.KerasTensor], boundaries: Mapping[str, Sequence[float]], places: int
) -> list[keras.KerasTensor]:
    """Return piecewise linear encodings of numbers, each mapped to 8 values by separate weights.

    Place j of an encoding grows from 0 to 1 between boundaries j and j + 1, so that the network can treat each range
    differently (Y. Gorishniy and others, "On Embeddings for Numerical Features in Tabular Deep Learning", 2022).
    """
    names = [name for name in boundaries if name in inputs and inputs[name].shape == (None, 1)]
    if not names:
        return []
    # Columns of few values have few boundaries. The places after the last boundary stay 0, because no number reaches
    # infinity. The number of places is fixed, so that a later run with other boundaries can start from these weights.
    places = max(places, *(len(boundaries[name]) - 1 for name in names))
    low = np.full((len(names), places), np.finfo("float32").max, "float32")
    width = np.ones_like(low)
    for row, name in enumerate(names):
        points = np.array(boundaries[name], "float32")
        low[row, : len(points) - 1], width[row, : len(points) - 1] = points[:-1], np.diff(points)
    numbers = keras.ops.stack([inputs[name] for name in names], axis=1)  # [batch, columns, 1]
    encoded = keras.ops.clip((numbers - low) / width, 0.0, 1.0)  # [batch, columns, places]
    vectors = keras.layers.EinsumDense("bcp,cpv->bcv", output_shape=(len(names), 8), bias_axes="cv", activation="relu")(
        encoded
    )
    return [keras.layers.Flatten()(vectors)]


def _embed(
    inputs: Mapping[str, keras.KerasTensor], sizes: Mapping[str, int], width: int | None
) -> list[keras.KerasTensor]:
    """Return embeddings of words, and the mean embedding of a column with several words in a row.

    Columns of equal width share one embedding table, because Keras takes minutes to build a thousand layers.
    """
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, size in sizes.items():
        # The width is half the number of words, and at most 32, because wider embeddings seldom help a table.
        alike.setdefault((width or min(32, 1 + size // 2), *inputs[name].shape[1:]), []).append(name)
    embedded = []
    for (dimensions, *_), names in alike.items():
        # Index 0 is a missing value, and the last index an unknown word, so there are two rows more than words.
        rows = np.array([sizes[name] + 2 for name in names])
        first = (np.cumsum(rows) - rows)[:, np.newaxis]
        indices = keras.ops.stack([inputs[name] for name in names], axis=1) + first  # [batch, columns, words in a row]
        vectors = keras.layers.Embedding(int(rows.sum()), dimensions)(indices)
        embedded.append(keras.layers.Flatten()(keras.ops.mean(vectors, axis=2)))
    return embedded


def _head(x: keras.KerasTensor, spec: ModelSpec) -> keras.KerasTensor:
    if spec.task == "classification":
        return keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    # The output has the scale of the label, so that training starts from its mean.
    scale = spec.hparams.get("label_std") or 1.0
    return keras.layers.Rescaling(scale, spec.hparams.get("label_mean", 0.0))(keras.layers.Dense(1)(x))
