"""Progress reaches whoever listens, no more than twice a second, and ends with the whole count."""

from __future__ import annotations

import threading

import pytest

from infeed.components.base import progress


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    clock = iter(range(1_000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: 1_000 + 0.2 * next(clock))
    return []


def test_counts_are_added_up_and_reported_now_and_then(heard: list[tuple[str, bool]]) -> None:
    with progress.listening(lambda words, is_result: heard.append((words, is_result))):
        for _ in range(7):
            progress.count("row read", 500)
    assert [words for words, _ in heard[:-1]] == ["500 rows read", "2,000 rows read", "3,500 rows read"]


def test_the_end_reports_the_whole_of_the_last_count(heard: list[tuple[str, bool]]) -> None:
    with progress.listening(lambda words, is_result: heard.append((words, is_result))):
        for what in ("row read", "row read", "shard written", "shard written"):
            progress.count(what, 1)
    assert heard[-1] == ("2 shards written", True)


@pytest.mark.parametrize(
    ("what", "plural"), [("row read", "2 rows read"), ("batch analyzed", "2 batches analyzed"), ("square", "2 squares")]
)
def test_a_single_one_is_not_plural(heard: list[tuple[str, bool]], what: str, plural: str) -> None:
    with progress.listening(lambda words, is_result: heard.append((words, is_result))):
        progress.count(what, 1)
    assert heard[-1] == (f"1 {what}", True)
    with progress.listening(lambda words, is_result: heard.append((words, is_result))):
        progress.count(what, 2)
    assert heard[-1] == (plural, True)


def test_counts_begin_anew_for_each_step(heard: list[tuple[str, bool]]) -> None:
    for _ in range(2):
        with progress.listening(lambda words, is_result: heard.append((words, is_result))):
            progress.count("row read", 3)
    assert {words for words, _ in heard} == {"3 rows read"}


def test_words_that_are_no_result_are_marked(heard: list[tuple[str, bool]]) -> None:
    with progress.listening(lambda words, is_result: heard.append((words, is_result))):
        progress.report("exporting the model")
    assert heard == [("exporting the model", False)]


def test_finished_parts_forecast_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now, heard = [0.0], list[str]()
    monkeypatch.setattr(progress.time, "monotonic", lambda: 1_000 + now[0])

    def read(part: int) -> int:
        now[0] += 3
        progress.count("row read", 10)
        return part

    with progress.listening(lambda words, is_result: heard.append(words)):
        assert list(progress.Parts(map(read, range(4)), range(4))) == [0, 1, 2, 3]
    assert heard == [
        "10 rows read",
        "20 rows read, 1 of 4 parts, 18 s left",
        "30 rows read, 2 of 4 parts, 9 s left",
        "40 rows read, 3 of 4 parts, 4 s left",
        "40 rows read",
    ]


def test_nobody_listens() -> None:
    progress.count("row read", 1)
    progress.report("exporting the model")
    assert not progress.is_heard()


def test_two_threads_do_not_mix_their_counts() -> None:
    both, ended = threading.Barrier(2, timeout=30), {}

    def work(what: str) -> None:
        heard: list[str] = []
        with progress.listening(lambda words, is_result: heard.append(words)):
            both.wait()
            progress.count(what, 3)
            both.wait()
        ended[what] = heard

    threads = [threading.Thread(target=work, args=(what,)) for what in ("row read", "shard written")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {what: set(heard) for what, heard in ended.items()} == {
        "row read": {"3 rows read"},
        "shard written": {"3 shards written"},
    }


def test_a_step_inside_another_counts_alone_and_both_listeners_hear_it() -> None:
    outer: list[str] = []
    with progress.listening(lambda words, is_result: outer.append(words)):
        progress.count("row read", 5)
        with progress.listening(lambda words, is_result: None):
            progress.count("row read", 2)
    assert outer == ["5 rows read", "2 rows read", "2 rows read", "5 rows read"]
