"""Sequences of sequences that TFDS writes as two features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.load.columns import FeatureSpec, Ragged
from infeed.components.load.dataset import load

INNER = {"sequence": {"feature": {"tensor": {"shape": {}, "dtype": "int64"}}, "length": "-1"}}
TEXTS = {"sequence": {"feature": {"text": {}}, "length": "-1"}}
FEATURES = {"x": {"sequence": {"feature": INNER, "length": "-1"}}, "y": {"sequence": {"feature": TEXTS}}}
ROWS = {
    "train": {"x": [[[1, 2], []], [], [[3]]], "y": [[["a"]], [["b", "c"]], [[], []]]},
    "eval": {"x": [[[4, 5, 6]]], "y": [[["d"]]]},
}


def features_of(name: str, rows: list[Any], kind: pa.DataType) -> dict[str, pa.Array]:
    """Return the two features of a sequence of sequences."""
    flat = [[value for one in row for value in one] for row in rows]
    lengths = [[len(one) for one in row] for row in rows]
    return {
        f"{name}/ragged_flat_values": pa.array(flat, pa.list_(kind)),
        f"{name}/ragged_row_lengths_0": pa.array(lengths, pa.list_(pa.int64())),
    }


@pytest.fixture
def folder(write, tmp_path: Path) -> str:
    for split, rows in ROWS.items():
        columns = features_of("x", rows["x"], pa.int64()) | features_of("y", rows["y"], pa.string())
        write(f"toy-{split}.tfrecord-00000-of-00001", columns)
    (tmp_path / "data" / "features.json").write_text(json.dumps({"featuresDict": {"features": FEATURES}}))
    return str(tmp_path / "data")


def plain(value: Any) -> Any:
    """Return nested lists. Text is decoded."""
    if isinstance(value, Ragged):
        return [plain(value.row(row)) for row in range(len(value.row_splits) - 1)]
    return [one.decode() if isinstance(one, bytes) else one for one in value.tolist()]


@pytest.mark.parametrize("split", ROWS)
def test_the_two_features_are_one_column_of_lists_of_lists(folder, cache, split):
    data = load(folder, split, batch_size=3, shuffle=False, cache_dir=cache)
    assert {name: plain(values) for name, values in data[:].items()} == ROWS[split]
    assert [plain(data[row]["x"]) for row in range(len(data))] == ROWS[split]["x"]
    assert data.schema["x"] == FeatureSpec("int64", None, int(split == "train"), (3,), True)
    assert "feature list" not in str(data.plan)


@pytest.mark.parametrize(
    "late", [pa.array([7]), pa.array([7.0], pa.float32()), pa.array(["q"]), pa.array([[7, 8]])], ids=repr
)
def test_a_column_of_another_split_leaves_the_values_as_they_are(folder, write, cache, late):
    columns = features_of("x", ROWS["eval"]["x"], pa.int64()) | features_of("y", ROWS["eval"]["y"], pa.string())
    write("toy-eval.tfrecord-00000-of-00001", {**columns, "late": late, "more": late})
    found = load(folder, batch_size=3, shuffle=False, cache_dir=cache)
    assert {name: plain(found[:][name]) for name in ("x", "y")} == ROWS["train"]
    assert found.schema["late"].nulls == found.schema["more"].nulls == 3
    assert {name: plain(load(folder, "eval", cache_dir=cache)[:][name]) for name in ("x", "y")} == ROWS["eval"]


def test_one_of_them_is_read_by_its_name_and_padded(folder, cache):
    data = load(folder, batch_size=3, shuffle=False, cache_dir=cache, columns=["x"], length=2)
    assert {name: values.tolist() for name, values in next(data.numpy()).items()} == {
        "x": [[[1, 2, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]], [[3, 0, 0], [0, 0, 0]]]
    }


def test_without_features_json_they_are_two_columns(folder, cache):
    Path(folder, "features.json").unlink()
    assert "x/ragged_flat_values" in load(folder, cache_dir=cache).schema
