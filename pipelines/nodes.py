"""What a run tells about its nodes: plain data, so that a screen can be drawn before TFX is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class NodeState(str, Enum):
    """Where a node stands; a `str`, so that a report goes through `json.dumps(dataclasses.asdict(report))` as it is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CACHED = "cached"  # the same inputs and options gave these outputs before
    FAILED = "failed"
    SKIPPED = "skipped"  # not started: upstream of a partial run, or inside a condition that did not hold


@dataclass(frozen=True)
class NodeReport:
    """One node: its state, the seconds it took (0 until it has finished) and, if it failed, the error's own words."""

    name: str
    state: NodeState = NodeState.WAITING
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class RunReport:
    """A finished run: the nodes in the order of their execution and the seconds from the first node to the last."""

    nodes: tuple[NodeReport, ...]
    seconds: float

    @property
    def failed(self) -> NodeReport | None:
        """The node that stopped the run."""
        return next((node for node in self.nodes if node.state is NodeState.FAILED), None)

    @property
    def succeeded(self) -> bool:
        return self.failed is None


OnChange = Callable[[Sequence[NodeReport]], None]
"""Called with every node of the pipeline, in the order of execution, each time one of them changes its state."""
