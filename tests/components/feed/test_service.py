"""A tf.data service of this machine, in a process of its own."""

import contextlib
import socket

import pytest
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.service import read_remotely, start_service

BATCHES = tf.data.Dataset.range(40).batch(4)


def rows(dataset):
    return [int(row) for batch in dataset for row in batch]


@pytest.mark.slow
def test_each_pass_gives_every_record_once_over_all_readers_of_a_job_and_the_service_ends_with_the_block():
    calling = tf.data.Dataset.range(4).map(lambda n: tf.numpy_function(lambda value: value, [n], tf.int64))
    with contextlib.closing(start_service(workers=2)) as service:
        address = service.address
        remote = read_remotely(BATCHES, address, job="passes")
        assert sorted(rows(remote)) == sorted(rows(remote)) == list(range(40))
        one, other = (iter(read_remotely(BATCHES, address, job="shared")) for _ in range(2))
        assert sorted(rows(one) + rows(other)) == list(range(40))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not find callback"):  # Python cannot run there
            list(read_remotely(calling, address, job="python"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", int(address.rpartition(":")[2])))


@pytest.mark.parametrize("address", ["grpc://localhost:1", "reader"])
def test_an_address_where_nobody_answers_is_told_at_once(address):
    with pytest.raises(InfeedError, match=rf"no dispatcher answers(.|\n)*tf.data service {address}"):
        read_remotely(BATCHES, address)
