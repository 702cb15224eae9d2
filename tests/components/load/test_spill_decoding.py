"""Records decoded by several threads: their order, the first error, and how many blocks wait."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import record_blocks
from infeed.components.dataset.encode import encode_examples
from infeed.components.load import spill
from infeed.components.load.spill import decoded_blocks


def examples(*values: int) -> list[bytes]:
    return [one.as_py() for one in encode_examples(pa.record_batch([pa.array(values)], ["x"]))]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(record_blocks, "_RECORDS", 2)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_blocks_come_in_the_order_of_the_records(write, threads):
    paths = [write("a.tfrecord", examples(0, 1, 2)), write("b.tfrecord", []), write("c.tfrecord", examples(3, 4, 5, 6))]
    blocks = list(decoded_blocks(paths, threads))
    assert [(one.file, one.first, one.records) for one in blocks] == [(0, 0, 2), (0, 2, 1), (2, 0, 2), (2, 2, 2)]
    assert [value for one in blocks for value in one.columns["x"].flatten().to_pylist()] == list(range(7))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_error_is_that_of_the_first_record(write, threads):
    good = write("a.tfrecord", [*examples(0, 1, 2), b"no Example", *examples(4)])
    worse = write("b.tfrecord", [b"neither"])
    with open(worse, "r+b") as file:
        file.truncate(9)
    with pytest.raises(InfeedError, match=rf"not a serialized tf.Example(.|\n)*where: {good}, record 3"):
        list(decoded_blocks([good, worse], threads))
    with pytest.raises(InfeedError, match=rf"truncated record(.|\n)*where: {worse}, record 0"):
        list(decoded_blocks([worse, good], threads))


def test_only_so_many_blocks_are_read_in_advance(write, monkeypatch):
    read, most = 0, 0

    def counted(path):
        nonlocal read
        for block in record_blocks.read_blocks(path):
            read += 1
            yield block

    monkeypatch.setattr(spill, "read_blocks", counted)
    for taken, _ in enumerate(decoded_blocks([write("a.tfrecord", examples(*range(40)))], 2), 1):
        most = max(most, read - taken)
    assert (read, most) == (20, 2)


def test_no_thread_is_left_when_nobody_wants_more(write):
    blocks = decoded_blocks([write("a.tfrecord", examples(*range(40)))], 3)
    next(blocks)
    blocks.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("infeed-decode")]
