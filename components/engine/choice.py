"""Choice of the engine for a piece of work. All components and commands use this rule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from infeed.components.base import machine, progress
from infeed.components.base.units import counted, size
from infeed.components.engine.beam_runner import Named
from infeed.components.engine.engine import Engine, Here
from infeed.components.engine.on_beam import OnBeam
from infeed.components.engine.processes import Processes

if TYPE_CHECKING:
    import apache_beam as beam

A = TypeVar("A", bound="HasBytes")
B = TypeVar("B")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """A description of the work.

    Attributes:
      does: verb for the log, such as "evaluates".
      bytes: size of all items on disk.
      bytes_per_process: bytes whose processing takes as long as the start of a process.
      memory_per_process: maximum memory of a process in bytes.
      alone: why the work must run in one process, or "".
      imports: modules of the work that take seconds to import.
    """

    does: str
    items: int
    bytes: int
    bytes_per_process: int
    memory_per_process: int = machine.MEMORY
    noun: str = "file"
    alone: str = ""
    imports: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.does} {counted(self.items, self.noun)}, {size(self.bytes)}"


@dataclass(frozen=True)
class Cluster:
    """Access to a Beam runner.

    Attributes:
      options: Beam's options. `--runner` names the runner.
      shared: folder that all workers can access.
    """

    options: Sequence[str]
    make_pipeline: Callable[[], beam.Pipeline]
    shared: str


def choose(work: Work, cluster: Cluster | None = None, processes: int | None = None) -> Engine:
    """Return the engine for some work, and log the choice with the reason.

    A runner that is not local is always used. Otherwise, the work determines the number of processes, unless the
    options (`--direct_num_workers`) or the caller set it.

    Args:
      cluster: Beam's options, or None.
      processes: number of processes that the caller requests.

    Raises:
      InfeedError: an option of Beam is invalid.
    """
    named = Named.of(cluster.options if cluster else ())
    if cluster and named.is_cluster:
        engine: Engine = OnBeam(cluster.make_pipeline, cluster.shared, named, work.imports)
        reason = "--runner selects it"
    else:
        count, reason = _processes(work, processes or named.workers)
        engine = Processes(count, work.imports) if count > 1 else Here()
    # TFX shows only warnings of its nodes. Programs that call our functions should see no warning.
    _log.log(logging.WARNING if cluster else logging.INFO, "%s, %s: %s", work, engine.place, reason)
    progress.place(engine.place if not isinstance(engine, Here) else "")
    return engine


class HasBytes(Protocol):
    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True)
class ChosenMap:
    """Function like `map` over items of known sizes. Each call selects its engine.

    Attributes:
      does, bytes_per_process: see `Work`.
      cluster, processes: see `choose`.
    """

    does: str
    bytes_per_process: int
    cluster: Cluster | None = None
    processes: int | None = None

    @property
    def is_on_cluster(self) -> bool:
        """Return whether calls run on a Beam runner from the options."""
        return self.cluster is not None and Named.of(self.cluster.options).is_cluster

    def __call__(self, function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Yield `function(item)` for each item in order; see `Engine.map`."""
        if there := list(items):
            work = Work(self.does, len(there), sum(item.bytes for item in there), self.bytes_per_process)
            with choose(work, self.cluster, self.processes) as engine:
                yield from engine.map(function, there)


def counting(cluster: Cluster | None) -> ChosenMap:
    """Return the `map_fn` of `record_ranges`, which reads large files without a manifest."""
    return ChosenMap("counts", machine.COUNT_BYTES, cluster)


def _processes(work: Work, asked: int | None) -> tuple[int, str]:
    if work.alone:
        return 1, work.alone
    if asked:
        return min(asked, max(1, work.items)), f"--direct_num_workers or the caller requests {asked}"
    fit = machine.memory_bytes() // work.memory_per_process
    # The log names the smallest limit, so that a user knows what would allow more processes.
    limits = {
        "one for each item": work.items,
        "one for each core": machine.cpus(),
        f"each takes up to {size(work.memory_per_process)} of memory": fit,
        f"each needs at least {size(work.bytes_per_process)} of input": work.bytes // work.bytes_per_process,
    }
    reason = min(limits, key=lambda one: limits[one])
    return max(1, limits[reason]), reason
