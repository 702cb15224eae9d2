"""Sequences of sequences that TFDS writes as two features."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import records
from infeed.components.dataset.encode import encode_examples
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


def two_features(flat: list[list[int]], lengths: list[list[int]]) -> dict[str, pa.Array]:
    values = pa.list_(pa.int64())
    return {"x/ragged_flat_values": pa.array(flat, values), "x/ragged_row_lengths_0": pa.array(lengths, values)}


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
    "late",
    [pa.array([7]), pa.array([7.0], pa.float32()), pa.array(["q"]), pa.array([[7, 8]])],
    ids=lambda late: str(late.type),
)
def test_a_column_of_another_split_leaves_the_values_as_they_are(folder, write, cache, late):
    columns = features_of("x", ROWS["eval"]["x"], pa.int64()) | features_of("y", ROWS["eval"]["y"], pa.string())
    write("toy-eval.tfrecord-00000-of-00001", {**columns, "late": late, "more": late})
    found = load(folder, batch_size=3, shuffle=False, cache_dir=cache)
    assert {name: plain(found[:][name]) for name in ("x", "y")} == ROWS["train"]
    assert found.schema["late"].nulls == found.schema["more"].nulls == 3
    assert {name: plain(load(folder, "eval", cache_dir=cache)[:][name]) for name in ("x", "y")} == ROWS["eval"]


@pytest.mark.parametrize(
    ("flat", "lengths", "said"),
    [
        (
            [[1, 2, 3], [4, 5]],
            [[2, 2], [1]],
            r"'x' has 3 values, but sequences of the lengths \[2, 2\], which sum up to 4",
        ),
        ([[1, 2, 3], [4]], [[2], [1, 1]], r"3 values(.|\n)*sum up to 2"),
        ([[1, 2, 3]], [[4, -1]], r"3 values(.|\n)*\[4, -1\]"),
        ([[1, 2, 3]], [[2, 2]], r"3 values(.|\n)*sum up to 4"),
        ([[1, 2, 3]], [[]], r"3 values(.|\n)*sum up to 0"),
        ([[]], [[1]], r"0 values(.|\n)*sum up to 1"),
        ([[1, 2]], [[1 << 62, 1 << 62, 1 << 62, (1 << 62) + 2]], r"2 values"),  # their sum in 64 bits is 2
    ],
    ids=str,
)
def test_lengths_that_are_not_those_of_the_values_name_the_record(folder, write, cache, flat, lengths, said):
    Path(folder, "toy-train.tfrecord-00000-of-00001").unlink()
    write("toy-train.tfrecord-00000-of-00002", two_features([[1], [2, 3]], [[1], [1, 1, 0]]))
    path = write("toy-train.tfrecord-00001-of-00002", two_features([[1], *flat], [[1], *lengths]))
    with pytest.raises(InfeedError, match=said) as error:
        load(folder, cache_dir=cache, columns=["x"])
    assert error.value.where == f"{path}, record 1, x"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), min_size=1, max_size=5))
def test_lengths_of_the_values_are_right(rows: list[list[list[int]]]) -> None:
    columns = features_of("x", rows, pa.int64())
    payloads = encode_examples(pa.record_batch(list(columns.values()), list(columns)))
    with TemporaryDirectory() as folder:
        Path(folder, "features.json").write_text(json.dumps({"featuresDict": {"features": FEATURES}}))
        records.write_records(f"{folder}/toy-train.tfrecord", [records.frame_records(payloads)], gzip_level=None)
        data = load(folder, shuffle=False, cache_dir=f"{folder}/cache")
        assert plain(data[:]["x"]) == rows


def test_a_name_that_does_not_exist_is_answered_with_the_joined_names(folder, cache):
    with pytest.raises(InfeedError, match=r"use one of x, y$"):
        load(folder, cache_dir=cache, columns=["zz"])


def test_one_of_them_is_read_by_its_name_and_padded(folder, cache):
    data = load(folder, batch_size=3, shuffle=False, cache_dir=cache, columns=["x"], length=2)
    assert {name: values.tolist() for name, values in next(data.numpy()).items()} == {
        "x": [[[1, 2, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]], [[3, 0, 0], [0, 0, 0]]]
    }


def test_without_features_json_they_are_two_columns(folder, cache):
    Path(folder, "features.json").unlink()
    assert "x/ragged_flat_values" in load(folder, cache_dir=cache).schema
