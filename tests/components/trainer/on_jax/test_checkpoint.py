"""A training on JAX that is killed, and started again by the same words."""

import re

import numpy as np
import pytest
import trained

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import Output

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]


KILLED_AFTER = 3  # steps: in the middle of the second epoch


LABELS = {"price": Output("regression", "euros"), "sold": Output(), "colors": Output("multilabel")}


@pytest.mark.parametrize(
    ("data", "graph", "model", "about_label"),
    [
        ("table", "class", "dropping", {"label": "kind"}),
        pytest.param(
            "sales",
            "all",
            "heads",
            {"label": LABELS, "class_weight": {"sold": {"yes": 3.0}}},
            marks=pytest.mark.image,
        ),
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
    for resumed, straight in zip(trained.weights(broken), trained.weights(whole), strict=True):
        np.testing.assert_array_equal(resumed, straight)
    assert trained.history(broken) == trained.history(whole)
    assert [epoch["steps"] for epoch in trained.profile(broken)["epochs"]] == [2, 2, 2]
    assert not list((broken / "run" / "checkpoints").glob("*"))
