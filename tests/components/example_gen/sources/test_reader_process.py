"""Readers in a child process: results and errors come back, and a child that dies is an error that names the file."""

from __future__ import annotations

import operator
import os
import resource
import sys
import threading

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.sources import reader_process
from infeed.components.example_gen.sources.reader_process import call_apart

MEMORY = 256 << 20


@pytest.fixture(autouse=True)
def children_find_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython, once imported, adds a folder to the path, in which lies a package `tests` that hides ours."""
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("IPython/extensions")])
    reader_process._end_idle()  # they were started with the path of other tests


def test_a_result_comes_back_from_another_process() -> None:
    assert call_apart(os.getpid, where="a.parquet", memory=MEMORY) != os.getpid()


def test_one_child_serves_many_calls() -> None:
    children = {call_apart(os.getpid, where="a.parquet", memory=MEMORY) for _ in range(5)}
    assert len(children) == 1


def test_calls_from_several_threads_have_children_of_their_own() -> None:
    inside = threading.Barrier(2)
    found: list[int] = []

    def call() -> None:
        inside.wait()
        found.append(call_apart(operator.add, 1, 2, where="a.parquet", memory=MEMORY))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3, 3]


def test_a_crash_names_the_file_and_the_signal_and_the_next_call_works() -> None:
    with pytest.raises(InfeedError, match="SIGABRT") as raised:
        call_apart(os.abort, where="folder/a.parquet", memory=MEMORY)
    assert raised.value.where == "folder/a.parquet"
    assert call_apart(operator.add, 1, 2, where="a.parquet", memory=MEMORY) == 3


def test_an_exit_names_the_file() -> None:
    with pytest.raises(InfeedError, match="exit status 3") as raised:
        call_apart(os._exit, 3, where="a.parquet", memory=MEMORY)
    assert raised.value.where == "a.parquet"


def test_an_error_is_raised_as_it_is_and_the_child_goes_on() -> None:
    child = call_apart(os.getpid, where="a.parquet", memory=MEMORY)
    with pytest.raises(ZeroDivisionError):
        call_apart(operator.truediv, 1, 0, where="a.parquet", memory=MEMORY)
    assert call_apart(operator.add, 1, 2, where="a.parquet", memory=MEMORY) == 3
    assert child


def test_memory_beyond_the_limit_is_an_error_that_names_the_file_and_the_option() -> None:
    with pytest.raises(InfeedError, match="64 MB") as raised:
        call_apart(bytes, 1 << 30, where="a.parquet", memory=64 << 20)
    assert raised.value.where == "a.parquet"
    assert "--max-row-mb" in raised.value.do


def limit_this_process(more: int) -> None:
    """To so many bytes more than it has: other tests may have made it grow."""
    size = reader_process._address_space() + more
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def same(value: int) -> int:
    return value


def test_the_limit_of_a_call_is_none_for_what_the_next_one_imports() -> None:
    reader_process._end_idle()
    call_apart(bytes, 1, where="a.parquet", memory=1 << 20)
    assert call_apart(same, 3, where="b.parquet", memory=MEMORY) == 3  # imports this file, and pytest


def test_memory_that_the_system_does_not_allow_is_no_limit_of_ours() -> None:
    call_apart(limit_this_process, 500 << 20, where="a.parquet", memory=MEMORY)
    with pytest.raises(InfeedError, match="not enough memory") as raised:
        call_apart(bytes, 1 << 30, where="a.parquet", memory=2 << 30)
    assert "of 2,048" in raised.value.what
    assert raised.value.where == "a.parquet"
    assert "ulimit" in raised.value.do


def test_a_limit_can_be_raised_for_the_next_call() -> None:
    with pytest.raises(InfeedError):
        call_apart(bytes, 128 << 20, where="a.parquet", memory=64 << 20)
    assert len(call_apart(bytes, 128 << 20, where="a.parquet", memory=512 << 20)) == 128 << 20


def test_what_a_reader_prints_is_no_part_of_its_answer() -> None:
    assert call_apart(os.system, "echo noise", where="a.parquet", memory=MEMORY) == 0
    assert call_apart(list, (1, 1), where="a.parquet", memory=MEMORY) == [1, 1]


def test_a_child_can_be_killed_after_the_garbage_collector_closed_its_pipes() -> None:
    child = reader_process._Child()
    child._requests.close()
    child._replies.close()
    child.kill()
    assert not child.is_alive
