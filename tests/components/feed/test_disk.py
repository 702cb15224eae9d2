"""Columns as tensors of mapped files; `test_column_files.py` of the datasets tests how they are kept."""

import dataclasses
import shutil

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.column_files import ColumnIndex
from infeed.components.feed import disk

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load


def counted(times):
    """Three batches; every reading of them is counted."""

    def batches():
        times.append(1)
        for number in range(3):
            yield [number * 2, number * 2 + 1]

    return tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([None], tf.int64))


def test_what_was_kept_is_not_read_a_second_time(tmp_path):
    times = []
    for _ in range(2):
        columns = disk.cache_columns(counted(times), str(tmp_path), "key", 0)
        assert columns.take(tf.constant([5, 0], tf.int64)).numpy().tolist() == [5, 0]
    assert len(times) == 1


def test_nothing_half_written_is_left_or_read(tmp_path, monkeypatch):
    written = []

    def add(writer, column):
        written.append(column)
        if len(written) > 1:  # the second batch finds the disk full
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(disk._Writer, "add", add)
        with pytest.raises(InfeedError, match=r"cache: No space left(.|\n)*tier='stream'"):
            disk.cache_columns(counted([]), str(tmp_path), "key", 0)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert disk.cache_columns(counted([]), str(tmp_path), "key", 0).rows == 6


def test_columns_in_use_outlive_the_removal_of_their_entry(tmp_path):
    columns = disk.cache_columns(counted([]), str(tmp_path), "key", 0)
    shutil.rmtree(tmp_path / "key")
    assert columns.take(tf.constant([3], tf.int64)).numpy().tolist() == [3]


def test_an_index_that_names_no_type_of_a_tensor_is_not_believed(tmp_path):
    for kind in ("object", "string[python]", "variant", "|O", "../x"):
        disk.cache_columns(counted([]), str(tmp_path), "key", 0)
        entry = tmp_path / "key"
        [column] = ColumnIndex.read(entry).columns
        ColumnIndex.of([dataclasses.replace(column, type=kind)]).write(entry)
        assert disk.cache_columns(counted([]), str(tmp_path), "key", 0).rows == 6
