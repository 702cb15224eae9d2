from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

import pytest

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError
from infeed.components.engine import processes
from infeed.components.engine.engine import Here, WithSetUp
from infeed.components.engine.processes import Processes

pytestmark = pytest.mark.slow

UNGUARDED = """
import sys
print("main runs")
import engine_functions as functions
from infeed.components.engine.processes import Processes
with Processes(3, sys.argv[3:]) as engine:
    print(list(engine.map(getattr(functions, sys.argv[1]), [functions.Item(n, sys.argv[2]) for n in range(4)])))
"""


@pytest.fixture(params=[(), ("decimal",)], ids=["spawned", "forked"])
def imports(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Modules for a server to import, of which workers are forks."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder whose path is short: sockets of Python's server lie in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def script(functions: ModuleType, tmp_path: Path, imports: tuple[str, ...]) -> Callable[..., list[str]]:
    """The command of a script that starts workers, as people write them: nothing asks for `__main__`."""
    (tmp_path / "script.py").write_text(UNGUARDED)
    return lambda function, folder="": [sys.executable, str(tmp_path / "script.py"), function, str(folder), *imports]


def test_the_results_are_those_of_one_process_in_its_order(functions: ModuleType) -> None:
    items = [functions.Item(number) for number in range(100)]
    with Processes(2) as engine:
        assert list(engine.map(functions.square, items)) == list(Here().map(functions.square, items))
        assert engine.reduce(functions.third, items, functions.add) == Here().reduce(
            functions.third, items, functions.add
        )
        assert list(engine.map(functions.twice, items[:2])) == [[0, 0], [1, 1]]


def test_this_process_is_one_of_them_also_if_there_are_two_items(functions: ModuleType, tmp_path: Path) -> None:
    with Processes(2) as engine:
        pids = list(engine.map(functions.meet, [functions.Item(number, str(tmp_path)) for number in range(2)]))
    assert os.getpid() in pids
    assert len(set(pids)) == 2


def test_linux_would_kill_a_worker_first(functions: ModuleType) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    with Processes(2) as engine:
        scores = set(engine.map(functions.kill_score, [functions.Item(number) for number in range(8)]))
    assert scores == {own, max(own, 500)}


def test_what_workers_count_is_reported_here(functions: ModuleType) -> None:
    told: list[str] = []
    with progress.listening(lambda words, is_result: told.append(words)), Processes(2) as engine:
        list(engine.map(functions.square, [functions.Item(number) for number in range(7)]))
    assert told[-1] == "7 squares"


def test_a_worker_sets_up_once(functions: ModuleType) -> None:
    call = WithSetUp(functions.with_set_up, functions.set_up)
    with Processes(2) as engine:
        made = {word for word, _ in engine.map(call, [functions.Item(number) for number in range(20)])}
    assert len(made) <= 2


def test_workers_have_the_environment_of_now_and_not_of_the_servers_start(
    functions: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("first", "second"):
        monkeypatch.setenv("INFEED_TEST_WORKERS", value)
        with Processes(3, ["decimal"]) as engine:
            found = list(engine.map(functions.environment, [functions.Item(number) for number in range(4)]))
        assert {value for _, value in found} == {value}
        assert {pid for pid, _ in found} > {os.getpid()}


def test_temporary_files_of_workers_end_with_them(functions: ModuleType, imports: tuple[str, ...]) -> None:
    with Processes(3, imports) as engine:
        files = dict(engine.map(functions.temporary_file, [functions.Item(number) for number in range(6)]))
    own = files.pop(os.getpid())
    assert files
    assert not any(Path(file).exists() for file in files.values())
    Path(own).unlink()


def test_the_first_error_arrives_as_it_was_raised(functions: ModuleType) -> None:
    with pytest.raises(InfeedError, match="3 is too large") as raised, Processes(2) as engine:
        list(engine.map(functions.refuse_from_three, [functions.Item(number) for number in range(9)]))
    assert (raised.value.where, raised.value.do) == ("item 3", "give less")


@pytest.mark.stack
def test_an_item_whose_worker_died_is_tried_again_and_finished_ones_are_not(
    functions: ModuleType, tmp_path: Path, imports: tuple[str, ...]
) -> None:
    items = [functions.Item(number, str(tmp_path)) for number in range(30)]
    with Processes(3, imports) as engine:
        assert list(engine.map(partial(functions.die_once, os.getpid()), items)) == list(range(30))
    calls = Counter(mark.name.partition("-")[0] for mark in tmp_path.iterdir())
    assert calls.pop("died") == 1
    assert len(calls) == 30
    assert sum(calls.values()) <= 32  # of the worker that died, and of the other one, which ends with it


@pytest.mark.stack
def test_an_item_that_kills_every_worker_is_named(functions: ModuleType) -> None:
    items = [functions.Item(number) for number in range(9)]
    with pytest.raises(InfeedError, match="killed") as raised, Processes(2) as engine:
        list(engine.map(partial(functions.die_always, os.getpid()), items))
    assert raised.value.where == "item 0"


def test_the_callers_main_file_is_not_run_again(script: Callable[..., list[str]]) -> None:
    ended = subprocess.run(script("square"), capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == "main runs\n[0, 1, 4, 9]\n", ended.stderr


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(
    script: Callable[..., list[str]], tmp_path: Path, temporary: Path, ending: signal.Signals
) -> None:
    (started := tmp_path / "started").mkdir()
    parent = subprocess.Popen(
        script("wait", started),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    wait_until(lambda: len(list(started.iterdir())) == 3)
    assert list(temporary.glob("infeed-*"))
    parent.send_signal(ending)
    parent.wait(60)
    for child in started.iterdir():
        wait_until(lambda child=child: not alive(int(child.name)))  # type: ignore[misc]
    assert not list(temporary.glob("infeed-*"))


def test_a_failure_ends_its_own_workers_and_no_other_child_of_the_caller(functions: ModuleType) -> None:
    with subprocess.Popen(["sleep", "60"]) as mine:
        with pytest.raises(InfeedError), Processes(2) as engine:
            list(engine.map(functions.refuse_from_three, [functions.Item(3)]))
        assert mine.poll() is None
        mine.kill()


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def code_of(worker: BaseProcess) -> int | None:
    """Wait for the end of a worker. A thread of its pool waits too, and only one of two learns the code at once."""
    wait_until(lambda: worker.exitcode is not None)
    return worker.exitcode


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(1_200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute in vain")


@pytest.mark.parametrize(("threads", "waits"), [(0, False), (1, False), (1, True)])
def test_threads_that_cannot_start_are_an_error_and_no_wait(
    functions: ModuleType, monkeypatch: pytest.MonkeyPatch, threads: int, waits: bool
) -> None:
    """The first thread of the pool passes items to workers, and the second writes them into a pipe.

    `waits`: the first thread ends before the engine looks at it.
    """
    real, started = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        started.append(thread)
        if len(started) > threads:
            raise RuntimeError("can't start new thread")
        real(thread)
        if waits:
            thread.join(60)

    monkeypatch.setattr(threading.Thread, "start", start)
    engine = Processes(3)
    with pytest.raises(InfeedError, match="can't start new thread"), engine:
        list(engine.map(functions.process, [functions.Item(number) for number in range(9)]))
    monkeypatch.undo()
    for worker in engine._workers._started.started:
        assert code_of(worker) == -signal.SIGKILL


def test_ctrl_c_at_the_end_kills_a_worker_that_stands_still(functions: ModuleType, tmp_path: Path) -> None:
    engine = Processes(2)
    [worker] = {*engine.map(functions.meet, [functions.Item(number, str(tmp_path)) for number in range(2)])} - {
        os.getpid()
    }
    os.kill(worker, signal.SIGSTOP)
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        engine._workers.close(kill=False)
    [process] = engine._workers._started.started
    assert code_of(process) == -signal.SIGKILL


def test_no_folder_is_made_before_a_worker_runs(
    functions: ModuleType, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    """A process that is killed before its workers run leaves nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(processes, "_prepare", functions.stand_still)
    pool = Processes(2)._workers
    try:
        pool.submit(functions.process, functions.Item(0))
        assert list(temporary.glob("infeed-*")) == []
    finally:
        pool.close(kill=True)
