"""Input from a tf.data service, which runs on this machine or elsewhere.

    service = start_service(workers=2)
    dataset = read_remotely(dataset, service.address)
    ...
    service.close()

To use a service on another machine, pass its address: `read_remotely(dataset, "grpc://reader-0:5000")`.

A service runs the graphs that clients send, without authentication. TensorFlow's servers listen on every address of the
machine and have no option to change this. `bind` restricts them to one address by a filter on their sockets.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from infeed.components.errors import InfeedError

_PROTOCOL = "grpc"
_STARTED = "listening on "
_CONNECT_SECONDS = 10.0
_LOCAL, _EVERYWHERE = "127.0.0.1", "0.0.0.0"
_SHARDING = tf.data.experimental.service.ShardingPolicy.DYNAMIC


def read_remotely(dataset: tf.data.Dataset, address: str, *, job: str = "training") -> tf.data.Dataset:
    """Return `dataset` as computed by the workers of a tf.data service.

    All readers of a `job` share the elements of each pass. A pass gives every element at most once, in no particular
    order. If a worker dies, the elements that it was computing are lost.

    Args:
      dataset: one pass of whole batches. The service gets a graph, so the dataset cannot call Python, for example in a
        generator or a `numpy_function`.
      address: address of the dispatcher, `grpc://host:port`.
      job: name of the job that readers share.

    Raises:
      InfeedError: no dispatcher answers.
    """
    _require_answer(address)
    remote = tf.data.experimental.service.distribute(processing_mode=_SHARDING, service=address, job_name=job)
    return dataset.apply(remote)


def _require_answer(address: str) -> None:
    """Raise InfeedError if no dispatcher answers; TensorFlow would retry forever."""
    host, _, port = address.removeprefix(f"{_PROTOCOL}://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InfeedError(
            f"no dispatcher answers: {error}",
            where=f"tf.data service {address}",
            do="start it, and give its address as grpc://host:port",
        ) from error


@dataclass(frozen=True)
class Service:
    """A tf.data service in its own process."""

    address: str
    process: subprocess.Popen[str]

    def close(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.communicate()


def start_service(workers: int = 1, bind: str = _LOCAL) -> Service:
    """Start a dispatcher and its workers in a process on this machine.

    The service stops when this process ends or is killed, because its standard input closes.

    Args:
      workers: number of workers.
      bind: IPv4 address of this machine on which the service accepts connections; 0.0.0.0 means all addresses. Clients
        can run code on this machine, so use other addresses than 127.0.0.1 only in a private network.

    Raises:
      InfeedError: `bind` is not an address of this machine, the system does not allow socket filters, or the process
        exited before the service started.
    """
    _check_own(bind)
    command = [sys.executable, "-m", __name__, str(workers), bind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "asked for above"
    return Service(_address(process.stdout.readline()), process)


def _check_own(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
        with socket.socket() as one:
            one.bind((address, 0))
    except (OSError, ValueError) as error:
        raise InfeedError(
            f"{address!r} is no IPv4 address of this machine: {error}",
            where="start_service(bind=...)",
            do="leave it out, or give one of the numbers that `ip address` shows; 0.0.0.0 is all of them",
        ) from error


def _address(line: str) -> str:
    if not line.startswith(_STARTED):
        raise InfeedError(
            "the service did not start",
            where="tf.data service",
            do="see what it printed above; where this system lets only root filter sockets, read in another process by "
            'from_process, which needs no port, or name all addresses, bind="0.0.0.0", in a network of your own',
        )
    return line.removeprefix(_STARTED).strip()


def serve(workers: int, bind: str) -> None:
    """Run a dispatcher with its workers until standard input ends."""
    service, host = tf.data.experimental.service, _LOCAL if bind == _EVERYWHERE else bind
    dispatcher = service.DispatchServer(service.DispatcherConfig(protocol=_PROTOCOL))
    _close_others(bind)
    address = f"{host}:{dispatcher.target.rpartition(':')[2]}"
    config = service.WorkerConfig(dispatcher_address=address, worker_address=f"{host}:%port%")
    running = [service.WorkerServer(config) for _ in range(workers)]  # a server stops when its object is deleted
    _close_others(bind)
    print(f"{_STARTED}{_PROTOCOL}://{address}", flush=True)
    sys.stdin.read()
    del running


def _close_others(bind: str) -> None:
    """Filter packets to this process's listening sockets, as if the sockets were bound to the address `bind`."""
    if bind != _EVERYWHERE:
        for one in _listening():
            with one:
                try:
                    _attach_filter(one, _only_for(bind))
                except OSError as error:  # some systems allow filters only for root
                    sys.exit(f"the service cannot be closed for other addresses than {bind}: {error.strerror}")


def _listening() -> Iterator[socket.socket]:
    for name in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # not a socket
            continue
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield one
        else:
            one.close()


def _only_for(address: str) -> bytes:
    """Return a Berkeley packet filter program; see Linux's Documentation/networking/filter.rst."""
    network_header = 0xFFF00000  # SKF_NET_OFF: offset of the packet's IP header
    load_byte, load_word, shift_right, jump_if_equal, give_back = 0x30, 0x20, 0x74, 0x15, 0x06
    program = [
        (load_byte, 0, 0, network_header),  # version of IP, in the upper four bits
        (shift_right, 0, 0, 4),
        (jump_if_equal, 0, 3, 4),
        (load_word, 0, 0, network_header + 16),  # destination
        (jump_if_equal, 0, 1, int(ipaddress.IPv4Address(address))),
        (give_back, 0, 0, 0xFFFFFFFF),  # keep the whole packet
        (give_back, 0, 0, 0),  # drop it
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _attach_filter(one: socket.socket, program: bytes) -> None:
    attach, instructions = 26, ctypes.create_string_buffer(program)  # SO_ATTACH_FILTER, which Python does not define
    one.setsockopt(socket.SOL_SOCKET, attach, struct.pack("HL", len(program) // 8, ctypes.addressof(instructions)))


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
