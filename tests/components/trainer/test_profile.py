"""`input_profile.json`, and the scalars for TensorBoard beside it."""

import json

import pytest

pytestmark = pytest.mark.tfx


def test_the_profile_tells_what_feeding_cost(table, classifier):
    import tensorflow as tf

    profile = json.loads((classifier / "run" / "input_profile.json").read_text())
    (events,) = (classifier / "run" / "input").iterdir()
    tags = [value.tag for event in tf.compat.v1.train.summary_iterator(str(events)) for value in event.summary.value]
    assert tags == ["input/wait_fraction", "input/examples_per_second"] * 12
    assert (profile["format"], profile["strategy"], profile["replicas"]) == (1, "one_device", 1)
    assert (profile["batch_size"], profile["steps_per_epoch"]) == (16, 4)  # 64 training rows
    assert [epoch["examples"] for epoch in profile["epochs"]] == [64] * 12
    assert all(0 < epoch["wait_seconds"] <= epoch["seconds"] for epoch in profile["epochs"])
    assert profile["ceiling"]["examples_per_second"] > 0
    size = (table[0] / "Split-train" / "data_tfrecord-00000-of-00001.gz").stat().st_size
    assert profile["bytes"] == size


def test_stages_are_measured_where_it_is_asked_for(table, train):
    trained = train(table[0], "class", "table", label="kind", epochs=1, stage_seconds=0.05)
    profile = json.loads((trained / "run" / "input_profile.json").read_text())
    assert {"read", "parse", "batch"} <= {stage["name"] for stage in profile["stages"]}


def test_without_a_place_for_scalars_the_profile_is_written_all_the_same(table, train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "input").write_text("a file where the folder of the scalars would be")
    trained = train(table[0], "class", "table", label="kind", epochs=1, place=tmp_path)
    assert json.loads((trained / "run" / "input_profile.json").read_text())["epochs"]
