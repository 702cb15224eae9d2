"""Records of shards that TensorFlow reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.shards import corrupt_record_context, stored_blocks

pytestmark = [pytest.mark.slow, pytest.mark.stack]


@pytest.fixture
def path(tmp_path: Path) -> str:
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for number in range(10):
            writer.write(str(number).encode())
    return str(tmp_path / "records")


def test_a_range_of_records_in_blocks(path: str) -> None:
    blocks = stored_blocks(path, 2, 9).rebatch(3)
    assert [block.tolist() for block in blocks.as_numpy_iterator()] == [
        [b"2", b"3", b"4"],
        [b"5", b"6", b"7"],
        [b"8"],
    ]


def test_another_number_of_records_is_an_error_that_names_the_file(path: str) -> None:
    with pytest.raises(InfeedError, match="10 records, expected 12") as caught, corrupt_record_context([]):
        list(stored_blocks(path, records=12))
    assert caught.value.where == path
