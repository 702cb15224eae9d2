"""Data of `gpu.py`: a table, clicks, and JPEGs, each as arrays in memory and as a dataset of `infeed.load`."""

from __future__ import annotations

import functools
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import infeed
from infeed.components.feed.options import Augment
from infeed.components.load.dataset import LoadedDataset

try:
    import cv2

    cv2.setNumThreads(0)  # the feeds use threads themselves
except ImportError:
    cv2 = None

Array = npt.NDArray[Any]
CORES = len(os.sched_getaffinity(0))
WORKERS = min(8, CORES)
BORDER = 32  # pixels that a crop removes
CLASSES, IDS = 1000, 100_000
_SEED, _QUALITY, _PATTERNS = 0, 90, 32


@dataclass(frozen=True)
class Sizes:
    rows: int = 2_000_000
    batch: int = 8192
    pictures: int = 4096
    side: int = 224  # pixels of a crop
    picture_batch: int = 256
    embedding: int = 16
    blocks: tuple[int, ...] = (3, 4, 6, 3)  # blocks per stage, of a ResNet-50


TINY = Sizes(rows=4096, batch=256, pictures=64, side=32, picture_batch=8, embedding=4, blocks=(1,))


@dataclass(frozen=True)
class Data:
    """Arrays by name, including the label "y", and the same rows as a dataset of `infeed.load`."""

    arrays: dict[str, Array]
    loaded: LoadedDataset
    sizes: Sizes

    def epoch(self, seed: int = _SEED) -> Array:
        """Return row numbers, [steps, batch], shuffled by NumPy, as in a hand-written feed."""
        rows, size = len(self.loaded), self.loaded.plan.batch_size
        return np.random.default_rng(seed).permutation(rows)[: rows // size * size].reshape(-1, size)

    def batches(self) -> Iterator[Array]:
        """Yield the row numbers of each batch, endlessly."""
        for seed in itertools.count():
            yield from self.epoch(seed)


def table(folder: Path, sizes: Sizes) -> Data:
    """Return 20 numbers per row. The label is the sum of five of them."""
    x = np.random.default_rng(_SEED).normal(size=(sizes.rows, 20)).astype(np.float32)
    y = x[:, :5].sum(axis=1)
    columns = {f"x{column:02}": x[:, column] for column in range(20)} | {"y": y}
    return Data({"float32": x, "y": y}, _loaded(folder / "table", columns, sizes.batch), sizes)


def clicks(folder: Path, sizes: Sizes) -> Data:
    """Return 13 numbers and 26 ids per row, as in the Criteo data."""
    random, rows = np.random.default_rng(_SEED), sizes.rows // 2
    numbers, ids = random.normal(size=(rows, 13)).astype(np.float32), random.integers(0, IDS, (rows, 26))
    y = (random.random(rows) < 0.25).astype(np.float32)
    columns: dict[str, Array] = {f"i{column:02}": numbers[:, column] for column in range(13)}
    columns |= {f"c{column:02}": ids[:, column] for column in range(26)}
    columns["y"] = y
    return Data({"float32": numbers, "int64": ids, "y": y}, _loaded(folder / "clicks", columns, sizes.batch), sizes)


def pictures(folder: Path, sizes: Sizes) -> Data:
    """Return JPEGs of waves and noise, about as large as photographs of their size."""
    random, side = np.random.default_rng(_SEED), sizes.side + BORDER
    waves = [_waves(side, random) for _ in range(min(_PATTERNS, sizes.pictures))]
    shifts = random.integers(0, side, (sizes.pictures, 2)).tolist()
    shifted = (np.roll(waves[number % len(waves)], shift, (0, 1)) for number, shift in enumerate(shifts))
    blobs = np.array([_encoded(pixels) for pixels in shifted], object)
    y = random.integers(0, CLASSES, sizes.pictures)
    arrays: dict[str, Array] = {"image": blobs, "y": y}
    return Data(arrays, _loaded(folder / "jpeg", arrays, sizes.picture_batch), sizes)


def decoded(data: Data, threads: int = CORES) -> LoadedDataset:
    """Return the pictures as `infeed.load` decodes them: random crops, some of them mirrored."""
    plan, augment = data.loaded.plan, Augment(shift=BORDER // 2, flip="horizontal")
    return infeed.load(
        plan.place,
        batch_size=plan.batch_size,
        seed=plan.seed,
        cache_dir=plan.folder,
        decode="image",
        size=data.sizes.side,
        resize="none",
        augment=augment,
        threads=threads,
    )


@dataclass(frozen=True)
class Decode:
    """Decoder of the other feeds: JPEGs as random crops, some of them mirrored: uint8 [batch, side, side, 3]."""

    side: int

    def __call__(self, batch: dict[str, Any], seed: Any) -> dict[str, Any]:
        random = np.random.default_rng(seed)
        out = np.empty((len(batch["y"]), self.side, self.side, 3), np.uint8)
        for pixels, blob in zip(out, batch["image"], strict=True):
            top, left = random.integers(0, BORDER, 2)
            crop = _decoded(blob)[top : top + self.side, left : left + self.side]
            pixels[:] = crop[:, ::-1] if random.random() < 0.5 else crop
        return {"image": out, "y": batch["y"]}


@dataclass(frozen=True)
class DecodedBatches:
    """Batches of decoded images by number, for feeds that have their own threads or workers."""

    data: Data
    rows: Sequence[Sequence[int]]

    @classmethod
    def of(cls, data: Data, epochs: int = 40) -> DecodedBatches:
        return cls(data, list(data.loaded.rows(epochs)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[dict[str, Any], Any]:
        batch = Decode(self.data.sizes.side)(self.data.loaded[self.rows[number]], number)
        return {"image": batch["image"]}, batch["y"]


def in_threads(source: DecodedBatches, threads: int = CORES) -> Iterator[Any]:
    """Decode batches in a pool of threads, in order, as in a hand-written feed."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[Any]] = []
        for number in range(len(source)):
            waiting.append(pool.submit(source.__getitem__, number))
            if len(waiting) > threads + 1:
                yield waiting.pop(0).result()
        yield from (one.result() for one in waiting)


_MAKERS = {"table": table, "clicks": clicks, "jpeg": pictures}
TASKS = tuple(_MAKERS)


@functools.cache
def made(name: str, folder: Path, sizes: Sizes) -> Data:
    """Return the data of a task, which both frameworks read."""
    return _MAKERS[name](folder, sizes)


def _loaded(stem: Path, columns: dict[str, Array], batch: int) -> LoadedDataset:
    arrow = pa.table({name: pa.array(values) for name, values in columns.items()})
    with pa.OSFile(f"{stem}.arrow", "wb") as file, pa.ipc.new_file(file, arrow.schema) as writer:
        writer.write_table(arrow, max_chunksize=100_000)
    infeed.ingest(f"{stem}.arrow", str(stem), splits={"train": 1})
    os.remove(f"{stem}.arrow")
    return infeed.load(stem, "train", batch_size=batch, seed=1, cache_dir=stem.parent / "cache")


def _waves(side: int, random: np.random.Generator) -> Array:
    y, x = np.mgrid[:side, :side]
    waves = [np.sin(x * a + c) * np.cos(y * b) for a, b, c in random.uniform(0.01, 0.2, (3, 3))]
    noise = np.repeat(np.repeat(random.normal(0, 40, (side // 2, side // 2, 3)), 2, 0), 2, 1)
    pixels: Array = (127 + 100 * np.stack(waves, axis=-1) + noise).clip(0, 255).astype(np.uint8)
    return pixels


def _encoded(pixels: Array) -> bytes:
    if cv2:
        return bytes(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])
    from PIL import Image

    Image.fromarray(pixels).save(file := io.BytesIO(), "jpeg", quality=_QUALITY)
    return file.getvalue()


def _decoded(blob: bytes) -> Any:
    if cv2:
        return cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_COLOR)
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(blob)))
