"""Reads from an object store: transient errors with retries, and large ranges with read-ahead.

The client of an object store retries requests for half a minute or more. An error after these retries still does not
mean that the file is bad. So readers retry the file before the job fails.
"""

from __future__ import annotations

import errno
import io
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa

from infeed.components.base.errors import InfeedError, ReadFailedError

A = TypeVar("A")
ATTEMPTS = 3
PAUSE = 2.0  # seconds before the second attempt, twice as many before the third
_NUMBERS = {
    *(errno.EIO, errno.EREMOTEIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EPIPE),
    *(errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ENOTCONN),
    *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET),
}
_TOO_MANY, _TIMED_OUT, _SERVER = 429, 408, 500  # HTTP status codes
# Errors of botocore, aiohttp, requests, httpx, and urllib3 that are not OSErrors or have no error number.
_CLASSES = {"HTTPClientError", "ClientConnectionError", "ClientPayloadError", "ConnectionError", "Timeout"}
_CLASSES |= {"TransportError", "IncompleteReadError", "IncompleteRead", "ProtocolError", "HTTPError"}
_log = logging.getLogger(__name__)


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed: after a lost connection, a timeout, or a server error."""
    if isinstance(error, ReadFailedError | ConnectionError | TimeoutError):
        return True
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:  # of gcsfs, aiohttp, google-api-core or urllib
        found = (getattr(error, name, None) for name in ("status", "status_code", "http_status", "code"))
        status = next((one for one in found if isinstance(one, int)), None)
    if status:
        return int(status) >= _SERVER or int(status) in (_TOO_MANY, _TIMED_OUT)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NUMBERS
    if type(error) is OSError:  # Arrow's clients raise OSError without a number
        return True
    return not _CLASSES.isdisjoint(kind.__name__ for kind in type(error).__mro__)


@contextmanager
def failed_reads(where: str) -> Iterator[None]:
    """Convert transient errors of the body to ReadFailedError with the name of the file."""
    try:
        yield
    except InfeedError:
        raise
    except Exception as error:  # each client of a store has its own classes
        if not is_transient(error):
            raise
        raise read_failed(error, where) from error


def read_failed(error: BaseException, where: str) -> ReadFailedError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    do = "run again when the store is available, check its credentials, or exclude the file by the input pattern"
    return ReadFailedError(f"cannot read the file: {reason}", where=where, do=do)


def tried_again(read: Callable[[], A]) -> A:
    """Call `read`, and retry after ReadFailedError with growing pauses.

    Raises ReadFailedError if the last attempt failed.
    """
    attempt = 1
    while True:
        try:
            return read()
        except ReadFailedError as error:
            if attempt >= ATTEMPTS:
                what = f"{error.what} ({ATTEMPTS} attempts)"
                raise ReadFailedError(what, where=error.where, do=error.do) from error
            pause = PAUSE * attempt
            values = (attempt, ATTEMPTS, error.where, error.what, pause)
            _log.warning("attempt %d of %d to read %s failed: %s. Retrying in %g s", *values)
        time.sleep(pause)
        attempt += 1


# A request takes tens of milliseconds at any size, but decoders read kilobytes at a time. So a file is divided into
# blocks, and sequential reads request the next blocks in advance.
BLOCK_BYTES = 8 << 20
HEAD_BYTES = 64 << 10  # read separately, because often only the start of a file is needed
_AHEAD = 3  # blocks requested in advance
_KEPT = _AHEAD + 2
_HEAD = -1  # block number of the head
# Shared by all files of the process. The threads only wait.
_threads = ThreadPoolExecutor(16, thread_name_prefix="read-ahead")


class StoreFile(io.BufferedIOBase):
    """Seekable binary file in an object store, read in the requested ranges. Threads may call `file.read_at`."""

    def __init__(self, file: pa.NativeFile, path: str) -> None:
        self._file, self._path = file, path
        self._size: int = file.size()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        left = max(0, self._size - self._at)
        data = self._range(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def _range(self, start: int, size: int) -> bytes:
        """Read a range. A failing store raises ReadFailedError, because decoders raise OSError for corrupt content."""
        try:
            data = bytes(self._file.read_at(size, start)) if size else b""
            if len(data) != size:  # or a reader would ask for the rest without end
                raise OSError(f"the store answered with {len(data):,} of {size:,} bytes, from byte {start:,}")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise read_failed(error, self._path) from error
        return data


class RangeReader(StoreFile):
    """Reader of a file in an object store, in large ranges with read-ahead. Reads after offset `stop` are unlikely."""

    def __init__(self, file: pa.NativeFile, path: str, stop: int | None = None) -> None:
        super().__init__(file, path)
        self._stop = self._size if stop is None else min(stop, self._size)
        self._last = _HEAD
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()

    def read(self, size: int | None = -1, /) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._at + size, self._size)
        pieces = []
        while self._at < stop:
            if stop <= HEAD_BYTES:
                start, block = 0, self._request(_HEAD)
            else:
                number = self._at // BLOCK_BYTES
                start, block = number * BLOCK_BYTES, self._request(number)
                if number == self._last + 1:
                    for following in range(number + 1, min(number + 1 + _AHEAD, -(-self._stop // BLOCK_BYTES))):
                        self._request(following)
                self._last = number
            piece = block.result()[self._at - start : stop - start]
            pieces.append(piece)
            self._at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        for block in self._blocks.values():
            block.cancel()
        self._blocks.clear()
        super().close()

    def _request(self, number: int) -> Future[bytes]:
        """Request a block unless it is cached, and mark it as recently used."""
        if number not in self._blocks:
            start, size = (0, HEAD_BYTES) if number == _HEAD else (number * BLOCK_BYTES, BLOCK_BYTES)
            # Stop at the end of the file, because some servers reject ranges beyond it.
            self._blocks[number] = _threads.submit(self._range, start, min(size, self._size - start))
        self._blocks.move_to_end(number)
        while len(self._blocks) > _KEPT:
            self._blocks.popitem(last=False)[1].cancel()
        return self._blocks[number]
