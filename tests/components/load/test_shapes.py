"""Shapes of tensors that TFDS declares beside its records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.load.columns import FeatureSpec, Ragged
from infeed.components.load.dataset import load
from infeed.components.load.shapes import declared_shapes

ROWS = 5


def tensor(*sizes: int, **more: Any) -> dict[str, Any]:
    return {"tensor": {"shape": {"dimensions": [str(size) for size in sizes]}, "dtype": "float32", **more}}


def record(**features: Any) -> dict[str, Any]:
    return {"pythonClassName": "tensorflow_datasets.core.features.FeaturesDict", "featuresDict": {"features": features}}


FEATURES = record(
    image=tensor(2, 3, 1, encoding="none"),
    pose=record(matrix=tensor(2, 2)),
    track={"sequence": {"feature": tensor(2), "length": "3"}},
    open={"sequence": {"feature": tensor(2), "length": "-1"}},
    zipped=tensor(2, 3, encoding="zlib"),
    unknown=tensor(-1, 3),
    line=tensor(4),
    label={"classLabel": {"numClasses": "10"}},
    one=tensor(1),
    few={"sequence": {"feature": tensor(), "length": "-1"}},
    box={"sequence": {"feature": record(corners={"boundingBox": tensor(4)["tensor"]}, id=tensor())}},
    nested={"sequence": {"feature": {"sequence": {"feature": tensor(), "length": "3"}}, "length": "-1"}},
)


@pytest.fixture
def folder(write, tmp_path: Path) -> str:
    numbers = {"image": 6, "pose/matrix": 4, "track": 6, "line": 4}
    rows = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * size, dtype=np.float32)), size)
        for name, size in numbers.items()
    }
    rows["one"] = pa.array([[float(row)] for row in range(ROWS)], pa.list_(pa.float32()))
    rows["few"] = pa.array([[1.5] * (row % 2) for row in range(ROWS)], pa.list_(pa.float32()))
    rows["open"] = pa.array([[float(row)] * 2 * (row % 3) for row in range(ROWS)], pa.list_(pa.float32()))
    rows["box/corners"] = pa.array([[0.5] * 4 * (row % 2 + 1) for row in range(ROWS)], pa.list_(pa.float32()))
    write("toy-train.tfrecord-00000-of-00001", {**rows, "label": list(range(ROWS))})
    (tmp_path / "data" / "features.json").write_text(json.dumps(FEATURES))
    return str(tmp_path / "data")


def test_tensors_have_a_shape_unless_an_inner_dimension_is_unknown_or_they_are_encoded(folder):
    assert declared_shapes(folder) == {
        "image": (2, 3, 1),
        "pose/matrix": (2, 2),
        "track": (3, 2),
        "open": (-1, 2),
        "unknown": (-1, 3),
        "line": (4,),
        "one": (1,),
        "few": (-1,),
        "box/corners": (-1, 4),
        "box/id": (-1,),
        "nested": (-1, -1),
    }
    assert declared_shapes(folder + "/no-such-folder") == {}


def test_a_file_that_tfds_wrote_has_the_shapes_of_its_tensors():
    """TFDS 4.9.10, by `FeaturesDict.save_config`."""
    assert declared_shapes(str(Path(__file__).parents[2] / "data" / "tfds-4.9.10")) == {
        "matrix": (2, 3),
        "objects/bbox": (-1, 4),
        "objects/name": (-1,),
        "open": (-1, 3),
        "points": (-1, 2),
        "pose/matrix": (2, 2),
        "ragged": (-1, -1),
        "three": (3,),
    }


def test_batches_and_rows_have_the_shapes(folder, cache):
    data = load(folder, batch_size=2, shuffle=False, cache_dir=cache)
    assert data.schema["image"].shape == (2, 3, 1)
    assert data.schema["line"].shape == (4,)
    features, label = next(data.numpy("label"))
    assert features["image"].tolist() == np.arange(12).reshape(2, 2, 3, 1).tolist()
    dense = ("image", "line", "one", "pose/matrix", "track")
    assert {name: features[name].shape for name in dense} == {
        "image": (2, 2, 3, 1),
        "line": (2, 4),
        "one": (2, 1),
        "pose/matrix": (2, 2, 2),
        "track": (2, 3, 2),
    }
    assert data[1]["pose/matrix"].tolist() == [[4, 5], [6, 7]]
    assert label.tolist() == [0, 1]


def test_a_sequence_of_any_length_has_rows_of_its_tensors(folder, cache):
    data = load(folder, batch_size=3, shuffle=False, cache_dir=cache)
    assert [data[row]["open"].tolist() for row in range(3)] == [[], [[1, 1]], [[2, 2], [2, 2]]]
    assert data[1]["box/corners"].tolist() == [[0.5] * 4] * 2
    assert [data[row]["few"].tolist() for row in range(2)] == [[], [1.5]]  # a list, not an optional number
    assert data.schema["open"] == FeatureSpec("float32", None, nulls=2, step=(2,))
    padded = load(folder, batch_size=3, shuffle=False, cache_dir=cache, length={"open": 4})
    assert next(padded.numpy())["open"].shape == (3, 4, 2)


def test_packed_arrays_stay_flat(folder, cache):
    data = load(folder, batch_size=2, shuffle=False, cache_dir=cache)
    places = data.packed_columns("label")["float32"]
    packed = next(data.numpy("label", pack=True))[0]["float32"]
    assert packed.shape == (2, len(places)) == (2, 21)
    assert packed[1, places.index("image") :][:6].tolist() == [*range(6, 12)]


def test_a_shape_that_the_records_contradict_is_ignored(folder, cache, tmp_path):
    (tmp_path / "data" / "features.json").write_text(json.dumps(record(image=tensor(5, 5), open=tensor(-1, 5))))
    schema = load(folder, batch_size=2, cache_dir=cache).schema
    assert (schema["image"].shape, schema["open"].step) == ((6,), ())


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"featuresDict": {"features": {"x": 1}}}', '{"sequence": {"length": "3"}}', "\xff", "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_a_damaged_file_or_one_of_another_program_gives_flat_lists_and_a_warning(folder, cache, tmp_path, caplog, text):
    (tmp_path / "data" / "features.json").write_bytes(text.encode("latin-1"))
    assert load(folder, cache_dir=cache).schema["image"].shape == (6,)
    assert f"{folder}/features.json" in caplog.text


@pytest.mark.slow
def test_tensorflow_has_the_shapes(folder, cache):
    data = load(folder, batch_size=2, shuffle=False, cache_dir=cache)
    theirs = data.tf("label", epochs=1)
    assert theirs.element_spec[0]["image"].shape[1:] == (2, 3, 1)
    for (features, _), (expected, _) in zip(theirs, data.numpy("label"), strict=True):
        for name, values in expected.items():
            if isinstance(values, Ragged):
                values, given = values.values, features[name].flat_values
            else:
                given = features[name]
            assert np.asarray(given).tolist() == values.tolist()
