"""Models of a few lines that have the signatures and the names of exported ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def save() -> Callable[..., Path]:
    """save(folder, spec, answer, **described): `answer` maps {feature: tensor} to the outputs.

    So it does for the raw signature and for serialized examples. `described` is what the Trainer writes about columns.
    """
    return _save


def _save(folder: Path, spec: dict[str, Any], answer: Any, **described: Any) -> Path:
    import tensorflow as tf

    module = tf.Module()
    module.raw_features = tf.Variable(list(spec))
    module.raw_arguments = tf.Variable([name.replace("/", "_") for name in spec])
    arguments = {
        name.replace("/", "_"): tf.TensorSpec([None], kind, name.replace("/", "_")) for name, kind in spec.items()
    }

    @tf.function(autograph=False)
    def raw(**given: Any) -> Any:
        return answer({name: given[name.replace("/", "_")] for name in spec})

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")], autograph=False)
    def serving_default(examples: Any) -> Any:
        kinds = {tf.float32: float("nan"), tf.int64: -1, tf.string: ""}
        parsing = {name: tf.io.FixedLenFeature([], kind, kinds[kind]) for name, kind in spec.items()}
        return answer(tf.io.parse_example(examples, parsing))

    signatures = {"raw": raw.get_concrete_function(**arguments), "serving_default": serving_default}
    tf.saved_model.save(module, str(folder / "1"), signatures)
    if described:
        _describe(folder / "1", described)
    return folder


@pytest.fixture(scope="session")
def describe() -> Callable[[Path, Any], None]:
    """describe(model, content): write `raw_columns.json`."""
    return _describe


def _describe(model: Path, content: Any) -> None:
    (model / "assets.extra").mkdir(parents=True, exist_ok=True)
    (model / "assets.extra" / "raw_columns.json").write_text(json.dumps(content))
