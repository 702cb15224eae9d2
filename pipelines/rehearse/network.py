"""Addresses for the machines of a rehearsed training job.

Where Linux allows it without privileges, each machine has a network namespace of its own on a common bridge, and the
port of the real job. Elsewhere the machines share this machine's loopback device, on free ports.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from infeed.components.kubeflow.training_job import PORT

_SUBNET = "10.77"
_OPENS = 5.0  # seconds until a process has its namespace
_ENTER = ("--user", "--net", "--preserve-credentials")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Host:
    """Network of a machine."""

    address: str  # `host:port` for TF_CONFIG
    prefix: tuple[str, ...] = ()  # start of the command lines that run there


@contextmanager
def hosts(count: int, *, isolated: bool) -> Iterator[list[Host]]:
    """Yield the networks of `count` machines; if `isolated`, they may be cut off from all others, such as a store's."""
    with ExitStack() as stack:
        found: list[Host] = []
        if isolated:
            try:
                found = [stack.enter_context(_namespace(*one)) for one in _on_bridge(stack, count)]
            except (OSError, subprocess.SubprocessError) as error:
                _log.info("no network namespaces here (%s): the machines share the loopback device", error)
        yield found or _on_loopback(count)


def _on_loopback(count: int) -> list[Host]:
    found = []
    with ExitStack() as held:  # open at the same time, so that all ports differ: TensorFlow listens on all addresses
        for number in range(count):
            one = held.enter_context(socket.socket())
            try:
                one.bind((f"127.0.0.{number + 2}", 0))
            except OSError:  # macOS has only 127.0.0.1
                one.bind(("127.0.0.1", 0))
            found.append(Host("{}:{}".format(*one.getsockname())))
    return found


def _on_bridge(stack: ExitStack, count: int) -> Iterator[tuple[int, int]]:
    """Create a namespace with a bridge; yield the number of each machine and the process that holds the bridge."""
    bridge = stack.enter_context(_holder(["unshare", "--user", "--map-root-user", "--net"]))
    _run(bridge, "ip", "link", "add", "bridge0", "type", "bridge")
    _run(bridge, "ip", "link", "set", "bridge0", "up")
    for number in range(count):
        yield number, bridge


@contextmanager
def _namespace(number: int, bridge: int) -> Iterator[Host]:
    """Connect a new namespace to the bridge by a pair of virtual devices."""
    address = _address(number)
    with _holder([*_inside(bridge), "unshare", "--net"]) as machine:
        _run(bridge, "ip", "link", "add", f"port{number}", "type", "veth", "peer", "eth0", "netns", str(machine))
        _run(bridge, "ip", "link", "set", f"port{number}", "master", "bridge0", "up")
        _run(machine, "ip", "address", "add", f"{address}/16", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run(machine, "ip", "link", "set", device, "up")
        yield Host(f"{address}:{PORT}", tuple(_inside(machine)))


def _address(number: int) -> str:
    return f"{_SUBNET}.{(number + 2) // 250}.{(number + 2) % 250 + 1}"


@contextmanager
def _holder(command: Sequence[str]) -> Iterator[int]:
    """Yield the id of a process that keeps a new network namespace open."""
    process = subprocess.Popen([*command, "sleep", "infinity"], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _OPENS
        while not _has_own(process.pid):
            if process.poll() is not None or time.monotonic() > until:
                raise OSError(f"{command[-2]} {command[-1]} failed")
            time.sleep(0.01)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _has_own(pid: int) -> bool:
    """Report whether `sleep` runs, which starts once the process is in its new namespaces."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip() == "sleep"
    except OSError:
        return False


def _inside(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), *_ENTER]


def _run(pid: int, *command: str) -> None:
    subprocess.run([*_inside(pid), *command], check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})
