"""Readers outside of the training process: a tf.data service, started here by one call or running elsewhere.

    service = start_service(workers=2)
    dataset = read_remotely(dataset, service.address)
    ...
    service.close()

A service that others run is used by its address alone: `read_remotely(dataset, "grpc://reader-0:5000")`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass

import tensorflow as tf

from infeed.components.errors import InfeedError

_PROTOCOL = "grpc"
_STARTED = "listening on "
_CONNECT_SECONDS = 10.0
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
            do="Start it, and give its address as grpc://host:port.",
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


def start_service(workers: int = 1) -> Service:
    """Starts a dispatcher and its workers in a process on this machine.

    It ends with this process, too, even if that is killed: its standard input is closed then.

    Raises:
      InfeedError: the process ended before the service ran.
    """
    command = [sys.executable, "-m", __name__, str(workers)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "asked for above"
    return Service(_address(process.stdout.readline()), process)


def _address(line: str) -> str:
    if not line.startswith(_STARTED):
        raise InfeedError("the service did not start", where="tf.data service", do="See what it printed above.")
    return line.removeprefix(_STARTED).strip()


def serve(workers: int, port: int = 0) -> None:
    """Runs a dispatcher with its workers until standard input ends.

    Args:
      workers: each makes a part of every pass, in threads of its own.
      port: of the dispatcher; 0 takes a free one.
    """
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=port, protocol=_PROTOCOL))
    config = service.WorkerConfig(dispatcher_address=dispatcher.target.removeprefix(f"{_PROTOCOL}://"))
    running = [service.WorkerServer(config) for _ in range(workers)]  # a server ends when nobody holds it
    print(f"{_STARTED}{dispatcher.target}", flush=True)
    sys.stdin.read()
    del running


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
