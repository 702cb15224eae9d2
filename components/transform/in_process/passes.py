"""What passes through the nodes of tft's analysis graph, in this process.

A value of the graph is what Beam would call a collection: a list of elements, made when it is asked for. What depends
on rows is not a list but a `Pass` over them. The nodes of a phase all say what they want of a pass before the graph of
the next phase asks for the first result, so the rows are read once for each phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt
from tensorflow_transform.beam import analyzer_impls

from infeed.components.transform.in_process.phases import Traced

Elements = list[Any]
Arrays = tuple[npt.NDArray[Any], ...]
Batches = Callable[[Sequence[str]], Iterator[Mapping[str, Any]]]  # names of inputs -> tensors by name, for each batch


class Value:
    """The elements of a collection, made once, when they are first asked for."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make: Callable[[], Iterable[Any]] | None = make
        self._elements: Elements = []

    def elements(self) -> Elements:
        if self._make is not None:
            self._elements, self._make = list(self._make()), None
        return self._elements

    def sole(self) -> Any:
        (element,) = self.elements()
        return element


class Sink(Protocol):
    """Takes the values of one analyzer, batch by batch, and gives the elements that they add up to."""

    def add(self, values: Arrays) -> None: ...
    def elements(self) -> Elements: ...


class Pass:
    """One reading of the rows through a traced graph, with everything that is wanted of them."""

    def __init__(self, traced: Callable[[], Traced], batches: Batches) -> None:
        self._traced, self._batches = traced, batches
        self._sinks: list[tuple[Sequence[str], Sink]] = []
        self._ran = False

    def want(self, keys: Sequence[str], sink: Sink) -> Value:
        """The elements of the sink, which gets the arrays of these keys."""
        if self._ran:
            raise AssertionError(f"{keys} are wanted of rows that were read before")
        self._sinks.append((keys, sink))

        def elements() -> Elements:
            self._run()
            return sink.elements()

        return Value(elements)

    def _run(self) -> None:
        if self._ran:
            return
        self._ran = True
        traced = self._traced()
        for batch in self._batches(traced.inputs):
            arrays = traced(batch)
            for keys, sink in self._sinks:
                sink.add(tuple(arrays[key] for key in keys))


@dataclass(frozen=True)
class Extracted:
    """Some of the arrays of a pass."""

    rows: Pass
    keys: Sequence[str]


@dataclass
class Combined:
    """All values, added up by one of tft's combiners."""

    combiner: Any
    accumulator: Any = None
    started: bool = False

    def add(self, values: Arrays) -> None:
        if not self.started:
            self.accumulator, self.started = self.combiner.create_accumulator(), True
        self.accumulator = self.combiner.add_input(self.accumulator, values)

    def elements(self) -> Elements:
        if not self.started:  # there are no rows
            self.accumulator = self.combiner.create_accumulator()
        return [self.combiner.compact(self.accumulator)]


@dataclass
class CombinedByKey:
    """The values of each key, added up by one of tft's combiners; the key is the first array."""

    combiner: Any
    accumulators: dict[Any, Any] = field(default_factory=dict)

    def add(self, values: Arrays) -> None:
        for key, row in analyzer_impls._split_inputs_by_key(values):
            before = self.accumulators.get(key)
            before = self.combiner.create_accumulator() if before is None else before
            self.accumulators[key] = self.combiner.add_input(before, row)

    def elements(self) -> Elements:
        return [(key, self.combiner.compact(accumulator)) for key, accumulator in self.accumulators.items()]
