"""States of the nodes of a run, shown as a live table on a terminal or one line per change elsewhere.

The states are plain data, so the table can appear before TFX is loaded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infeed.components.units import stopwatch


class NodeState(str, Enum):
    """State of a node; a `str`, so that `json.dumps(dataclasses.asdict(report))` works."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CACHED = "cached"  # outputs of an earlier execution with the same inputs and options
    FAILED = "failed"
    SKIPPED = "skipped"  # not started: upstream of a partial run, or inside a false condition


# The word carries the state; icon and color only support it.
_LOOKS = {
    NodeState.WAITING: ("·", "dim"),
    NodeState.RUNNING: ("▸", "bold yellow"),
    NodeState.DONE: ("✓", "green"),
    NodeState.CACHED: ("=", "cyan"),
    NodeState.FAILED: ("✗", "bold red"),
    NodeState.SKIPPED: ("-", "dim"),
}
_NOT_STARTED = {NodeState.WAITING, NodeState.SKIPPED}
_STATE_WIDTH = max(len(state.value) for state in NodeState)
_NOTES_FROM = 80  # columns; narrower terminals show no notes
_SECONDS_OF_PROGRESS = 30.0  # between two lines of progress without a terminal


@dataclass(frozen=True)
class NodeReport:
    """Current state of one node.

    Attributes:
      seconds: duration; 0 until the node has finished.
      error: error text of a failed node.
      note: short remark, for example the number of the attempt.
      progress: progress of a running node; changes often.
    """

    name: str
    state: NodeState = NodeState.WAITING
    seconds: float = 0.0
    error: str | None = None
    note: str = ""
    progress: str = ""


@dataclass(frozen=True)
class RunReport:
    """Result of a run: its nodes in order of execution, and its duration in seconds."""

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
"""Receives all nodes of the pipeline in order of execution, each time a node changes its state."""


class RunTracker:
    """State of all nodes, passed to `on_change` at each change. Threads may post at the same time."""

    def __init__(self, nodes: Sequence[NodeReport], on_change: OnChange) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._on_change = on_change
        self._mutex = threading.Lock()
        self._started = time.monotonic()
        on_change(tuple(nodes))

    def post(self, node: NodeReport) -> None:
        """Replace the report of this node."""
        with self._mutex:
            self._nodes[node.name] = node
            self._on_change(tuple(self._nodes.values()))

    def report(self) -> RunReport:
        """Return all nodes, and the seconds since the tracker was created."""
        return RunReport(tuple(self._nodes.values()), seconds=time.monotonic() - self._started)


@contextlib.contextmanager
def show_nodes(
    console: Console,
    log_path: str | Path,
    *,
    label: str = "log",
    loading: str = "loading TFX",
    transient: bool = False,
    silent: bool = False,
) -> Iterator[OnChange]:
    """Yield the function to call with all nodes after each change. A `transient` table disappears at the end.

    Enter it before importing TFX, so that the table shows the import time. Use the console of `quiet`, because nothing
    else may write to the screen.
    """
    if silent:
        yield lambda nodes: None
        return
    if not console.is_interactive:  # a pipe, a file, a terminal that cannot redraw
        yield LineView(console)
        return
    table = TableView(log_path, label=label, loading=loading)
    # `quiet` redirects stdout and stderr to the log; Live must not draw them above the table.
    with Live(
        table,
        console=console,
        refresh_per_second=4,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=transient,
    ) as live:

        def on_change(nodes: Sequence[NodeReport]) -> None:
            table(nodes)
            live.refresh()

        yield on_change


@dataclass
class TableView:
    """Table of nodes that updates the times of the running nodes each time it is drawn.

    Attributes:
      log_path: path shown under the table, after `label`.
      clock: monotonic clock, in seconds.
      loading: text shown until the nodes are known.
    """

    log_path: str | Path
    clock: Callable[[], float] = time.monotonic
    label: str = "log"
    loading: str = "loading TFX"

    def __post_init__(self) -> None:
        self._opened = self.clock()
        self._nodes: Sequence[NodeReport] = ()
        self._changed: dict[str, tuple[NodeReport, float]] = {}  # latest report of a node, and its time

    def __call__(self, nodes: Sequence[NodeReport]) -> None:
        self._nodes, now = nodes, self.clock()
        for node in nodes:
            if node is not self._changed.get(node.name, (None, 0.0))[0]:
                self._changed[node.name] = node, now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, pad_edge=False, show_footer=True, header_style="dim", footer_style="dim")
        table.add_column("node", footer="total", min_width=24)
        table.add_column("state", footer=self._count(), min_width=len(self.loading))
        table.add_column("time", footer=stopwatch(self.clock() - self._opened), justify="right", min_width=10)
        noted = any(_words(node) for node in self._nodes) and options.max_width >= _NOTES_FROM
        if noted:
            table.add_column("", style="dim", overflow="fold")
        for node in self._nodes:
            table.add_row(node.name, format_state(node.state), self._time(node), *([_words(node)] if noted else []))
        yield Group(table, Text(f"{self.label}: {self.log_path}", style="dim", overflow="fold"))

    def _count(self) -> str:
        ended = sum(node.state not in (NodeState.WAITING, NodeState.RUNNING) for node in self._nodes)
        return f"{ended} of {len(self._nodes)}" if self._nodes else self.loading

    def _time(self, node: NodeReport) -> str:
        if node.state is NodeState.RUNNING:
            return stopwatch(node.seconds + self.clock() - self._changed[node.name][1])
        return "" if node.state in _NOT_STARTED else stopwatch(node.seconds)


class LineView:
    """Print a line per change, for example `StatisticsGen   done   1.9 s`, and progress every 30 seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._shown: dict[str, tuple[NodeState, str]] = {}
        self._changed = clock()

    def __call__(self, nodes: Sequence[NodeReport]) -> None:
        for node in nodes:
            state, note = self._shown.get(node.name, (NodeState.WAITING, ""))
            waited = node.progress and self._clock() - self._changed >= _SECONDS_OF_PROGRESS
            if node.state is not state or node.note not in ("", note) or waited:
                self._console.out(_line(node), highlight=False)
                self._changed = self._clock()
            self._shown[node.name] = (node.state, node.note)


def format_state(state: NodeState) -> Text:
    """Return the name of a state with its icon and color."""
    icon, style = _LOOKS[state]
    return Text(f"{icon} {state.value}", style=style)


def _words(node: NodeReport) -> str:
    return ", ".join(words for words in (node.note, node.progress) if words)


def _line(node: NodeReport) -> str:
    took = "" if node.state in _NOT_STARTED | {NodeState.RUNNING} else stopwatch(node.seconds)
    note = f"{took:<8}  {_words(node)}" if _words(node) else took
    return f"{node.name:<30}  {node.state.value:<{_STATE_WIDTH}}  {note}".rstrip()
