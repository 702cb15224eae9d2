"""Training as TFX's Trainer calls it, and the model that comes out."""

import json

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def load(folder):
    import tensorflow as tf

    return tf.saved_model.load(str(folder / "model"))


def answers(model, serialized, signature="serving_default"):
    import tensorflow as tf

    return model.signatures[signature](examples=tf.constant(serialized))


def test_a_classifier_answers_serialized_examples_without_their_label(table, classifier, example):
    rows = table[1]
    serialized = [example({"x": row["x"], "z": row["z"]}) for row in rows]
    answer = answers(load(classifier), serialized)
    assert answer["probabilities"].shape == (len(rows), 2)
    told = [word.decode() for word in answer["class"].numpy().ravel()]
    right = np.mean([t == row["kind"].decode() for t, row in zip(told, rows, strict=True)])
    assert right > 0.9


def test_raw_tensors_give_the_same_answer_with_nan_for_missing(table, classifier, example):
    import tensorflow as tf

    rows, model = table[1], load(classifier)
    x = tf.constant([row["x"] for row in rows], tf.float32)
    z = tf.constant([np.nan if row["z"] is None else row["z"] for row in rows], tf.float32)
    raw = model.signatures["raw"](x=x, z=z)
    serialized = [example({"x": row["x"], "z": row["z"]}) for row in rows]
    served = answers(model, serialized)
    np.testing.assert_allclose(raw["probabilities"], served["probabilities"], atol=1e-6)


def test_the_transformed_features_come_with_the_label_for_evaluator(table, classifier, example):
    rows = table[1]
    features = answers(load(classifier), [example(row) for row in rows], "transform_features")
    assert set(features) == {"x", "z", "kind"}
    x = np.array([row["x"] for row in rows], np.float32)
    np.testing.assert_allclose(features["x"][:, 0], (x - x.mean()) / x.std(), atol=1e-4)


def test_a_regression_answers_with_a_number(table, train, example):
    folder, rows = table
    model = load(train(folder, "number", "number", label="n", task="regression", epochs=15))
    answer = answers(model, [example({"x": row["x"]}) for row in rows])
    assert np.corrcoef(answer["prediction"], [row["n"] for row in rows])[0, 1] > 0.9


def test_columns_on_the_device_train_the_model_that_columns_in_memory_train(table, train, tmp_path, example):
    folder, rows = table
    profiles, answered = [], []
    for tier in ("columns", "device"):
        place = tmp_path / tier
        options = {"label": "n", "task": "regression", "feed": FeedOptions(batch_size=16, tier=tier)}
        train(folder, "number", "number", place=place, **options)
        profiles.append(json.loads((place / "run" / "input_profile.json").read_text())["plan"])
        given = [example({"x": row["x"]}) for row in rows]
        answered.append(answers(load(place), given)["prediction"])
    assert [profile["tier"] for profile in profiles] == ["columns", "device"]
    assert [step["name"] for step in profiles[1]["steps"]][-2:] == ["gather", "device"]
    np.testing.assert_allclose(*answered, rtol=1e-4)


@pytest.mark.image  # here `infeed run image` does
def test_pictures_are_augmented_in_training_and_only_normalised_in_serving(pictures, train):
    import tensorflow as tf

    folder, rows = pictures
    options = {"augment": Augment(shift=1, rotate=5.0, cutout=2), "normalise": Normalise(), "epochs": 5}
    trained = train(folder, "class", "picture", label="label/text", stage_seconds=0.05, **options)
    profile = json.loads((trained / "run" / "input_profile.json").read_text())
    stages = {one["name"]: one["once"] for one in profile["stages"]}
    assert list(stages)[:1] == ["read"]
    assert stages["parse"]
    assert not stages["augment"]
    assert "hand-over" in list(stages)[-2:]
    assert sum(profile["timeline"]["steps"]) == sum(epoch["steps"] for epoch in profile["epochs"])
    steps = profile["plan"]["steps"]
    names = [step["name"] for step in steps]
    assert names.index("columns") < names.index("augment") < names.index("prefetch")
    model = load(trained)
    encoded = tf.constant([row["image/encoded"] for row in rows])
    answer = model.signatures["raw"](image_encoded=encoded)
    told = answer["class"].numpy().ravel().tolist()
    assert np.mean([t == row["label/text"] for t, row in zip(told, rows, strict=True)]) > 0.9
    again = model.signatures["raw"](image_encoded=encoded)
    np.testing.assert_array_equal(answer["probabilities"], again["probabilities"])


def test_num_steps_ends_training_at_exactly_that_step(table, train):
    folder, _ = table
    trained = train(folder, "class", "table", label="kind", epochs=1, steps=6)
    profile = json.loads((trained / "run" / "input_profile.json").read_text())
    assert [epoch["steps"] for epoch in profile["epochs"]] == [4, 2]


def test_half_precision_weights_of_classes_and_a_trace_of_steps_go_together(table, train, example):
    folder, rows = table
    options = {"mixed_precision": "bfloat16", "class_weight": {"big": 1e4}, "profile_steps": [2, 3]}
    trained = train(folder, "class", "table", label="kind", epochs=20, **options)
    answer = answers(load(trained), [example({"x": row["x"]}) for row in rows])
    assert answer["probabilities"].dtype.name == "float32"
    told, true = answer["class"].numpy().ravel().tolist(), [row["kind"] for row in rows]
    assert told.count(b"big") > true.count(b"big")  # in doubt it is the class that counts
    assert list((trained / "run").glob("plugins/profile/*/*.xplane.pb"))


def test_the_same_seed_gives_the_same_model(table, classifier, train, example):
    serialized = [example({"x": row["x"]}) for row in table[1]]
    again = train(table[0], "class", "table", label="kind", epochs=12)
    one, other = (answers(load(trained), serialized)["probabilities"] for trained in (classifier, again))
    np.testing.assert_array_equal(one, other)


SCHEMA = """
feature { name: "x" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "n" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "kind" type: BYTES shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
"""


def without_transform(tmp_path, arguments, table, **options):
    from tfx.components.trainer.fn_args_utils import FnArgs

    from infeed.components.trainer.run_fn import run_fn

    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    given = arguments(tmp_path, table[0], "class", "only_x", **options)
    run_fn(FnArgs(**{**given, "transform_graph_path": None, "schema_path": str(tmp_path / "schema.pbtxt")}))


def test_without_a_transform_graph_the_raw_examples_are_the_features(table, arguments, tmp_path, example):
    without_transform(tmp_path, arguments, table, label="n", task="regression", epochs=1)
    model = load(tmp_path)
    assert set(model.signatures) == {"serving_default", "raw"}
    assert answers(model, [example({"x": 1.0})])["prediction"].shape == (1,)  # x is all that the model takes


def test_without_a_transform_graph_a_label_has_to_be_a_number(table, arguments, tmp_path):
    with pytest.raises(InfeedError, match=r"the label 'kind' is text\n(.|\n)*schema\.pbtxt(.|\n)*Label\("):
        without_transform(tmp_path, arguments, table, label="kind")


def test_training_starts_from_the_weights_of_an_earlier_model(table, train, classifier, tmp_path):
    """A step at the learning rate 0 leaves them as they are."""
    from infeed.components.trainer.warm_start import weights_of

    (tmp_path / "still.py").write_text(
        "import keras\n"
        "def table(spec):\n"
        "    inputs = {name: keras.Input([1], name=name) for name in spec.inputs}\n"
        "    x = keras.layers.Concatenate()(list(inputs.values()))\n"
        "    model = keras.Model(inputs, keras.layers.Dense(2, activation='softmax')(x))\n"
        "    model.compile(keras.optimizers.SGD(0.0), 'sparse_categorical_crossentropy', metrics=['accuracy'])\n"
        "    return model\n"
    )
    arguments = table[0], "class", f"{tmp_path}/still.py:table"
    base = classifier / "model"
    place = train(*arguments, label="kind", steps=1, base_model=str(base))
    for ours, theirs in zip(weights_of(str(place / "model")), weights_of(str(base)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
