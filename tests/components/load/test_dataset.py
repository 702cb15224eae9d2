"""`infeed.load`: rows, batches, schema and what is refused. Covers `options` and `entries`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.load.columns import FeatureSpec, Ragged
from infeed.components.load.dataset import LoadedDataset, load

Write = Callable[..., str]
TABLE = {
    "x": pa.array([float(number) for number in range(10)], pa.float32()),
    "pair": pa.array([[number, number * number] for number in range(10)], pa.list_(pa.int64(), 2)),
    "maybe": pa.array([None if number % 3 else number / 2 for number in range(10)], pa.float32()),
    "list": pa.array([list(range(number % 4)) for number in range(10)], pa.list_(pa.int64())),
    "name": pa.array([f"row {number}" for number in range(10)]),
    "words": pa.array([["a"] * (number % 3) for number in range(10)], pa.list_(pa.string())),
}


@pytest.fixture
def data(write: Write, cache: str) -> Callable[..., LoadedDataset]:
    """The table in two files, loaded."""
    for number, rows in enumerate((slice(0, 4), slice(4, 10))):
        write(f"t-train.tfrecord-0000{number}-of-00002", {name: column[rows] for name, column in TABLE.items()})
    folder = str(Path(cache).parent / "data")
    return lambda **options: load(folder, cache_dir=cache, **options)


def plain(value: Any) -> Any:
    """Arrays as lists, NaN as None."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, Ragged):
        return [plain(value.row(number)) for number in range(len(value.row_splits) - 1)]
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return [None if one != one else one for one in value] if isinstance(value, list) else value


def test_the_schema_is_found_from_the_records(data):
    assert data().schema == {
        "list": FeatureSpec("int64", None, 3),
        "maybe": FeatureSpec("float32", (), 6),
        "name": FeatureSpec("bytes", ()),
        "pair": FeatureSpec("int64", (2,)),
        "words": FeatureSpec("bytes", None, 4),
        "x": FeatureSpec("float32", ()),
    }


def test_rows_come_by_their_numbers(data):
    assert len(data()) == 10
    assert plain(data()[[7, 0]]) == {
        "list": [[0, 1, 2], []],
        "maybe": [None, 0.0],
        "name": [b"row 7", b"row 0"],
        "pair": [[7, 49], [0, 0]],
        "words": [[b"a"], []],
        "x": [7.0, 0.0],
    }
    row = data()[-1]
    assert plain(row["pair"]) == [9, 81]
    assert (row["x"], row["maybe"], row["name"]) == (9.0, 4.5, b"row 9")
    assert plain(data()[2:9:3]["x"]) == [2.0, 5.0, 8.0]
    assert [row["x"] for row in data().__getitems__([3, 1])] == [3.0, 1.0]


@pytest.mark.parametrize("rows", [10, -11, [3, 10], [-11]], ids=str)
def test_a_row_that_does_not_exist(data, rows):
    with pytest.raises(IndexError, match=r"row -?1[01] (.|\n)*10 rows"):
        data()[rows]


@pytest.mark.parametrize("rows", ["x", 1.5, None, [0.5], ["x"], [True, False], [[1, 2]]], ids=str)
def test_what_names_no_rows_is_refused(data, rows):
    with pytest.raises(TypeError, match="no numbers of rows"):
        data()[rows]


def test_numbers_of_rows_and_options_may_be_those_of_numpy(data):
    assert data()[np.int64(7)]["x"] == data()[np.array(7)]["x"] == 7.0
    assert plain(data()[np.array([7, 0], np.uint8)]["x"]) == [7.0, 0.0]
    assert plain(data()[[]]["x"]) == []
    loaded, of_numpy = data(batch_size=4, start_step=1), data(batch_size=np.int64(4), start_step=np.int32(1))
    assert len(loaded.numpy(epochs=np.int64(2), ahead=np.int8(1))) == len(loaded.numpy(epochs=2))
    assert plain(next(loaded.numpy())) == plain(next(of_numpy.numpy()))


def test_wide_rows_are_not_taken_many_at_a_time(data, monkeypatch):
    features = data()._features
    assert features.batches_a_call(64) == 128
    monkeypatch.setattr("infeed.components.load.columns._BYTES_A_CALL", features.bytes)
    assert (features.batches_a_call(2), features.batches_a_call(64)) == (5, 1)


def test_without_shuffling_the_rows_come_once_in_order(data):
    batches = list(data(batch_size=4, shuffle=False))
    assert [len(batch["x"]) for batch in batches] == [4, 4, 2]
    assert plain(np.concatenate([batch["x"] for batch in batches])) == list(range(10))


@pytest.mark.parametrize(("start_step", "epochs"), [(0, 1), (0, 3), (2, 2), (1, 3)])
def test_epochs_in_order_repeat_all_rows(data, start_step, epochs):
    batches = data(batch_size=4, shuffle=False, start_step=start_step).numpy(epochs=epochs)
    whole = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] * epochs
    assert len(batches) == 3 * epochs - start_step
    assert [plain(batch["x"]) for batch in batches] == whole[start_step:]
    assert [plain(batch["x"]) for batch in batches] == whole


def test_a_training_goes_on_where_it_was_broken_off(data):
    whole = [plain(batch) for batch in data(batch_size=3, seed=1).numpy(epochs=4)]
    assert [plain(batch) for batch in data(batch_size=3, seed=1, start_step=5).numpy(epochs=4)] == whole[5:]


def test_a_label_makes_pairs(data):
    features, label = next(data(batch_size=4, columns=["x", "pair"]).numpy(label="x"))
    assert (sorted(features), label.shape) == (["pair"], (4,))


def test_columns_are_those_that_are_asked_for(data):
    assert list(data(columns=["x", "name"]).schema) == ["name", "x"]


def test_records_are_decoded_once(data, monkeypatch):
    expected = plain(data()[:])
    monkeypatch.setattr("infeed.components.load.entries.spill_records", None)
    assert plain(data(batch_size=2, seed=9)[:]) == expected


def test_another_process_opens_the_same_files(data):
    loaded = data()
    copied = pickle.dumps(loaded)
    assert len(copied) < 20_000
    assert plain(pickle.loads(copied)[:]) == plain(loaded[:])


def test_the_plan_is_told(data):
    plan = str(data(batch_size=4, seed=7).plan)
    assert "split 'train' of" in plan
    assert "10 records" in plan
    assert "reads 6 features" in plan
    assert "a new permutation of all rows in each epoch, by seed 7" in plan
    assert "4 rows at a time, 2 batches an epoch" in plan


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"start_step": -1}, "start_step is -1"),
        ({"start_step": 3, "shuffle": False, "batch_size": 4}, "start_step is 3, beyond the epoch of 3 steps"),
        ({"seed": 1 << 70}, "seed is"),
        ({"shuffle": "no"}, r"shuffle is 'no'(.|\n)*use True or False"),
        ({"workers": (4, 4)}, "index is 4(.|\n)*number the workers from 0 to count - 1"),
        ({"workers": 2}, r"workers is 2(.|\n)*\(0, 4\)"),
        ({"workers": (0, 3), "batch_size": 4}, "batch_size is 4, which 3 workers"),
        ({"columns": "x"}, r"columns is 'x'(.|\n)*list the features"),
        ({"columns": {"x"}}, r"columns is {'x'}(.|\n)*list the features"),
        ({"columns": ["x", 1]}, r"columns is \('x', 1\)(.|\n)*list the features"),
        ({"columns": ["x", "y"]}, r"there is no column 'y'(.|\n)*data\n(.|\n)*use one of list, maybe, name, "),
        ({"split": "test"}, r"there is no split 'test'(.|\n)*set split= to one of train"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(data, options, said):
    with pytest.raises(InfeedError, match=said):
        data(**options)


def test_a_wrong_option_is_told_of_the_argument_that_gave_it(data):
    for option in ({"workers": (4, 4)}, {"start_step": -1}, {"batch_size": "3"}):
        with pytest.raises(InfeedError, match=rf"where: infeed.load, {next(iter(option))}\n"):
            data(**option)
    with pytest.raises(InfeedError, match=r"where: infeed.load, batch_size\n(.|\n)*use a multiple of 3"):
        data(workers=(0, 3), batch_size=4)
    with pytest.raises(InfeedError, match=r"epochs is 1.5(.|\n)*where: infeed.load, epochs"):
        data().numpy(epochs=1.5)


def test_where_may_be_a_path_and_nothing_else(data, cache):
    folder = Path(cache).parent / "data"
    assert len(data()) == len(load(folder, cache_dir=cache)) == 10
    assert len(load(folder, cache_dir=Path(cache))) == 10
    with pytest.raises(InfeedError, match=r"as str"):
        load(None)
    with pytest.raises(InfeedError, match=r"cache_dir is None(.|\n)*use a local folder"):
        load(folder, cache_dir=None)


def test_a_start_step_beyond_the_epoch_is_refused_where_the_epoch_is_asked_for(data):
    loaded = data(batch_size=4, start_step=2)
    assert next(loaded.numpy())
    with pytest.raises(InfeedError, match=r"start_step is 2, beyond the epoch of 2 steps(.|\n)*or more epochs"):
        iter(loaded)


def test_a_label_that_does_not_exist_is_refused(data):
    with pytest.raises(InfeedError, match=r"there is no column 7"):
        data().numpy(label=["x", 7])
    with pytest.raises(InfeedError, match="there is no column 'tips'"):
        data().numpy(label="tips")


def test_a_dataset_of_ours_has_one_schema_for_all_splits(write, cache, tmp_path):
    """Its manifest tells of missing values that this split does not have."""
    import json

    path = write("Split-train/data_tfrecord-00000-of-00001.gz", {"n": [1, 2], "f": [0.5, 1.5]})
    shard = {"file": "Split-train/data_tfrecord-00000-of-00001.gz", **facts(path), "records": 2}
    columns = [
        {"name": "f", "type": "float", "shape": [1], "nulls": 3},
        {"name": "n", "type": "int", "shape": [1], "nulls": 1},
    ]
    manifest = {
        "format": 1,
        "complete": True,
        "created_by": "a test",
        "source": {"kind": "csv", "fingerprint": "", "files": 1, "bytes": 1},
        "options": {},
        "schema": columns,
        "splits": {"train": {"records": 2, "bytes": shard["bytes"], "shards": [shard], "reason": ""}},
        "rejected": {"rows": 0, "file": None},
        "filtered": 0,
        "rows_read": 2,
    }
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    loaded = load(str(tmp_path / "data"), cache_dir=cache)
    assert loaded.schema == {"f": FeatureSpec("float32", ()), "n": FeatureSpec("int64", None)}
    assert plain(loaded[:]) == {"f": [0.5, 1.5], "n": [[1], [2]]}
    (tmp_path / "data" / shard["file"]).write_bytes(b"damaged")
    with pytest.raises(InfeedError, match="the file has changed"):
        load(str(tmp_path / "data"), cache_dir=f"{cache}-other")


def facts(path: str) -> dict[str, Any]:
    from infeed.components.dataset.records import file_crc32c

    return {"bytes": Path(path).stat().st_size, "crc32c": file_crc32c(path)}


VALUES = st.lists(st.one_of(st.none(), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)), min_size=1, max_size=9)
TEXTS = st.lists(st.one_of(st.none(), st.lists(st.binary(max_size=5), max_size=3)), min_size=1, max_size=9)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(VALUES, TEXTS)
def test_whatever_lists_there_are_come_back(tmp_path_factory, write, numbers, texts):
    rows = min(len(numbers), len(texts))
    columns = {
        "n": pa.array(numbers[:rows], pa.list_(pa.int64())),
        "t": pa.array(texts[:rows], pa.list_(pa.binary())),
        "row": pa.array(range(rows)),
    }
    where = write("all.tfrecord", columns)
    loaded = load(where, on_missing="ragged", cache_dir=str(tmp_path_factory.mktemp("cache")))
    for name in ("n", "t"):
        expected = [one or [] for one in columns[name].to_pylist()]
        if name in loaded.schema:
            found = [plain(np.atleast_1d(loaded[number][name])) for number in range(rows)]
            assert found == expected
        else:
            assert not any(columns[name].is_valid().to_pylist())
