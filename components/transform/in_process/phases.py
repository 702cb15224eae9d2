"""Phases of an analysis. Each has a graph of the user's function, and one pass over the rows.

A phase computes the analyzers that depend only on earlier phases. Its graph has their results as constants and
computes the inputs of the phase's analyzers. tft on Beam saves and loads this graph for its workers. This module calls
it directly. The first phase uses the trace from which the analysis is planned, and each later phase traces the
function again. After the last phase, the function is written as a SavedModel.

A `Value` corresponds to a collection of Beam, computed on demand. Its elements are a list or, if they may exceed
memory, an object that computes them again for each reader. A `Pass` represents the rows of a dataset in a phase. All
nodes of a phase register with the pass before the next phase needs the first result, so each phase reads the rows
once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from infeed.components.base import progress
from infeed.components.dataset import files
from infeed.components.seams import tft as tft_seam
from infeed.components.transform.counting import KeyedRuns, Tally
from infeed.components.transform.in_process.graphs import Apply, Traced
from infeed.components.transform.rows import FailedBatchError

Elements = Iterable[Any]  # not an iterator, because it is read several times
Arrays = tuple[npt.NDArray[Any], ...]
Wanted = tuple[Sequence[str], Callable[[], "Sink"]]  # keys of arrays, and a factory of the sink that receives them


@dataclass(frozen=True)
class Scratch:
    """Storage for data of an analysis that exceeds memory."""

    folder: str  # writable for all workers. The caller of the analysis removes it
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)  # key that signs the files

    def keyed(self, merge: Callable[[Any, Any], Any], *, descends: bool = False) -> KeyedRuns[Any]:
        return KeyedRuns(files.join(self.folder, "keys"), merge, secret=self.secret, descends=descends)

    def tally(self) -> Tally:
        return Tally(files.join(self.folder, "tallies"))


@dataclass(frozen=True)
class Repeatable:
    """Elements that are computed again for each reader instead of kept in memory."""

    make: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.make()


class Value:
    """Elements of a collection, computed once and on demand."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make: Callable[[], Iterable[Any]] | None = make
        self._elements: Elements = []

    def elements(self) -> Elements:
        if self._make is not None:
            made = self._make()
            self._elements, self._make = list(made) if isinstance(made, Iterator) else made, None
        return self._elements

    def sole(self) -> Any:
        (element,) = self.elements()
        return element


class Sink(Protocol):
    """Accumulates the input of one analyzer, batch by batch."""

    def add(self, values: Arrays) -> None: ...
    def merge(self, other: Any) -> None:
        """Merge the input of another sink, whose rows follow."""

    def elements(self) -> Elements: ...


# Reads the rows of datasets once, and returns the filled sinks by dataset. None for a dataset without rows.
Reading: TypeAlias = Callable[[Traced, Mapping[Any, Sequence[Wanted]]], Mapping[Any, list[Sink]]]


def fill(apply: Apply, wanted: Sequence[Wanted], batches: Iterable[Mapping[str, Any]]) -> list[Sink]:
    """Return sinks filled with the batches. Raise FailedBatchError if the function rejects values of a batch."""
    sinks = [make() for _, make in wanted]
    for batch in batches:
        arrays = apply(batch)
        progress.count("batch analyzed", 1)
        for (keys, _), sink in zip(wanted, sinks, strict=True):
            sink.add(tuple(arrays[key] for key in keys))
    return sinks


def merge_sinks(sinks: list[Sink], others: list[Sink]) -> list[Sink]:
    """Merge the sinks of later rows into the first sinks. Return the first sinks."""
    for sink, other in zip(sinks, others, strict=True):
        sink.merge(other)
    return sinks


class Phase:
    """One pass over the rows through a traced graph, with all sinks of each dataset."""

    def __init__(self, traced: Callable[[], Traced], reading: Reading) -> None:
        self._traced, self._reading = traced, reading
        self._wanted: dict[Any, list[Wanted]] = {}
        self._sinks: Mapping[Any, list[Sink]] | None = None

    def want(self, dataset: Any, keys: Sequence[str], make: Callable[[], Sink]) -> Value:
        """Register a sink for the arrays of these keys, and return its elements."""
        if self._sinks is not None:
            raise AssertionError(f"{keys} are wanted of rows that were read before")
        wanted = self._wanted.setdefault(dataset, [])
        number = len(wanted)
        wanted.append((keys, make))
        return Value(lambda: self._run()[dataset][number].elements())

    def _run(self) -> Mapping[Any, list[Sink]]:
        if self._sinks is None:
            traced = self._traced()
            try:
                read = self._reading(traced, self._wanted)
            except FailedBatchError as failed:
                raise traced.explain(failed) from failed
            # A dataset without rows returns no sinks, but its analyzers still need a value.
            empty = {dataset: [make() for _, make in wanted] for dataset, wanted in self._wanted.items()}
            self._sinks = {**empty, **read}
        return self._sinks


@dataclass(frozen=True)
class Pass:
    """Part of a phase that reads one dataset: the arrays of some keys."""

    phase: Phase
    dataset: Any
    keys: Sequence[str]

    def want(self, make: Callable[[], Sink]) -> Value:
        return self.phase.want(self.dataset, self.keys, make)


@dataclass
class Combined:
    """Sink that combines all values with a combiner of tft."""

    combiner: Any
    accumulator: Any = None
    started: bool = False

    def add(self, values: Arrays) -> None:
        if not self.started:
            self.accumulator, self.started = self.combiner.create_accumulator(), True
        self.accumulator = self.combiner.add_input(self.accumulator, values)

    def merge(self, other: Combined) -> None:
        if not self.started:
            self.accumulator, self.started = other.accumulator, other.started
        elif other.started:
            self.accumulator = self.combiner.merge_accumulators([self.accumulator, other.accumulator])

    def elements(self) -> Elements:
        if not self.started:  # there are no rows
            self.accumulator = self.combiner.create_accumulator()
        return [self.combiner.compact(self.accumulator)]


@dataclass
class CombinedByKey:
    """Sink that combines the values of each key with a combiner of tft. The first array holds the keys."""

    combiner: Any
    accumulators: KeyedRuns[Any]

    @classmethod
    def of(cls, combiner: Any, scratch: Scratch) -> CombinedByKey:
        return cls(combiner, scratch.keyed(partial(_merge_two, combiner)))

    def add(self, values: Arrays) -> None:
        for key, row in tft_seam.rows_by_key(values):
            before = self.accumulators.get(key, self.combiner.create_accumulator)
            self.accumulators.put(key, self.combiner.add_input(before, row))

    def merge(self, other: CombinedByKey) -> None:
        self.accumulators.merge(other.accumulators)

    def elements(self) -> Elements:
        return Repeatable(lambda: ((key, self.combiner.compact(one)) for key, one in self.accumulators.items()))


def _merge_two(combiner: Any, accumulator: Any, later: Any) -> Any:
    return combiner.merge_accumulators([accumulator, later])
