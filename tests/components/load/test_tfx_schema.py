"""Shapes of tensors that a schema of TFX declares."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

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
        (FIXED % ("few", "dim { size: 3 }"), ", few", r"\[\].*\[3\]"),
        (BOXES.replace("4", "3"), ", boxes", r"\[-1, 3\]"),
        ("feature { nam", "", "not a schema"),
    ],
)
def test_rows_that_do_not_fit_and_files_of_another_program_are_errors(folder, cache, tmp_path, text, where, value):
    path = schema_in(tmp_path / "s.pbtxt", text)
    with pytest.raises(InfeedError, match=value) as raised:
        load(folder, cache_dir=cache, schema=path)
    assert raised.value.where == path + where


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
