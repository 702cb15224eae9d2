"""A tf.data service of this machine, in a process of its own."""

import contextlib
import itertools
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.service import read_remotely, start_service

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

BATCHES = tf.data.Dataset.range(40).batch(4)


def rows(dataset):
    return [int(row) for batch in dataset for row in batch]


@pytest.mark.usefixtures("socket_filters")
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
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))


def own_addresses():
    """127.0.0.2, and that of the way out where there is one: with UDP, to connect sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
        one.connect(("192.0.2.1", 9))
        return {"127.0.0.2", one.getsockname()[0]}
    return {"127.0.0.2"}


def answering(ports, addresses):
    """Asks all at once: of what is closed to others nothing comes back, not even a refusal."""
    asked = list(itertools.product(ports, addresses))
    with ThreadPoolExecutor(len(asked)) as threads:
        return {pair for pair, answers in zip(asked, threads.map(is_answered, asked), strict=True) if answers}


def is_answered(pair):
    port, address = pair
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):  # the kernel is quick
        return True
    return False


@pytest.mark.usefixtures("socket_filters")
def test_every_port_of_a_service_answers_at_the_address_that_is_named_and_at_no_other():
    own = {"127.0.0.1", *own_addresses()}
    for bind, expected in (("127.0.0.1", {"127.0.0.1"}), ("0.0.0.0", own)):
        with contextlib.closing(start_service(workers=1, bind=bind)) as service:
            ports = listening_ports(service.process.pid)
            assert len(ports) == 2
            assert sorted(rows(read_remotely(BATCHES, service.address, job="bound"))) == list(range(40))
            assert answering(ports, own) == set(itertools.product(ports, expected))
            assert bind == "0.0.0.0" or not answering(ports, ["::1"])


def listening_ports(pid):
    sockets = {os.readlink(link)[8:-1] for link in Path(f"/proc/{pid}/fd").iterdir() if "socket:" in os.readlink(link)}
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()]
    return {int(words[1].rpartition(":")[2], 16) for words in lines if words[3] == "0A" and words[9] in sockets}


@pytest.mark.parametrize("bind", ["192.0.2.77", "localhost", "::1", ""])
def test_an_address_that_is_none_of_this_machine_is_told(bind):
    with pytest.raises(InfeedError, match=rf"'{bind}' is no IPv4 address of this machine(.|\n)*bind="):
        start_service(bind=bind)


@pytest.mark.parametrize("address", ["grpc://localhost:1", "reader"])
def test_an_address_where_nobody_answers_is_told_at_once(address):
    with pytest.raises(InfeedError, match=rf"no dispatcher answers(.|\n)*tf.data service {address}"):
        read_remotely(BATCHES, address)
