"""What a dataset holds; what the command shows of it is tested with the commands."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from infeed.components.dataset import records
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.reading import inspect
from infeed.components.errors import InfeedError


def write(path: Path, payloads: pa.LargeBinaryArray) -> None:
    records.write_records(str(path), [records.frame_records(payloads)], gzip_level=None)


def test_a_folder_that_somebody_else_wrote(tmp_path):
    for split in ("test", "train"):
        write(tmp_path / f"a-{split}.tfrecord", encode_examples(pa.record_batch([pa.array([7, 8, 9])], ["x"])))
    shown = inspect(str(tmp_path), "train", 1)
    assert (shown.root, shown.split, shown.manifest.rows_read) == (str(tmp_path), "train", 6)
    assert [example.features["x"].values for example in shown.examples] == [(7,)]
    assert inspect(str(tmp_path)).split == "test"


def test_other_records_are_counted_and_not_shown(tmp_path):
    write(tmp_path / "a.tfrecord", pa.array([b"\xff"], pa.large_binary()))
    shown = inspect(str(tmp_path))
    assert (shown.manifest.rows_read, shown.examples) == (1, ())


@pytest.mark.parametrize(
    ("where", "split", "said"),
    [
        (".", "dev", "no split 'dev'"),
        ("none", None, "no such file or folder"),
        ("empty", None, "not a TFRecord dataset"),
    ],
)
def test_what_is_not_there(tmp_path, where, split, said):
    write(tmp_path / "a.tfrecord", pa.array([b""], pa.large_binary()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InfeedError, match=said):
        inspect(str(tmp_path / where), split)
