"""The mean of the embedded words of a text, and one layer that tells from it: fast, and hard to beat on few rows.

After A. Joulin and others, "Bag of Tricks for Efficient Text Classification". `build_model` is called once, before
training. It may return any compiled Keras 3 model whose inputs are named like the features of `spec.inputs`: what
`features.py` asks for, as the Trainer feeds it.

`spec` says all that there is to fit: `inputs`, shapes and dtypes without the batch dimension; `vocabulary_sizes`, how
many words each feature has that is an index of words; `task`; `classes` in the order of their indexes; and your own
`hparams`.
"""

from __future__ import annotations

import keras

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """Build and compile a model of inputs [n], int64 words or float32, for probabilities [classes] or a number [1]."""
    # The keys name the inputs. Keras refuses an input of the name of a layer or operation, such as `dense` or `mean`.
    inputs = {name: keras.Input(tensor.shape, dtype=tensor.dtype.name) for name, tensor in spec.inputs.items()}
    # `hparams` are the user's own, from the project's config, and those that a search tries.
    width = spec.hparams.get("width", 64)
    columns = [
        _mean_word(column, spec.vocabulary_sizes[name], width) if name in spec.vocabulary_sizes else column
        for name, column in inputs.items()
    ]
    x = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
    x = keras.layers.Dropout(0.3)(x)
    model = keras.Model([inputs], _head(x, spec))  # in a list, else Keras asks for inputs that have the keys as names
    model.compile(
        optimizer=keras.optimizers.Adam(spec.hparams.get("learning_rate", 5e-3)),
        loss="sparse_categorical_crossentropy" if spec.task == "classification" else "mse",
        metrics=["accuracy"] if spec.task == "classification" else ["mae"],
    )
    return model


def _mean_word(indices: keras.KerasTensor, words: int, width: int) -> keras.KerasTensor:
    """[n] -> [width]. Index 0 fills rows up and the last one is a word not seen in training: two rows more than words.

    Only what is there counts, and a text without words is 0; Keras' own pooling would divide by its 0 words.
    """
    vectors = keras.layers.Embedding(words + 2, width)(indices)
    there = keras.ops.expand_dims(keras.ops.cast(keras.ops.not_equal(indices, 0), "float32"), -1)
    return keras.ops.sum(vectors * there, 1) / keras.ops.maximum(keras.ops.sum(there, 1), 1.0)


def _head(x: keras.KerasTensor, spec: ModelSpec) -> keras.KerasTensor:
    if spec.task == "classification":
        return keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    # Scaled like the label, so that training starts at its mean and has not to find that first.
    scale = spec.hparams.get("label_std") or 1.0
    return keras.layers.Rescaling(scale, spec.hparams.get("label_mean", 0.0))(keras.layers.Dense(1)(x))
