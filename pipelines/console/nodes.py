"""States of the nodes of a run, shown as a live table on a terminal and otherwise as one line per change.

The states are plain data, so the table can appear before TFX is loaded.
"""

from __future__ import annotations

import contextlib
import textwrap
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

from infeed.components.base.progress import listening
from infeed.components.base.units import stopwatch


class NodeState(str, Enum):
    """State of a node. A `str`, so that `json.dumps(dataclasses.asdict(report))` works."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CACHED = "cached"  # outputs of an earlier execution with the same inputs and options
    FAILED = "failed"
    SKIPPED = "skipped"  # not started: upstream of a partial run, or in a false condition


# The word shows the state. Icon and color only support it.
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
_WIDTH = 120  # maximum characters of a line without a terminal
_NOTES_FROM = 80  # columns of the terminal. Narrower terminals show no notes
_SECONDS_OF_PROGRESS = 30.0  # seconds between two lines of progress without a terminal
_SECONDS_OF_TICK = 1.0
_SECONDS_UNSHOWN = 1.0  # seconds before a transient table appears


@dataclass(frozen=True)
class NodeReport:
    """Current state of one node."""

    name: str
    state: NodeState = NodeState.WAITING
    seconds: float = 0.0  # duration. 0 until the node has finished
    error: str | None = None  # error text of a failed node
    note: str = ""  # short remark, for example the number of the attempt
    progress: str = ""  # progress of a running node. Changes often


@dataclass(frozen=True)
class RunReport:
    """Result of a run: its nodes in order of execution, and its duration in seconds."""

    nodes: tuple[NodeReport, ...]
    seconds: float

    @property
    def failed(self) -> NodeReport | None:
        """Node that stopped the run."""
        return next((node for node in self.nodes if node.state is NodeState.FAILED), None)

    @property
    def succeeded(self) -> bool:
        return self.failed is None


OnChange = Callable[[Sequence[NodeReport]], None]
"""Callback that receives all nodes of the pipeline in execution order at each change of a node's state."""


class RunTracker:
    """State of all nodes, passed to `on_change` at each change. Thread-safe."""

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

    @contextlib.contextmanager
    def following(self, name: str) -> Iterator[Progress]:
        """Post the progress that functions in this process report as the progress of a running node."""
        self.post(NodeReport(name, NodeState.RUNNING))
        with listening(Progress(name, self)) as progress:
            yield progress

    def report(self) -> RunReport:
        """Return all nodes, and the seconds since the tracker was created."""
        return RunReport(tuple(self._nodes.values()), seconds=time.monotonic() - self._started)


class Progress:
    """Listener that posts the progress of a node. `result` is the last message that remains after the node ends."""

    def __init__(self, name: str, tracker: RunTracker) -> None:
        self._name, self._tracker, self._started = name, tracker, time.monotonic()
        self.result = ""

    def __call__(self, words: str, is_result: bool) -> None:
        self.result = words if is_result else self.result
        seconds = time.monotonic() - self._started
        self._tracker.post(NodeReport(self._name, NodeState.RUNNING, seconds, progress=words))


@contextlib.contextmanager
def show_nodes(
    console: Console,
    log_path: str | Path,
    *,
    label: str = "log",
    loading: str = "loading TFX",
    transient: bool = False,
    silent: bool = False,
    plain: bool = False,
) -> Iterator[OnChange]:
    """Yield a function that takes all nodes after each change and shows them.

    A `transient` table appears after a second, and disappears at the end. Without a terminal, or if `plain`, there are
    lines instead of a table.

    Enter before importing TFX, so that the table shows the import. Use the console of `quiet`, so that nothing else
    writes to the screen.
    """
    if silent:
        yield lambda nodes: None
        return
    if plain or not console.is_interactive:  # a pipe, a file, or a terminal that cannot redraw
        with LineView(console) as lines:
            yield lines
        return
    table = TableView(log_path, label=label, loading=loading, delay=_SECONDS_UNSHOWN if transient else 0.0)
    # `quiet` redirects stdout and stderr to the log, so Live must not print them above the table.
    with Live(
        table, console=console, refresh_per_second=4, redirect_stdout=False, redirect_stderr=False, transient=transient
    ) as live:

        def on_change(nodes: Sequence[NodeReport]) -> None:
            if table.update(nodes):  # Live itself redraws progress, four times a second
                live.refresh()

        yield on_change


@contextlib.contextmanager
def show_step(
    console: Console,
    name: str,
    log_path: str = "",
    *,
    transient: bool = False,
    silent: bool = False,
    plain: bool = False,
) -> Iterator[None]:
    """Show the body as one running node, with the progress that its functions report; see `show_nodes`."""
    started = time.monotonic()
    with show_nodes(console, log_path, transient=transient, silent=silent, plain=plain) as on_change:
        tracker = RunTracker([NodeReport(name)], on_change)
        state, note = NodeState.FAILED, ""
        try:
            with tracker.following(name) as progress:
                yield
            state, note = NodeState.DONE, progress.result
        finally:
            tracker.post(NodeReport(name, state, time.monotonic() - started, note=note))


@dataclass
class TableView:
    """Table of nodes that updates the times of running nodes at each drawing."""

    log_path: str | Path  # path shown under the table, after `label`. Empty for none
    clock: Callable[[], float] = time.monotonic  # monotonic clock, in seconds
    label: str = "log"
    loading: str = "loading TFX"  # text shown until the nodes are known
    delay: float = 0.0  # seconds until the table is drawn

    def __post_init__(self) -> None:
        self._opened = self.clock()
        self._nodes: Sequence[NodeReport] = ()
        self._changed: dict[str, tuple[NodeReport, float]] = {}  # latest report of a node, and its time

    def update(self, nodes: Sequence[NodeReport]) -> bool:
        """Store the nodes. Return whether any state has changed."""
        before = [node.state for node in self._nodes]
        self._nodes, now = nodes, self.clock()
        for node in nodes:
            if node is not self._changed.get(node.name, (None, 0.0))[0]:
                self._changed[node.name] = node, now
        return before != [node.state for node in nodes]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.clock() - self._opened < self.delay:
            return
        table = Table(box=None, pad_edge=False, show_footer=True, header_style="dim", footer_style="dim")
        table.add_column("node", footer="total", min_width=24)
        ended = sum(node.state not in (NodeState.WAITING, NodeState.RUNNING) for node in self._nodes)
        count = f"{ended} of {len(self._nodes)}" if self._nodes else self.loading
        table.add_column("state", footer=count, min_width=len(self.loading))
        table.add_column("time", footer=stopwatch(self.clock() - self._opened), justify="right", min_width=10)
        noted = any(node.note for node in self._nodes) and options.max_width >= _NOTES_FROM
        if noted:
            table.add_column("", style="dim", overflow="fold")
        for node in self._nodes:
            table.add_row(node.name, format_state(node.state), self._time(node), *([node.note] if noted else []))
        live = [f"{node.name}: {node.progress}" for node in self._nodes if node.progress]
        log = [Text(f"{self.label}: {self.log_path}", style="dim", overflow="fold")] if self.log_path else []
        yield Group(table, *map(Text, live), *log)

    def _time(self, node: NodeReport) -> str:
        if node.state is NodeState.RUNNING:
            return stopwatch(node.seconds + self.clock() - self._changed[node.name][1])
        return "" if node.state in _NOT_STARTED else stopwatch(node.seconds)


class LineView:
    """Prints a line per change, for example `StatisticsGen done 1.9 s`, and one every 30 seconds for a running node.

    In a `with` block, a thread prints lines for nodes without reports.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._nodes: Sequence[NodeReport] = ()
        self._shown: dict[str, tuple[NodeState, str]] = {}
        self._printed: dict[str, float] = {}
        self._started: dict[str, float] = {}
        self._mutex, self._ended = threading.Lock(), threading.Event()

    def __call__(self, nodes: Sequence[NodeReport]) -> None:
        with self._mutex:
            self._nodes = nodes
            for node in nodes:
                now = self._clock()
                state, note = self._shown.get(node.name, (NodeState.WAITING, ""))
                if node.state is not state:
                    self._started[node.name] = now
                unprinted = now - self._printed.get(node.name, now)
                due = node.state is NodeState.RUNNING and unprinted >= _SECONDS_OF_PROGRESS
                if node.state is not state or node.note not in ("", note) or due:
                    self._console.out(_line(node, now - self._started.get(node.name, now)), highlight=False)
                    self._printed[node.name] = now
                self._shown[node.name] = (node.state, node.note)

    def __enter__(self) -> LineView:
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def _tick(self) -> None:
        while not self._ended.wait(_SECONDS_OF_TICK):
            self(self._nodes)


def format_state(state: NodeState) -> Text:
    """Return the name of a state with its icon and color."""
    icon, style = _LOOKS[state]
    return Text(f"{icon} {state.value}", style=style)


def _line(node: NodeReport, running: float) -> str:
    is_running = node.state is NodeState.RUNNING
    seconds = running if is_running else node.seconds
    took = "" if node.state in _NOT_STARTED or (is_running and seconds < 1) else stopwatch(seconds)
    words = ", ".join(filter(None, (node.note, node.progress)))
    facts = f"{node.name:<30}  {node.state.value:<{_STATE_WIDTH}}  {took:<8}"
    if not words:
        return facts.rstrip()
    indent = " " * (len(facts) + 2)
    wrapped = textwrap.wrap(words, _WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
    return facts + "  " + f"\n{indent}".join(wrapped)
