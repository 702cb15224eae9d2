from __future__ import annotations

import errno
import gzip
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError, ReadFailedError
from infeed.components.dataset import read_errors
from infeed.components.dataset.read_errors import failed_reads, is_transient, tried_again

FAILED = ReadFailedError("no answer", where="s3://bucket/a", do="run again")


class StatusError(Exception):
    """An error of a client of Google's, which has the HTTP status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code}")
        self.code = code


class ClientError(Exception):
    """An error of AWS's client, which has the whole response."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class HTTPClientError(Exception):
    """The base class of the connection errors of AWS's client."""


class ReadTimeoutError(HTTPClientError):
    pass


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(read_errors.time, "sleep", slept.append)
    return slept


def failing(times: int, error: Exception = FAILED) -> Callable[[], str]:
    left = iter([error] * times)

    def read() -> str:
        for one in left:
            raise one
        return "rows"

    return read


@pytest.mark.parametrize(
    "error",
    [
        FAILED,
        TimeoutError("timed out"),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        OSError(errno.EIO, "input/output error"),
        OSError(errno.ESTALE, "stale file handle"),
        OSError("When reading information for key 'a': AWS Error NETWORK_CONNECTION"),
        StatusError(503),
        StatusError(429),
        ClientError(500),
        ReadTimeoutError("read timed out"),
    ],
    ids=repr,
)
def test_errors_of_the_network_and_of_the_server_are_transient(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        InfeedError("corrupt record", where="a", do="mend it"),
        FileNotFoundError(errno.ENOENT, "no such file"),
        PermissionError(errno.EACCES, "denied"),
        OSError(errno.ENOSPC, "no space left"),
        gzip.BadGzipFile("not gzip"),
        ValueError("no number"),
        StatusError(404),
        ClientError(403),
    ],
    ids=repr,
)
def test_errors_about_the_file_are_not(error: Exception) -> None:
    assert not is_transient(error)
    with pytest.raises(type(error)) as raised, failed_reads("a"):
        raise error
    assert raised.value is error


def test_an_error_of_a_read_names_the_file_and_survives_another_process() -> None:
    with pytest.raises(ReadFailedError, match="no answer") as raised, failed_reads("s3://bucket/a"):
        raise TimeoutError("no answer")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.where) == (ReadFailedError, "s3://bucket/a")
    assert "run again" in again.do


def test_a_read_that_fails_twice_is_tried_a_third_time(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert tried_again(failing(2)) == "rows"
    assert pauses == [2, 4]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "attempt 1 of 3" in caplog.messages[0]
    assert "s3://bucket/a" in caplog.messages[0]


def test_the_last_attempt_says_how_many_there_were(pauses: list[float]) -> None:
    with pytest.raises(ReadFailedError, match=r"no answer.*3 attempts") as raised:
        tried_again(failing(3))
    assert (raised.value.where, len(pauses)) == ("s3://bucket/a", 2)


@pytest.mark.parametrize("error", [InfeedError("bad row", where="a", do="mend it"), ValueError("bug")], ids=repr)
def test_other_errors_are_raised_at_once(error: Exception, pauses: list[float]) -> None:
    read: Any = failing(1, error)
    with pytest.raises(type(error)):
        tried_again(read)
    assert pauses == []
