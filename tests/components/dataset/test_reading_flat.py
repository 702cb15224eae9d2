from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.dataset import records
from infeed.components.dataset.reading import flat_manifest


def write(path: Path, count: int) -> None:
    payload = pa.array([b"record"] * count, pa.large_binary())
    gzip = 1 if path.name.endswith(".gz") else None
    records.write_records(str(path), [records.frame_records(payload)], gzip_level=gzip)


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["mnist-train.tfrecord-00000-of-00002", "mnist-train.tfrecord-00001-of-00002"], {"train": 4}),
        (["my-data-test.tfrecord-00000-of-00001", "my-data-train.tfrecord-00000-of-00001"], {"test": 2, "train": 2}),
        (["train.tfrecords", "eval.tfrecord.gz"], {"eval": 2, "train": 2}),
        (["data_tfrecord-00000-of-00001.gz"], {"data": 2}),
    ],
)
def test_splits_are_told_from_the_names(tmp_path: Path, names: list[str], splits: dict[str, int]) -> None:
    for name in names:
        write(tmp_path / name, 2)
    (tmp_path / "dataset_info.json").write_text("{}")
    found = flat_manifest(str(tmp_path))
    assert found is not None
    root, manifest = found
    assert root == str(tmp_path)
    assert {name: split.records for name, split in manifest.splits.items()} == splits
    assert (manifest.source.files, manifest.rows_read) == (len(names), sum(splits.values()))


def test_one_file_is_a_dataset_too(tmp_path: Path) -> None:
    write(tmp_path / "mnist-test.tfrecord-00000-of-00001", 3)
    write(tmp_path / "mnist-train.tfrecord-00000-of-00001", 2)
    found = flat_manifest(str(tmp_path / "mnist-test.tfrecord-00000-of-00001"))
    assert found is not None
    assert (found[0], found[1].rows_read) == (str(tmp_path), 3)


def test_the_folder_of_one_split_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "Split-eval").mkdir()
    write(tmp_path / "Split-eval" / "data_tfrecord-00000-of-00001.gz", 3)
    found = flat_manifest(str(tmp_path / "Split-eval"))
    assert found is not None
    assert list(found[1].splits) == ["eval"]


def test_a_folder_without_any(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    assert flat_manifest(str(tmp_path)) is None
