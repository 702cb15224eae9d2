"""One layer on the mean of the embedded words of a text.

This model is fast, and hard to beat on few rows (A. Joulin and others, "Bag of Tricks for Efficient Text
Classification", 2016).

The Trainer calls `build_model` once, before training. The function may return any compiled Keras 3 model whose inputs
have the names in `spec.inputs`, which are the features of `features.py`.

`spec` describes the data: `inputs` (shapes and dtypes without the batch dimension), `vocabulary_sizes` (number of words
of each vocabulary feature), `task`, `classes` in the order of their indices, and `hparams`.
"""

from __future__ import annotations

import keras

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """Return a compiled model: inputs [n], int64 words or float32 -> probabilities [classes] or a number [1]."""
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
    # In a list, because Keras expects the inputs of a dict to be named like its keys.
    model = keras.Model([inputs], _head(x, spec))
    model.compile(
        optimizer=keras.optimizers.Adam(spec.hparams.get("learning_rate", 5e-3)),
        loss="sparse_categorical_crossentropy" if spec.task == "classification" else "mse",
        metrics=["accuracy"] if spec.task == "classification" else ["mae"],
    )
    return model


def _mean_word(indices: keras.KerasTensor, words: int, width: int) -> keras.KerasTensor:
    """Return the mean embedding of the words of a text: [n] -> [width].

    Index 0 is padding, and the last index an unknown word, so the table has two rows more than words. The mean skips
    padding, and is 0 for a text without words, for which Keras' pooling would divide by 0.
    """
    vectors = keras.layers.Embedding(words + 2, width)(indices)
    there = keras.ops.expand_dims(keras.ops.cast(keras.ops.not_equal(indices, 0), "float32"), -1)
    return keras.ops.sum(vectors * there, 1) / keras.ops.maximum(keras.ops.sum(there, 1), 1.0)


def _head(x: keras.KerasTensor, spec: ModelSpec) -> keras.KerasTensor:
    if spec.task == "classification":
        return keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    # The output has the scale of the label, so that training starts from its mean.
    scale = spec.hparams.get("label_std") or 1.0
    return keras.layers.Rescaling(scale, spec.hparams.get("label_mean", 0.0))(keras.layers.Dense(1)(x))
