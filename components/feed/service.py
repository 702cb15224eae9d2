"""Readers outside of the training process: a tf.data service, started here by one call or running elsewhere.

    service = start_service(workers=2)
    dataset = read_remotely(dataset, service.address)
    ...
    service.close()

A service that others run is used by its address alone: `read_remotely(dataset, "grpc://reader-0:5000")`.

Such a service runs the graphs that it is sent, and asks nobody who he is. TensorFlow's servers listen on every address
of the machine and take no other; `bind` closes all but one by a filter on their sockets.
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
    """`dataset`, made by the workers of a tf.data service instead of here.

    Each pass gives every element at most once, over all that read the same `job`, in no particular order; elements that
    a worker had begun when it died are lost. Several training workers that name the same job share its batches.

    Args:
      dataset: one pass of whole batches. It is sent to the service as a graph, so it cannot call Python: no generator,
        no `numpy_function`.
      address: of the dispatcher, `grpc://host:port`.
      job: who reads the same job shares the elements of each pass.

    Raises:
      InfeedError: no dispatcher answers.
    """
    _require_answer(address)
    remote = tf.data.experimental.service.distribute(processing_mode=_SHARDING, service=address, job_name=job)
    return dataset.apply(remote)


def _require_answer(address: str) -> None:
    """TensorFlow itself would try for ever."""
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
    """A service in a process of its own, at `address`."""

    address: str
    process: subprocess.Popen[str]

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()


def start_service(workers: int = 1, bind: str = _LOCAL) -> Service:
    """Starts a dispatcher and its workers in a process on this machine.

    It ends with this process, too, even if that is killed: its standard input is closed then.

    Args:
      workers: how many.
      bind: the one IPv4 address of this machine at which the service can be reached. Whoever reaches it can run code
        here: another one than 127.0.0.1 belongs in a network of your own, and 0.0.0.0 means all.

    Raises:
      InfeedError: `bind` is no address of this machine, this system cannot close the others, or the process ended
        before the service ran.
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
    """Runs a dispatcher with its workers until standard input ends.

    Args:
      workers: each makes a part of every pass, in threads of its own.
      bind: the address at which they can be reached.
    """
    service, host = tf.data.experimental.service, _LOCAL if bind == _EVERYWHERE else bind
    dispatcher = service.DispatchServer(service.DispatcherConfig(protocol=_PROTOCOL))
    _close_others(bind)
    address = f"{host}:{dispatcher.target.rpartition(':')[2]}"
    config = service.WorkerConfig(dispatcher_address=address, worker_address=f"{host}:%port%")
    running = [service.WorkerServer(config) for _ in range(workers)]  # a server ends when nobody holds it
    _close_others(bind)
    print(f"{_STARTED}{_PROTOCOL}://{address}", flush=True)
    sys.stdin.read()
    del running


def _close_others(bind: str) -> None:
    """Lets only packets for the address `bind` reach this process's listening sockets, as if they were bound to it."""
    if bind != _EVERYWHERE:
        for one in _listening():
            with one:
                try:
                    _attach_filter(one, _only_for(bind))
                except OSError as error:  # some systems keep filters for root
                    sys.exit(f"the service cannot be closed for other addresses than {bind}: {error.strerror}")


def _listening() -> Iterator[socket.socket]:
    for name in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # no socket
            continue
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            yield one
        else:
            one.close()


def _only_for(address: str) -> bytes:
    """A program of Berkeley's packet filter; see Linux's Documentation/networking/filter.rst."""
    network_header = 0xFFF00000  # SKF_NET_OFF: where the packet's IP header begins
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
    attach, instructions = 26, ctypes.create_string_buffer(program)  # SO_ATTACH_FILTER, which Python has no name for
    one.setsockopt(socket.SOL_SOCKET, attach, struct.pack("HL", len(program) // 8, ctypes.addressof(instructions)))


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
