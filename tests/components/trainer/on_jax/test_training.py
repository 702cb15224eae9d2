"""A training on JAX has the numbers of one on TensorFlow, also if it is killed and started again."""

import re

import numpy as np
import pytest
import trained

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import Output

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

LABELS = {"price": Output("regression", "euros"), "sold": Output(), "colors": Output("multilabel")}


def test_jax_trains_the_weights_and_metrics_of_tensorflow_and_its_model_is_served(
    table, train, on_one_device, options, tmp_path, answers_alike
):
    train(table[0], "class", "table", place=tmp_path / "tensorflow", **options)
    trained.check_alike(on_one_device, tmp_path / "tensorflow")
    answers_alike(on_one_device, table[1])


@pytest.mark.image
def test_class_weights_a_number_of_steps_and_a_model_with_a_list_of_inputs_are_those_of_tensorflow(
    table, train, options, tmp_path
):
    settings = options | {"class_weight": {"small": 3.0}, "steps": 5}
    for backend in ("jax", "tensorflow"):
        train(table[0], "class", "only_x", place=tmp_path / backend, backend=backend, **settings)
    trained.check_alike(tmp_path / "jax", tmp_path / "tensorflow")
    assert [epoch["steps"] for epoch in trained.profile(tmp_path / "jax")["epochs"]] == [2, 2, 1]


@pytest.mark.image
def test_several_outputs_are_trained_as_on_tensorflow(sales, train, options, tmp_path):
    for backend in ("jax", "tensorflow"):
        train(sales[0], "all", "heads", place=tmp_path / backend, backend=backend, **options | {"label": LABELS})
    trained.check_weights(*(trained.weights(tmp_path / backend) for backend in ("jax", "tensorflow")), atol=1e-5)
    found, expected = (trained.history(tmp_path / backend) for backend in ("jax", "tensorflow"))
    assert found.keys() == expected.keys()
    for name in ("loss", "val_loss", "val_price_mae", "val_sold_accuracy"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.image
def test_a_warm_start_half_precision_and_a_trace_of_steps_go_together(table, train, on_jax, tmp_path):
    given = table[0], "class", "table"
    first = train(*given, place=tmp_path / "first", **on_jax | {"epochs": 2})
    settings = {"mixed_precision": "bfloat16", "profile_steps": [2, 3], "base_model": str(first / "model")}
    warm = train(*given, place=tmp_path / "warm", **on_jax | {"epochs": 2}, **settings)
    cold = train(*given, place=tmp_path / "cold", **on_jax | {"epochs": 2, "mixed_precision": "bfloat16"})
    assert trained.history(warm)["loss"][0] < trained.history(cold)["loss"][0]
    assert all(one.dtype == np.float32 for one in trained.weights(warm))
    assert list((warm / "run").glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.image
def test_a_warm_start_is_that_of_tensorflow(table, train, on_one_device, on_jax, options, tmp_path):
    given, base = (table[0], "class", "table"), str(on_one_device / "model")
    for name, settings in {"jax": on_jax, "tensorflow": options}.items():
        train(*given, place=tmp_path / name, base_model=base, **settings)
    trained.check_alike(tmp_path / "jax", tmp_path / "tensorflow")


INPUTS = """
import tensorflow as tf

def inputs(spec):
    x = tf.random.stateless_normal([96, 1], [1, 2])
    rows = tf.data.Dataset.from_tensor_slices(({"x": x, "z": -x}, tf.cast(x[:, 0] > 0, tf.int64)))
    return rows.batch(spec.batch_size, drop_remainder=True)
"""


@pytest.mark.image  # here `test_own_input` trains on such batches, and the first test on JAX
def test_batches_of_the_users_input_fn_train_as_on_tensorflow(table, train, on_jax, options, tmp_path):
    (tmp_path / "own.py").write_text(INPUTS)
    for name, settings in {"jax": on_jax, "tensorflow": options}.items():
        own = settings | {"input_fn": f"{tmp_path}/own.py:inputs"}
        train(table[0], "class", "table", place=tmp_path / name, **own)
    trained.check_alike(tmp_path / "jax", tmp_path / "tensorflow")


def test_text_is_refused_before_training(words, train):
    with pytest.raises(InfeedError, match="'word'") as raised:
        train(words[0], "class", "looking_up", label="kind", backend="jax")
    assert raised.value.where == "option backend"


KILLED_AFTER = 3  # steps: in the middle of the second epoch
SEVERAL = {"label": LABELS, "class_weight": {"sold": {"yes": 3.0}}}


@pytest.mark.parametrize(
    ("data", "graph", "model", "about_label"),
    [
        ("table", "class", "dropping", {"label": "kind"}),
        pytest.param("sales", "all", "heads", SEVERAL, marks=pytest.mark.image),
    ],
)
def test_a_killed_training_resumes_to_the_same_weights_bit_for_bit(
    request, train, on_jax, monkeypatch, tmp_path, capfd, data, graph, model, about_label
):
    given = request.getfixturevalue(data)[0], graph, model
    settings = on_jax | {"checkpoint_seconds": 1e-6, "patience": 2} | about_label
    whole = train(*given, place=tmp_path / "whole", **settings)
    broken = tmp_path / "broken"
    with monkeypatch.context() as killing:
        killing.setenv("KILL_AFTER", str(KILLED_AFTER))
        with pytest.raises(InfeedError, match="SIGKILL"):
            train(*given, place=broken, **settings)
    assert not (broken / "model").exists()
    capfd.readouterr()
    train(*given, place=broken, **settings)
    assert re.findall(r"Epoch \d/3", capfd.readouterr().out)[-1] == "Epoch 3/3"
    trained.check_weights(trained.weights(broken), trained.weights(whole))
    assert trained.history(broken) == trained.history(whole)
    assert [epoch["steps"] for epoch in trained.profile(broken)["epochs"]] == [2, 2, 2]
    assert not list((broken / "run" / "checkpoints").glob("*"))
