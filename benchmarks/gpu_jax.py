"""Steps of JAX and their feeds, for `gpu.py`. Each other feed is written as its maintainers would write it."""

from __future__ import annotations

import importlib.util
import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gpu_data
import jax
import jax.numpy as jnp
import numpy as np
from gpu_data import CORES, Data, DecodedBatches, Sizes
from gpu_measure import Task

_RATE = 1e-4
_AHEAD = 3
_GRAIN = importlib.util.find_spec("grain") is not None
_WIDTHS = (64, 256), (128, 512), (256, 1024), (512, 2048)  # channels of a ResNet's blocks: inside and after them


def tasks(names: Sequence[str], folder: Path, sizes: Sizes) -> Iterator[Task]:
    makers = {"table": _table, "clicks": _clicks, "jpeg": _jpeg}
    for name in names:
        yield makers[name](gpu_data.made(name, folder, sizes))


def about() -> str:
    return f"jax {jax.__version__} on {jax.devices()[0].device_kind}"


def _task(
    name: str,
    data: Data,
    loss: Callable[..., Any],
    weights: Any,
    resident: Any,
    feeds: dict[str, Callable[[], Iterable[Any]]],
) -> Task:
    held: dict[str, Any] = {"weights": weights}

    @jax.jit
    def update(weights: Any, batch: Any) -> Any:
        gradients = jax.grad(loss)(weights, *batch)
        return jax.tree.map(lambda old, gradient: old - _RATE * gradient, weights, gradients)

    def step(batch: Any) -> None:
        held["weights"] = update(held["weights"], batch)

    def wait() -> None:
        jax.block_until_ready(held["weights"])

    return Task(name, "jax", data.loaded.plan.batch_size, step, wait, jax.device_put(resident), feeds)


def _joined(features: dict[str, Any], kind: str, first: str) -> Any:
    """Return [batch, columns]: the packed array, or the columns that begin with a letter."""
    if kind in features:
        return features[kind]
    return jnp.stack([features[name] for name in sorted(features) if name.startswith(first)], 1)


def _layers(*widths: int) -> list[Any]:
    return [_normal(number, pair) for number, pair in enumerate(itertools.pairwise(widths))]


def _normal(number: int, shape: tuple[int, ...]) -> Any:
    return jax.random.normal(jax.random.key(number), shape) * math.sqrt(2 / math.prod(shape[:-1]))


def _output(layers: Sequence[Any], values: Any) -> Any:
    for layer in layers[:-1]:
        values = jax.nn.relu(values @ layer)
    return (values @ layers[-1])[:, 0]


def _table(data: Data) -> Task:
    def loss(layers: Any, features: dict[str, Any], label: Any) -> Any:
        return jnp.mean((_output(layers, _joined(features, "float32", "x")) - label) ** 2)

    feeds = _of_infeed(data) | _of_arrays(data)
    resident = next(_gathered(_narrow(data), data.batches()))
    return _task("table", data, loss, _layers(20, 512, 512, 1), resident, feeds)


def _clicks(data: Data) -> Task:
    first, width = jnp.arange(26) * gpu_data.IDS, data.sizes.embedding

    def loss(weights: Any, features: dict[str, Any], label: Any) -> Any:
        numbers, ids = _joined(features, "float32", "i"), _joined(features, "int64", "c")
        embedded = weights["embedding"][ids + first].reshape(len(ids), -1)
        logits = _output(weights["layers"], jnp.concatenate([numbers, embedded], 1))
        return jnp.mean(jax.nn.softplus(logits) - logits * label)

    layers = _layers(26 * width + 13, 512, 256, 1)
    weights = {"embedding": _normal(9, (26 * gpu_data.IDS, width)), "layers": layers}
    resident = next(_gathered(_narrow(data), data.batches()))
    return _task("clicks", data, loss, weights, resident, _of_infeed(data) | _of_arrays(data))


def _narrow(data: Data) -> dict[str, Any]:
    """Return the arrays with 32-bit integers, because JAX has no others by default."""
    return {name: array.astype("i4") if array.dtype == np.int64 else array for name, array in data.arrays.items()}


def _gathered(arrays: dict[str, Any], batches: Iterable[Any]) -> Iterator[Any]:
    for rows in batches:
        features = {name: np.take(array, rows, axis=0) for name, array in arrays.items()}
        yield features, features.pop("y")


def _of_infeed(data: Data) -> dict[str, Callable[[], Iterable[Any]]]:
    loaded = data.loaded
    return {
        "infeed, .jax()": lambda: loaded.jax("y"),
        "infeed, .jax(pack=True)": lambda: loaded.jax("y", pack=True),
        "infeed, .jax(ahead=0)": lambda: loaded.jax("y", ahead=0),
    }


def _of_arrays(data: Data) -> dict[str, Callable[[], Iterable[Any]]]:
    arrays = _narrow(data)

    def on_the_device() -> Iterator[Any]:
        held = jax.device_put(arrays)
        take = jax.jit(lambda rows: {name: array[rows] for name, array in held.items()})
        for rows in data.batches():
            features = take(rows)
            yield features, features.pop("y")

    def of_grain() -> Iterator[Any]:
        return map(jax.device_put, _of_grain(Gathered(arrays, data.epoch()), threads=4))

    feeds: dict[str, Callable[[], Iterable[Any]]] = {
        "np.take and device_put in a thread": lambda: _behind(map(jax.device_put, _gathered(arrays, data.batches()))),
        "rows gathered on the device, all data there": on_the_device,
    }
    return feeds | ({"Grain, source of batches, 4 threads": of_grain} if _GRAIN else {})


class Gathered:
    """Source of Grain with the batches of an epoch by number."""

    def __init__(self, arrays: dict[str, Any], rows: Any) -> None:
        self.arrays, self.rows = arrays, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        return next(_gathered(self.arrays, [self.rows[number]]))


def _of_grain(source: Any, threads: int) -> Iterator[Any]:
    import grain.python as grain

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    return iter(grain.MapDataset.source(source).repeat(100).to_iter_dataset(options))


def _behind(batches: Iterable[Any]) -> Iterator[Any]:
    """Make batches in a thread, as in a hand-written feed."""
    made: queue.Queue[Any] = queue.Queue(_AHEAD)
    left = threading.Event()

    def make() -> None:
        for batch in batches:
            made.put(batch)
            if left.is_set():
                return

    threading.Thread(target=make, daemon=True).start()
    try:
        while True:
            yield made.get()
    finally:
        left.set()
        made.get()  # the thread may wait for a free place in the queue


def _jpeg(data: Data) -> Task:
    weights, strides = _resnet(data.sizes.blocks)

    def loss(weights: Any, features: dict[str, Any], label: Any) -> Any:
        pixels = features["image"].astype(jnp.bfloat16) / 255 - 0.5
        logits = _classified(weights, strides, pixels)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], 1))

    source = DecodedBatches.of(data)

    def sent(batches: Iterable[Any]) -> Iterator[Any]:
        return (jax.device_put((features, label.astype("i4"))) for features, label in batches)

    feeds: dict[str, Callable[[], Iterable[Any]]] = {
        f"infeed, decode, threads={CORES}, .jax()": lambda: gpu_data.decoded(data).jax("y"),
        "infeed, decode, threads=1, .jax()": lambda: gpu_data.decoded(data, 1).jax("y"),
        "infeed, data[rows] in a pool of threads by hand": lambda: sent(gpu_data.in_threads(source)),
    }
    if _GRAIN:
        feeds[f"Grain, source of infeed's rows, {CORES} threads"] = lambda: sent(_of_grain(source, CORES))
    return _task("jpeg", data, loss, weights, next(sent([source[0]])), feeds)


def _resnet(blocks: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
    """Return the weights of a ResNet with bottlenecks, and the stride of each block."""
    strides = [2 if stage and not block else 1 for stage, count in enumerate(blocks) for block in range(count)]
    made, before = list[dict[str, Any]](), 64
    for (within, after), count in zip(_WIDTHS, blocks, strict=False):
        for block in range(count):
            shapes = {"in": (1, 1, before, within), "mid": (3, 3, within, within), "out": (1, 1, within, after)}
            shapes |= {} if block else {"skip": (1, 1, before, after)}
            made.append({name: _normal(len(made), shape) for name, shape in shapes.items()})
            before = after
    return {"stem": _normal(0, (7, 7, 3, 64)), "blocks": made, "head": _normal(1, (before, gpu_data.CLASSES))}, strides


def _classified(weights: Any, strides: Sequence[int], pixels: Any) -> Any:
    values = jax.nn.relu(_normalized(_convolved(pixels, weights["stem"], 2)))
    values = jax.lax.reduce_window(values, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for block, stride in zip(weights["blocks"], strides, strict=True):
        inner = jax.nn.relu(_normalized(_convolved(values, block["in"])))
        inner = jax.nn.relu(_normalized(_convolved(inner, block["mid"], stride)))
        if "skip" in block:
            values = _normalized(_convolved(values, block["skip"], stride))
        values = jax.nn.relu(values + _normalized(_convolved(inner, block["out"])))
    return values.mean((1, 2)).astype(jnp.float32) @ weights["head"]


def _convolved(values: Any, kernel: Any, stride: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    kernel = kernel.astype(values.dtype)
    return jax.lax.conv_general_dilated(values, kernel, (stride, stride), "SAME", dimension_numbers=layout)


def _normalized(values: Any) -> Any:
    mean = values.mean((0, 1, 2), keepdims=True, dtype=jnp.float32)
    variance = ((values - mean) ** 2).mean((0, 1, 2), keepdims=True)
    return ((values - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(values.dtype)
