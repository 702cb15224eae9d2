"""A search as TFX's Tuner runs it, and a training with what it found."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from infeed.components.errors import InfeedError

pytestmark = pytest.mark.tfx


@pytest.fixture
def searching(table, tmp_path, arguments):
    """fn_args of a Tuner over a copy of the table's examples."""
    shutil.copytree(table[0], tmp_path / "data")
    (tmp_path / "place").mkdir()
    given = arguments(tmp_path / "place", tmp_path / "data", "class", "tuned", label="kind", epochs=1)
    search = {"search_fn": f"{tmp_path}/place/models.py:search", "trials": 2}
    given["custom_config"]["infeed_search"] = search
    return SimpleNamespace(eval_steps=None, hyperparameters=None, working_dir=str(tmp_path / "work"), **given)


def test_trials_do_not_read_the_training_data_again(searching, tmp_path):
    from infeed.components.trainer.tuner import tuner_fn

    found = tuner_fn(searching)
    shutil.rmtree(tmp_path / "data" / "Split-train")
    found.tuner.search(**found.fit_kwargs)
    trials = found.tuner.oracle.get_best_trials(2)
    assert {trial.hyperparameters.get("units") for trial in trials} == {3, 5}


def test_the_trainer_builds_the_model_with_what_the_tuner_found(table, train):
    best = {"space": [], "values": {"units": 7}}  # as KerasTuner's HyperParameters.get_config gives it
    place = train(
        table[0], "class", "tuned", label="kind", hparams={"units": 2}, hyperparameters=best, callbacks_fn="callbacks"
    )
    with np.load(place / "run" / "weights.npz") as file:
        assert file["arr_1"].shape == (7,)
    assert json.loads((place / "run" / "input_profile.json").read_text())["epochs"][0]["steps"] == 4


def test_a_search_over_nothing_is_refused():
    from infeed.components.trainer.tuner import SearchOptions

    with pytest.raises(InfeedError, match="trials is 0"):
        SearchOptions("m:f", trials=0)
    with pytest.raises(InfeedError, match=r"algorithm is 'grid'(.|\n)*random, bayesian"):
        SearchOptions("m:f", algorithm="grid")
