"""Reads that fail and may succeed later: which errors these are, and further attempts.

A client of an object store repeats its requests for half a minute or more. An error that outlives these attempts still
says nothing about the file, so whoever reads the file tries again before the whole job fails.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from infeed.components.errors import InfeedError, ReadFailedError

A = TypeVar("A")
ATTEMPTS = 3
PAUSE = 2.0  # seconds before the second attempt; the third waits twice as long
_NUMBERS = {
    *(errno.EIO, errno.EREMOTEIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EPIPE),
    *(errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ENOTCONN),
    *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET),
}
_TOO_MANY, _TIMED_OUT, _SERVER = 429, 408, 500  # HTTP's
# Base classes in botocore, aiohttp, requests, httpx, and urllib3 that are no OSErrors or have no error number.
_CLASSES = {"HTTPClientError", "ClientConnectionError", "ClientPayloadError", "ConnectionError", "Timeout"}
_CLASSES |= {"TransportError", "IncompleteReadError", "IncompleteRead", "ProtocolError", "HTTPError"}
_log = logging.getLogger(__name__)


def is_transient(error: BaseException) -> bool:
    """Whether the same read may succeed later: a lost connection, a timeout, an error of the server."""
    if isinstance(error, ReadFailedError | ConnectionError | TimeoutError):
        return True
    if (status := _http_status(error)) is not None:
        return status >= _SERVER or status in (_TOO_MANY, _TIMED_OUT)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NUMBERS
    if type(error) is OSError:  # Arrow gives the errors of its clients no number
        return True
    return not _CLASSES.isdisjoint(kind.__name__ for kind in type(error).__mro__)


@contextmanager
def failed_reads(where: str) -> Iterator[None]:
    """Raise ReadFailedError, which names the file, for transient errors inside."""
    try:
        yield
    except InfeedError:
        raise
    except Exception as error:
        if not is_transient(error):
            raise
        raise read_failed(error, where) from error


def read_failed(error: BaseException, where: str) -> ReadFailedError:
    """The error of a read that failed."""
    told = str(error).partition("\n")[0] or type(error).__name__
    do = "run again once the store answers, check its credentials, or exclude the file by the pattern of the input"
    return ReadFailedError(f"the file could not be read: {told}", where=where, do=do)


def tried_again(read: Callable[[], A]) -> A:
    """Call `read` again if it raises ReadFailedError, after a growing pause.

    Raises:
      ReadFailedError: the last attempt failed as well.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return read()
        except ReadFailedError as error:
            pause = PAUSE * attempt
            told = (attempt, ATTEMPTS, error.where, error.what, pause)
            _log.warning("attempt %d of %d to read %s: %s; the next attempt starts in %g s", *told)
        time.sleep(pause)
    try:
        return read()
    except ReadFailedError as error:
        what = f"{error.what} ({ATTEMPTS} attempts)"
        raise ReadFailedError(what, where=error.where, do=error.do) from error


def _http_status(error: Any) -> int | None:
    """The HTTP status in an error of botocore, gcsfs, aiohttp, google-api-core, or urllib; None if there is none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        names = ("status", "status_code", "http_status", "code")
        found = next((getattr(error, name) for name in names if isinstance(getattr(error, name, None), int)), None)
    return int(found) if found else None
