"""What is read, checked and refused before the first step."""

import pytest

from infeed.components.base.errors import InfeedError

pytestmark = pytest.mark.tfx


def test_a_backend_that_it_cannot_train_with_is_refused_before_anything_else(monkeypatch):
    import keras

    from infeed.components.trainer.training import prepare

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(InfeedError, match=r"jax(.|\n)*set KERAS_BACKEND=tensorflow"):
        prepare(None)


def test_options_that_the_component_did_not_pass_on_are_told_with_their_place(arguments, tmp_path, table):
    from tfx.components.trainer.fn_args_utils import FnArgs

    from infeed.components.trainer.training import prepare

    given = arguments(tmp_path, table[0], "class", "table", label="kind")
    with pytest.raises(InfeedError) as raised:
        prepare(FnArgs(**{**given, "custom_config": {}}))
    assert raised.value.where == "custom_config['infeed']"


def test_what_a_tuner_found_counts_before_the_options(arguments, tmp_path, table):
    from tfx.components.trainer.fn_args_utils import FnArgs

    from infeed.components.trainer.training import read_options

    given = arguments(tmp_path, table[0], "class", "table", label="kind", hparams={"units": 4, "rate": 0.1})
    options = read_options(FnArgs(**{**given, "hyperparameters": {"values": {"units": 8}}}))
    assert dict(options.hparams) == {"units": 8, "rate": 0.1}


def test_a_label_that_the_transform_graph_lacks_is_told_with_those_it_gives(table, train):
    folder, _ = table
    with pytest.raises(InfeedError, match=r"no feature 'sort'(.|\n)*kind, x, z"):
        train(folder, "class", "table", label="sort")
