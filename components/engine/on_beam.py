"""Engine on a Beam runner. Each call of `map` or `reduce` is one pipeline, unless passes are announced.

Starting workers for a pipeline takes seconds, and on a cluster minutes. Announced passes therefore share one pipeline.
Its workers wait for the function of the next pass, which depends on the previous result.

Beam transports only the numbers of items. Items and results travel as files in a shared folder, so no element grows
with the input: runners hold elements in buffers, and Flink makes one element of all values of a key. Each result is
written atomically under the number of its item, so a retry replaces it and a finished item is not repeated. The files
are pickles signed with a key of this job.
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
import pickle
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine import engine
from infeed.components.engine.beam_runner import Named, telling_failures
from infeed.components.engine.engine import FAN_IN, Engine
from infeed.components.engine.running import Running, WorkerAnswer

if TYPE_CHECKING:
    import apache_beam as beam

A = TypeVar("A")
B = TypeVar("B")
_log = logging.getLogger(__name__)
_THREADS = 32  # a small request to an object store takes tens of milliseconds
_ITEMS_BYTES = 256 << 10  # bytes of items in a file. A worker reads only the files of its items.
_PULSE = 10.0  # seconds between the signs of life of a process whose workers wait for it
_SILENCE = 120.0  # seconds without one, after which workers give up
_POLL = 0.2  # seconds
_SHARE = "write to storage that all workers share, such as gs://, s3://, or a network disk"


class OnBeam(Engine):
    """Engine of the runner in Beam's options.

    Args:
      shared: folder that this process and all workers can access. The engine uses a temporary subfolder.
      imports: modules that a worker imports before it loads a function.
    """

    def __init__(
        self, make_pipeline: Callable[[], beam.Pipeline], shared: str, named: Named, imports: Sequence[str] = ()
    ) -> None:
        self._make_pipeline = make_pipeline
        self._shared = shared
        self._imports = _Imports(tuple(imports))
        self._announced: list[list[Any]] = []
        self._started: _Passes | None = None
        self.named = named
        self.place = f"on Beam's {named.short_name}"

    def map(self, function: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        given = list(items)
        if not given:
            return
        self._end_announced()
        results = self._results()
        with files.temporary(results.folder):
            with _worker_errors(results, self.named):
                call = _Call(self._imports, function, results, results.write_items(given))
                pipeline = self._make_pipeline()
                _spread(_created(pipeline, len(given)), call)
                Running(pipeline, self.named, results.answer).wait()
            yield from results.read_all(len(given))

    def announce(self, passes: Sequence[Iterable[Any]], /) -> None:
        self._announced = [given for items in passes if (given := list(items))]

    def reduce(self, function: Callable[[A], B], items: Iterable[A], merge: Callable[[B, B], B], /) -> B:
        given = list(items)
        if not given:
            raise ValueError("there are no items to merge")
        merged: B
        # The workers of the running pipeline wait for this pass. Any other items need a new pipeline.
        if self._started and self._started.expects(given):
            merged = self._started.next(function, merge)
            return merged
        self._end_announced()
        announced = len(self._announced) > 1 and given == self._announced[0]
        passes = _Passes(self._announced if announced else [given], self._results(), self.named)
        if announced:
            self._started = passes
        try:
            passes.start(self._make_pipeline, self._imports, function, merge)
            merged = passes.result()
            return merged
        finally:
            if not announced:
                passes.close(interrupted=True)  # there is no worker that waits

    def __exit__(self, *error: object) -> None:
        ends = [one for one in error if isinstance(one, BaseException) and not isinstance(one, Exception)]
        self._end_announced(interrupted=bool(ends))  # by Ctrl-C or an exit, which must not wait for the runner
        super().__exit__(*error)

    def _end_announced(self, *, interrupted: bool = False) -> None:
        """End workers that wait for a pass, because another pipeline may need their slots."""
        if self._started:
            self._started.close(interrupted=interrupted)
            self._started, self._announced = None, []

    def _results(self) -> _Results:
        return _Results(files.join(self._shared, f".engine-{secrets.token_hex(8)}"), secrets.token_bytes(32))


class _Passes:
    """Passes of one pipeline, whose functions are sent one by one.

    The pipeline runs in a thread, while this process creates the function of the next pass from the previous result.

    Args:
      passes: items of each pass.
      results: results of the first pass. Those of later passes are in subfolders.
    """

    def __init__(self, passes: Sequence[list[Any]], results: _Results, named: Named) -> None:
        self._passes = passes
        self._results = [results.of_pass(number) for number in range(len(passes))]
        self._folder = results.folder
        self._named = named
        self._number = 0
        self._running: Running | None = None
        self._closed = threading.Event()
        self._pulse = threading.Thread(target=self._beat, daemon=True)

    def start(self, make_pipeline: Callable[[], beam.Pipeline], imports: _Imports, function: Any, merge: Any) -> None:
        """Start the pipeline, with the functions of the first pass."""
        import apache_beam as beam

        with _worker_errors(self._results[0], self._named):
            if len(self._passes) > 1:
                # Workers give up without a sign of life, so the first one must exist before they look for it.
                self._results[0].write_pulse(0)
                self._pulse.start()
            calls = [_Call(imports, function, self._results[0], self._results[0].write_items(self._passes[0]))]
            # The functions of later passes depend on earlier results, so their workers load them from a file.
            for items, results in zip(self._passes[1:], self._results[1:], strict=True):
                calls.append(_Call(imports, _Later(results, 0), results, results.write_items(items)))
            pipeline = make_pipeline()
            done: Any = None
            for number, (items, call) in enumerate(zip(self._passes, calls, strict=True)):
                if number:
                    numbered = done | f"Items of pass {number}" >> beam.FlatMap(_numbers, len(items))
                    merge = _Later(call.results, 1)
                else:
                    numbered = _created(pipeline, len(items))
                done = _merged(_spread(numbered, call, number), number, call, merge, len(items))
        self._running = Running(pipeline, self._named, self._results[0].answer)

    def expects(self, items: list[Any]) -> bool:
        """Return whether these are the items of the next pass."""
        return self._number + 1 < len(self._passes) and self._passes[self._number + 1] == items

    def next(self, function: Any, merge: Any) -> Any:
        """Send the functions of the next pass to the workers, and return its result."""
        self._number += 1
        self._results[self._number].write_later((function, merge))
        return self.result()

    def result(self) -> Any:
        """Return the result of the current pass, and wait for it."""
        results, level = self._results[self._number], _levels(len(self._passes[self._number]))
        # Before the last pass, the pipeline does not end: its workers wait, so only the file shows the result.
        is_last = self._number + 1 == len(self._passes)
        with _worker_errors(results, self._named):
            assert self._running, "started before"
            self._running.wait(lambda: not is_last and results.has(level, 0))
        return results.read(level, 0)

    def close(self, *, interrupted: bool = False) -> None:
        """End the workers that wait, and remove all results."""
        with files.temporary(self._folder):
            with suppress(OSError, InfeedError):  # without this file, workers end when the signs of life stop
                for results in self._results[self._number + 1 :]:
                    results.write_later(None)
            self._closed.set()
            if self._running and not interrupted:
                self._running.join()
            if self._pulse.is_alive():
                self._pulse.join()

    def _beat(self) -> None:
        count = 0
        while not self._closed.wait(_PULSE):
            count += 1
            try:
                self._results[0].write_pulse(count)
            except Exception as error:  # a store's client may raise anything; a later write may still be in time
                _log.warning("cannot write the keep-alive file for the workers: %s", error)


def _created(pipeline: beam.Pipeline, count: int) -> Any:
    """Return the numbers of items, as keys."""
    import apache_beam as beam  # takes seconds

    return pipeline | "Items" >> beam.Create(_numbers(0, count))


def _numbers(done: int, count: int) -> list[tuple[int, None]]:
    """Return the numbers of items as keys, which exist once the pass before is `done`."""
    del done
    return [(number, None) for number in range(count)]


def _spread(numbered: Any, call: _Call, number: int = 0) -> Any:
    """Return the numbers of finished items.

    Distribute items by key, because the Dask runner ignores `Reshuffle`.
    """
    import apache_beam as beam

    name = f" {number}" if number else ""
    return numbered | f"Spread{name}" >> beam.GroupByKey() | f"Map{name}" >> beam.MapTuple(call)


def _merged(done: Any, number: int, call: _Call, merge: Any, count: int) -> Any:
    """Return 0, the number of the merge of all results."""
    import apache_beam as beam

    name = f" {number}" if number else ""
    for level in range(1, _levels(count) + 1):
        done = (
            done
            | f"Neighbors{level}{name}" >> beam.Map(_with_neighbors)
            | f"Gather{level}{name}" >> beam.GroupByKey()
            | f"Merge{level}{name}" >> beam.MapTuple(_Merge(call.imports, merge, call.results, level))
        )
    return done


def _levels(count: int) -> int:
    """Return the number of levels of a tree that merges this many results."""
    levels = 0
    while count > 1:
        levels, count = levels + 1, math.ceil(count / FAN_IN)
    return levels


@dataclass(frozen=True)
class _Results:
    """Result files: `0-7` is the result of item 7, and `1-0` the merge of the first FAN_IN results of level 0."""

    folder: str
    key: bytes = field(repr=False)
    of_job: str = ""  # folder of the first pass, which holds the sign of life

    def of_pass(self, number: int) -> _Results:
        folder = files.join(self.folder, f"pass-{number}") if number else self.folder
        return _Results(folder, self.key, self.folder)

    @property
    def answer(self) -> WorkerAnswer:
        return WorkerAnswer(self.of_job or self.folder)

    def has(self, level: int, number: int) -> bool:
        return files.exists(self._path(level, number))

    def write(self, level: int, number: int, result: Any) -> None:
        self._write(self._path(level, number), result)

    def read(self, level: int, number: int) -> Any:
        """Read a result.

        Raises:
          InfeedError: the file is missing, because a worker wrote to another disk, or its signature is wrong.
        """
        return self._read(self._path(level, number))

    def read_all(self, count: int) -> Iterator[Any]:
        """Yield the results of the items in order. At most `_THREADS` of them are in memory."""
        with ThreadPoolExecutor(_THREADS) as readers:
            for first in range(0, count, _THREADS):
                numbers = range(first, min(count, first + _THREADS))
                yield from readers.map(functools.partial(self.read, 0), numbers)

    def write_items(self, items: Sequence[Any]) -> int:
        """Write the items in files of about `_ITEMS_BYTES`, and return the number of items in each."""
        pickled = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in items]
        # A file per item would cost a request each, and one file for all would be read whole by every worker.
        count = max(1, _ITEMS_BYTES // max(map(len, pickled)))
        parts = [pickled[first : first + count] for first in range(0, len(pickled), count)]
        with ThreadPoolExecutor(_THREADS) as writers:
            list(writers.map(self._write, map(self._items_path, range(len(parts))), parts))
        return count

    def read_item(self, number: int, count: int) -> Any:
        """Read an item from files of so many items each."""
        return pickle.loads(_read_items(self, number // count)[number % count])

    def read_items(self, number: int) -> list[bytes]:
        found: list[bytes] = self._read(self._items_path(number))
        return found

    def _items_path(self, number: int) -> str:
        return files.join(self.folder, f"items-{number}")

    def write_error(self, number: int, error: Exception) -> None:
        """Store an error with its type, because many runners preserve only its text."""
        with suppress(Exception):  # the error is not picklable, or the store fails; the runner still has the text
            self._write(files.join(self.folder, f"error-{number}"), error)

    def error(self) -> Exception | None:
        """Return the error of the first item that failed."""
        found = [int(files.name(file.path).partition("-")[2]) for file in files.glob(self.folder, "error-*")]
        error: Exception | None = self._read(files.join(self.folder, f"error-{min(found)}")) if found else None
        return error

    def write_later(self, functions: tuple[Any, Any] | None) -> None:
        """Write the functions of this pass for the waiting workers. None ends them."""
        self._write(files.join(self.folder, "later"), functions)

    def write_pulse(self, count: int) -> None:
        files.write_bytes(files.join(self.of_job, "pulse"), str(count).encode())

    def later(self) -> tuple[Any, Any] | None:
        """Wait for the functions of this pass. Raise InfeedError if the sending process has ended."""
        path, pulse = files.join(self.folder, "later"), files.join(self.of_job, "pulse")
        before, since = b"", time.monotonic()
        while not files.exists(path):
            now = files.read_bytes(pulse) if files.exists(pulse) else None
            if now is None or (now == before and time.monotonic() - since > _SILENCE):
                do = "run the component again"
                raise InfeedError("the process that started this job has ended", where=self.folder, do=do)
            if now != before:
                before, since = now, time.monotonic()
            time.sleep(_POLL)
        found: tuple[Any, Any] | None = self._read(path)
        return found

    def _path(self, level: int, number: int) -> str:
        return files.join(self.folder, f"{level}-{number}")

    def _write(self, path: str, value: Any) -> None:
        files.write_bytes(path, engine.dumps(self.key, value))

    def _read(self, path: str) -> Any:
        try:
            content = files.read_bytes(path)
        except FileNotFoundError as error:
            raise InfeedError("a file of this job is missing", where=path, do=_SHARE) from error
        return engine.loads(self.key, content, path)


@dataclass(frozen=True)
class _Imports:
    """Modules that are imported on unpickling."""

    modules: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _imported, self.modules


def _imported(*modules: str) -> _Imports:
    for module in modules:
        importlib.import_module(module)
    return _Imports(modules)


@dataclass(frozen=True)
class _Later:
    """Function of a later pass, for which workers wait."""

    results: _Results
    number: int  # 0 maps, 1 merges

    def __call__(self, *arguments: Any) -> Any:
        functions = _awaited(self.results)
        return functions and functions[self.number](*arguments)


@functools.lru_cache(maxsize=1)
def _awaited(results: _Results) -> tuple[Any, Any] | None:
    return results.later()


@functools.lru_cache(maxsize=2)
def _read_items(results: _Results, number: int) -> list[bytes]:
    return results.read_items(number)


@dataclass(frozen=True)
class _Call:
    """Apply the function to an item, and return its number once the result is written."""

    imports: _Imports  # unpickled before the function, so that these modules are imported first
    function: Callable[[Any], Any]
    results: _Results
    items: int  # number of items in each file of items

    def __call__(self, number: int, _: Iterable[None]) -> int:
        with self.results.answer.working():
            # A runner repeats whole bundles after a failure. Items with a result file are done.
            if not self.results.has(0, number):
                self.results.write(0, number, self._result(number))
        return number

    def _result(self, number: int) -> Any:
        try:
            result = self.function(self.results.read_item(number, self.items))
            return list(result) if isinstance(result, Iterator) else result
        except Exception as error:  # the user's function may raise anything; the caller gets it
            self.results.write_error(number, error)
            raise


@dataclass(frozen=True)
class _Merge:
    """Merge the results of a group, and return its number once the merge is written."""

    imports: _Imports
    merge: Callable[[Any, Any], Any]
    results: _Results
    level: int

    def __call__(self, number: int, members: Iterable[int]) -> int:
        if not self.results.has(self.level, number):
            with self.results.answer.working():
                # The group may arrive in any order, but the merge must be the same on every engine.
                parts = (self.results.read(self.level - 1, member) for member in sorted(members))
                self.results.write(self.level, number, functools.reduce(self.merge, parts))
        return number


def _with_neighbors(number: int) -> tuple[int, int]:
    return number // FAN_IN, number


@contextmanager
def _worker_errors(results: _Results, named: Named) -> Iterator[None]:
    """Replace Beam's error by the error of a worker."""
    try:
        with telling_failures(named):
            yield
    except Exception:  # Beam raises its own error in place of a function's
        raised = results.error()
        if raised is None:
            raise
        raise raised from None
