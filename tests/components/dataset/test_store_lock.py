from __future__ import annotations

import json
import os
import threading
import time
from functools import partial

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, store_lock
from infeed.components.dataset.store_lock import alone_on_store


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest) -> str:
    """A place of its own in an object store."""
    return str(request.getfixturevalue(request.param))


alone = partial(alone_on_store, do="wait", renews=0.05, settles=0.05)


def test_the_second_is_refused_and_told_who_is_there(store: str) -> None:
    lock = f"{store}/.lock"
    with alone(lock, where=store):
        second = alone(lock, where=store)
        with pytest.raises(InfeedError, match=f"process {os.getpid()} on host") as raised, second:
            pass
        assert (raised.value.where, raised.value.do) == (store, "wait")
        assert files.exists(lock)
    assert not files.exists(lock)
    with alone(lock, where=store):
        pass


def test_what_a_killed_process_left_holds_nobody_up(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_bytes(f"{store}/.lock", b"{}")
    later = time.time() + 300
    monkeypatch.setattr(store_lock.time, "time", lambda: later)
    with alone(f"{store}/.lock", where=store):
        assert json.loads(files.read_bytes(f"{store}/.lock"))["pid"] == os.getpid()


def test_of_two_at_once_the_one_that_wrote_last_goes_on(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock.time, "sleep", lambda _: files.write_bytes(f"{store}/.lock", b'{"token": "other"}'))
    with pytest.raises(InfeedError, match="another process"), alone(f"{store}/.lock", where=store):
        pass
    assert files.read_bytes(f"{store}/.lock") == b'{"token": "other"}'


def test_a_lock_that_is_held_for_long_is_renewed(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real = files.write_bytes
    monkeypatch.setattr(files, "write_bytes", lambda path, content: (written.append(path), real(path, content)))
    with alone(f"{store}/.lock", where=store):
        deadline = time.monotonic() + 30
        while len(written) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert set(written) == {f"{store}/.lock"}
    assert len(written) >= 3


def test_a_lock_that_another_process_took_over_is_neither_renewed_nor_removed(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    with alone(f"{store}/.lock", where=store, renews=2):
        deadline = time.monotonic() + 60
        while "taken over" not in caplog.text and time.monotonic() < deadline:
            files.write_bytes(f"{store}/.lock", b"other")  # again, if a renewal was on its way
            time.sleep(2.5)
        assert "taken over" in caplog.text
        assert files.read_bytes(f"{store}/.lock") == b"other"
    assert files.read_bytes(f"{store}/.lock") == b"other"


def test_who_waits_gets_the_lock_once_it_is_free(store: str) -> None:
    taken: list[str] = []

    def wait() -> None:
        with alone(f"{store}/.lock", where=store, wait=True):
            taken.append("second")

    with alone(f"{store}/.lock", where=store):
        second = threading.Thread(target=wait)
        second.start()
        time.sleep(0.3)
        taken.append("first")
    second.join(30)
    assert taken == ["first", "second"]
