"""Which engine does a piece of work, and why: the one rule for all components and commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from infeed.components import machine, progress
from infeed.components.beam_runner import Named
from infeed.components.engine.engine import Engine, Here
from infeed.components.engine.on_beam import OnBeam
from infeed.components.engine.processes import Processes
from infeed.components.units import counted, size

if TYPE_CHECKING:
    import apache_beam as beam

A = TypeVar("A", bound="HasBytes")
B = TypeVar("B")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What there is to do.

    Attributes:
      does: verb for the log, such as "evaluates".
      items: how many there are.
      bytes: on disk, of all items together.
      bytes_per_process: of which a further process takes as long as it takes to start.
      memory_per_process: bytes that a process holds at most.
      noun: of an item.
      alone: why this has to be done in one process, if it has to; empty otherwise.
    """

    does: str
    items: int
    bytes: int
    bytes_per_process: int
    memory_per_process: int = 1 << 30
    noun: str = "file"
    alone: str = ""

    def __str__(self) -> str:
        return f"{self.does} {counted(self.items, self.noun)}, {size(self.bytes)}"


@dataclass(frozen=True)
class Cluster:
    """The way to a Beam runner.

    Attributes:
      options: Beam's options, of which `--runner` names it.
      make_pipeline: returns a pipeline on it.
      shared: folder that all workers see.
    """

    options: Sequence[str]
    make_pipeline: Callable[[], beam.Pipeline]
    shared: str


def choose(work: Work, cluster: Cluster | None = None, processes: int | None = None) -> Engine:
    """Return the engine for some work, and log it with the reason.

    A runner that is not local is always used. Otherwise as many processes as pay do the work, unless the options
    (`--direct_num_workers`) or the caller say how many.

    Args:
      cluster: Beam's options and what belongs to them; None where there are none.
      processes: that the caller asks for.

    Raises:
      InfeedError: an option of Beam's that cannot be.
    """
    named = Named.of(cluster.options if cluster else ())
    if cluster and named.is_cluster:
        engine: Engine = OnBeam(cluster.make_pipeline, cluster.shared, named.runner)
        reason = "--runner names it"
    else:
        count, reason = _processes(work, processes or named.workers)
        engine = Processes(count) if count > 1 else Here()
    # TFX shows warnings of its nodes, and nothing less; a program that calls a function of ours is not to be warned.
    _log.log(logging.WARNING if cluster else logging.INFO, "%s, %s: %s", work, engine.place, reason)
    progress.place(engine.place if not isinstance(engine, Here) else "")
    return engine


class HasBytes(Protocol):
    """An item of a known size."""

    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True)
class ChosenMap:
    """Like `map`, over items of known sizes; each call chooses its engine.

    Attributes:
      does, bytes_per_process: as those of `Work`.
      cluster, processes: as the arguments of `choose`.
    """

    does: str
    bytes_per_process: int
    cluster: Cluster | None = None
    processes: int | None = None

    @property
    def is_on_cluster(self) -> bool:
        """Whether each call runs on the Beam runner that the options name."""
        return self.cluster is not None and Named.of(self.cluster.options).is_cluster

    def __call__(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Yield `function(item)` for each item, in their order; see `Engine.map`."""
        if there := list(items):
            work = Work(self.does, len(there), sum(item.bytes for item in there), self.bytes_per_process)
            with choose(work, self.cluster, self.processes) as engine:
                yield from engine.map(function, there)


def _processes(work: Work, asked: int | None) -> tuple[int, str]:
    """How many, and why."""
    if work.alone:
        return 1, work.alone
    if asked:
        return min(asked, max(1, work.items)), f"--direct_num_workers or the caller asks for {asked}"
    fit = machine.memory_bytes() // work.memory_per_process
    limits = {
        "as many as there are items": work.items,
        "one a core": machine.cpus(),
        f"each takes up to {size(work.memory_per_process)} of memory": fit,
        f"a process pays from {size(work.bytes_per_process)} on": work.bytes // work.bytes_per_process,
    }
    reason = min(limits, key=lambda one: limits[one])
    return max(1, limits[reason]), reason
