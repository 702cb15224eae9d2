"""Class weights of one of several outputs train as in a model that has only this output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import Output

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

TWO = {"price": Output("regression", "euros"), "sold": Output()}
HEAVY = {"yes": 5.0}
WEIGHTED = FeedOptions(batch_size=24, weight="importance")
PLAIN = FeedOptions(batch_size=24)

# The loss of the price has weight 0, so it changes nothing.
MODELS = """
import keras

LOSSES = {"sold": "sparse_categorical_crossentropy", "price": "mse"}

def _outputs(spec):
    x = keras.Input([1], name="x")
    seeds = [keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
    hidden = keras.layers.Dense(4, "tanh", kernel_initializer=seeds[0])(x)
    sold = keras.layers.Dense(2, "softmax", kernel_initializer=seeds[1], name="sold")(hidden)
    return x, {"sold": sold, "price": keras.layers.Dense(1, name="price")(hidden)}

def alone(spec):
    x, outputs = _outputs(spec)
    model = keras.Model({"x": x}, outputs["sold"])
    model.compile(keras.optimizers.Adam(0.05), LOSSES["sold"])
    return model

def by_name(spec):
    x, outputs = _outputs(spec)
    model = keras.Model({"x": x}, outputs)
    model.compile(keras.optimizers.Adam(0.05), LOSSES, loss_weights={"sold": 1.0, "price": 0.0})
    return model

def in_a_list(spec):
    x, outputs = _outputs(spec)
    model = keras.Model({"x": x}, [outputs["sold"], outputs["price"]])
    model.compile(keras.optimizers.Adam(0.05), LOSSES, loss_weights={"sold": 1.0, "price": 0.0})
    return model
"""


@pytest.fixture
def probabilities(
    sales: tuple[Path, list[dict[str, Any]]],
    train: Callable[..., Path],
    example: Callable[[dict[str, Any]], bytes],
    tmp_path: Path,
) -> Callable[..., Any]:
    """probabilities(model, label, **options) -> those of `sold`, [rows, 2], after a training of two epochs."""
    import tensorflow as tf

    (tmp_path / "sales.py").write_text(MODELS)
    folder, rows = sales
    examples = tf.constant([example({"x": row["x"], "importance": 1.0}) for row in rows])

    def ask(model: str, label: Any, **options: Any) -> Any:
        place = tmp_path / f"made-{len(list(tmp_path.glob('made-*')))}"
        settings: Any = {"feed": PLAIN, "epochs": 2} | options
        train(folder, "all", f"{tmp_path}/sales.py:{model}", place=place, label=label, **settings)
        answer = tf.saved_model.load(str(place / "model")).signatures["serving_default"](examples=examples)
        return answer["probabilities" if label == "sold" else "sold/probabilities"].numpy()

    return ask


@pytest.mark.parametrize(
    ("model", "given", "feed"),
    [("by_name", HEAVY, WEIGHTED), pytest.param("in_a_list", "balanced", PLAIN, marks=pytest.mark.image)],
)
def test_an_output_beside_one_without_loss_trains_as_if_alone(
    probabilities: Callable[..., Any], model: str, given: Any, feed: FeedOptions
) -> None:
    alone = probabilities("alone", "sold", class_weight=given, feed=feed)
    beside = probabilities(model, TWO, class_weight={"sold": given}, feed=feed)
    np.testing.assert_allclose(beside, alone, rtol=1e-5)
    assert not np.allclose(probabilities("alone", "sold", feed=feed), alone, rtol=1e-3)


@pytest.mark.image
def test_on_jax_an_output_beside_one_without_loss_trains_as_on_tensorflow(probabilities: Callable[..., Any]) -> None:
    alone = probabilities("alone", "sold", class_weight=HEAVY, feed=WEIGHTED)
    for model in ("by_name", "in_a_list"):
        beside = probabilities(model, TWO, class_weight={"sold": HEAVY}, feed=WEIGHTED, backend="jax")
        np.testing.assert_allclose(beside, alone, rtol=0, atol=1e-5)


def test_a_class_that_an_output_does_not_have_is_named(probabilities: Callable[..., Any]) -> None:
    with pytest.raises(InfeedError, match="'maybe'") as raised:
        probabilities("by_name", TWO, class_weight={"sold": {"maybe": 2.0}})
    assert raised.value.where == "option class_weight.sold"
    assert "no, yes" in raised.value.do
