"""Engine on several processes of this machine, including the caller's."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice
from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from infeed.components.base import machine, progress
from infeed.components.base.errors import InfeedError
from infeed.components.engine.engine import Engine
from infeed.components.seams import process_pools

A = TypeVar("A")
B = TypeVar("B")
_Future = Future[tuple[Any, dict[str, int]]]  # (result, counts for `progress`)
_AHEAD = 4  # finished results per process that may wait for an older one; a limit bounds memory
_POOLS = "concurrent.futures.process"
_REMOVALS = 3  # attempts, because this worker and others may create files meanwhile
_KILL_FIRST = "500"  # oom_score_adj: as if the process used half of the machine's memory in addition


class Processes(Engine):
    """Engine of this process and workers, which start at the first call of `map`.

    Workers may take seconds to import modules. Meanwhile, and whenever the next result is not ready, this process
    works on items itself.

    An error or Ctrl-C kills the workers. If this process is killed, they exit. If a worker dies, its items are retried
    one by one and finished results are kept. From then on, only workers process items. An item that crashes this
    process ends it, as with one process.

    Args:
      count: number of processes, at least 2.
      imports: modules that take seconds to import. On Linux, one server imports them once, and workers are its forks.
    """

    def __init__(self, count: int, imports: Sequence[str] = ()) -> None:
        self._workers = _Pool(count - 1, imports)
        self._alone = _Pool(1, imports)
        self._works = True  # whether this process takes items too
        self.place = f"on {count} processes"

    def map(self, function: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        return iter(progress.Parts(self._map(function, items), items))

    def _map(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        rest, given = iter(items), deque[tuple[A, _Future]]()
        try:
            while True:
                # Results leave in the order of the items, even if later ones are done.
                while given and given[0][1].done():
                    yield self._result(function, *given.popleft())
                if own := self._give(function, rest, given):
                    _do(function, *own)
                elif given:
                    yield self._result(function, *given.popleft())
                else:
                    return
        finally:
            for _, future in given:
                future.cancel()

    def _give(
        self, function: Callable[[A], B], rest: Iterator[A], given: deque[tuple[A, _Future]]
    ) -> tuple[A, _Future] | None:
        """Submit up to two items to each worker. Return the item for this process, or None.

        This process takes its item before workers get a second one, so that two items go to two processes.
        """
        workers, own = self._workers.count, None
        busy = sum(not future.done() for _, future in given)
        # Two items per worker, so that a worker finds its next item while this process is busy with its own.
        room = min(2 * workers + self._works - busy, _AHEAD * (workers + 1) - len(given))
        for item in islice(rest, room):
            if self._works and own is None and busy >= workers:
                own = item, Future[tuple[Any, dict[str, int]]]()
                given.append(own)
            else:
                given.append((item, self._workers.submit(function, item)))
                busy += 1
        return own

    def _result(self, function: Callable[[A], B], item: A, future: _Future) -> B:
        try:
            result, counts = self._workers.result(future)
        except BrokenProcessPool:
            self._works = False  # an item that has killed a worker must not kill this process too
            result, counts = self._retry_alone(function, item)
        for what, more in counts.items():
            progress.count(what, more)
        return result  # type: ignore[no-any-return]

    def _retry_alone(self, function: Callable[[A], B], item: A) -> tuple[Any, dict[str, int]]:
        try:
            return self._alone.result(self._alone.submit(function, item))
        except BrokenProcessPool as error:
            do = "use fewer processes or smaller blocks, and run again: the usual cause is a lack of memory"
            where = str(getattr(item, "place", ""))
            raise InfeedError("a worker process was killed", where=where, do=do) from error

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for pool in (self._workers, self._alone):
            pool.close(kill=error != (None, None, None))


class _Pool:
    """ProcessPoolExecutor that is created on demand, and again after one of its processes died."""

    def __init__(self, count: int, imports: Sequence[str]) -> None:
        self.count = count
        # The fork server imports the modules once, but delays the start; a single worker gains nothing.
        pays = bool(imports) and count > 1 and sys.platform == "linux"
        self._started = _ForkedWorkers(imports) if pays else _SpawnedWorkers()
        self._pool: ProcessPoolExecutor | None = None
        # Threads of the pool that pass items to workers. Empty if they ended before they were seen.
        self._managers = set[threading.Thread]()
        # Created by the workers and removed by this process or the last of them, however this process ends.
        self._scratch = os.path.join(tempfile.gettempdir(), f"infeed-workers-{secrets.token_hex(8)}")

    def submit(self, function: Callable[[A], B], item: A) -> _Future:
        call = pickle.dumps((function, item))  # bytes, so that an unpickling error in a worker does not break the pool
        if self._pool is not None:
            with suppress(BrokenProcessPool):
                return self._pool.submit(_call, call)
            process_pools.end_workers(self._pool)
            self._pool.shutdown()
        environment = os.environ | {"TMPDIR": self._scratch}
        before = set(threading.enumerate())
        try:
            pool = ProcessPoolExecutor(self.count, self._started, _prepare, (self.count + 1, environment))
            future = pool.submit(_call, call)
        except (RuntimeError, OSError) as error:  # no more threads, processes or memory
            self._pool = None  # a pool that failed to start cannot be shut down
            raise _cannot_start(error) from error
        self._pool = pool
        # Futures of a pool whose threads could not start would never finish. `result` checks these threads.
        self._managers = {one for one in set(threading.enumerate()) - before if type(one).__module__ == _POOLS}
        return future

    def result(self, future: _Future) -> tuple[Any, dict[str, int]]:
        """Wait for a result. Raise InfeedError if it cannot arrive, because the pool's threads could not start."""

        def check() -> None:
            if not any(one.is_alive() for one in self._managers) and not future.done():
                raise _cannot_start("can't start new thread")

        assert self._pool is not None, "it has promised the result"
        return process_pools.result(self._pool, future, check)

    def close(self, *, kill: bool) -> None:
        try:
            if kill:
                self._kill()
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
        except BaseException:  # Ctrl-C while a worker hangs
            self._kill()
            raise
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _kill(self) -> None:
        if self._pool is not None:
            process_pools.end_workers(self._pool)
        for worker in self._started.started:
            worker.kill()


def _cannot_start(error: object) -> InfeedError:
    do = "allow more threads, processes or memory (ulimit -u, ulimit -v, limits of the container), or use one process"
    return InfeedError(f"cannot start worker processes: {error}", do=do)


class _SpawnedWorkers(SpawnContext):
    """Starts and tracks the processes of one pool. Other children of the caller must not be killed.

    Processes are not forks of the caller, because threads of Arrow, TensorFlow and store clients do not survive a fork.
    """

    def __init__(self) -> None:
        super().__init__()
        self.started: list[BaseProcess] = []

    def Process(self, *args: Any, **named: Any) -> SpawnProcess:  # type: ignore[override] # noqa: N802 (its name there)
        process = _Spawned(*args, **named)
        self.started.append(process)
        return process


class _ForkedWorkers(ForkServerContext):
    """Like `_SpawnedWorkers`, but the processes are forks of a server that has only imported modules.

    Python has one such server per process. If it is already running, workers import its missing modules.
    """

    def __init__(self, imports: Sequence[str]) -> None:
        super().__init__()
        self.started: list[BaseProcess] = []
        self.set_forkserver_preload(list(imports))

    def Process(self, *args: Any, **named: Any) -> ForkServerProcess:  # type: ignore[override] # noqa: N802
        process = _Forked(*args, **named)
        self.started.append(process)
        return process


class _Unguarded(BaseProcess):
    """Process that does not run the caller's main file, which may have no `if __name__ == "__main__"` guard."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        # multiprocessing sends the path of `__main__` to the worker, which would run that file.
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Spawned(_Unguarded, SpawnProcess):
    pass


class _Forked(_Unguarded, ForkServerProcess):
    pass


def _call(call: bytes) -> tuple[Any, dict[str, int]]:
    function, item = pickle.loads(call)
    with progress.counting() as counts:
        result = _listed(function(item))
    return result, dict(counts)


def _do(function: Callable[[A], B], item: A, future: _Future) -> None:
    """Process an item in this process. Its error is raised in its turn, like that of a worker."""
    try:
        future.set_result((_listed(function(item)), {}))
    except Exception as error:  # the function may raise anything
        future.set_exception(error)


def _listed(result: Any) -> Any:
    return list(result) if isinstance(result, Iterator) else result  # generators cannot be pickled


def _prepare(processes: int, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)  # a fork starts with the server's environment
    scratch = tempfile.tempdir = environment["TMPDIR"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process, and the parent handles it
    with suppress(OSError):  # if memory is short, Linux then kills a worker, whose item is retried, and not the parent
        Path("/proc/self/oom_score_adj").write_text(_KILL_FIRST)
    threads = str(max(1, machine.cpus() // processes))
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):  # by default each process starts a thread for each core
        os.environ.setdefault(name, threads)
    # Create the folder before the thread starts, because the thread removes it if the parent is already dead.
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent, scratch), daemon=True).start()


def _end_after(parent: Any, scratch: str) -> None:
    parent.join()
    for _ in range(_REMOVALS):  # a killed parent cannot remove the folder
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)
