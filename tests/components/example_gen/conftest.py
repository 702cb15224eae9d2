"""Small real inputs, and a dataset read back without the code under test's own reader of manifests."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from infeed.components.dataset import files, names, records
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen.ingest import Input, Job

BUCKETS = Buckets((("train", 2), ("eval", 1)))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """120 scanned digits as PNG files, one folder per class."""
    from sklearn.datasets import load_digits

    root = tmp_path_factory.mktemp("digits")
    data = load_digits()
    for number, (pixels, digit) in enumerate(zip(data.images[:120], data.target[:120], strict=True)):
        folder = root / str(digit)
        folder.mkdir(exist_ok=True)
        Image.fromarray((pixels * 15).astype("uint8")).save(folder / f"{number:04d}.png")
    return str(root)


@pytest.fixture(scope="session")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The breast cancer table as CSV: 569 rows, 31 columns, one cell in fifty empty."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    root = tmp_path_factory.mktemp("cancer")
    with open(root / "cancer.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name.replace(" ", "_") for name in data.feature_names] + ["diagnosis"])
        for row, (cells, target) in enumerate(zip(data.data.tolist(), data.target, strict=True)):
            kept = ["" if (row * 31 + column) % 50 == 7 else cell for column, cell in enumerate(cells)]
            writer.writerow([*kept, data.target_names[target]])
    return str(root)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """Makes a job that writes under `tmp_path`, train 2 to eval 1 unless told otherwise."""

    def make(opened: Input, options: IngestOptions | None = None, buckets: Buckets | None = BUCKETS) -> Job:
        splits = buckets.names if buckets else tuple(dict.fromkeys(str(task.split) for task in opened.tasks))
        root = f"{tmp_path}/out"
        return Job.of(opened, root=root, splits=splits, buckets=buckets, options=options or IngestOptions())

    return make


@pytest.fixture
def read_split() -> Callable[[str, str], list[bytes]]:
    """All records of a split, shard after shard."""

    def read(root: str, split: str) -> list[bytes]:
        shards = files.list_files(names.split_dir(root, split))
        return [record for shard in shards for record in records.read_records(shard.path)]

    return read


@pytest.fixture
def multiset(read_split: Callable[[str, str], list[bytes]]) -> Callable[[str], dict[str, Counter[bytes]]]:
    """Split -> how often each record stands there."""
    return lambda root: {split: Counter(read_split(root, split)) for split in ("train", "eval")}
