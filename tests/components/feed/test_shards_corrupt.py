import gzip
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.records import read_records
from infeed.components.feed.shards import ShardFile, corrupt_record_context, without_corrupt

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

FRAMED = 16 + 5  # bytes of a record of five


@pytest.fixture
def shards(tmp_path):
    """Two files of ten records."""
    made = []
    for name in ("a", "b"):
        with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
            for number in range(10):
                writer.write(f"{name}-{number:03}".encode())
        made.append(ShardFile(str(tmp_path / name), 10, 10 * FRAMED))
    return made


def damage(shard, record, at):
    path = Path(shard.path)
    data = bytearray(path.read_bytes())
    data[record * FRAMED + at] ^= 0xFF
    path.write_bytes(data)


PAYLOAD, LENGTH = 14, 2


def read(shards):
    return [record for shard in shards for record in read_records(shard.path)]


def read_by_tensorflow(shards):
    return list(tf.data.TFRecordDataset([shard.path for shard in shards]).as_numpy_iterator())


def test_an_error_about_corrupt_data_names_file_and_record(shards):
    damage(shards[1], 3, PAYLOAD)
    with (
        pytest.raises(InfeedError, match=r"wrong checksum\n(.*)/b, record 3\n(.|\n)*skip_corrupt"),
        corrupt_record_context(shards),
    ):
        read_by_tensorflow(shards)


def test_other_errors_are_left_alone(shards):
    with pytest.raises(tf.errors.DataLossError), corrupt_record_context(shards):
        raise tf.errors.DataLossError(None, None, "of something else")


def test_single_corrupt_records_are_left_out_and_listed(shards):
    damage(shards[0], 2, PAYLOAD)
    damage(shards[0], 7, PAYLOAD)
    sound, corrupt = without_corrupt(shards, limit=2)
    assert [shard.records for shard in sound] == [8, 10]
    assert sound[1] == shards[1]  # what is sound is read where it lies
    assert len(read_by_tensorflow(sound)) == 18
    assert b"a-002" not in read(sound)
    assert [str(one).split("/")[-1] for one in corrupt] == [
        "a, record 2: wrong checksum",
        "a, record 7: wrong checksum",
    ]


def test_what_follows_a_corrupt_length_is_counted_as_lost(shards):
    damage(shards[0], 6, LENGTH)
    sound, corrupt = without_corrupt(shards, limit=4)
    assert read(sound)[:7] == [*(f"a-{number:03}".encode() for number in range(6)), b"b-000"]
    assert "a, records 6 to 9: not a TFRecord, or corrupt" in str(corrupt[0])


def test_more_corrupt_records_than_the_limit_are_refused_with_the_numbers(shards):
    damage(shards[0], 6, LENGTH)
    with pytest.raises(InfeedError, match=r"4 records are corrupt(.|\n)*/a, records 6 to 9"):
        without_corrupt(shards, limit=3)


def test_sound_files_are_read_where_they_lie(shards):
    assert without_corrupt(shards, limit=1) == (tuple(shards), ())


def test_compressed_files_are_copied_compressed(tmp_path):
    plain = str(tmp_path / "c")
    with tf.io.TFRecordWriter(plain) as writer:
        for number in range(2000):
            writer.write(b"%05d" % number)
    data = np.fromfile(plain, np.uint8)
    data[1500 * FRAMED + PAYLOAD] ^= 0xFF
    path = f"{plain}.gz"
    with gzip.open(path, "wb") as file:
        file.write(data.tobytes())
    sound, _ = without_corrupt([ShardFile(path, 2000, 1)], limit=1)
    assert sound[0].path.endswith(".gz")
    assert len(read(sound)) == sound[0].records == 1999
