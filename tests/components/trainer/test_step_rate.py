"""The rate of a model's step, and the models and batches that it cannot be measured for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError

pytestmark = pytest.mark.tfx

MODELS = """
import keras

def table(*, units=1, named=("x", "z"), compiled=True):
    inputs = [keras.Input([1], name=name) for name in named]
    x = keras.layers.Concatenate()(inputs) if len(inputs) > 1 else inputs[0]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(units)(x)))
    if compiled:
        model.compile("sgd", "mse")
    return model

def wide():
    return table(units=100_000)

def uncompiled():
    return table(compiled=False)

def of_others():
    return table(named=("x", "w"))

def of_spec(spec):
    return table()

def nothing():
    return None
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path


def batch(rows: int = 64) -> dict[str, Any]:
    import tensorflow as tf

    numbers = np.random.default_rng(0).normal(size=(3, rows, 1)).astype(np.float32)
    words = tf.constant([[b"word"]] * rows)
    return {**{name: tf.constant(one) for name, one in zip("xyz", numbers, strict=True)}, "word": words}


def step(models: Path, name: str, given: Any, label: str | None = "y") -> float:
    from infeed.components.trainer.step_rate import load_model, measure_step

    named = f"{models}:{name}"
    return measure_step(load_model(named), given, named, label, seconds=0.3).examples_per_second


def test_a_larger_model_takes_fewer_examples_a_second(models: Path) -> None:
    assert step(models, "table", batch()) > 2 * step(models, "wide", batch())


def test_a_tuple_is_taken_as_fit_takes_it(models: Path) -> None:
    given = batch()
    assert step(models, "table", ({"x": given["x"], "z": given["z"]}, given["y"]), label=None) > 0


def test_a_saved_model_is_read_with_its_loss(models: Path, tmp_path: Path) -> None:
    from infeed.components.trainer.step_rate import load_model, measure_step

    saved = str(tmp_path / "model.keras")
    load_model(f"{models}:table").save(saved)
    assert measure_step(load_model(saved), batch(), saved, "y", seconds=0.2).examples_per_second > 0


@pytest.mark.parametrize(
    ("name", "what"),
    [("uncompiled", "not compiled"), ("of_spec", "arguments"), ("nothing", "NoneType"), ("missing", "'missing'")],
)
def test_what_is_no_compiled_model_is_refused(models: Path, name: str, what: str) -> None:
    from infeed.components.trainer.step_rate import load_model

    with pytest.raises(InfeedError) as raised:
        load_model(f"{models}:{name}")
    assert what in raised.value.what


@pytest.mark.parametrize("named", ["no.keras", "folder", "bad.keras"])
def test_files_that_are_no_model_are_refused_by_name(tmp_path: Path, named: str) -> None:
    from infeed.components.trainer.step_rate import load_model

    (tmp_path / "folder").mkdir()
    (tmp_path / "bad.keras").write_text("text")
    with pytest.raises(InfeedError) as raised:
        load_model(str(tmp_path / named))
    assert raised.value.where == str(tmp_path / named)


@pytest.mark.parametrize(
    ("name", "label", "what"),
    [("of_others", "y", "'w'"), ("table", "price", "'price'"), ("table", "word", "string"), ("table", None, "None")],
)
def test_a_batch_that_does_not_fit_the_model_is_told(models: Path, name: str, label: str | None, what: str) -> None:
    with pytest.raises(InfeedError) as raised:
        step(models, name, batch(), label)
    assert what in raised.value.what
