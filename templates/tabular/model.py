"""A dense network over scaled numbers, piecewise linear encodings of them, and embedded words.

`build_model` is called once, before training. It may return any compiled Keras 3 model whose inputs are named like the
features of `spec.inputs`: what `features.py` asks for, as the Trainer feeds it.

`spec` says all that there is to fit: `inputs`, shapes and dtypes without the batch dimension; `vocabulary_sizes`, how
many words each feature has that is an index of words; `task`; `classes` in the order of their indexes; and your own
`hparams`; and `steps`, how many are planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import numpy as np

from infeed.components import ModelSpec


def build_model(spec: ModelSpec) -> keras.Model:
    """Build and compile a model of inputs [n], float32 or int64, for probabilities [classes] or a number [1]."""
    # The keys name the inputs. Keras refuses an input of the name of a layer or operation, such as `dense` or `mean`.
    inputs = {name: keras.Input(tensor.shape, dtype=tensor.dtype.name) for name, tensor in spec.inputs.items()}
    words = {name: size for name, size in spec.vocabulary_sizes.items() if spec.inputs[name].dtype.is_integer}
    numbers = [column for name, column in inputs.items() if name not in words]
    columns = [
        *numbers,
        *_encode(inputs, spec.hparams.get("boundaries", {}), spec.hparams.get("places", 1)),
        *_embed(inputs, words, spec.hparams.get("embedding_width")),
    ]
    x = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
    # `hparams` are the user's own, from the project's config, and those that a search tries.
    for units in spec.hparams.get("units", (256, 128)):
        x = keras.layers.Dense(units, activation="relu")(x)
        x = keras.layers.Dropout(0.1)(x)
    model = keras.Model([inputs], _head(x, spec))  # in a list, else Keras asks for inputs that have the keys as names
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
    """Piecewise linear encodings of numbers, each mapped to 8 values by weights of its own.

    After Y. Gorishniy and others, "On Embeddings for Numerical Features in Tabular Deep Learning" (2022): place j of an
    encoding grows from 0 to 1 between boundaries j and j + 1, so that the network can treat each range differently.
    """
    names = [name for name in boundaries if name in inputs and inputs[name].shape == (None, 1)]
    if not names:
        return []
    # Columns of few values have few boundaries. The places after the last one stay 0: no number reaches infinity. Their
    # number is fixed, so that a later run, whose columns have other boundaries, can start from this one's weights.
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
    """Embeddings of words, of several in a row the mean. Columns of one width share a table, in rows of their own.

    A thousand columns of words would otherwise be a thousand layers, which take minutes to build.
    """
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, size in sizes.items():
        # Half as wide as there are words: a column of two words needs no more, and more than 32 seldom help a table.
        alike.setdefault((width or min(32, 1 + size // 2), *inputs[name].shape[1:]), []).append(name)
    embedded = []
    for (dimensions, *_), names in alike.items():
        # Index 0 is a missing value and the last one a word not seen in training, hence two rows more than words.
        rows = np.array([sizes[name] + 2 for name in names])
        first = (np.cumsum(rows) - rows)[:, np.newaxis]
        indices = keras.ops.stack([inputs[name] for name in names], axis=1) + first  # [batch, columns, words in a row]
        vectors = keras.layers.Embedding(int(rows.sum()), dimensions)(indices)
        embedded.append(keras.layers.Flatten()(keras.ops.mean(vectors, axis=2)))
    return embedded


def _head(x: keras.KerasTensor, spec: ModelSpec) -> keras.KerasTensor:
    if spec.task == "classification":
        return keras.layers.Dense(len(spec.classes), activation="softmax")(x)
    # Scaled like the label, so that training starts at its mean and has not to find that first.
    scale = spec.hparams.get("label_std") or 1.0
    return keras.layers.Rescaling(scale, spec.hparams.get("label_mean", 0.0))(keras.layers.Dense(1)(x))
