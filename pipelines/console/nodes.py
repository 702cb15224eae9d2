"""What a run tells about its nodes: plain data, so that a screen can be drawn before TFX is loaded."""

from __future__ import annotations

import time
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
    """One node as it stands.

    Attributes:
      seconds: that it took; 0 until it has finished.
      error: its own words, if it failed.
      note: what else there is to say in a few words, such as the number of an attempt.
      progress: how far a running node is; it changes often.
    """

    name: str
    state: NodeState = NodeState.WAITING
    seconds: float = 0.0
    error: str | None = None
    note: str = ""
    progress: str = ""


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


class RunTracker:
    """The state of every node, passed on whole at each change."""

    def __init__(self, nodes: Sequence[NodeReport], on_change: OnChange) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._on_change = on_change
        self._started = time.monotonic()
        on_change(tuple(nodes))

    def post(self, node: NodeReport) -> None:
        """Replaces what was said of this node."""
        self._nodes[node.name] = node
        self._on_change(tuple(self._nodes.values()))

    def report(self) -> RunReport:
        """All nodes, and the seconds since the tracker was made."""
        return RunReport(tuple(self._nodes.values()), seconds=time.monotonic() - self._started)
