"""Each split has the columns of the whole dataset, whichever split holds their values."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import infeed
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import ByName
from infeed.components.load.columns import FeatureSpec
from infeed.components.load.dataset import load

TRAIN, EVAL = "Split-train/data_tfrecord-00000-of-00001", "Split-eval/data_tfrecord-00000-of-00001"
NUMBER, TEXT, LISTS = pa.float32(), pa.string(), pa.list_(pa.int64())


def types(loaded: Any) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    return {name: (spec.type, spec.shape) for name, spec in loaded.schema.items()}


@pytest.fixture
def ingested(tmp_path: Path) -> str:
    """Column `late` has its one value in eval, `early` in train, and `never` has none in train."""
    lines = ["x,late,early,never,split"]
    lines += [f"{row},,{row or 'word'},,train" for row in range(8)]
    lines += [f"{row},{0.5 if row == 3 else ''},,{row},eval" for row in range(4)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    infeed.ingest(tmp_path / "rows.csv", tmp_path / "out", options=IngestOptions(split_by=ByName("split")))
    return str(tmp_path / "out")


def test_a_column_with_one_value_in_eval_is_a_column_of_train(ingested, cache):
    train, held_out = (load(ingested, split, cache_dir=cache, shuffle=False) for split in ("train", "eval"))
    assert types(train) == types(held_out)
    assert set(train.schema) == {column.name for column in infeed.inspect(ingested).manifest.schema}
    assert train.schema["late"] == FeatureSpec("float32", (), nulls=8)
    assert np.isnan(train[:]["late"]).all()
    assert np.nansum(held_out[:]["late"]) == 0.5


def test_a_missing_column_can_be_asked_for_alone(ingested, cache):
    loaded = load(ingested, columns=["late"], cache_dir=cache)
    assert list(loaded.schema) == ["late"]
    assert np.isnan(loaded[:]["late"]).tolist() == [True] * 8


@pytest.mark.slow
def test_tensorflow_gets_the_same_element_spec_of_each_split(ingested, cache):
    train, held_out = (load(ingested, split, batch_size=2, cache_dir=cache) for split in ("train", "eval"))
    assert train.tf().element_spec == held_out.tf().element_spec
    assert {len(batch) for batch in train.tf(epochs=1)} == {len(train.schema)}


@pytest.mark.parametrize("folder", ["splits", "flat"])
def test_without_a_manifest_the_other_splits_are_read(write, cache, tmp_path, folder):
    names = (TRAIN, EVAL) if folder == "splits" else ("d-train.tfrecord", "d-eval.tfrecord")
    write(names[0], {"x": pa.array([1.0, 2.0], NUMBER), "n": [1, 2], "one": [[7], [8]], "a": ["x", "y"]})
    write(names[1], {"x": pa.array([3.0], NUMBER), "n": [[1, 2]], "late": ["z"], "lists": pa.array([[4, 5]], LISTS)})
    train, held_out = (load(tmp_path / "data", split, cache_dir=cache) for split in ("train", "eval"))
    assert types(train) == types(held_out)
    assert types(train)["x"] == ("float32", ())
    assert train.schema["late"].nulls == 2
    assert held_out.schema["a"].nulls == 1
    assert [train[0]["lists"].tolist(), train[0]["n"].tolist(), train[0]["late"]] == [[], [1], None]


def test_a_manifest_without_columns_is_as_none(write, cache, tmp_path):
    """As of records that ingest passes through unread."""
    write("d.tfrecord", {"x": list(range(40)), "late": ["word", *[None] * 39]})
    infeed.ingest(tmp_path / "data" / "d.tfrecord", tmp_path / "out", format="tfrecord")
    assert not infeed.inspect(tmp_path / "out").manifest.schema
    train, held_out = (load(tmp_path / "out", split, cache_dir=cache) for split in ("train", "eval"))
    assert len(train) + len(held_out) == 40
    assert types(train) == types(held_out) == {"x": ("int64", ()), "late": ("bytes", ())}
    assert train.schema["late"].nulls + held_out.schema["late"].nulls == 39


def test_a_pattern_names_the_files_that_are_read(write, cache, tmp_path):
    write("d-train.tfrecord", {"x": [1]})
    write("d-eval.tfrecord", {"y": [1]})
    assert list(load(f"{tmp_path}/data/d-train*", cache_dir=cache).schema) == ["x"]
    assert set(load(tmp_path / "data", cache_dir=cache).schema) == {"x", "y"}


def test_another_split_that_changes_is_read_again(write, cache, tmp_path):
    write(TRAIN, {"x": [1]})
    write(EVAL, {"x": [1]})
    assert list(load(tmp_path / "data", cache_dir=cache).schema) == ["x"]
    write(EVAL, {"x": [1], "y": [2]})
    assert list(load(tmp_path / "data", cache_dir=cache).schema) == ["x", "y"]


def test_another_split_that_cannot_be_read_is_named(write, cache, tmp_path, caplog):
    write(TRAIN, {"x": [1]})
    write(EVAL, [b"no Example"])
    with caplog.at_level(logging.WARNING):
        assert list(load(tmp_path / "data", cache_dir=cache).schema) == ["x"]
    assert "'eval'" in caplog.text


def test_values_of_another_type_elsewhere_leave_a_split_as_it_is(write, cache, tmp_path):
    write(TRAIN, {"x": [1, 2]})
    write(EVAL, {"x": ["a", "b"]})
    assert load(tmp_path / "data", cache_dir=cache)[:]["x"].row(0).tolist() == [1]


def test_an_empty_list_of_another_type_does_not_decide(write, wire, cache, tmp_path):
    write(TRAIN, [wire.sequence_example({"x": []}, {})])  # of integers
    write(EVAL, [wire.sequence_example({"x": [1.5]}, {})])
    train, held_out = (load(tmp_path / "data", split, cache_dir=cache) for split in ("train", "eval"))
    assert types(train) == types(held_out) == {"x": ("float32", ())}
    assert np.isnan(train[:]["x"]).all()


def test_a_split_without_a_single_value(write, cache, tmp_path):
    write(TRAIN, [b"", b"", b""])
    write(EVAL, {"x": pa.array([1.5], NUMBER), "t": ["a"]})
    loaded = load(tmp_path / "data", cache_dir=cache)
    assert len(loaded) == 3
    assert np.isnan(loaded[:]["x"]).all()
    assert loaded[:]["t"].tolist() == [None] * 3


def test_records_before_the_first_value_of_a_feature_count(write, cache, monkeypatch):
    from infeed.components.dataset import record_blocks

    monkeypatch.setattr(record_blocks, "_RECORDS", 2)
    where = write("t-train.tfrecord", {"x": pa.array([None] * 5 + [1.5], NUMBER), "y": list(range(6))})
    assert np.isnan(load(where, columns=["x"], cache_dir=cache)[:]["x"]).tolist() == [True] * 5 + [False]
