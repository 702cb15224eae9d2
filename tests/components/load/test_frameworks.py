"""The same batches for each framework; one that is not installed is named by the error."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.load import columns
from infeed.components.load.columns import Ragged
from infeed.components.load.dataset import load
from infeed.components.load.devices import JaxCopies, _splitting

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
    theirs = data.tf(label="y", epochs=2)
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


@pytest.mark.frameworks
def test_pytorch_has_the_same_batches(where, cache):
    import torch

    data = load(where, cache_dir=cache, batch_size=4, seed=3)
    assert [plain(batch) for batch in data.torch(epochs=1)] == [plain(batch) for batch in data]
    assert next(data.torch())["x"].dtype == torch.float32
    assert [plain(batch) for batch in data.torch(device="cpu", pack=True, epochs=1)] == [
        plain(batch) for batch in data.numpy(pack=True, epochs=1)
    ]


@pytest.mark.frameworks
def test_tensors_are_contiguous_and_may_be_written(where, cache):
    for batch in load(where, cache_dir=cache, columns=["x", "y", "pair"], batch_size=4).torch(epochs=1):
        assert all(tensor.is_contiguous() for tensor in batch.values())
        assert batch["pair"].view(-1).shape == (8,)
        batch["x"] += 1


@pytest.mark.frameworks
def test_pytorchs_loader_takes_it_in_its_own_order_or_ours(where, cache):
    import torch

    data = load(where, cache_dir=cache, columns=["x", "pair"], batch_size=4, seed=3)
    expected = [plain(batch) for batch in data]
    for workers in (0, 2):
        one_by_one = torch.utils.data.DataLoader(data, batch_sampler=data.rows(epochs=1), num_workers=workers)
        assert [plain(batch) for batch in one_by_one] == expected
        whole = torch.utils.data.DataLoader(data, None, sampler=data.rows(epochs=1), num_workers=workers)
        assert [plain(batch) for batch in whole] == expected


@pytest.mark.frameworks
def test_jax_has_the_same_batches_on_its_device(where, cache):
    import jax

    data = load(where, cache_dir=cache, batch_size=4, seed=3)
    for ahead in (0, 1, 9):
        assert [plain(batch) for batch in data.jax(epochs=1, ahead=ahead)] == [plain(batch) for batch in data]
    assert isinstance(next(data.jax())["x"], jax.Array)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "options",
    [{}, {"start_step": 5}, {"workers": (1, 2)}, {"shuffle": False}, {"columns": ["y"]}, {"on_missing": "fill"}],
    ids=str,
)
@pytest.mark.parametrize("pack", [False, True])
def test_jax_has_the_same_batches_of_dense_features_of_which_several_are_sent_at_once(
    where, cache, monkeypatch, options, pack
):
    monkeypatch.setattr(columns, "_ROWS_A_CALL", 8)
    data = load(where, cache_dir=cache, seed=3, **{"columns": ["x", "pair", "name", "y"], "batch_size": 2, **options})
    for ahead in (0, 1, 9):
        found = [plain(batch) for batch in data.jax(label="y", epochs=3, ahead=ahead, pack=pack)]
        assert found == [plain(batch) for batch in data.numpy(label="y", epochs=3, pack=pack)]


@pytest.mark.frameworks
@pytest.mark.parametrize("wrong", [1, 4, 6])
def test_an_integer_that_jax_would_cut_off_is_raised_after_the_batches_before(write, cache, monkeypatch, wrong):
    monkeypatch.setattr(columns, "_ROWS_A_CALL", 4)
    where = write("a.tfrecord", {"id": [(1 << 31) * (row == wrong) for row in range(7)]})
    batches = load(where, cache_dir=cache, batch_size=1, shuffle=False).jax()
    assert [next(batches)["id"].tolist() for _ in range(wrong)] == [[0]] * wrong
    with pytest.raises(InfeedError, match="2147483648"):
        next(batches)


@pytest.mark.frameworks
def test_the_last_batches_of_an_epoch_are_not_compiled(write, cache, monkeypatch):
    import jax

    monkeypatch.setattr(columns, "_ROWS_A_CALL", 40)
    where, split = write("a.tfrecord", {"id": list(range(130))}), _splitting(jax, (None,))
    before = split._cache_size()
    for start in range(13):
        data = load(where, cache_dir=cache, batch_size=10, start_step=start)
        assert len(list(data.jax(epochs=1))) == 13 - start
    assert split._cache_size() == before + 1


@pytest.mark.frameworks
@pytest.mark.parametrize("features", [1, 3, 20, 90])
def test_jax_compiles_few_arrays_however_many_batches_are_gathered_at_once(write, cache, monkeypatch, features):
    import jax

    counts, split = list[int](), JaxCopies._split

    def counted(*args: Any) -> Any:
        made = split(*args)
        counts.append(len(jax.tree.leaves(made)))
        return made

    monkeypatch.setattr(JaxCopies, "_split", counted)
    rows = {f"x{number}": [number + row for row in range(80)] for number in range(features)}
    data = load(write("a.tfrecord", rows), cache_dir=cache, batch_size=2)
    monkeypatch.setattr(columns, "_ROWS_A_CALL", 80)
    assert [plain(batch) for batch in data.jax(epochs=1)] == [plain(batch) for batch in data.numpy(epochs=1)]
    assert counts == {1: [32], 3: [63], 20: [60] * 13, 90: []}[features]


@pytest.mark.frameworks
def test_jax_is_not_given_integers_that_it_would_cut_off(write, cache):
    data = load(write("a.tfrecord", {"id": [1, 1 << 31]}), cache_dir=cache, batch_size=2)
    with pytest.raises(InfeedError, match=r"2147483648 of 'id' does not fit into 32 bits") as error:
        next(data.jax())
    assert error.value.where.endswith("id")


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", [np.uint64, np.float64])
def test_jax_keeps_the_64_bits_of_a_map(write, cache, dtype):
    data = load(write("a.tfrecord", {"id": [1, 3]}), cache_dir=cache, batch_size=2, shuffle=False)
    wide = data.map(lambda batch: {"key": (batch["id"] + (1 << 40)).astype(dtype)})
    assert np.asarray(next(wide.jax())["key"]).tolist() == [(1 << 40) + 1, (1 << 40) + 3]


@pytest.mark.frameworks
def test_jax_copies_to_all_devices_what_a_sharding_cannot_divide(where, cache):
    """Needs four devices, so it runs in a process that has asked for them."""
    script = f"""
import jax, numpy, infeed
from jax.sharding import Mesh, NamedSharding, PartitionSpec
sharding = NamedSharding(Mesh(numpy.array(jax.devices()), ("data",)), PartitionSpec("data"))
data = infeed.load({where!r}, batch_size=8, shuffle=False, cache_dir={cache!r})
ours, theirs = list(data.numpy()), list(data.jax(device=sharding))
assert [len(batch["y"]) for batch in theirs] == [8, 8, 7]
assert theirs[0]["y"].sharding == sharding
assert [shard.data.shape for shard in theirs[2]["y"].addressable_shards] == [(7,)] * 4
for mine, batch in zip(ours, theirs, strict=True):
    assert numpy.asarray(batch["y"]).tolist() == mine["y"].tolist()
    assert numpy.asarray(batch["list"].values).tolist() == mine["list"].values.tolist()
"""
    devices = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **devices}, check=True)


@pytest.mark.frameworks
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
