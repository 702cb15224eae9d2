"""A search as TFX's Tuner runs it, and a training with what it found."""

import json
import shutil
from types import SimpleNamespace

import pytest
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.options import FeedOptions

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


def test_in_a_pipeline_the_trainer_builds_the_model_that_the_tuner_found_best(table, tmp_path, arguments):
    from tfx.dsl.components.common.importer import Importer
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner
    from tfx.orchestration.metadata import sqlite_metadata_connection_config
    from tfx.orchestration.pipeline import Pipeline
    from tfx.types import standard_artifacts as kinds

    from infeed.components import SearchOptions, Trainer, TrainOptions, Tuner

    arguments(tmp_path, table[0], "class", "tuned", label="kind")  # writes models.py
    options = TrainOptions(f"{tmp_path}/models.py:tuned", "kind", epochs=1, feed=FeedOptions(batch_size=16))
    splits = {"split_names": json.dumps(["train", "eval"])}
    examples = Importer(str(table[0]), kinds.Examples, properties=splits).with_id("examples")
    graph = Importer(str(table[0] / "class" / "graph"), kinds.TransformGraph).with_id("graph")
    given = {"examples": examples.outputs["result"], "transform_graph": graph.outputs["result"], "options": options}
    tuner = Tuner(**given, search=SearchOptions(f"{tmp_path}/models.py:search", trials=2))
    trainer = Trainer(**given, hyperparameters=tuner.outputs["best_hyperparameters"])
    store = sqlite_metadata_connection_config(str(tmp_path / "metadata.db"))
    nodes = [examples, graph, tuner, trainer]
    LocalDagRunner().run(Pipeline("tuned", str(tmp_path / "out"), metadata_connection_config=store, components=nodes))

    (best,) = (tmp_path / "out").glob("Tuner/best_hyperparameters/*/best_hyperparameters.txt")
    units = json.loads(best.read_text())["values"]["units"]
    (model,) = (tmp_path / "out").glob("Trainer/model/*/Format-Serving")
    assert units in {3, 5}
    served = tf.saved_model.load(str(model))
    shapes = [variable.shape.as_list() for variable in served.signatures["serving_default"].variables]
    assert [units] in shapes
    assert len(list((tmp_path / "out").glob("Trainer/model_run/*/input_profile.json"))) == 1


def test_a_search_over_nothing_is_refused():
    from infeed.components.trainer.tuner import SearchOptions

    with pytest.raises(InfeedError, match="trials is 0"):
        SearchOptions("m:f", trials=0)
    with pytest.raises(InfeedError, match=r"algorithm is 'grid'(.|\n)*random, bayesian"):
        SearchOptions("m:f", algorithm="grid")
