"""What stands for a missing value, and features that share an array."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.load.columns import FeatureSpec, Ragged
from infeed.components.load.dataset import LoadedDataset, load

TABLE = {
    "age": pa.array([1, None, 3, None], pa.int64()),
    "city": pa.array(["a", None, "", "d"]),
    "fare": pa.array([0.5, None, 0.0, 4.0], pa.float32()),
    "list": pa.array([[1], [], [2, 3], []], pa.list_(pa.int64())),
    "pair": pa.array([[n, -n] for n in range(4)], pa.list_(pa.float32(), 2)),
    "word": pa.array(["w", "x", "y", "z"]),
    "x": pa.array([0.0, 1.0, 2.0, 3.0], pa.float32()),
    "y": pa.array([0, 1, 2, 3]),
}


@pytest.fixture
def data(write, cache) -> Callable[..., LoadedDataset]:
    where = write("t-train.tfrecord", TABLE)
    return lambda **options: load(where, **{"cache_dir": cache, "batch_size": 4, **options})


def plain(values: Any) -> Any:
    if isinstance(values, Ragged):
        return [values.row(row).tolist() for row in range(len(values.row_splits) - 1)]
    return [None if one != one else one for one in np.asarray(values).tolist()]


MARKED = {"age": [[1], [], [3], []], "city": [b"a", None, b"", b"d"], "fare": [0.5, None, 0.0, 4.0]}


@pytest.mark.parametrize(
    ("on_missing", "found"),
    [
        ("mark", MARKED),
        ("fill", {"age": [1, 0, 3, 0], "city": [b"a", b"", b"", b"d"], "fare": [0.5, 0.0, 0.0, 4.0]}),
        ("ragged", {**MARKED, "city": [[b"a"], [], [b""], [b"d"]]}),
        ({"age": -1}, {**MARKED, "age": [1, -1, 3, -1]}),
        ({"city": "none", "fare": 9}, {**MARKED, "city": [b"a", b"none", b"", b"d"], "fare": [0.5, 9.0, 0.0, 4.0]}),
        ({"y": 7, "x": 1, "word": b"?"}, MARKED),  # nothing is missing there
    ],
    ids=str,
)
def test_what_stands_for_a_missing_value(data, on_missing, found):
    loaded = data(on_missing=on_missing)
    assert {name: plain(loaded[:][name]) for name in found} == found
    for name, values in loaded[:].items():
        spec = loaded.schema[name]
        if spec.shape is None:
            assert isinstance(values, Ragged)
        else:
            assert values.shape == (4, *spec.shape)
            assert values.dtype == (object if spec.type == "bytes" else spec.type)
    assert plain(loaded[:]["list"]) == [[1], [], [2, 3], []]


def test_a_nullable_text_is_an_array_of_objects_by_default(data):
    assert data().schema["city"] == FeatureSpec("bytes", (), nulls=1)
    assert [data()[row]["city"] for row in (0, 1, 2)] == [b"a", None, b""]


@pytest.mark.slow
@pytest.mark.parametrize("on_missing", ["mark", "fill", "ragged", {"age": -1, "city": "none", "fare": 9.0}], ids=str)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_tensorflow_fills_as_numpy_does(data, on_missing, batch_size):
    import tensorflow as tf

    for columns in (list(TABLE), ["age", "city", "fare"]):
        loaded = data(on_missing=on_missing, columns=columns, batch_size=batch_size)
        theirs = loaded.tf(epochs=1)
        for name, spec in loaded.schema.items():
            is_ragged = isinstance(theirs.element_spec[name], tf.RaggedTensorSpec)
            assert is_ragged == (spec.shape is None)
            assert is_ragged or theirs.element_spec[name].shape == [batch_size, *spec.shape]
        for batch, ours in zip(theirs, loaded.numpy(epochs=1), strict=True):
            for name in columns:
                found = batch[name].to_list() if loaded.schema[name].shape is None else plain(batch[name])
                assert found == [b"" if one is None and name == "city" else one for one in plain(ours[name])]


@pytest.mark.parametrize(
    ("on_missing", "where", "said"),
    [
        ("none", "infeed.load, on_missing", "mark, fill, ragged, error"),
        (None, "infeed.load, on_missing", "{column: value}"),
        ("error", "t-train.tfrecord", "2 cells of column 'age'"),
        ({"agee": 1}, r"on_missing\['agee'\]", "no column 'agee'"),
        ({"list": 1}, r"on_missing\['list'\]", "holds lists"),
        ({"pair": 1}, r"on_missing\['pair'\]", "holds lists"),
        ({"age": "x"}, r"on_missing\['age'\]", "integer"),
        ({"age": 1.5}, r"on_missing\['age'\]", "integer"),
        ({"age": 1 << 63}, r"on_missing\['age'\]", "integer"),
        ({"age": True}, r"on_missing\['age'\]", "integer"),
        ({"city": 1}, r"on_missing\['city'\]", "text"),
        ({"fare": "1"}, r"on_missing\['fare'\]", "number"),
        ({"fare": 1e39}, r"on_missing\['fare'\]", "32 bits"),
    ],
    ids=str,
)
def test_what_cannot_stand_for_a_missing_value(data, on_missing, where, said):
    with pytest.raises(InfeedError, match=said) as error:
        data(on_missing=on_missing)
    assert re.search(where, error.value.where)


def test_error_takes_columns_without_missing_values(data):
    assert len(data(on_missing="error", columns=["x", "y", "word", "list"])) == 4


def test_a_ragged_column_of_single_numbers_is_logged(data, caplog):
    with caplog.at_level(logging.WARNING):
        data(on_missing={"age": -1})
        data(on_missing="ragged")
        data(on_missing="fill")
        assert not caplog.records
        data()
    assert "'age'" in caplog.text
    assert "on_missing" in caplog.text


def test_packed_features_share_an_array(data):
    loaded = data(on_missing={"age": -1})
    names, batch = loaded.packed_columns(), next(loaded.numpy(pack=True, epochs=1))
    whole = next(loaded.numpy(epochs=1))
    assert names == {
        "float32": ("fare", "pair", "pair", "x"),
        "int64": ("y", "age"),
        "bytes": ("city", "word"),
    }
    assert set(batch) == {*names, "list"}
    for kind, columns in names.items():
        assert batch[kind].shape == (4, len(columns))
        assert batch[kind].dtype == (object if kind == "bytes" else kind)
        for name in set(columns):
            places = [place for place, column in enumerate(columns) if column == name]
            np.testing.assert_array_equal(batch[kind][:, places].reshape(whole[name].shape), whole[name])


@pytest.mark.parametrize("label", ["x", "y", "pair", "city", "fare", "list"])
def test_the_label_is_not_packed(data, label):
    loaded = data(on_missing="fill")
    names, (features, given) = loaded.packed_columns(label), next(loaded.numpy(label, pack=True))
    assert all(label not in columns for columns in names.values())
    assert {kind: features[kind].shape[1] for kind in names} == {kind: len(columns) for kind, columns in names.items()}
    assert plain(given) == plain(next(loaded.numpy(label))[1])


def test_packed_numbers_are_not_copied_again(data):
    loaded = data(columns=["fare", "pair", "x"])
    batch = next(loaded.numpy(pack=True))["float32"]
    assert batch.base is not None  # a view of what one call took


def test_a_ragged_column_called_like_a_packed_array(write, cache):
    where = write(
        "t.tfrecord", {"x": pa.array([1.0, 2.0], pa.float32()), "float32": pa.array([[], [1, 2]], pa.list_(pa.int64()))}
    )
    with pytest.raises(InfeedError, match="'float32'"):
        load(where, cache_dir=cache).numpy(pack=True)


@pytest.mark.slow
@pytest.mark.parametrize("label", [None, "y", "city"])
@pytest.mark.parametrize("columns", [None, ["fare", "pair", "x", "y", "city"]])
def test_tensorflow_packs_as_numpy_does(data, label, columns):
    loaded = data(on_missing="fill", batch_size=2, columns=columns)
    theirs = loaded.tf(label, epochs=2, pack=True)
    for batch, ours in zip(theirs, loaded.numpy(label, epochs=2, pack=True), strict=True):
        features, own = (batch, ours) if label is None else (batch[0], ours[0])
        assert set(features) == set(own)
        for kind in loaded.packed_columns(label):
            np.testing.assert_array_equal(features[kind].numpy(), own[kind])


@pytest.mark.parametrize("others", [[], [None]], ids=["in all rows", "beside a missing cell"])
@pytest.mark.parametrize(("on_missing", "found"), [("mark", np.nan), ("fill", 0), ("ragged", np.nan), ({"x": -1}, -1)])
def test_a_stored_nan_is_a_missing_value_whatever_other_rows_have(write, cache, others, on_missing, found):
    where = write("a.tfrecord", {"x": [np.nan, 1.5, *others], "id": range(2 + len(others))})
    loaded = load(where, cache_dir=cache, on_missing=on_missing)
    np.testing.assert_equal(loaded[:]["x"], np.array([found, 1.5, *[found] * len(others)], np.float32))
    assert loaded.schema["x"].nulls == 1 + len(others)
    with pytest.raises(InfeedError, match="'x'"):
        load(where, cache_dir=cache, on_missing="error")
