"""What a run tells about its nodes, and how they are shown: a live table on a terminal, one line per change elsewhere.

What is told is plain data, so that the table can be drawn before TFX is loaded.
"""

from __future__ import annotations

import contextlib
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
    """Where a node stands; a `str`, so that a report goes through `json.dumps(dataclasses.asdict(report))` as it is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CACHED = "cached"  # the same inputs and options gave these outputs before
    FAILED = "failed"
    SKIPPED = "skipped"  # not started: upstream of a partial run, or inside a condition that did not hold


# Icon and colour only support the word: neither alone carries the state.
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
_NOTES_FROM = 80  # columns; a narrower terminal has no room for notes
_SECONDS_OF_PROGRESS = 30.0  # between two lines of it, off a terminal


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
    """Yields the function to call with all nodes after each change; a `transient` table goes away at the end.

    Opened before TFX is imported, it shows that time as well. `console` should be `quiet`'s: nothing else may write to
    the screen in between.
    """
    if silent:
        yield lambda nodes: None
        return
    if not console.is_interactive:  # a pipe, a file, a terminal that cannot redraw
        yield LineView(console)
        return
    table = TableView(log_path, label=label, loading=loading)
    # stdout and stderr belong to the log already; Live must not draw them above the table.
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
    """A table of nodes that counts the running node's seconds by itself each time it is drawn.

    Attributes:
      log_path: named in the line under the table, after `label`.
      clock: seconds from any fixed point.
      loading: what goes on before the nodes are known.
    """

    log_path: str | Path
    clock: Callable[[], float] = time.monotonic
    label: str = "log"
    loading: str = "loading TFX"

    def __post_init__(self) -> None:
        self._opened = self._changed = self.clock()
        self._nodes: Sequence[NodeReport] = ()

    def __call__(self, nodes: Sequence[NodeReport]) -> None:
        self._nodes, self._changed = nodes, self.clock()

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
            return stopwatch(node.seconds + self.clock() - self._changed)
        return "" if node.state in _NOT_STARTED else stopwatch(node.seconds)


class LineView:
    """A line for each change: `StatisticsGen           done      1.9 s`; of progress, one in half a minute."""

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
    """The word for a state, with its icon and colour."""
    icon, style = _LOOKS[state]
    return Text(f"{icon} {state.value}", style=style)


def _words(node: NodeReport) -> str:
    return ", ".join(words for words in (node.note, node.progress) if words)


def _line(node: NodeReport) -> str:
    took = "" if node.state in _NOT_STARTED | {NodeState.RUNNING} else stopwatch(node.seconds)
    note = f"{took:<8}  {_words(node)}" if _words(node) else took
    return f"{node.name:<30}  {node.state.value:<{_STATE_WIDTH}}  {note}".rstrip()
