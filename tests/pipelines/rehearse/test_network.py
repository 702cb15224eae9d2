from __future__ import annotations

import subprocess
import sys

import pytest

from infeed.pipelines.rehearse import network
from infeed.pipelines.rehearse.network import hosts

pytestmark = pytest.mark.slow

SERVER = """
import socket
server = socket.create_server(("", 2222))
print("ready", flush=True)
server.accept()[0].sendall(b"hello")
"""
CLIENT = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(5).decode())"


def test_isolated_machines_reach_each_other_on_the_port_of_the_job() -> None:
    with hosts(3, isolated=True) as found:
        if not found[0].prefix:
            pytest.skip("no network namespaces here")
        assert [host.address for host in found] == ["10.77.0.3:2222", "10.77.0.4:2222", "10.77.0.5:2222"]
        python = [sys.executable, "-S", "-c"]
        with subprocess.Popen([*found[1].prefix, *python, SERVER], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout
            assert server.stdout.readline() == "ready\n"
            for place in (found[0].prefix, ()):  # another machine, and this one, which has no way into the namespaces
                client = [*place, *python, CLIENT, *found[1].address.split(":")]
                told = subprocess.run(client, capture_output=True, text=True)
                assert (told.stdout == "hello\n") == bool(place)


def test_machines_that_need_a_store_have_ports_of_their_own() -> None:
    with hosts(3, isolated=False) as found:
        assert len({host.address.partition(":")[2] for host in found}) == 3
        assert all(host.address.startswith("127.0.0.") and not host.prefix for host in found)


def test_without_the_right_to_a_namespace_machines_share_the_loopback_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_on_bridge", lambda *_: iter([(0, -1)]))  # no process to enter
    with hosts(2, isolated=True) as found:
        assert [host.prefix for host in found] == [(), ()]


def test_addresses_of_many_machines_differ() -> None:
    assert network._address(0) == "10.77.0.3"
    assert len({network._address(number) for number in range(1000)}) == 1000
    assert all(0 < int(network._address(number).rpartition(".")[2]) < 255 for number in range(1000))
