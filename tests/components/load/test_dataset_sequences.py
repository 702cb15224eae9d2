"""SequenceExamples: features of the context as columns, and feature lists as rows of steps."""

from __future__ import annotations

import pickle
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import records
from infeed.components.load.columns import FeatureSpec, Ragged
from infeed.components.load.dataset import load

ROWS = [
    ({"id": [0], "name": [b"a"]}, {"tokens": [[1], [2], [3]], "at": [[0.5, 1.0]], "words": [[b"x"], [b"y", b"z"]]}),
    ({"id": [1]}, {"tokens": [], "at": [[1.5, 2.0], [2.5, 3.0]], "words": [[b"w"]]}),
    ({"id": [2], "name": [b"c"]}, {"tokens": [[4]], "words": [None, [b"u", b"v", b"t"]]}),
]
FIXED = [({"id": [row]}, {"pair": [[row, 1], [2, 3], [4, 5]], "line": [[0.5], [1.5]]}) for row in range(3)]


def plain(value: Any) -> Any:
    """Return nested lists."""
    if isinstance(value, Ragged):
        return [plain(value.row(row)) for row in range(len(value.row_splits) - 1)]
    return value.to_list() if hasattr(value, "to_list") else np.asarray(value).tolist()


@pytest.fixture
def where(write, wire) -> str:
    return write("s-train.tfrecord", [wire.sequence_example(*row) for row in ROWS])


def test_the_types_and_shapes_are_found_in_the_records(where, write, wire, cache):
    assert load(where, cache_dir=cache).schema == {
        "id": FeatureSpec("int64", ()),
        "name": FeatureSpec("bytes", (), nulls=1),
        "tokens": FeatureSpec("int64", None, nulls=1),
        "at": FeatureSpec("float32", None, nulls=1, step=(2,)),
        "words": FeatureSpec("bytes", None, step=(3,), ragged_steps=True),
    }
    assert repr(load(where, cache_dir=cache).schema["id"]) == "FeatureSpec(type='int64', shape=(), nulls=0)"
    fixed = write("f-train.tfrecord", [wire.sequence_example(*row) for row in FIXED])
    assert load(fixed, cache_dir=cache).schema == {
        "id": FeatureSpec("int64", ()),
        "pair": FeatureSpec("int64", (3, 2)),
        "line": FeatureSpec("float32", (2,)),
    }


def test_rows_and_batches_have_a_level_for_the_steps(where, cache):
    data = load(where, batch_size=2, shuffle=False, cache_dir=cache)
    assert [plain(data[row]["tokens"]) for row in range(3)] == [[1, 2, 3], [], [4]]
    assert plain(data[1]["at"]) == [[1.5, 2.0], [2.5, 3.0]]
    assert plain(data[2]["words"]) == [[], [b"u", b"v", b"t"]]
    batches = list(data.numpy("id"))
    assert [label.tolist() for _, label in batches] == [[0, 1], [2]]
    assert batches[0][0]["at"].values.shape == (3, 2)
    assert [plain(features["words"]) for features, _ in batches] == [
        [[[b"x"], [b"y", b"z"]], [[b"w"]]],
        [[[], [b"u", b"v", b"t"]]],
    ]
    assert plain(pickle.loads(pickle.dumps(data))[[2, 0]]["words"]) == [
        [[], [b"u", b"v", b"t"]],
        [[b"x"], [b"y", b"z"]],
    ]


def test_as_many_steps_in_all_records_are_dense(write, wire, cache):
    fixed = write("f-train.tfrecord", [wire.sequence_example(*row) for row in FIXED])
    data = load(fixed, batch_size=3, shuffle=False, cache_dir=cache)
    batch = next(data.numpy())
    assert batch["pair"].tolist() == [[[row, 1], [2, 3], [4, 5]] for row in range(3)]
    assert batch["line"].tolist() == [[0.5, 1.5]] * 3
    assert next(data.numpy(pack=True))["int64"].shape == (3, 7)


def test_length_pads_and_cuts_steps(where, cache):
    data = load(where, batch_size=3, shuffle=False, cache_dir=cache, length={"tokens": 2, "at": (1, 4), "words": 2})
    assert (data.schema["tokens"].shape, data.schema["words"].shape) == ((2,), (2, 3))
    batch = next(data.numpy())
    assert batch["tokens"].tolist() == [[1, 2], [0, 0], [4, 0]]
    assert batch["at"].shape == (3, 4, 2)
    assert batch["at"][1].tolist() == [[1.5, 2.0], [2.5, 3.0], [0, 0], [0, 0]]
    assert batch["words"].tolist()[0] == [[b"x", b"", b""], [b"y", b"z", b""]]


def test_a_map_and_a_state_take_them(where, cache):
    data = load(where, batch_size=1, shuffle=True, seed=3, cache_dir=cache)
    counted = data.map(lambda batch: {**batch, "steps": np.diff(batch["words"].row_splits)})
    rows = [batch["id"][0] for batch in data.numpy(epochs=1)]
    assert [batch["steps"][0] for batch in counted.numpy(epochs=1)] == [[2, 1, 2][row] for row in rows]
    first = data.numpy(epochs=1)
    next(first)
    second = data.numpy(epochs=1)
    second.load_state_dict(first.state_dict())
    assert [plain(batch["words"]) for batch in second] == [plain(batch["words"]) for batch in first]


def test_a_name_of_context_and_feature_lists_gives_two_columns(write, wire, cache):
    rows = [wire.sequence_example({"x": [1]}, {"x": [[5], [6]], "y": [[7]]})]
    where = write("s-train.tfrecord", [*rows, *rows])
    assert set(load(where, cache_dir=cache).schema) == {"x", "feature_lists/x", "y"}
    assert set(load(where, cache_dir=cache, columns=["x"]).schema) == {"x"}
    lists = load(where, cache_dir=cache, columns=["feature_lists/x"])
    assert lists[0]["feature_lists/x"].tolist() == [5, 6]
    with pytest.raises(InfeedError, match="feature_lists/x, x, y"):
        load(where, cache_dir=cache, columns=["z"])


def test_all_splits_have_the_same_shapes(write, wire, cache):
    write("s-train.tfrecord", [wire.sequence_example({}, {"x": [[1], [2]]})] * 2)
    where = write("s-eval.tfrecord", [wire.sequence_example({}, {"x": [[1, 2]], "y": [[1.5]]})])
    folder = where.rpartition("/")[0]
    specs = [load(folder, split, cache_dir=cache).schema for split in ("train", "eval")]
    assert specs[0] == {**specs[1], "y": FeatureSpec("float32", None, nulls=2)}
    assert specs[1]["x"] == FeatureSpec("int64", None, step=(2,), ragged_steps=True)


@pytest.mark.parametrize("length", [None, 2])
@pytest.mark.parametrize("kind", ["float32", "int64", "bytes"])
@pytest.mark.parametrize("steps", [[], [None, None], [[]], "absent"], ids=str)
def test_a_split_without_values_has_the_type_of_the_others(write, wire, cache, steps, kind, length):
    value = {"float32": 1.5, "int64": 7, "bytes": b"a"}[kind]
    write("s-train.tfrecord", [wire.sequence_example({"id": [0]}, {"w": [[value, value], [value]]})])
    empty = {} if steps == "absent" else {"w": steps}
    where = write("s-eval.tfrecord", [wire.sequence_example({"id": [0]}, empty)] * 3)
    for split in ("train", "eval"):
        data = load(where.rpartition("/")[0], split, cache_dir=cache, length=length)
        values = data[:]["w"]
        while isinstance(values, Ragged):
            values = values.values
        assert (data.schema["w"].type, values.dtype) == (kind, object if kind == "bytes" else kind)


def test_lists_without_values_keep_the_type_that_one_split_knows(write, wire, cache):
    write("s-train.tfrecord", [wire.sequence_example({}, {"w": [[], []]})])
    where = write("s-eval.tfrecord", [wire.sequence_example({}, {"w": [None]})])
    for split in ("train", "eval"):
        assert load(where.rpartition("/")[0], split, cache_dir=cache).schema["w"].type == "int64"


@pytest.mark.parametrize("values", [[1, 2], [0.5, 1.0], [b"xy", b"z"]], ids=repr)
def test_a_feature_may_begin_as_the_columns_of_feature_lists_do(write, wire, cache, values):
    record = wire.sequence_example({"feature_lists/a": values}, {"b": [[1]]})
    where = write("s-train.tfrecord", [record] * 2)
    for columns in (None, ["feature_lists/a", "b"]):
        data = load(where, cache_dir=cache, columns=columns)
        assert data[0]["feature_lists/a"].tolist() == values
        assert set(data.schema) == {"feature_lists/a", "b"}
        assert "1 feature list" in str(data.plan)


def test_a_feature_that_is_a_list_in_another_split_is_missing_there(write, wire, cache):
    write("s-train.tfrecord", [wire.sequence_example({"feature_lists/a": [1, 2]}, {})])
    where = write("s-eval.tfrecord", [wire.sequence_example({}, {"a": [[1], [2], [3]]})])
    train, held_out = (load(where.rpartition("/")[0], split, cache_dir=cache) for split in ("train", "eval"))
    assert train[0]["feature_lists/a"].tolist() == [1, 2]
    assert held_out[0]["a"].tolist() == [1, 2, 3]


def test_records_without_steps_among_others_have_none(write, wire, cache):
    rows = [wire.sequence_example({"id": [0]}, {}), wire.sequence_example({"id": [1]}, {"x": [[1.5]]}), b""]
    data = load(write("s-train.tfrecord", rows), cache_dir=cache, batch_size=3, shuffle=False)
    assert plain(data[:]["x"]) == [[], [1.5], []]
    assert data.schema["x"].nulls == 2


def test_the_plan_names_the_feature_lists(where, cache):
    assert "3 feature lists" in str(load(where, cache_dir=cache).plan)


def test_a_damaged_record_is_named(write, wire, cache):
    good = wire.sequence_example(*ROWS[0])
    path = write("s-train.tfrecord", [good, good[:-1]])
    with pytest.raises(InfeedError, match="not a serialized") as error:
        load(path, cache_dir=cache)
    assert error.value.where == f"{path}, record 1"


ONE = st.lists(st.tuples(st.integers(0, 9)), max_size=4)
MANY = st.lists(st.none() | st.lists(st.integers(-5, 5), min_size=1, max_size=3), max_size=4)
LISTS = st.fixed_dictionaries({}, optional={"one": ONE, "many": MANY})


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(LISTS, min_size=1, max_size=5), st.booleans())
def test_tensorflow_parses_the_same_values(wire, lists, padded):
    import tensorflow as tf

    rows = [wire.sequence_example({"id": [row]}, one) for row, one in enumerate(lists)]
    rows.append(wire.sequence_example({"id": [len(rows)]}, {"one": [[7]] * 5, "many": [[1, 2], None]}))
    features = {name: tf.io.RaggedFeature(tf.int64) for name in ("one", "many")}
    expected = [tf.io.parse_single_sequence_example(row, sequence_features=features)[1] for row in rows]
    with TemporaryDirectory() as folder:
        path = f"{folder}/s-train.tfrecord"
        records.write_records(path, [records.frame_records(pa.array(rows, pa.large_binary()))], gzip_level=None)
        data = load(path, cache_dir=f"{folder}/cache", batch_size=2, shuffle=False, length=3 if padded else None)
        ours, theirs = list(data.numpy()), list(data.tf(epochs=1))
        assert [plain(batch[name]) for batch in ours for name in features] == [
            plain(batch[name]) for batch in theirs for name in features
        ]
        if padded:
            return
        for row, parsed in enumerate(expected):
            assert plain(data[row]["many"]) == parsed["many"].to_list()
            assert plain(data[row]["one"]) == [values for [values] in parsed["one"].to_list()]


@pytest.mark.frameworks
def test_pytorch_and_jax_have_the_same_values(where, cache):
    import torch

    data = load(where, batch_size=3, shuffle=False, cache_dir=cache)
    expected = next(data.numpy())
    for found in (next(data.torch()), next(data.jax())):
        for name in ("tokens", "at"):
            assert plain(Ragged(*map(np.asarray, found[name]))) == plain(expected[name])
        assert plain(found["words"]) == plain(expected["words"])
    nested = next(data.torch(nested=True))
    assert isinstance(nested["at"], torch.Tensor)
    assert [part.tolist() for part in nested["at"].unbind()] == plain(expected["at"])
    assert isinstance(nested["words"], Ragged)
