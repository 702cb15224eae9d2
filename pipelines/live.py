"""Nodes on the screen: a live table on a terminal, one line per change anywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infeed.pipelines.nodes import NodeReport, NodeState, OnChange

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
_LOADING = "loading TFX"  # what happens before the nodes are known


@contextlib.contextmanager
def show_nodes(console: Console, log_path: str | Path) -> Iterator[OnChange]:
    """Yields the function to call with all nodes after each change.

    Opened before TFX is imported, it shows that time as well. `console` should be `quiet`'s: nothing else may write to
    the screen in between.
    """
    if not console.is_interactive:  # a pipe, a file, a terminal that cannot redraw
        yield LineView(console)
        return
    table = TableView(log_path)
    # stdout and stderr belong to the log already; Live must not draw them above the table.
    with Live(table, console=console, refresh_per_second=4, redirect_stdout=False, redirect_stderr=False) as live:

        def on_change(nodes: Sequence[NodeReport]) -> None:
            table(nodes)
            live.refresh()

        yield on_change


class TableView:
    """A table of nodes that counts the running node's seconds by itself each time it is drawn.

    Args:
      log_path: named in the line under the table.
      clock: seconds from any fixed point.
    """

    def __init__(self, log_path: str | Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._log_path = log_path
        self._clock = clock
        self._opened = self._changed = clock()
        self._nodes: Sequence[NodeReport] = ()

    def __call__(self, nodes: Sequence[NodeReport]) -> None:
        self._nodes, self._changed = nodes, self._clock()

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False, show_footer=True, header_style="dim", footer_style="dim")
        table.add_column("node", footer="total", min_width=24)
        table.add_column("state", footer=self._count(), min_width=len(_LOADING))
        table.add_column("time", footer=_seconds(self._clock() - self._opened), justify="right", min_width=10)
        for node in self._nodes:
            icon, style = _LOOKS[node.state]
            table.add_row(node.name, Text(f"{icon} {node.state.value}", style=style), self._time(node))
        return Group(table, Text(f"log: {self._log_path}", style="dim", overflow="fold"))

    def _count(self) -> str:
        ended = sum(node.state not in (NodeState.WAITING, NodeState.RUNNING) for node in self._nodes)
        return f"{ended} of {len(self._nodes)}" if self._nodes else _LOADING

    def _time(self, node: NodeReport) -> str:
        if node.state is NodeState.RUNNING:  # nodes run one by one, so the last change was its start
            return _seconds(self._clock() - self._changed)
        return "" if node.state in _NOT_STARTED else _seconds(node.seconds)


class LineView:
    """A line for each change: `StatisticsGen           done      1.9 s`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, NodeState] = {}

    def __call__(self, nodes: Sequence[NodeReport]) -> None:
        for node in nodes:
            if self._shown.get(node.name, NodeState.WAITING) is not node.state:
                self._console.out(_line(node), highlight=False)
            self._shown[node.name] = node.state


def _line(node: NodeReport) -> str:
    took = "" if node.state in _NOT_STARTED | {NodeState.RUNNING} else _seconds(node.seconds)
    return f"{node.name:<30}  {node.state.value:<{_STATE_WIDTH}}  {took}".rstrip()


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60):02} s"
