"""The same batches for each framework; those that are not installed here are left out, and named by the error."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.errors import InfeedError
from infeed.components.load.columns import Ragged
from infeed.components.load.dataset import load

ROWS = 23


@pytest.fixture
def where(write) -> str:
    """Every sort of feature, two wide ones among them."""
    numbers = range(ROWS)
    return write(
        "t-train.tfrecord",
        {
            "x": pa.array([number / 2 for number in numbers], pa.float32()),
            "y": pa.array(numbers),
            "pair": pa.array([[number, -number] for number in numbers], pa.list_(pa.int64(), 2)),
            "list": pa.array([list(range(number % 4)) for number in numbers], pa.list_(pa.int64())),
            "name": pa.array([f"row {number}" for number in numbers]),
            "words": pa.array([["ä" * number] * (number % 3) for number in numbers], pa.list_(pa.string())),
        },
    )


def plain(batch: Any) -> Any:
    """As nested lists."""
    if isinstance(batch, tuple) and not isinstance(batch, Ragged):
        return [plain(part) for part in batch]
    if isinstance(batch, dict):
        return {name: plain(values) for name, values in batch.items()}
    if isinstance(batch, Ragged):
        values, splits = np.asarray(batch.values), np.asarray(batch.row_splits)
        return [values[begin:end].tolist() for begin, end in itertools.pairwise(splits)]
    return batch.to_list() if hasattr(batch, "to_list") else np.asarray(batch).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"batch_size": 4}, {"batch_size": 4, "start_step": 7, "workers": (1, 2)}, {"batch_size": 6, "shuffle": False}],
    ids=str,
)
def test_tensorflow_has_the_same_batches(where, cache, options):
    data = load(where, cache_dir=cache, seed=3, **options)
    theirs = data.tf(label="y", epochs=None if options.get("shuffle") is False else 2)
    ours = data.numpy(label="y", epochs=2)
    found = [plain(batch) for batch in theirs]
    assert found == [plain(batch) for batch in ours]
    assert theirs.cardinality() == len(found) == len(data.rows(2))


@pytest.mark.slow
@pytest.mark.parametrize("start_step", [0, 7])
def test_tensorflow_has_the_same_batches_of_dense_features_of_which_several_are_gathered_at_once(
    where, cache, start_step
):
    data = load(where, cache_dir=cache, columns=["x", "pair", "name"], batch_size=2, start_step=start_step)
    theirs = data.tf(label="x", epochs=3)
    found = [plain(batch) for batch in theirs]
    assert found == [plain(batch) for batch in data.numpy(label="x", epochs=3)]
    assert theirs.cardinality() == len(found) == 33 - start_step


@pytest.mark.slow
def test_an_endless_dataset_of_tensorflow(where, cache):
    import tensorflow as tf

    data = load(where, cache_dir=cache, columns=["x", "y"], batch_size=8)
    endless = data.tf()
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert endless.element_spec["x"] == tf.TensorSpec([8], tf.float32)
    batches = zip(endless.take(10), data.numpy(), strict=False)
    assert [plain(theirs) == plain(ours) for theirs, ours in batches] == [True] * 10


def test_pytorch_has_the_same_batches_without_a_copy(where, cache):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = load(where, cache_dir=cache, batch_size=4, seed=3)
    assert [plain(batch) for batch in data.torch(epochs=1)] == [plain(batch) for batch in data]
    assert next(data.torch())["x"].dtype == torch.float32


@pytest.mark.slow
def test_pytorchs_loader_takes_it_in_its_own_order_or_ours(where, cache):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = load(where, cache_dir=cache, columns=["x", "pair"], batch_size=4, seed=3)
    expected = [plain(batch) for batch in data]
    for workers in (0, 2):
        one_by_one = torch.utils.data.DataLoader(data, batch_sampler=data.rows(epochs=1), num_workers=workers)
        assert [plain(batch) for batch in one_by_one] == expected
        whole = torch.utils.data.DataLoader(data, None, sampler=data.rows(epochs=1), num_workers=workers)
        assert [plain(batch) for batch in whole] == expected


def test_jax_has_the_same_batches_on_its_device(where, cache):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    data = load(where, cache_dir=cache, batch_size=4, seed=3)
    for ahead in (0, 1, 9):
        assert [plain(batch) for batch in data.jax(epochs=1, ahead=ahead)] == [plain(batch) for batch in data]
    assert isinstance(next(data.jax())["x"], jax.Array)


def test_jax_is_not_given_integers_that_it_would_cut_off(write, cache):
    pytest.importorskip("jax", reason="JAX is not installed")
    data = load(write("a.tfrecord", {"id": [1, 1 << 31]}), cache_dir=cache, batch_size=2)
    with pytest.raises(InfeedError, match=r"2147483648 does not fit into 32 bits(.|\n)*leave the column out"):
        next(data.jax())


@pytest.mark.skipif(importlib.util.find_spec("grain") is None, reason="Grain is not installed")
def test_grain_takes_it_as_a_source(where, cache):
    import grain.python as grain

    data = load(where, cache_dir=cache, columns=["y"])
    assert isinstance(data, grain.RandomAccessDataSource)
    loader = grain.DataLoader(
        data_source=data, sampler=grain.SequentialSampler(len(data)), operations=[grain.Batch(5)], worker_count=0
    )
    assert [row for batch in loader for row in batch["y"].tolist()] == list(range(ROWS))


@pytest.mark.parametrize(
    ("method", "module", "said"),
    [
        ("torch", "torch", r"PyTorch is not installed(.|\n)*pip install torch"),
        ("jax", "jax", r"JAX is not installed(.|\n)*pip install jax"),
        ("tf", "tensorflow", r"TensorFlow is not installed(.|\n)*pip install 'tfx-infeed\[tf\]'"),
    ],
)
def test_what_is_missing_is_named(where, cache, monkeypatch, method, module, said):
    data = load(where, cache_dir=cache)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InfeedError, match=said):
        next(iter(getattr(data, method)()))
