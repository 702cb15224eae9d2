"""Ports for servers that tests start."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Yield ports of this machine that until the end of the body no other process gets from the system by chance.

    Servers can listen on them: they reuse addresses, as all do that Python and gRPC start.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                one.setsockopt(socket.SOL_SOCKET, option, 1)
            one.bind(("localhost", 0))
        yield [int(one.getsockname()[1]) for one in sockets]
