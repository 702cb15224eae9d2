"""A user's functions give the same batches in every tier, step and worker."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.feed.build import build
from infeed.components.feed.capacity import Machine, RecordSizes
from infeed.components.feed.options import SINGLE_WORKER, FeedOptions, MapFunction, WorkerContext
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.feed.user_maps import NumpyMap, Target, TensorFlowMap, map_error_context

pytestmark = [pytest.mark.slow, pytest.mark.stack]

RECORDS, BATCH = 40, 8
SOURCE = """
import tensorflow as tf

def noise(features, seed):
    shape = tf.shape(features["number"])
    return features | {"number": features["number"] + tf.random.stateless_uniform(shape, seed, 0, 1000, tf.int64)}

NAME = "nothing"

def halve(features):
    number = features["number"]
    if number % 2 == 0:
        number = number // 2
    return {"number": number}

def too_large(features):
    tf.debugging.assert_less(features["number"], tf.constant(30, tf.int64))
    return features

def same(features):
    return dict(features)

def nothing(features):
    return None

def missing(features):
    return {"number": features[NAME]}

def first_rows(features):
    return {"number": features["number"][:2]}
"""
NUMPY = """
import numpy as np

def numpy_noise(features, seed):
    return {"number": features["number"] + np.random.default_rng(seed).integers(0, 1000, features["number"].shape)}

def numpy_twice(features):
    return {"number": features["number"] * 2, "parts": features["parts"]}

def numpy_grows(features):
    return features | {"pair": np.zeros((len(features["number"]), 2 if features["number"].max() < 39 else 3))}

def numpy_fails(features):
    if features["number"].max() == 39:
        raise ValueError("no 39")
    return features
"""
FUNCTIONS = BatchFunctions(
    lambda records: tf.strings.to_number(records, tf.int64),
    lambda numbers: ({"number": numbers}, numbers % 2),
    key="numbers",
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("numbers") / "part-0")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(RECORDS):
            writer.write(str(number).encode())
    return [ShardFile(path, RECORDS, 100)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "mine.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.fixture(scope="module")
def numpy_file(file):
    path = Path(file).with_name("mine_numpy.py")  # so that other processes do not import TensorFlow
    path.write_text(NUMPY)
    return str(path)


# Here the option that loops over examples inside of a batch. The image has both.
OPTIONS = pytest.mark.parametrize("option", ["map_examples", pytest.param("map_batches", marks=pytest.mark.image)])


def batches(shards, tier, *, count=None, training=True, workers=SINGLE_WORKER, start_step=0, **options):
    devices = ("/device:CPU:0",) if tier == "device" else ()
    spec = FeedSpec(training, RecordSizes(2, 8), devices=devices)
    folder = shards[0].path.removesuffix("part-0") + "cache"
    feed = FeedOptions(batch_size=BATCH, tier=tier, cache_dir=folder, **options)
    made = build(plan(shards, spec, feed, Machine(2, 1 << 30)), FUNCTIONS, workers=workers, start_step=start_step)
    made = made if isinstance(made, tf.data.Dataset) else made.dataset()
    return [features["number"].numpy() for features, _ in (made.take(count) if count else made)]


@OPTIONS
def test_random_work_differs_between_epochs_and_not_between_tiers(shards, file, option):
    maps = {option: f"{file}:noise"}
    made = {tier: batches(shards, tier, count=10, **maps) for tier in ("columns", "disk", "device")}
    plain = batches(shards, "columns", count=10)
    np.testing.assert_array_equal(made["columns"], made["disk"])
    np.testing.assert_array_equal(made["columns"], made["device"])
    noise = np.subtract(made["columns"], plain)
    assert len({tuple(one) for one in noise}) == 10  # each batch of two epochs has noise of its own
    assert ((noise >= 0) & (noise < 1000)).all()


@OPTIONS
def test_a_stream_is_mapped_and_resumes(shards, file, option):
    told = {"cache_records": False, option: f"{file}:noise"}
    whole = batches(shards, "stream", count=10, **told)
    np.testing.assert_array_equal(whole[7:], batches(shards, "stream", count=3, start_step=7, **told))
    plain = batches(shards, "stream", count=10, cache_records=False)
    noise = np.subtract(whole, plain)
    assert ((noise >= 0) & (noise < 1000)).all()


@given(start=st.integers(0, 12), count=st.sampled_from([2, 4]))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_examples_are_the_same_at_any_number_of_workers_from_any_step(shards, file, start, count):
    told = {"count": 3, "start_step": start, "map_examples": f"{file}:noise"}
    parts = [batches(shards, "columns", workers=WorkerContext(index, count), **told) for index in range(count)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), batches(shards, "columns", **told))


def test_workers_draw_their_own_numbers_for_their_parts_of_a_batch(shards, file):
    told = {"count": 2, "map_batches": f"{file}:noise"}
    first, second = (
        np.subtract(batches(shards, "columns", workers=one, **told), batches(shards, "columns", count=2, workers=one))
        for one in (WorkerContext(0, 2), WorkerContext(1, 2))
    )
    assert not (first == second).all()


@OPTIONS
def test_a_numpy_function_gives_the_same_batches_in_every_tier_and_from_any_step(shards, numpy_file, option):
    told = {option: MapFunction(f"{numpy_file}:numpy_noise", "numpy", processes=2)}
    whole = batches(shards, "columns", count=10, **told)
    np.testing.assert_array_equal(whole, batches(shards, "disk", count=10, **told))
    np.testing.assert_array_equal(whole[6:], batches(shards, "columns", count=4, start_step=6, **told))
    assert len({tuple(one) for one in np.subtract(whole, batches(shards, "columns", count=10))}) == 10


def test_functions_are_called_in_order_and_may_branch_on_tensors(shards, file, numpy_file):
    told = {"map_examples": f"{file}:halve", "map_batches": MapFunction(f"{numpy_file}:numpy_fails", "numpy")}
    [made, plain] = (batches(shards, "columns", count=2, **some) for some in (told, {}))
    np.testing.assert_array_equal(made, [np.where(one % 2 == 0, one // 2, one) for one in plain])


def test_evaluation_is_mapped_only_if_asked_for(shards, file):
    plain = batches(shards, "columns", training=False)
    np.testing.assert_array_equal(plain, batches(shards, "columns", training=False, map_batches=f"{file}:noise"))
    asked = MapFunction(f"{file}:noise", evaluation=True)
    once, again = (batches(shards, tier, training=False, map_batches=asked) for tier in ("columns", "stream"))
    np.testing.assert_array_equal(once, again)
    assert np.subtract(once, plain).any()


@pytest.mark.parametrize("option", ["map_examples", "map_batches"])
def test_an_error_while_tracing_names_the_line_and_the_option(shards, file, option):
    with pytest.raises(InfeedError, match="KeyError: 'nothing'") as error:
        batches(shards, "columns", count=1, **{option: f"{file}:missing"})
    assert f"{file}, line {_line('features[NAME]')}" in error.value.where
    assert option in error.value.where


@pytest.mark.parametrize("option", ["map_examples", "map_batches"])
def test_an_error_on_the_data_names_the_line_and_the_option(shards, file, option):
    with pytest.raises(InfeedError, match="x < y") as error, map_error_context():
        batches(shards, "columns", count=5, **{option: f"{file}:too_large"})
    assert f"{file}, line {_line('assert_less')}" in error.value.where
    assert option in error.value.where


def test_an_error_of_numpy_names_the_line_and_the_step(shards, numpy_file):
    step = next(step for step, one in enumerate(batches(shards, "columns", count=5)) if 39 in one)
    with pytest.raises(InfeedError, match="no 39") as error, map_error_context():
        batches(shards, "columns", count=5, map_batches=MapFunction(f"{numpy_file}:numpy_fails", "numpy"))
    assert f"line {_line('no 39', NUMPY)}" in error.value.where
    assert f"step {step}" in error.value.where


def test_a_numpy_batch_that_differs_from_the_first_is_an_error_that_names_the_feature(shards, numpy_file):
    with pytest.raises(InfeedError, match=re.escape("'pair' is float64 [3]")), map_error_context():
        batches(shards, "columns", count=5, map_batches=MapFunction(f"{numpy_file}:numpy_grows", "numpy"))


@pytest.mark.parametrize(("function", "word"), [("first_rows", "rows"), ("nothing", "NoneType")])
def test_a_function_has_to_return_a_dict_of_features_with_all_rows(shards, file, function, word):
    with pytest.raises(InfeedError, match=word) as error:
        batches(shards, "columns", count=1, map_batches=f"{file}:{function}")
    assert error.value.where == f"FeedOptions.map_batches, {file}:{function}"


def test_numpy_gets_ragged_features_and_refuses_sparse_ones(numpy_file):
    target = Target.of("map_examples", MapFunction(f"{numpy_file}:numpy_twice", "numpy"))
    features = {"number": tf.constant([1, 2]), "parts": tf.ragged.constant([[1.0, 2.0], []])}
    made = NumpyMap(target, features)(features, tf.zeros([2, 2], tf.int64), tf.constant(0))
    assert made["number"].numpy().tolist() == [2, 4]
    assert made["parts"].to_list() == [[1.0, 2.0], []]
    with pytest.raises(InfeedError, match="'parts'"):
        NumpyMap(target, {"number": tf.constant([1]), "parts": tf.sparse.from_dense([[1.0]])})


def test_a_loop_over_examples_keeps_ragged_features_ragged(file):
    target = Target.of("map_examples", MapFunction(f"{file}:same"))
    features = {"parts": tf.ragged.constant([[1.0, 2.0], []])}
    made = TensorFlowMap(target)(features, tf.zeros([2, 2], tf.int64), tf.constant(0))
    assert made["parts"].to_list() == [[1.0, 2.0], []]


def _line(text, source=SOURCE):
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)
