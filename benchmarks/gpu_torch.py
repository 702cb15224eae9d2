"""Steps of PyTorch and their feeds, for `gpu.py`. Each other feed is written as its maintainers would write it."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gpu_data
import torch
from gpu_data import CORES, WORKERS, Data, Decode, DecodedBatches, Sizes
from gpu_measure import Task
from torch import nn
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
_RATE = 1e-4


def tasks(names: Sequence[str], folder: Path, sizes: Sizes) -> Iterator[Task]:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    makers = {"table": _table, "clicks": _clicks, "jpeg": _jpeg}
    for name in names:
        yield makers[name](gpu_data.made(name, folder, sizes))
        torch.cuda.empty_cache()


def about() -> str:
    return f"torch {torch.__version__} on {torch.cuda.get_device_name() if CUDA else 'the CPU'}"


def moved(batch: Any) -> Any:
    """Copy a batch of arrays or tensors to the device."""
    return _each(batch, lambda array: torch.as_tensor(array).to(DEVICE, non_blocking=True))


def _each(batch: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(batch, dict):
        return {name: _each(values, convert) for name, values in batch.items()}
    return tuple(_each(part, convert) for part in batch) if isinstance(batch, tuple | list) else convert(batch)


def _stepper(model: nn.Module, loss: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    optimizer = torch.optim.SGD(model.parameters(), _RATE)

    def step(batch: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(*batch).backward()
        optimizer.step()

    return step


def _task(name: str, data: Data, step: Any, resident: Any, feeds: dict[str, Callable[[], Iterable[Any]]]) -> Task:
    wait = torch.cuda.synchronize if CUDA else lambda: None
    return Task(name, "torch", data.loaded.plan.batch_size, step, wait, moved(resident), feeds)


def _joined(features: dict[str, Any], kind: str, first: str) -> Any:
    """Return [batch, columns]: the packed array, or the columns that begin with a letter."""
    if kind in features:
        return features[kind]
    return torch.stack([features[name] for name in sorted(features) if name.startswith(first)], 1)


def _layers(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(DEVICE)


def _table(data: Data) -> Task:
    model = _layers(20, 512, 512, 1)

    def loss(features: dict[str, Any], label: Any) -> Any:
        return functional.mse_loss(model(_joined(features, "float32", "x"))[:, 0], label)

    feeds = _of_infeed(data) | _of_torch(data) | {"torch, DataLoader by row": partial(_by_row, data)}
    return _task("table", data, _stepper(model, loss), _taken(data, range(data.sizes.batch)), feeds)


class Clicks(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(26 * gpu_data.IDS, width, sparse=True)
        self.layers = _layers(26 * width + 13, 512, 256, 1)
        self.register_buffer("first", torch.arange(26) * gpu_data.IDS)

    def forward(self, numbers: Any, ids: Any) -> Any:
        embedded = self.embedding(ids + self.first).flatten(1)
        return self.layers(torch.cat([numbers, embedded], 1))[:, 0]


def _clicks(data: Data) -> Task:
    model = Clicks(data.sizes.embedding).to(DEVICE)

    def loss(features: dict[str, Any], label: Any) -> Any:
        logits = model(_joined(features, "float32", "i"), _joined(features, "int64", "c"))
        return functional.binary_cross_entropy_with_logits(logits, label)

    feeds = _of_infeed(data) | _of_torch(data)
    return _task("clicks", data, _stepper(model, loss), _taken(data, range(data.sizes.batch)), feeds)


def _taken(data: Data, rows: Any) -> Any:
    features = {name: array[rows] for name, array in data.arrays.items()}
    return features, features.pop("y")


def _of_infeed(data: Data) -> dict[str, Callable[[], Iterable[Any]]]:
    loaded = data.loaded
    return {
        "infeed, .torch(device)": lambda: loaded.torch("y", device=DEVICE),
        "infeed, .torch(device, pack=True)": lambda: loaded.torch("y", device=DEVICE, pack=True),
    }


def _of_torch(data: Data) -> dict[str, Callable[[], Iterable[Any]]]:
    size, source = data.loaded.plan.batch_size, Arrays(data)

    def permuted(device: Any) -> Iterator[Any]:
        tensors = {name: torch.as_tensor(array).to(device) for name, array in data.arrays.items()}
        while True:
            for rows in torch.randperm(len(source), device=device).split(size)[:-1]:
                features = {name: values[rows] for name, values in tensors.items()}
                yield moved((features, features.pop("y")))

    def batches() -> Iterator[Any]:
        sampler = BatchSampler(RandomSampler(source), size, drop_last=True)
        return _repeated(DataLoader(source, batch_size=None, sampler=sampler, **_WORKERS))

    return {
        "torch, randperm and index on the host": lambda: permuted("cpu"),
        "torch, randperm and index, all data on the device": lambda: permuted(DEVICE),
        f"torch, DataLoader of batches, {WORKERS} workers, pinned": batches,
    }


_WORKERS: dict[str, Any] = {"num_workers": WORKERS, "pin_memory": CUDA, "persistent_workers": True}


class Arrays(Dataset[Any]):
    """Rows, or batches of rows, of tensors."""

    def __init__(self, data: Data) -> None:
        self.tensors = {name: torch.as_tensor(array) for name, array in data.arrays.items()}

    def __len__(self) -> int:
        return len(self.tensors["y"])

    def __getitem__(self, rows: Any) -> Any:
        features = {name: values[rows] for name, values in self.tensors.items()}
        return features, features.pop("y")


def _by_row(data: Data) -> Iterator[Any]:
    return _repeated(DataLoader(Arrays(data), data.loaded.plan.batch_size, shuffle=True, drop_last=True))


def _repeated(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from map(moved, loader)


def _jpeg(data: Data) -> Task:
    model = _resnet(data.sizes).to(DEVICE, memory_format=torch.channels_last)

    def loss(features: dict[str, Any], label: Any) -> Any:
        pixels = features["image"].permute(0, 3, 1, 2).to(memory_format=torch.channels_last)
        pixels = pixels.to(torch.bfloat16 if CUDA else torch.float32).div_(255).sub_(0.5)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA):
            logits = model(pixels)
        return functional.cross_entropy(logits.float(), label)

    source = DecodedBatches.of(data)
    whole = partial(DataLoader, source, batch_size=None, **_WORKERS)
    rows = partial(DataLoader, Pictures(data), data.sizes.picture_batch, shuffle=True, drop_last=True, **_WORKERS)
    feeds: dict[str, Callable[[], Iterable[Any]]] = {
        f"infeed, decode, threads={CORES}, .torch(device)": lambda: gpu_data.decoded(data).torch("y", device=DEVICE),
        "infeed, decode, threads=1, .torch(device)": lambda: gpu_data.decoded(data, 1).torch("y", device=DEVICE),
        "infeed, data[rows] in a pool of threads by hand": lambda: map(moved, gpu_data.in_threads(source)),
        f"infeed in a DataLoader, {WORKERS} workers, pinned": lambda: _repeated(whole()),
        f"torch, DataLoader by row, {WORKERS} workers, pinned": lambda: _repeated(rows()),
    }
    return _task("jpeg", data, _stepper(model, loss), source[0], feeds)


class Pictures(Dataset[Any]):
    """Decoded images by row."""

    def __init__(self, data: Data) -> None:
        self.arrays, self.decode = data.arrays, Decode(data.sizes.side)

    def __len__(self) -> int:
        return len(self.arrays["y"])

    def __getitem__(self, row: int) -> Any:
        one = {name: values[row : row + 1] for name, values in self.arrays.items()}
        return {"image": torch.as_tensor(self.decode(one, row)["image"][0])}, int(one["y"][0])


def _resnet(sizes: Sizes) -> nn.Module:
    if importlib.util.find_spec("torchvision"):
        import torchvision

        model = torchvision.models.resnet50 if sum(sizes.blocks) > 1 else torchvision.models.resnet18
        return model()
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, gpu_data.CLASSES)]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), *ends)
