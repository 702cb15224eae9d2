"""Several batches that are copied at once to the devices of a sharding: the batches of NumPy, and where they lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

ROWS = 131
SCRIPT = """
import json, sys
import jax, numpy
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from infeed import load
from infeed.components.load import columns, devices

columns._ROWS_A_CALL = 32
where, cache = sys.argv[1:]
calls, compiled = [], []
several = devices.JaxCopies.send_several
devices.JaxCopies.send_several = lambda self, batch, n: (calls.append(n), several(self, batch, n))[1]
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
)

def mesh(devices, shape, **types):
    names = ("data", "model")[: len(shape)]
    return Mesh(numpy.array(jax.devices()[:devices]).reshape(shape), names, **types)

def same(theirs, ours, sharding):
    batches = 0
    for batch, expected in zip(theirs, ours, strict=True):
        assert jax.tree.structure(batch) == jax.tree.structure(expected)
        for array, values in zip(jax.tree.leaves(batch), jax.tree.leaves(expected), strict=True):
            assert numpy.asarray(array).tobytes() == values.astype(array.dtype).tobytes()
            axes = [sharding.mesh.shape[axis] if isinstance(axis, str) else 8 for axis in sharding.spec]
            divides = len(axes) <= values.ndim and not any(n % axis for n, axis in zip(values.shape, axes))
            fits = sharding if divides else NamedSharding(sharding.mesh, P())
            assert array.sharding == fits, (array.sharding, fits)
        batches += 1
    return batches
"""


@pytest.fixture
def on_eight_devices(write, cache):
    """Run lines after SCRIPT in a process that has eight devices, and return what it prints as JSON."""
    numbers = range(ROWS)
    features = {f"x{place}": pa.array([place + row / 2 for row in numbers], pa.float32()) for place in range(5)}
    features["pair"] = pa.array([[row, -row] for row in numbers], pa.list_(pa.int64(), 2))
    features["image"] = pa.array([[float(row)] * 6 for row in numbers], pa.list_(pa.float32(), 6))

    def run(lines: str, label: list[int] | None = None) -> object:
        where = write("t-train.tfrecord", {**features, "y": pa.array(label or numbers)})
        devices = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
        command = [sys.executable, "-c", SCRIPT + lines, where, cache]
        done = subprocess.run(command, env={**os.environ, **devices}, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    return run


@pytest.mark.frameworks
def test_batches_of_several_at_once_equal_those_of_numpy_on_any_number_of_devices(on_eight_devices):
    """The last batches of an epoch are fewer, and without a shuffle the last batch is short."""
    found = on_eight_devices("""
shardings = [NamedSharding(mesh(count, (count,)), P("data")) for count in (2, 8)]
shardings += [NamedSharding(mesh(8, (4, 2)), spec) for spec in (P("data"), P(("data", "model")), P("data", "model"))]
shardings += [NamedSharding(mesh(4, (4,), axis_types=(AxisType.Explicit,)), P("data"))]
sizes = []
for sharding in shardings:
    for options in ({"batch_size": 8}, {"batch_size": 8, "shuffle": False, "start_step": 1}, {"batch_size": 6}):
        data = load(where, cache_dir=cache, seed=3, **options)
        for pack in (False, True):
            calls.clear()
            how = {"label": "y", "epochs": 2, "pack": pack}
            batches = same(data.jax(device=sharding, **how), data.numpy(**how), sharding)
            sizes.append([batches, sum(calls)])
print(json.dumps(sizes))
""")
    assert found == [[32, 32], [32, 32], [33, 28], [33, 28], [42, 40], [42, 40]] * 6


@pytest.mark.frameworks
def test_a_pass_resumes_within_batches_that_were_sent_at_once(on_eight_devices):
    found = on_eight_devices("""
sharding = NamedSharding(mesh(4, (4,)), P("data"))
data, rest = load(where, cache_dir=cache, seed=3, batch_size=8), []
for read in (1, 4, 6, 17):
    batches = data.jax("y", epochs=2, device=sharding)
    whole = list(data.numpy("y", epochs=2))
    for _ in range(read):
        next(batches)
    resumed = data.jax("y", epochs=2, device=sharding)
    resumed.load_state_dict(batches.state_dict())
    rest.append(same(resumed, whole[read:], sharding))
print(json.dumps(rest))
""")
    assert found == [31, 28, 26, 15]


@pytest.mark.frameworks
def test_later_batches_of_several_at_once_compile_nothing(on_eight_devices):
    found = on_eight_devices("""
data, counts = load(where, cache_dir=cache, seed=3, batch_size=8), []
batches = data.jax("y", device=NamedSharding(mesh(8, (8,)), P("data")), pack=True)
for _ in range(3):
    for _ in range(data.steps_per_epoch):
        next(batches)
    counts.append(len(compiled))
print(json.dumps(counts))
""")
    assert found == [1, 1, 1]


@pytest.mark.frameworks
def test_an_integer_that_jax_would_cut_off_is_an_error_in_place_of_its_batch_on_several_devices(on_eight_devices):
    lines = """
from infeed.components.base.errors import InfeedError
data = load(where, cache_dir=cache, batch_size=8, shuffle=False)
batches, read = data.jax(device=NamedSharding(mesh(2, (2,)), P("data"))), 0
try:
    for _ in batches:
        read += 1
except InfeedError as error:
    print(json.dumps([read, error.where]))
"""
    read, where = on_eight_devices(lines, [row << 31 if row == 20 else row for row in range(ROWS)])
    assert read == 2
    assert where.endswith("y")
