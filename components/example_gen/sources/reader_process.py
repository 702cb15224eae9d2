"""File readers in a child process, so that a file that crashes the reader or exhausts memory ends only the child.

Arrow's C++ readers do not fully validate Parquet files: some corruptions end the process by a signal (CVE-2024-52338
and similar). The child runs one function at a time and returns record batches as Arrow IPC streams. Its memory is
limited, and it exits when idle for a while or when its parent exits. Idle children are kept, so that many files share
one start of about 0.3 s.
"""

from __future__ import annotations

import atexit
import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions

_IDLE = 60.0  # seconds until an idle child exits
_READER_BYTES = 256 << 20
_COPIES = 3
_HEAD = struct.Struct("<cQ")  # kind and length of a message
_BATCH, _RESULT, _ERROR, _NO_MEMORY, _END = b"B", b"R", b"E", b"M", b"."
# Use the parent's path, because the current folder may contain another `infeed`.
_START = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import serve; serve()"
_DO = "write the file again, or remove it from the input"


@dataclass(frozen=True)
class Limits:
    """Maximum sizes of a block and of a row in bytes, both decoded."""

    block: int
    row: int

    @classmethod
    def of(cls, options: IngestOptions) -> Limits:
        return cls(options.block_bytes, options.max_row_mb << 20)

    @property
    def memory(self) -> int:
        """Bytes that a reader may use: buffers, pages, and copies of the largest row."""
        return _READER_BYTES + _COPIES * self.row


def batches_apart(
    function: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any, where: str, memory: int
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `function(*arguments)`, run in a child process.

    Args:
      function: module-level function that both processes can import.
      where: file that the function reads, for errors.
      memory: bytes that the child may use beyond those it starts with.

    Raises:
      InfeedError: the function raised one, the child crashed, or the child needs more memory.
    """
    with _child(where, memory) as child:
        for kind, data in child.run(function, arguments, memory):
            if kind == _BATCH:
                with pa.ipc.open_stream(data) as stream:
                    yield from stream


def call_apart(function: Callable[..., Any], *arguments: Any, where: str, memory: int) -> Any:
    """Return the result of `function(*arguments)`, run in a child process; see `batches_apart`."""
    with _child(where, memory) as child:
        (result,) = [pickle.loads(data) for kind, data in child.run(function, arguments, memory) if kind == _RESULT]
        return result


class _OutOfMemoryError(Exception):
    """The child needs more memory than the limit, its argument."""


class _Child:
    def __init__(self) -> None:
        # Arrow's default allocators reserve much address space, all of which counts against the limit.
        pool = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # C libraries print to it when they abort
            env={**os.environ, **pool},
        )
        self._requests = cast(BinaryIO, self._process.stdin)
        self._replies = cast(BinaryIO, self._process.stdout)
        self.owner = os.getpid()

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], memory: int) -> Iterator[tuple[bytes, Any]]:
        """Yield (kind, data) of each message except the last. An error is the last message.

        Raises:
          EOFError, BrokenPipeError: the child has exited.
          _OutOfMemoryError: the child needs more memory.
        """
        _send(self._requests, _RESULT, pickle.dumps((function, arguments, memory)))
        while (message := _receive(self._replies))[0] != _END:
            if message[0] == _NO_MEMORY:
                raise _OutOfMemoryError(pickle.loads(message[1]))
            if message[0] == _ERROR:
                raise pickle.loads(message[1])
            yield message

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._requests, self._replies):  # the garbage collector may have closed them
            with suppress(OSError):
                pipe.close()

    def died_of(self) -> str:
        """Wait for the exit of a child whose pipe is closed. Return the signal's name or the exit status."""
        status = self._process.wait()
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    @property
    def is_alive(self) -> bool:
        return self.owner == os.getpid() and self._process.poll() is None


_idle: list[_Child] = []
_lock = threading.Lock()


@contextmanager
def _child(where: str, memory: int) -> Iterator[_Child]:
    """Yield an idle child or a new one. Kills a child that failed or whose reader stopped early."""
    with _lock:
        usable = [child for child in _idle if child.is_alive]
        child = usable.pop() if usable else _Child()
        if not _idle and not usable:
            atexit.register(_end_idle)
        _idle[:] = usable
    try:
        yield child
    except (EOFError, BrokenPipeError) as error:
        raise InfeedError(f"the file crashed its reader ({child.died_of()})", where=where, do=_DO) from error
    except (_OutOfMemoryError, MemoryError) as error:
        child.kill()
        allowed = error.args[0] if isinstance(error, _OutOfMemoryError) else 0
        raise _out_of_memory(allowed, memory, where) from error
    except InfeedError:
        _keep(child)
        raise
    except BaseException:  # a child that is not killed would continue to read, also after Ctrl-C
        child.kill()
        raise
    _keep(child)


def _keep(child: _Child) -> None:
    with _lock:  # without the lock, a thread that removes dead children could lose this one
        _idle.append(child)


def _out_of_memory(allowed: int, wanted: int, where: str) -> InfeedError:
    """Return the error of a reader that exceeded our memory limit or that of the system."""
    if allowed >= wanted:
        return InfeedError(
            f"reading the file takes more than {wanted >> 20:,} MB of memory",
            where=where,
            do="write smaller values, smaller row groups or fewer columns, or raise max_row_mb (--max-row-mb)",
        )
    left = f": the system allows {allowed >> 20:,} MB of {wanted >> 20:,}" if allowed else ""
    return InfeedError(
        f"there is not enough memory to read the file{left}",
        where=where,
        do="stop other programs, or raise the memory limit of the shell (ulimit -v) or of the container",
    )


def _end_idle() -> None:
    for child in _idle:
        if child.owner == os.getpid():
            child.kill()


def _send(pipe: BinaryIO, kind: bytes, data: Any = b"") -> None:
    pipe.write(_HEAD.pack(kind, len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> tuple[bytes, Any]:
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    kind, size = _HEAD.unpack(head)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return kind, data


def serve() -> None:
    """Run the main loop of the child: read requests from stdin, and write messages to the original stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process, and the parent handles it
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep the output of libraries out of the messages
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    started_with = 0
    while select.select([requests], [], [], _IDLE)[0]:
        _, most = resource.getrlimit(resource.RLIMIT_AS)  # limit of the system
        resource.setrlimit(resource.RLIMIT_AS, (most, most))  # the last file's limit must not apply to imports
        try:
            function, arguments, memory = pickle.loads(_receive(requests)[1])
        except EOFError:
            return
        started_with = started_with or _address_space()  # includes the modules that the first request imports
        limit = started_with + memory if most == resource.RLIM_INFINITY else min(started_with + memory, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
        _reply(replies, function, arguments, max(1, limit - started_with))


def _reply(replies: BinaryIO, function: Callable[..., Any], arguments: tuple[Any, ...], allowed: int) -> None:
    try:
        result = function(*arguments)
        if isinstance(result, Iterator):
            for batch in result:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                _send(replies, _BATCH, sink.getvalue())
        else:
            _send(replies, _RESULT, pickle.dumps(result))
        _send(replies, _END)
    except MemoryError:
        _send(replies, _NO_MEMORY, pickle.dumps(allowed))
    except Exception as error:  # raised again by the parent
        _send(replies, _ERROR, pickle.dumps(error))


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
