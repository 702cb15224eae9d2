"""What a training exported, asked in every way in which it is served, against the model in memory that it was made of.

A training leaves its FnArgs in `fn_args_0.json` and its fitted weights in `run/weights.npz`, which the callback `Watch`
writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.components.base import schema
from infeed.components.trainer.data import normalise_images
from infeed.components.trainer.export import argument_names
from infeed.components.trainer.graph import TransformGraph
from infeed.components.trainer.model import make_model
from infeed.components.trainer.options import TrainOptions
from infeed.components.trainer.training import model_spec

Answers = dict[str, dict[str, np.ndarray]]  # signature -> output -> array


def check_all_answers(
    place: Path,
    rows: Sequence[Mapping[str, Any]],
    example: Callable[[Mapping[str, Any]], bytes],
    loaders: Sequence[Callable[[Path], Mapping[str, Callable[..., Any]]]],
    *,
    tolerance: float = 1e-5,
) -> None:
    """Every signature gives the same numbers by each loader as the fitted model behind the transform graph."""
    given = json.loads((place / "fn_args_0.json").read_text())
    options = schema.read(TrainOptions, given["custom_config"]["infeed"])
    graph = TransformGraph(given["transform_graph_path"], options.label)
    expected = in_memory(place, options, graph, [example(row) for row in rows])
    names = list(graph.serving_spec())
    requests: dict[str, dict[str, Any]] = {
        "serving_default": {"examples": _texts(example({name: row[name] for name in names}) for row in rows)},
        "raw": {argument: _column(rows, name) for name, argument in argument_names(names).items()},
        "transform_features": {"examples": _texts(map(example, rows))},
    }
    for load in loaders:
        signatures = load(place / "model")
        assert set(signatures) == set(expected)
        for signature, request in requests.items():
            _compare(signatures[signature](**request), expected[signature], tolerance, f"{load.__name__} {signature}")


def in_memory(place: Path, options: TrainOptions, graph: TransformGraph, examples: list[bytes]) -> Answers:
    """By signature, what the fitted model says; TensorFlow's saving and loading have no part in it."""
    transformed = graph.transform(tf.io.parse_example(examples, graph.raw_spec))
    features = {name: tensor for name, tensor in transformed.items() if name != options.label}
    features = normalise_images(features, options)
    dataset = tf.data.Dataset.from_tensors((features, 0))
    model, inputs = make_model(options, model_spec(dataset, graph, options), dataset.element_spec[0])
    with np.load(place / "run" / "weights.npz") as file:
        model.set_weights([file[name] for name in file.files])
    answer = _predictions(model(inputs(features), training=False), graph.classes)
    texts_and_numbers = {name: tensor.numpy() for name, tensor in transformed.items()}
    return {"serving_default": answer, "raw": answer, "transform_features": texts_and_numbers}


def _predictions(output: Any, classes: Sequence[str]) -> dict[str, np.ndarray]:
    """As documented: of a softmax over named classes, or of a regression."""
    numbers = tf.cast(output, tf.float32).numpy()
    if not classes:
        return {"prediction": numbers[:, 0]}
    names = np.array([name.encode() for name in classes], object)
    return {"probabilities": numbers, "class": names[numbers.argmax(axis=1)][:, np.newaxis]}


def _texts(texts: Any) -> np.ndarray:
    return np.array(list(texts), object)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """As a client sends it: NaN for a missing number."""
    values = [row[name] for row in rows]
    if any(isinstance(value, bytes) for value in values):
        return _texts(values)
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64)
    return np.array([np.nan if value is None else value for value in values], np.float32)


def _compare(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float, what: str) -> None:
    assert set(found) == set(expected), what
    for name, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found[name], values, atol=tolerance, err_msg=f"{what} {name}")
        else:
            assert found[name].tolist() == values.tolist(), f"{what} {name}"
