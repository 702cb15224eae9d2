"""Shapes of tensors that a schema of TFX declares."""

from __future__ import annotations

import builtins
import io
import json
import math
import sys
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.components.feed.user_maps import Ragged
from infeed.components.load.columns import FeatureSpec
from infeed.components.load.dataset import load

ROWS = 5
FIXED = 'feature { name: "%s" type: FLOAT presence { min_fraction: 1 min_count: 1 } shape { %s } }'
SCHEMA = "\n".join(
    [
        FIXED % ("image", "dim { size: 2 } dim { size: 3 }"),
        FIXED % ("one", "dim { size: 1 }"),
        FIXED % ("scalar", ""),
        'feature { name: "few" type: FLOAT value_count { min: 0 max: 4 } }',
        'feature { name: "maybe" type: INT value_count { min: 1 max: 1 } }',
    ]
)
BOXES = """
feature { name: "boxes" type: FLOAT }
tensor_representation_group { key: "" value { tensor_representation { key: "boxes" value {
  ragged_tensor { feature_path { step: "boxes" } partition { uniform_row_length: 4 } } } } } }
"""


@pytest.fixture
def folder(write, tmp_path: Path) -> str:
    floats = pa.list_(pa.float32())
    rows = {
        "image": pa.array([[float(row)] * 6 for row in range(ROWS)], floats),
        "one": pa.array([[float(row)] for row in range(ROWS)], floats),
        "scalar": pa.array([float(row) for row in range(ROWS)], pa.float32()),
        "few": pa.array([[1.5] * (row % 2) for row in range(ROWS)], floats),
        "maybe": pa.array([None, 2, 3, 4, 5]),
        "boxes": pa.array([[float(row)] * 4 * (row % 3) for row in range(ROWS)], floats),
    }
    write("toy-train.tfrecord-00000-of-00001", rows)
    return str(tmp_path / "data")


def schema_in(place: Path, text: str = SCHEMA) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return str(place)


@pytest.mark.parametrize("artifact", [".", "transformed_metadata"])
def test_batches_have_the_shapes_of_a_schema_and_of_an_artifact_that_holds_it(folder, cache, tmp_path, artifact):
    path = schema_in(tmp_path / "schema" / artifact / "schema.pbtxt")
    for given in (path, tmp_path / "schema"):
        data = load(folder, batch_size=2, shuffle=False, cache_dir=cache, schema=given)
        batch = next(iter(data))
        shapes = {name: batch[name].shape for name in ("image", "one", "scalar")}
        assert shapes == {"image": (2, 2, 3), "one": (2, 1), "scalar": (2,)}
        assert [data[row]["few"].tolist() for row in range(2)] == [[], [1.5]]  # a list, not an optional number
        assert data.schema["maybe"].nulls == 1  # a number that may be missing, as without the schema
    assert load(folder, cache_dir=cache).schema["image"].shape == (6,)


def test_a_ragged_tensor_has_steps_of_its_uniform_inner_length(folder, cache, tmp_path):
    data = load(folder, shuffle=False, cache_dir=cache, schema=schema_in(tmp_path / "s.pbtxt", BOXES))
    assert data.schema["boxes"] == FeatureSpec("float32", None, nulls=2, step=(4,))
    assert data[2]["boxes"].tolist() == [[2] * 4] * 2


@pytest.mark.parametrize(
    ("text", "where", "value"),
    [
        (FIXED % ("image", "dim { size: 28 } dim { size: 28 }"), ", image", r"\[6\].*\[28, 28\]"),
        (FIXED % ("few", "dim { size: 3 }"), ", few", r"one value.*\[3\]"),
        (BOXES.replace("4", "3"), ", boxes", r"\[-1, 3\]"),
        ("feature { nam", "", "not a schema"),
    ],
)
def test_rows_that_do_not_fit_and_files_of_another_program_are_errors(folder, cache, tmp_path, text, where, value):
    path = schema_in(tmp_path / "s.pbtxt", text)
    with pytest.raises(InfeedError, match=value) as raised:
        load(folder, cache_dir=cache, schema=path)
    assert raised.value.where == path + where


SIZES = [-5, -1, 0, 1, 2, 3, 6]
SHAPES = [(), *((size,) for size in SIZES), *product(SIZES, SIZES), (-1, 2, 3), (2, -1, 3), (1, 2, 3), (-1, -1, -1)]


def dimensions(shape: tuple[int, ...]) -> str:
    return " ".join(f"dim {{ size: {size} }}" for size in shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("varies", [False, True])
def test_a_declared_shape_is_that_of_the_rows_an_error_or_of_unknown_sizes(write, cache, tmp_path, varies, shape):
    lists = [[1.5] * 6, [1.5] * (12 if varies else 6)]
    where = write("a.tfrecord", {"x": pa.array(lists, pa.list_(pa.float32()))})
    schema = schema_in(tmp_path / "s.pbtxt", FIXED % ("x", dimensions(shape)))
    (first, *inner), size = shape or (1,), math.prod(shape[1:])
    if not (all(one > 0 for one in inner) and (first > 0 or first == -1)):  # not declared
        expected: Any = (None, ()) if varies else ((6,), ())
    elif 6 % size or first not in ((-1,) if varies else (-1, 6 // size)) or not shape:
        with pytest.raises(InfeedError, match="but the schema declares") as raised:
            load(where, cache_dir=cache, schema=schema)
        assert raised.value.where == f"{schema}, x"
        return
    else:
        expected = (None, tuple(inner)) if varies else ((6 // size, *inner), ())
    data = load(where, cache_dir=cache, schema=schema)
    assert (data.schema["x"].shape, data.schema["x"].step) == expected
    assert data[0]["x"].size == 6


@pytest.mark.parametrize(
    "partition", ["", "partition { uniform_row_length: 0 }", "partition { uniform_row_length: -2 }", "partition {}"]
)
@pytest.mark.parametrize("path", ["", 'step: "boxes"', 'step: "boxes" step: "x"'])
def test_a_ragged_tensor_without_sizes_is_a_list(folder, cache, tmp_path, path, partition):
    text = BOXES.replace('step: "boxes"', path).replace("partition { uniform_row_length: 4 }", partition)
    data = load(folder, shuffle=False, cache_dir=cache, schema=schema_in(tmp_path / "s.pbtxt", text))
    assert data.schema["boxes"] == FeatureSpec("float32", None, nulls=2)


ONE = {
    "shape": 'feature { name: "x" shape {} }',
    "value count": 'feature { name: "x" value_count { min: 1 max: 1 } }',
    "tensor": """tensor_representation_group { key: "" value { tensor_representation { key: "x" value {
        dense_tensor { column_name: "x" shape {} } } } } }""",
}


@pytest.mark.parametrize("text", ONE.values(), ids=ONE)
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[1], [2]], None),
        ([[1], []], None),
        ([[1, 2, 3], [4, 5, 6]], r"the shape \[3\], but the schema declares one value"),
        ([[1], [2, 3]], "numbers of values that differ, but the schema declares one value"),
        ([[], [2, 3]], "numbers of values that differ"),
    ],
    ids=str,
)
def test_a_declared_single_value_is_one_or_missing(write, cache, tmp_path, text, rows, said):
    where = write("a.tfrecord", {"x": pa.array(rows, pa.list_(pa.int64())), "y": [1, 2]})
    schema = schema_in(tmp_path / "s.pbtxt", text)
    with nullcontext() if said is None else pytest.raises(InfeedError, match=said) as raised:
        assert load(where, cache_dir=cache, schema=schema, on_missing="fill").schema["x"].shape == ()
    assert raised is None or raised.value.where == f"{schema}, x"


@pytest.mark.parametrize("mark", ["deprecated: true", "lifecycle_stage: DEPRECATED"])
def test_a_deprecated_feature_is_not_declared(folder, cache, tmp_path, mark):
    text = (FIXED % ("image", "dim { size: 5 }")).replace("type: FLOAT", f"type: FLOAT {mark}")
    data = load(folder, cache_dir=cache, schema=schema_in(tmp_path / "s.pbtxt", text))
    assert data.schema["image"].shape == (6,)


@pytest.mark.parametrize("kind", [pa.float32(), pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("on_missing", ["mark", "fill"])
@pytest.mark.parametrize("eval_rows", [[["1"], None], [None, None], [["1"], ["2"]]], ids=str)
def test_missing_cells_of_any_split_leave_a_declared_size_of_1(write, cache, tmp_path, kind, on_missing, eval_rows):
    for split, rows in {"train": [["3"]] * 4, "eval": eval_rows}.items():
        cells = pa.array(rows, pa.list_(pa.string())).cast(pa.list_(kind))
        write(f"toy-{split}.tfrecord", {"x": cells, "y": [1] * len(rows)})
    schema = schema_in(tmp_path / "s.pbtxt", FIXED % ("x", "dim { size: 1 }"))
    loaded = {
        split: load(tmp_path / "data", split, cache_dir=cache, schema=schema, on_missing=on_missing, shuffle=False)
        for split in ("train", "eval")
    }
    is_ragged = kind == pa.int64() and on_missing == "mark" and None in eval_rows
    for data in loaded.values():
        assert data.schema["x"].shape == (None if is_ragged else (1,))
        if not is_ragged:
            assert data[:]["x"].shape == (len(data), 1)
            assert next(data.numpy(pack=True))[data.schema["x"].type].shape[0] == len(data)
    assert len(loaded["train"].packed_columns().get("float32", ())) == (kind == pa.float32())


def test_tfds_shapes_that_the_schema_does_not_declare_are_not_checked(folder, cache, tmp_path):
    tensor = {"tensor": {"shape": {"dimensions": ["5", "5"]}, "dtype": "float32"}}
    features = {"featuresDict": {"features": {"image": tensor, "scalar": tensor}}}
    (tmp_path / "data" / "features.json").write_text(json.dumps(features))
    text = FIXED % ("one", "dim { size: 1 }") + FIXED % ("scalar", "")
    data = load(folder, cache_dir=cache, schema=schema_in(tmp_path / "s.pbtxt", text))
    assert {name: data.schema[name].shape for name in ("image", "one", "scalar")} == {
        "image": (6,),
        "one": (1,),
        "scalar": (),
    }


@pytest.mark.parametrize("column", ["image", "image/encoded"])
@pytest.mark.parametrize("shape", ["", "dim { size: 1 }"])
def test_pictures_are_decoded_whatever_shape_their_files_have(write, cache, tmp_path, monkeypatch, column, shape):
    monkeypatch.setitem(sys.modules, "simplejpeg", ModuleType("simplejpeg"))  # does not decode PNG
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (10, 20, 30)).save(buffer, "PNG")
    where = write("a.tfrecord", {column: pa.array([buffer.getvalue()] * 2, pa.binary()), "label": [0, 1]})
    text = (FIXED % (column, shape)).replace("FLOAT", "BYTES") + FIXED % ("label", "dim { size: 1 }")
    data = load(
        where, cache_dir=cache, schema=schema_in(tmp_path / "s.pbtxt", text), decode="image", size=4, batch_size=2
    )
    features, label = next(data.numpy("label"))
    assert (features["image"].shape, label.shape) == ((2, 4, 4, 3), (2, 1))
    assert features["image"][0, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize("pack", [False, True])
def test_a_weight_of_a_declared_size_of_1_is_one_number_for_each_row(folder, cache, tmp_path, pack):
    schema = schema_in(tmp_path / "s.pbtxt")
    for options in ({}, {"pad_remainder": True}):
        data = load(folder, batch_size=2, shuffle=False, cache_dir=cache, schema=schema, **options)
        features, label, weight = next(data.numpy("scalar", weight="one", pack=pack))
        assert (label.shape, weight.tolist(), weight.dtype) == ((2,), [0, 1], np.float32)
        assert "one" not in features
        assert next(data.numpy("one"))[1].shape == (2, 1)


def test_a_schema_that_does_not_exist_and_a_missing_package_are_errors(folder, cache, tmp_path, monkeypatch):
    with pytest.raises(InfeedError, match="there is no schema") as raised:
        load(folder, cache_dir=cache, schema=tmp_path)
    assert raised.value.where == str(tmp_path)
    own = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("tensorflow_metadata"):
            raise ModuleNotFoundError(name, name=name)
        return own(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(InfeedError, match="tensorflow-metadata is not installed"):
        load(folder, cache_dir=cache, schema=schema_in(tmp_path / "schema.pbtxt"))


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_tensorflow_has_sizes_of_1_with_missing_cells_and_weights(write, cache, tmp_path, batch_size, shuffle):
    rows = {"n": [3, None, 5, 6], "t": ["a", None, "c", "d"], "f": pa.array([1.5, None, 2.5, 3], pa.float32())}
    where = write("a.tfrecord", {**rows, "y": [1, 2, 3, 4], "w": [1, 2, 3, 4]})
    text = "".join(FIXED % (name, "dim { size: 1 }") for name in (*rows, "w"))
    options = {"on_missing": "fill", "schema": schema_in(tmp_path / "s.pbtxt", text), "batch_size": batch_size}
    data = load(where, cache_dir=cache, shuffle=shuffle, **options)
    for ours, theirs in zip(data.numpy("y", 1, weight="w"), data.tf("y", 1, weight="w"), strict=True):
        for name in rows:
            assert ours[0][name].shape == theirs[0][name].shape == (batch_size, 1)
            assert ours[0][name].tolist() == theirs[0][name].numpy().tolist()
        assert ours[2].tolist() == theirs[2].numpy().tolist()
        assert ours[2].shape == (batch_size,)


@pytest.mark.slow
def test_tensorflow_transform_parses_the_records_to_the_same_arrays(folder, cache, tmp_path):
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tensorflow_transform.tf_metadata import schema_utils

    schema = schema_in(tmp_path / "schema.pbtxt")
    spec = schema_utils.schema_as_feature_spec(text_format.Parse(SCHEMA, schema_pb2.Schema())).feature_spec
    records = list(tf.data.TFRecordDataset(tf.io.gfile.glob(f"{folder}/*")).as_numpy_iterator())
    theirs = tf.io.parse_example(records, spec)
    ours = load(folder, shuffle=False, cache_dir=cache, schema=schema)[:]
    for name in ("image", "one", "scalar"):
        assert ours[name].tolist() == theirs[name].numpy().tolist()
    for name in ("few", "maybe"):
        assert isinstance(ours[name], Ragged)
        row_splits = tf.RaggedTensor.from_sparse(theirs[name]).row_splits.numpy()
        assert (ours[name].values.tolist(), ours[name].row_splits.tolist()) == (
            theirs[name].values.numpy().tolist(),
            row_splits.tolist(),
        )
    assert np.asarray(ours["image"]).dtype == np.float32
