"""The engine that uses a Beam runner. Each call of `map` or `reduce` is one pipeline.

Beam transports only items and numbers. Results travel as files in a shared folder, so that no element grows with the
input: Flink rejects elements larger than its sort buffer, about ten megabytes. Each file is written atomically under
the number of its item, so a retry replaces it and a finished item is not repeated. The files are pickles signed with a
key of this job.
"""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from infeed.components.beam_runner import Named, telling_failures
from infeed.components.dataset import files
from infeed.components.engine import signed
from infeed.components.engine.engine import FAN_IN, Engine
from infeed.components.errors import InfeedError

if TYPE_CHECKING:
    import apache_beam as beam

A = TypeVar("A")
B = TypeVar("B")
_READERS = 32  # threads. A small read from an object store takes tens of milliseconds
_SHARE = "write to storage that all workers share, such as gs://, s3://, or a network disk"


class OnBeam(Engine):
    """The engine of the runner that Beam's options name.

    Args:
      make_pipeline: returns a pipeline on that runner.
      shared: folder that this process and all workers can access. The engine uses a temporary subfolder.
      runner: name or class of the runner.
    """

    def __init__(self, make_pipeline: Callable[[], beam.Pipeline], shared: str, runner: str) -> None:
        self._make_pipeline = make_pipeline
        self._shared = shared
        self.runner = runner
        self.place = f"on Beam's {Named(runner).short_name}"

    def map(self, function: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        numbered = list(enumerate(items))
        if not numbered:
            return
        with self._results() as results:
            with _worker_errors(results, self.runner), self._make_pipeline() as pipeline:
                _spread(pipeline, _Call(function, results), numbered)
            yield from results.read_all(len(numbered))

    def reduce(self, function: Callable[[A], B], items: Iterable[A], merge: Callable[[B, B], B], /) -> B:
        import apache_beam as beam  # takes seconds

        numbered = list(enumerate(items))
        if not numbered:
            raise ValueError("there are no items to merge")
        with self._results() as results:
            level, count = 0, len(numbered)
            with _worker_errors(results, self.runner), self._make_pipeline() as pipeline:
                done = _spread(pipeline, _Call(function, results), numbered)
                while count > 1:
                    level, count = level + 1, math.ceil(count / FAN_IN)
                    done = (
                        done
                        | f"Neighbors{level}" >> beam.Map(_with_neighbors)
                        | f"Gather{level}" >> beam.GroupByKey()
                        | f"Merge{level}" >> beam.MapTuple(_Merge(merge, results, level))
                    )
            merged: B = results.read(level, 0)
            return merged

    @contextmanager
    def _results(self) -> Iterator[_Results]:
        results = _Results(files.join(self._shared, f".engine-{secrets.token_hex(8)}"), secrets.token_bytes(32))
        try:
            yield results
        finally:
            files.remove(results.folder)


def _spread(pipeline: beam.Pipeline, call: _Call, numbered: list[tuple[int, Any]]) -> Any:
    """Return the numbers of finished items.

    Distributes items by key, because the Dask runner ignores `Reshuffle`.
    """
    import apache_beam as beam

    return (
        pipeline | "Items" >> beam.Create(numbered) | "Spread" >> beam.GroupByKey() | "Map" >> beam.FlatMapTuple(call)
    )


@dataclass(frozen=True)
class _Results:
    """Result files: `0-7` holds the result of item 7, and `1-0` the merge of the first FAN_IN results of level 0."""

    folder: str
    key: bytes = field(repr=False)

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
        """Yield the results of the items in order. At most `_READERS` are in memory."""
        with ThreadPoolExecutor(_READERS) as readers:
            for first in range(0, count, _READERS):
                numbers = range(first, min(count, first + _READERS))
                yield from readers.map(functools.partial(self.read, 0), numbers)

    def write_error(self, number: int, error: Exception) -> None:
        """Store an error as raised, because many runners preserve only its text."""
        with suppress(Exception):  # not picklable, or the store fails. The runner still has the text
            self._write(files.join(self.folder, f"error-{number}"), error)

    def error(self) -> Exception | None:
        """Return the error of the first item that failed."""
        found = [int(files.name(file.path).partition("-")[2]) for file in files.glob(self.folder, "error-*")]
        error: Exception | None = self._read(files.join(self.folder, f"error-{min(found)}")) if found else None
        return error

    def _path(self, level: int, number: int) -> str:
        return files.join(self.folder, f"{level}-{number}")

    def _write(self, path: str, value: Any) -> None:
        files.write_bytes(path, signed.dumps(self.key, value))

    def _read(self, path: str) -> Any:
        try:
            content = files.read_bytes(path)
        except FileNotFoundError as error:
            raise InfeedError("the result of a worker is missing", where=path, do=_SHARE) from error
        return signed.loads(self.key, content, path)


@dataclass(frozen=True)
class _Call:
    """Apply the function to an item, and return its number once the result is written."""

    function: Callable[[Any], Any]
    results: _Results

    def __call__(self, number: int, items: Iterable[Any]) -> Iterator[int]:
        if not self.results.has(0, number):
            for item in items:
                try:
                    result = self.function(item)
                    result = list(result) if isinstance(result, Iterator) else result
                except Exception as error:  # whatever the function raises, for the caller
                    self.results.write_error(number, error)
                    raise
                self.results.write(0, number, result)
        yield number


@dataclass(frozen=True)
class _Merge:
    """Merge the results of a group, and return its number once the merge is written."""

    merge: Callable[[Any, Any], Any]
    results: _Results
    level: int

    def __call__(self, number: int, members: Iterable[int]) -> int:
        if not self.results.has(self.level, number):
            parts = (self.results.read(self.level - 1, member) for member in sorted(members))
            self.results.write(self.level, number, functools.reduce(self.merge, parts))
        return number


def _with_neighbors(number: int) -> tuple[int, int]:
    return number // FAN_IN, number


@contextmanager
def _worker_errors(results: _Results, runner: str) -> Iterator[None]:
    """Replace Beam's error by the error that a worker raised."""
    try:
        with telling_failures(runner):
            yield
    except Exception:  # Beam raises its own error in place of a function's
        raised = results.error()
        if raised is None:
            raise
        raise raised from None
