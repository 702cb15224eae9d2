"""Work ahead of a loop: the order of results, errors in their place, and threads that end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest

from infeed.components.load.ahead import in_background, in_order

PATIENCE = 30.0  # seconds after which a test of threads fails


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("infeed-ahead")]


def have_ended() -> bool:
    for one in threading.enumerate():
        if one.name.startswith("infeed-ahead"):
            one.join(PATIENCE)
    return threads() == []


def test_results_have_the_order_of_the_items_and_not_that_of_their_ends():
    second_ended = threading.Event()

    def make(item: int) -> int:
        if item == 0:
            assert second_ended.wait(PATIENCE)
        if item == 1:
            second_ended.set()
        return item * item

    assert list(in_order(range(9), make, threads=3, ahead=3)) == [item * item for item in range(9)]


def test_threads_work_at_the_same_time():
    together = threading.Barrier(3)
    assert list(in_order(range(6), lambda item: item + 0 * together.wait(PATIENCE), threads=3, ahead=3)) == [*range(6)]


@pytest.mark.parametrize("of_the_items", [True, False])
def test_an_error_comes_after_the_results_before_it(of_the_items):
    def items() -> Iterator[int]:
        yield from range(4)
        if of_the_items:
            raise KeyError(4)
        yield from range(4, 9)

    def make(item: int) -> int:
        if item == 4:
            raise KeyError(item)
        return item

    made = in_order(items(), make, threads=2, ahead=3)
    assert list(islice(made, 4)) == [*range(4)]
    with pytest.raises(KeyError, match="4"):
        next(made)
    assert have_ended()


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_background_reads_that_many_items_before_the_loop_asks(ahead):
    read, there = list[int](), threading.Event()

    def items() -> Iterator[int]:
        for number in count():
            read.append(number)
            if number == ahead:
                there.set()
            yield number

    made = in_background(items(), ahead)
    assert next(made) == 0
    assert there.wait(PATIENCE)
    del made
    assert read == [*range(ahead + 1)]


def test_without_a_background_the_loops_thread_reads_each_item_when_it_asks():
    items = iter([0, 1])
    assert in_background(items, 0) is items


def test_a_background_ends_with_its_items_or_their_error():
    def items() -> Iterator[int]:
        yield 0
        raise KeyError("row 1")

    assert list(in_background(iter([1, 2, 3]), 5)) == [1, 2, 3]
    made = in_background(items(), 2)
    assert next(made) == 0
    with pytest.raises(KeyError, match="row 1"):
        next(made)


def test_an_iterator_that_is_left_leaves_no_thread():
    for made in (in_order(count(), abs, 4, 6), in_background(count(), 2)):
        next(made)
        assert threads()
        del made
    assert have_ended()


@pytest.mark.frameworks
def test_an_iterator_that_lives_until_the_exit_ends_without_a_message():
    program = "import torch; from infeed.components.load.ahead import in_background as read; "
    program += "items = read(iter(range(9)), 2); next(items)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_closing_does_not_wait_for_the_item_at_work():
    """The collector of garbage may close an iterator while this thread holds a lock that the other one needs."""
    begun, may_end = threading.Event(), threading.Event()

    def make(item: int) -> int:
        if item == 1:
            begun.set()
            assert may_end.wait(PATIENCE)
        return item

    made = in_order(range(9), make, threads=1, ahead=1)
    assert next(made) == 0
    assert begun.wait(PATIENCE)
    made.close()
    assert threads()
    may_end.set()
    assert have_ended()
