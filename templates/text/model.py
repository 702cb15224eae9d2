"""One layer on the mean of the embedded words of a text.

This model is fast, and hard to beat on few rows (A. Joulin and others, "Bag of Tricks for Efficient Text
Classification", 2016).

The Trainer calls `build_model` once, before training. The function may return any compiled Keras 3 model whose inputs
have the names in `spec.inputs`, which are the features of `features.py`.

`spec` describes the data: `inputs` (shapes and dtypes without the batch dimension), `vocabulary_sizes` (number of words
of each vocabulary feature), `task`, `classes` in the order of their indices, and `hparams`. With several labels,
`outputs` has the task and the classes of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from infeed.components import ModelSpec

LOSSES = {
    "classification": "sparse_categorical_crossentropy",
    "regression": "mse",
    "multilabel": "binary_crossentropy",
}
METRICS = {"classification": "accuracy", "regression": "mae", "multilabel": "binary_accuracy"}


def build_model(spec: ModelSpec) -> keras.Model:
    """Return a compiled model: inputs [n], int64 or float32 -> a label's probabilities [classes] or number [1]."""
    # The keys name the inputs, because Keras rejects an input named like a layer or operation, such as `dense`.
    inputs = {name: keras.Input(tensor.shape, dtype=tensor.dtype.name) for name, tensor in spec.inputs.items()}
    # `hparams` come from the config, and from the trials of a tuner.
    width = spec.hparams.get("width", 64)
    columns = [
        _mean_word(column, spec.vocabulary_sizes[name], width) if name in spec.vocabulary_sizes else column
        for name, column in inputs.items()
    ]
    x = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
    x = keras.layers.Dropout(0.3)(x)
    adam = keras.optimizers.Adam(spec.hparams.get("learning_rate", 5e-3))
    scales = spec.hparams.get("scales", {})
    # In a list, because Keras expects the inputs of a dict to be named like its keys.
    model = keras.Model([inputs], _heads(x, spec, scales))
    model.compile(optimizer=adam, **_losses(spec, scales))
    return model


def _mean_word(indices: keras.KerasTensor, words: int, width: int) -> keras.KerasTensor:
    """Return the mean embedding of the words of a text: [n] -> [width].

    Index 0 is padding, and the last index an unknown word, so the table has two rows more than words. The mean skips
    padding, and is 0 for a text without words, for which Keras' pooling would divide by 0.
    """
    vectors = keras.layers.Embedding(words + 2, width)(indices)
    there = keras.ops.expand_dims(keras.ops.cast(keras.ops.not_equal(indices, 0), "float32"), -1)
    return keras.ops.sum(vectors * there, 1) / keras.ops.maximum(keras.ops.sum(there, 1), 1.0)


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
