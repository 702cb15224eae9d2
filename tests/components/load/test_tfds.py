"""Shapes of tensors that TFDS declares beside its records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.load.dataset import load
from infeed.components.load.tfds import declared_shapes

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
)


@pytest.fixture
def folder(write, tmp_path: Path) -> str:
    numbers = {"image": 6, "pose/matrix": 4, "track": 6, "line": 4}
    rows = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * size, dtype=np.float32)), size)
        for name, size in numbers.items()
    }
    write("toy-train.tfrecord-00000-of-00001", {**rows, "label": list(range(ROWS))})
    (tmp_path / "data" / "features.json").write_text(json.dumps(FEATURES))
    return str(tmp_path / "data")


def test_only_tensors_of_known_sizes_have_a_shape(folder):
    assert declared_shapes(folder) == {"image": (2, 3, 1), "pose/matrix": (2, 2), "track": (3, 2)}
    assert declared_shapes(folder + "/no-such-folder") == {}


def test_batches_and_rows_have_the_shapes(folder, cache):
    data = load(folder, batch_size=2, shuffle=False, cache_dir=cache)
    assert data.schema["image"].shape == (2, 3, 1)
    assert data.schema["line"].shape == (4,)
    features, label = next(data.numpy("label"))
    assert features["image"].tolist() == np.arange(12).reshape(2, 2, 3, 1).tolist()
    assert {name: value.shape for name, value in features.items()} == {
        "image": (2, 2, 3, 1),
        "line": (2, 4),
        "pose/matrix": (2, 2, 2),
        "track": (2, 3, 2),
    }
    assert data[1]["pose/matrix"].tolist() == [[4, 5], [6, 7]]
    assert label.tolist() == [0, 1]


def test_packed_arrays_stay_flat(folder, cache):
    data = load(folder, batch_size=2, shuffle=False, cache_dir=cache)
    places = data.packed_columns("label")["float32"]
    packed = next(data.numpy("label", pack=True))[0]["float32"]
    assert packed.shape == (2, len(places)) == (2, 20)
    assert packed[1, places.index("image") :][:6].tolist() == [*range(6, 12)]


def test_a_shape_that_the_records_contradict_is_ignored(folder, cache, tmp_path):
    (tmp_path / "data" / "features.json").write_text(json.dumps(record(image=tensor(5, 5))))
    assert load(folder, batch_size=2, cache_dir=cache).schema["image"].shape == (6,)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"featuresDict": {"features": {"x": 1}}}', '{"sequence": {"length": "3"}}', "\xff"]
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
    for (features, _), (expected, _) in zip(theirs.as_numpy_iterator(), data.numpy("label"), strict=True):
        assert {name: value.tolist() for name, value in features.items()} == {
            name: value.tolist() for name, value in expected.items()
        }
