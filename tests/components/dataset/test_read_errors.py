from __future__ import annotations

import errno
import gzip
import io
import logging
import pickle
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError, ReadFailedError
from infeed.components.dataset import files, read_errors
from infeed.components.dataset.read_errors import RangeReader, StoreFile, failed_reads, is_transient, tried_again

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


PATH = "s3://bucket/a"
CONTENT = random.Random(0).randbytes(5_000)


class Store:
    """A file of an object store, which writes down what it is asked for."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self._content = content
        self.asked: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def size(self) -> int:
        return len(self._content)

    def read_at(self, size: int, start: int) -> bytes:
        with self._lock:
            self.asked.append((start, size))
        assert start + size <= len(self._content)
        return self._content[start : start + size]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_errors, "BLOCK_BYTES", 512)
    monkeypatch.setattr(read_errors, "HEAD_BYTES", 64)


STEPS = st.lists(st.tuples(st.none() | st.integers(0, 5_100), st.integers(-1, 2_000)), max_size=20)


@pytest.mark.usefixtures("small")
@given(steps=STEPS)
def test_it_reads_what_stands_there_in_any_order(steps: list[tuple[int | None, int]]) -> None:
    expected, found = io.BytesIO(CONTENT), RangeReader(Store(), PATH)
    for place, size in steps:
        if place is not None:
            assert expected.seek(place) == found.seek(place)
        assert expected.read(size) == found.read(size)
        assert expected.tell() == found.tell()


@pytest.mark.usefixtures("small")
def test_each_range_is_asked_for_once_by_who_reads_from_front_to_back() -> None:
    store = Store()
    with RangeReader(store, PATH) as reader:
        assert b"".join(iter(lambda: reader.read(100), b"")) == CONTENT
    assert sorted(store.asked) == [(start, min(512, 5_000 - start)) for start in range(0, 5_000, 512)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("place", "asked"), [(0, (0, 64)), (3_000, (2_560, 512))])
def test_who_looks_at_the_beginning_or_jumps_gets_that_alone(place: int, asked: tuple[int, int]) -> None:
    store = Store()
    with RangeReader(store, PATH) as reader:
        for size in (4, 10):
            reader.seek(place)
            assert reader.read(size) == CONTENT[place : place + size]
    assert store.asked == [asked]


@pytest.mark.usefixtures("small")
def test_what_lies_behind_the_stop_is_not_read_ahead_and_can_be_read() -> None:
    store = Store()
    with RangeReader(store, PATH, stop=1_000) as reader:
        assert reader.read(1_000) == CONTENT[:1_000]
        assert sorted(store.asked) == [(0, 512), (512, 512)]
        assert reader.read(100) == CONTENT[1_000:1_100]


def test_an_error_of_the_store_is_raised_where_its_range_is_read() -> None:
    class Broken(Store):
        def read_at(self, size: int, start: int) -> bytes:
            raise OSError("connection lost")

    with RangeReader(Broken(), PATH) as reader, pytest.raises(ReadFailedError, match="connection lost") as raised:
        reader.read(1)
    assert raised.value.where == PATH


def test_an_empty_file_is_read_without_a_request() -> None:
    store = Store(b"")
    with RangeReader(store, PATH) as reader:
        assert reader.read() == b""
    assert store.asked == []


def test_an_object_is_read_in_ranges_of_eight_megabytes(s3: str, s3_requests: list[str]) -> None:
    content = random.Random(1).randbytes(20_000_000)
    files.write_bytes(f"{s3}/large", content)
    s3_requests.clear()
    with files.open_input(f"{s3}/large", ahead=True) as file:
        assert b"".join(iter(lambda: file.read(100_000), b"")) == content
    assert sorted(request.rpartition(" ")[0] for request in s3_requests) == [
        *sorted(f"GET bytes={start}-{min(start + (8 << 20), 20_000_000) - 1}" for start in (0, 8 << 20, 16 << 20)),
        "HEAD ",
    ]


def test_a_large_object_of_google_is_written_in_pieces_and_read_in_parts(gs: str) -> None:
    content = random.Random(1).randbytes(10_000_000)
    with files.open_output(f"{gs}/large") as output:
        for start in range(0, len(content), 300_000):
            output.write(content[start : start + 300_000])
    with files.open_input(f"{gs}/large") as file:
        assert file.read(1_000) == content[:1_000]
        file.seek(9_000_000)
        assert file.read(1_000) == content[9_000_000:9_001_000]
    with files.open_input(f"{gs}/large", ahead=True) as file:
        assert b"".join(iter(lambda: file.read(100_000), b"")) == content


def test_a_local_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    with files.open_input(str(tmp_path / "a"), ahead=True) as file:
        assert isinstance(file, pa.OSFile)
        assert file.read() == b"abc"


@pytest.mark.parametrize("answered", [0, 100])
@pytest.mark.parametrize("reader", [StoreFile, RangeReader])
def test_a_range_that_is_answered_in_part_is_a_failed_read_and_no_endless_one(
    reader: type[StoreFile], answered: int
) -> None:
    class Short(Store):
        def read_at(self, size: int, start: int) -> bytes:
            return super().read_at(size, start)[:answered]

    with pytest.raises(ReadFailedError, match=f" {answered} of 5,000 bytes") as raised:
        reader(Short(), PATH).read()
    assert raised.value.where == PATH
