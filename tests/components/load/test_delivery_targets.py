"""Labels, weights, the last batch, and lists of a fixed length."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.load.dataset import load

ROWS = 11
LISTS = [list(range(1, 1 + number % 5)) for number in range(ROWS)]
TABLE = {
    "x": pa.array(range(ROWS)),
    "y": pa.array([number / 2 for number in range(ROWS)], pa.float32()),
    "classes": pa.array([[number % 2, 1] for number in range(ROWS)], pa.list_(pa.int64(), 2)),
    "w": pa.array(range(ROWS)),
    "tokens": pa.array(LISTS, pa.list_(pa.int64())),
    "words": pa.array([["a"] * len(one) for one in LISTS], pa.list_(pa.string())),
}


@pytest.fixture
def data(write, cache):
    path = write("t-train.tfrecord", TABLE)
    return lambda **options: load(path, cache_dir=cache, **{"batch_size": 4, "shuffle": False, **options})


def test_several_labels_come_by_name_and_a_label_may_be_a_list(data):
    features, label = next(data().numpy(label=["y", "classes"]))
    assert set(features) == {"x", "w", "tokens", "words"}
    np.testing.assert_array_equal(label["y"], [0, 0.5, 1, 1.5])
    assert label["classes"].shape == (4, 2)
    assert next(data().numpy(label="classes"))[1].tolist() == [[0, 1], [1, 1], [0, 1], [1, 1]]
    assert next(data().numpy(label=["y"]))[1].keys() == {"y"}


@pytest.mark.parametrize("pack", [False, True])
def test_weights_are_floats_beside_the_label(data, pack):
    features, label, weight = next(data().numpy(label="y", weight="w", pack=pack))
    assert weight.dtype == np.float32
    assert weight.tolist() == [0, 1, 2, 3]
    assert label.tolist() == [0, 0.5, 1, 1.5]
    assert {"w", "y"}.isdisjoint(features)
    assert "w" not in data().packed_columns("y", "w")["int64"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"label": "y", "weight": "classes"}, "classes"),
        ({"label": "y", "weight": "y"}, "weight is 'y'"),
        ({"weight": "w"}, "weight is 'w'"),
        ({"label": "y", "weight": "v"}, "'v'"),
        ({"label": ["y", "v"]}, "'v'"),
        ({"label": [7]}, "7"),
        ({"label": 7}, "7"),
        ({"label": []}, r"label is \[\]"),
        ({"label": ["y", "y"]}, "once"),
    ],
)
def test_what_cannot_be_a_target_is_named(data, options, word):
    with pytest.raises(InfeedError, match=word):
        data().numpy(**options)


def test_a_last_batch_is_short_left_out_or_padded(data):
    assert [len(batch["x"]) for batch in data(drop_remainder=True)] == [4, 4]
    assert data(drop_remainder=True).steps_per_epoch == 2
    assert [len(batch["x"]) for batch in data()] == [4, 4, 3]
    *_, last = data(pad_remainder=True)
    assert last["x"].tolist() == [8, 9, 10, 10]
    assert last["sample_weight"].tolist() == [1, 1, 1, 0]
    assert {batch["sample_weight"].dtype for batch in data(pad_remainder=True)} == {np.dtype(np.float32)}


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 5, 7, 8, 9, 11])
def test_padded_parts_of_workers_weigh_every_row_once(write, cache, rows, workers):
    path = write("r-train.tfrecord", {"x": pa.array(range(rows)), "w": pa.array([2] * rows)})
    options = {"batch_size": 8, "shuffle": False, "pad_remainder": True, "cache_dir": cache}
    found = []
    for index in range(workers):
        for _, label, weight in load(path, workers=(index, workers), **options).numpy(label="x", weight="w"):
            assert len(label) == 8 // workers
            found += label[weight > 0].tolist()
            assert set(weight.tolist()) <= {0.0, 2.0}
    assert sorted(found) == list(range(rows))


def test_a_remainder_that_does_not_fit_is_named(data):
    for options in ({"shuffle": True, "pad_remainder": True}, {"pad_remainder": True, "drop_remainder": True}):
        with pytest.raises(InfeedError) as error:
            data(**options)
        assert error.value.where == "infeed.load, pad_remainder"
    with pytest.raises(InfeedError, match="batch_size is 12"):
        data(drop_remainder=True, batch_size=12)


def padded(lists, length, fill):
    return [[*one[:length], *[fill] * (length - len(one))] for one in lists]


def test_lists_of_one_length_are_dense(data):
    loaded = data(length=3)
    assert loaded.schema["tokens"].shape == (3,)
    batch = loaded[:]
    assert batch["tokens"].tolist() == padded(LISTS, 3, 0)
    assert batch["words"].tolist() == padded([[b"a"] * len(one) for one in LISTS], 3, b"")
    assert loaded[4]["tokens"].tolist() == [1, 2, 3]
    assert "tokens" not in loaded.packed_columns()["int64"]
    assert next(data(length=1).numpy("y", weight="tokens"))[2].tolist() == [0, 1, 1, 1]
    assert next(loaded.numpy(pack=True))["tokens"].shape == (4, 3)


def test_a_batch_has_the_smallest_length_that_holds_its_longest_row(data):
    loaded = data(length={"tokens": (1, 3, 6)}, batch_size=1)
    assert [batch["tokens"].shape[1] for batch in loaded] == [1, 1, 3, 3, 6] * 2 + [1]
    assert loaded.schema["tokens"].shape is None
    assert next(iter(loaded))["words"].row_splits.tolist() == [0, 0]


@pytest.mark.parametrize(
    "length", [0, {"x": 3}, {"other": 3}, {"tokens": ()}, {"tokens": (3, 2)}, {"tokens": 1.5}, {"tokens": True}, "3"]
)
def test_a_length_that_does_not_fit_is_named(data, length):
    with pytest.raises(InfeedError) as error:
        data(length=length)
    assert "length" in error.value.where


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, {"tokens": (1, 3, 6)}])
def test_tensorflow_gets_what_numpy_gets(data, length):
    loaded = data(length=length, drop_remainder=True, columns=["x", "y", "w", "tokens"])
    ours = list(loaded.numpy(label=["y"], weight="w", epochs=1))
    theirs = list(loaded.tf(label=["y"], weight="w", epochs=1))
    for (features, label, weight), (their_features, their_label, their_weight) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(features["tokens"], their_features["tokens"])
        np.testing.assert_array_equal(label["y"], their_label["y"])
        np.testing.assert_array_equal(weight, their_weight)
    with pytest.raises(InfeedError, match="pad"):
        data(pad_remainder=True).tf()


@pytest.mark.frameworks
def test_rows_of_203_are_evaluated_on_four_devices(write, cache):
    path = write("e-train.tfrecord", {"x": pa.array(range(203)), "y": pa.array(range(203))})
    script = f"""
import jax, infeed
devices = jax.sharding.Mesh(jax.devices(), "d")
sharding = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec("d"))
data = infeed.load({path!r}, batch_size=64, shuffle=False, pad_remainder=True, cache_dir={cache!r})
total = count = 0
for features, label, weight in data.jax(label="y", device=sharding):
    assert label.sharding.is_equivalent_to(sharding, 1) and label.shape == (64,)
    total += float((label * weight).sum()); count += float(weight.sum())
assert (total, count) == (203 * 101, 203), (total, count)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, **flags})


@pytest.mark.frameworks
def test_torch_gets_nested_tensors(data):
    features = next(data().torch(nested=True))
    assert [row.tolist() for row in features["tokens"].unbind()] == LISTS[:4]
    assert features["words"].row_splits.tolist() == [0, 0, 1, 3, 6]
    assert features["x"].tolist() == [0, 1, 2, 3]
