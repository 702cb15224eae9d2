"""A dense network of scaled numbers, their piecewise linear encodings, and embedded words.

The Trainer calls `build_model` once, before training. The function may return any compiled Keras 3 model whose inputs
have the names in `spec.inputs`, which are the features of `features.py`.

`spec` describes the data: `inputs` (shapes and dtypes without the batch dimension), `vocabulary_sizes` (number of words
of each vocabulary feature), `task`, `classes` in the order of their indices, `hparams`, and `steps` (the planned
number). With several labels, `outputs` has the task and the classes of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from infeed.components import ModelSpec

LOSSES = {
    "classification": "sparse_categorical_crossentropy",
    "regression": "mse",
    "multilabel": "binary_crossentropy",
}
METRICS = {"classification": "accuracy", "regression": "mae", "multilabel": "binary_accuracy"}


def build_model(spec: ModelSpec) -> keras.Model:
    """Return a compiled model: inputs [n], float32 or int64 -> a label's probabilities [classes] or number [1]."""
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
    rate = spec.hparams.get("learning_rate", 2e-3)
    adam = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, spec.steps) if spec.steps else rate)
    scales = spec.hparams.get("scales", {})
    # In a list, because Keras expects the inputs of a dict to be named like its keys.
    model = keras.Model([inputs], _heads(x, spec, scales))
    model.compile(optimizer=adam, **_losses(spec, scales))
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


def _losses(spec: ModelSpec, scales: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the losses and metrics. Each loss is about 1 at first, so that no label outweighs the others."""
    if not spec.outputs:
        return {"loss": LOSSES[spec.task], "metrics": [METRICS[spec.task]]}
    tasks = {name: label.task for name, label in spec.outputs.items()}
    return {
        "loss": {name: LOSSES[task] for name, task in tasks.items()},
        "metrics": {name: [METRICS[task]] for name, task in tasks.items()},
        "loss_weights": {name: 1 / (scales[name][1] or 1) ** 2 if name in scales else 1.0 for name in tasks},
    }


def _heads(x: keras.KerasTensor, spec: ModelSpec, scales: Mapping[str, Sequence[float]]) -> Any:
    """Return the output, or with several labels an output for each."""
    if not spec.outputs:
        return _head(x, spec.task, spec.classes, next(iter(scales.values()), None))
    return {name: _head(x, label.task, label.classes, scales.get(name)) for name, label in spec.outputs.items()}


def _head(x: keras.KerasTensor, task: str, classes: Sequence[str], scale: Sequence[float] | None) -> keras.KerasTensor:
    if task == "classification":
        return keras.layers.Dense(len(classes), activation="softmax")(x)
    if task == "multilabel":
        return keras.layers.Dense(len(classes), activation="sigmoid")(x)
    # The output has the scale of the label, so that training starts from its mean.
    mean, deviation = scale or (0.0, 1.0)
    return keras.layers.Rescaling(deviation or 1.0, mean)(keras.layers.Dense(1)(x))
