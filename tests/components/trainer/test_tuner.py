"""A search as TFX's Tuner runs it, and a training with what it found."""

import importlib
import json
import shutil

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


@pytest.fixture
def searching(table, tmp_path, arguments):
    """fn_args of a Tuner over a copy of the table's examples."""
    from tfx.components.trainer.fn_args_utils import FnArgs

    shutil.copytree(table[0], tmp_path / "data")
    (tmp_path / "place").mkdir()
    given = arguments(tmp_path / "place", tmp_path / "data", "class", "tuned", label="kind", epochs=1)
    search = {"search_fn": f"{tmp_path}/place/models.py:search", "trials": 2}
    given["custom_config"]["infeed_search"] = search
    return FnArgs(working_dir=str(tmp_path / "work"), **given)


def test_trials_do_not_read_the_training_data_again(searching, tmp_path):
    from infeed.components.trainer.tuner import tuner_fn

    found = tuner_fn(searching)
    shutil.rmtree(tmp_path / "data" / "Split-train")
    found.tuner.search(**found.fit_kwargs)
    trials = found.tuner.oracle.get_best_trials(2)
    assert {trial.hyperparameters.get("units") for trial in trials} == {3, 5}


@pytest.mark.image  # here the test above searches without a pipeline
def test_in_a_pipeline_the_trainer_builds_what_the_tuner_found_and_a_tuner_fn_of_the_users_own_runs(
    table, tmp_path, arguments, monkeypatch
):
    from tfx.dsl.components.common.importer import Importer
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner
    from tfx.orchestration.metadata import sqlite_metadata_connection_config
    from tfx.orchestration.pipeline import Pipeline
    from tfx.types import standard_artifacts as kinds

    from infeed.components import SearchOptions, Trainer, TrainOptions, Tuner

    monkeypatch.syspath_prepend(f"{tmp_path}/users")
    arguments(tmp_path, table[0], "class", "tuned", label="kind")  # writes models.py
    options = TrainOptions(f"{tmp_path}/models.py:tuned", "kind", epochs=1, feed=FeedOptions(batch_size=16))
    splits = {"split_names": json.dumps(["train", "eval"])}
    examples = Importer(str(table[0]), kinds.Examples, properties=splits).with_id("examples")
    graph = Importer(str(table[0] / "class" / "graph"), kinds.TransformGraph).with_id("graph")
    given = {"examples": examples.outputs["result"], "transform_graph": graph.outputs["result"], "options": options}
    tuner = Tuner(**given, search=SearchOptions(f"{tmp_path}/models.py:search", trials=2))
    trainer = Trainer(**given, hyperparameters=tuner.outputs["best_hyperparameters"])
    own = tuners_of_the_users_own(tmp_path, examples.outputs["result"], graph.outputs["result"])
    store = sqlite_metadata_connection_config(str(tmp_path / "metadata.db"))
    nodes = [examples, graph, tuner, trainer, *own]
    LocalDagRunner().run(Pipeline("tuned", str(tmp_path / "out"), metadata_connection_config=store, components=nodes))

    (best,) = (tmp_path / "out").glob("Tuner/best_hyperparameters/*/best_hyperparameters.txt")
    units = json.loads(best.read_text())["values"]["units"]
    (model,) = (tmp_path / "out").glob("Trainer/model/*/Format-Serving")
    assert units in {3, 5}
    served = tf.saved_model.load(str(model))
    shapes = [variable.shape.as_list() for variable in served.signatures["serving_default"].variables]
    assert [units] in shapes
    assert len(list((tmp_path / "out").glob("Trainer/model_run/*/input_profile.json"))) == 1
    for node in own:
        (best,) = (tmp_path / "out").glob(f"{node.id}/best_hyperparameters/*/best_hyperparameters.txt")
        assert json.loads(best.read_text())["values"] == {"units": 7}


# As TFX's guides write it, with a neighbor.
USERS_TUNER = """
import keras
import keras_tuner
import tensorflow_transform as tft
from tfx.components.tuner.component import TunerFnResult
from tfx_bsl.public import tfxio
import space

def tuner_fn(fn_args):
    schema = tft.TFTransformOutput(fn_args.transform_graph_path).raw_metadata.schema
    options = tfxio.TensorFlowDatasetOptions(batch_size=16, num_epochs=1, label_key="n")
    data = fn_args.data_accessor.tf_dataset_factory(fn_args.train_files, options, schema)
    data = data.map(lambda features, label: (features["x"], label))

    def build(hp):
        units = hp.Choice("units", space.UNITS[fn_args.custom_config["of"]])
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(units), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    tuner = keras_tuner.RandomSearch(build, "val_loss", max_trials=1, directory=fn_args.working_dir)
    fit = {"x": data, "validation_data": data, "steps_per_epoch": fn_args.train_steps, "verbose": 2}
    return TunerFnResult(tuner=tuner, fit_kwargs=fit)
"""


def tuners_of_the_users_own(folder, examples, graph):
    """By module file and by name, as in TFX's pipelines."""
    from tfx.proto import trainer_pb2, tuner_pb2

    from infeed.components import Tuner

    (folder / "users").mkdir()
    (folder / "users" / "tuning.py").write_text(USERS_TUNER)
    importlib.invalidate_caches()  # the folder was on the path before it was there
    (folder / "users" / "space.py").write_text("UNITS = {'one': [7]}")
    given = {
        "examples": examples,
        "transform_graph": graph,
        "train_args": trainer_pb2.TrainArgs(num_steps=2),
        "eval_args": trainer_pb2.EvalArgs(num_steps=1),
        "tune_args": tuner_pb2.TuneArgs(num_parallel_trials=1),
        "custom_config": {"of": "one"},
    }
    by_file = Tuner(module_file=f"{folder}/users/tuning.py", **given).with_id("by_file")
    return [by_file, *(Tuner(tuner_fn=name, **given).with_id(f"by_name_{n}") for n, name in enumerate(NAMES))]


NAMES = ["tuning.tuner_fn", "tuning:tuner_fn"]


def test_a_search_over_nothing_is_refused():
    from infeed.components.trainer.tuner import SearchOptions

    with pytest.raises(InfeedError, match="trials is 0"):
        SearchOptions("m:f", trials=0)
    with pytest.raises(InfeedError, match=r"algorithm is 'grid'(.|\n)*random, bayesian"):
        SearchOptions("m:f", algorithm="grid")


def tuner(**given):
    from tfx import types
    from tfx.types import standard_artifacts

    from infeed.components import Tuner

    return Tuner(examples=types.Channel(type=standard_artifacts.Examples), **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda own: {}, "no argument defines the search"),
        (
            lambda own: {"module_file": "a.py", "tuner_fn": "a.b"},
            "(?s)module_file and tuner_fn both define.*exactly one",
        ),
        (lambda own: {"tuner_fn": f"{__file__}:tuner"}, r"(?s)a function in a file.*module_file='.*test_tuner.py'"),
        (lambda own: {"tuner_fn": "nowhere.tuner_fn"}, "(?s)there is no module 'nowhere'.*option tuner_fn"),
        (lambda own: {"module_file": __file__}, "(?s)no function 'tuner_fn'.*option module_file"),
        (lambda own: {"options": own["options"]}, "(?s)without search.*SearchOptions"),
        (lambda own: {"tuner_fn": "os.path.join", "search": own["search"]}, "search is set without options"),
        (lambda own: {**own, "custom_config": {"a": 1}}, r"(?s)custom_config is given beside.*TrainOptions.hparams"),
        (lambda own: {**own, "base_model": 1}, "(?s)base_model is given beside options.*in the model function"),
        (lambda own: {**own, "tune_args": 3}, "(?s)num_parallel_trials is 3.*google_cloud_ai_platform"),
    ],
)
def test_what_the_tuner_cannot_do_is_told_by_name(given, message, tmp_path):
    from tfx.proto import tuner_pb2

    from infeed.components import SearchOptions, TrainOptions

    own = {"options": TrainOptions("os.path:join", "y"), "search": SearchOptions("os.path:join")}
    arguments = given(own)
    if "tune_args" in arguments:
        arguments["tune_args"] = tuner_pb2.TuneArgs(num_parallel_trials=arguments["tune_args"])
    with pytest.raises(InfeedError, match=message):
        tuner(**arguments)


def test_an_edited_tuner_fn_changes_the_cache_key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "edited_tuning.py"
    keys = []
    for edit in ("", "", "# edited\n"):
        source.write_text(f"def tuner_fn(fn_args): ...\n{edit}")
        keys.append(dict(tuner(tuner_fn="edited_tuning.tuner_fn").exec_properties))
    assert keys[0] == keys[1] != keys[2]


def test_transformed_examples_are_told_from_the_channel():
    from tfx.components import Transform
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components import SearchOptions, TrainOptions, Tuner

    given = [channel_utils.as_channel([kind()]) for kind in (standard_artifacts.Examples, standard_artifacts.Schema)]
    examples = Transform(*given, preprocessing_fn="a.b").outputs["transformed_examples"]
    own = {"options": TrainOptions("os.path:join", "y"), "search": SearchOptions("os.path:join")}
    config = json.loads(Tuner(examples=examples, **own).exec_properties["custom_config"])
    assert config["infeed"]["examples_are"] == "transformed"
