"""Where a dataset lies, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.load.find import find_split


def found(where: str, split: str | None = None) -> tuple[str, list[str]]:
    one = find_split(where, split)
    return one.split, [Path(file.path).name for file in one.files]


@pytest.fixture
def folder(write, tmp_path: Path) -> str:
    """As TFDS writes it."""
    for name in ("train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002", "test.tfrecord-00000-of-00001"):
        write(f"mnist-{name}", {"x": [1]})
    (tmp_path / "data" / "dataset_info.json").write_text("{}")
    return str(tmp_path / "data")


def test_a_flat_folder_by_the_names_of_its_files(folder):
    train = ["mnist-train.tfrecord-00000-of-00002", "mnist-train.tfrecord-00001-of-00002"]
    assert found(folder) == found(f"{folder}/", "train") == ("train", train)
    assert found(folder, "test") == ("test", ["mnist-test.tfrecord-00000-of-00001"])


def test_one_file(folder):
    name = "mnist-test.tfrecord-00000-of-00001"
    assert found(f"{folder}/{name}") == ("test", [name])


@pytest.mark.parametrize(
    ("pattern", "split", "files"),
    [
        ("mnist-train*", "train", 2),
        ("mnist-*-of-00001", "test", 1),
        ("*", "train", 2),  # of several splits the one that is trained on
    ],
)
def test_a_pattern(folder, pattern, split, files):
    name, matched = found(f"{folder}/{pattern}")
    assert (name, len(matched)) == (split, files)


def test_names_that_do_not_tell_that_they_are_tfrecords(write, tmp_path):
    for number in range(2):
        write(f"validation-0000{number}-of-00002", {"x": [1]})
    assert found(f"{tmp_path}/data/validation-*")[0] == "validation"
    with pytest.raises(InfeedError, match="no TFRecord files"):
        find_split(f"{tmp_path}/data")


def test_a_pattern_below_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert len(found("mnist-train*")[1]) == len(found("./mnist-train*")[1]) == 2


def test_an_artifact_of_tfx(write, tmp_path):
    for split in ("train", "eval"):
        write(f"Split-{split}/data_tfrecord-00000-of-00001.gz", {"x": [1]})
    (tmp_path / "data" / "Split-train" / ".hidden").touch()
    file = ["data_tfrecord-00000-of-00001.gz"]
    assert found(f"{tmp_path}/data") == ("train", file)
    assert found(f"{tmp_path}/data", "eval") == found(f"{tmp_path}/data/Split-eval") == ("eval", file)


def test_a_dataset_that_is_being_written(write, tmp_path):
    write("Split-train/data_tfrecord-00000-of-00001.gz", {"x": [1]})
    (tmp_path / "data" / ".ingest").mkdir()
    with pytest.raises(InfeedError, match=r"not complete(.|\n)*wait for its writer"):
        find_split(f"{tmp_path}/data")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a-dev.tfrecord", "a-test.tfrecord"], r"there are 2 splits(.|\n)*set split= to one of dev, test"),
        (["notes.txt"], r"no TFRecord files(.|\n)*data\n(.|\n)*or a pattern"),
    ],
)
def test_what_cannot_be_one_split(write, tmp_path, names, said):
    for name in names:
        write(name, {"x": [1]})
    with pytest.raises(InfeedError, match=said):
        find_split(f"{tmp_path}/data")


@pytest.mark.parametrize("folder", ["", "Split-train/"], ids=["flat", "an artifact"])
def test_a_file_that_its_neighbours_count_and_that_is_not_there(write, tmp_path, folder):
    write(f"{folder}a-train.tfrecord-00001-of-00003", {"x": [1]})
    write(f"{folder}a-train.tfrecord-00002-of-00003", {"x": [1]})
    said = r"only 2 of 3 files a-train.tfrecord-\*-of-00003(.|\n)*split train\n(.|\n)*by a pattern"
    with pytest.raises(InfeedError, match=said):
        find_split(f"{tmp_path}/data")
    assert len(found(f"{tmp_path}/data/{folder}a-*")[1]) == 2


def test_files_may_be_compressed_with_and_without_gz_in_their_names(write, tmp_path):
    for number, name in enumerate(("a-train.tfrecord.gz", "b-train.tfrecord.gz", "c-train.tfrecord")):
        write(name, {"x": [number]})
    (tmp_path / "data/b-train.tfrecord.gz").rename(tmp_path / "data/b-train.tfrecord")
    data = infeed.load(f"{tmp_path}/data", batch_size=3, shuffle=False)
    assert [batch["x"].tolist() for batch in data.numpy(epochs=1)] == [[0, 1, 2]]


def test_nothing_there(tmp_path):
    with pytest.raises(InfeedError, match="there is no such folder or file"):
        find_split(f"{tmp_path}/none")
    with pytest.raises(InfeedError, match="no file matches the pattern"):
        find_split(f"{tmp_path}/*.tfrecord")


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"a,b\n" + b"1,2\n" * 40], ids=["short", "long"])
def test_a_file_that_is_no_tfrecord_file(write, tmp_path, content):
    write("a-train.tfrecord", {"x": [1]})
    (tmp_path / "data" / "notes.csv").write_bytes(content)
    with pytest.raises(InfeedError, match=r"does not begin like a TFRecord(.|\n)*notes.csv(.|\n)*only TFRecords"):
        find_split(f"{tmp_path}/data/*.csv")
