"""Transient read errors: classification and retries.

The client of an object store retries requests for half a minute or more. An error after these retries still does not
mean that the file is bad. So readers retry the file before the job fails.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

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
