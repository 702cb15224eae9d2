from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pytest
from rich.console import Console

from infeed.components.base import progress
from infeed.pipelines.console import nodes
from infeed.pipelines.console.nodes import LineView, NodeReport, NodeState, RunReport, TableView, show_nodes, show_step

NODES = (
    NodeReport("ImageExampleGen", NodeState.DONE, 1.94),
    NodeReport("StatisticsGen", NodeState.CACHED, 0.04),
    NodeReport("Transform", NodeState.SKIPPED),
    NodeReport("Trainer", NodeState.RUNNING),
    NodeReport("Pusher"),
)
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def screen(terminal: bool, width: int = 80) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=terminal,
        force_interactive=terminal,
        width=width,
        color_system=None,
        legacy_windows=False,
    )


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def drawn(table: TableView, width: int = 80) -> list[str]:
    console = screen(terminal=False, width=width)
    console.print(table)
    return lines(console)


def test_nodes_that_run_side_by_side_keep_their_own_times() -> None:
    clock = Clock()
    table = TableView("run.log", clock)
    first, second = NodeReport("Transform", NodeState.RUNNING), NodeReport("ExampleValidator", NodeState.RUNNING)
    table.update((first,))
    clock.now += 5
    table.update((first, second))
    clock.now += 2
    assert [line.split()[-2:] for line in drawn(table)[1:3]] == [["7.0", "s"], ["2.0", "s"]]


def test_the_table_names_each_node_its_state_in_words_and_its_seconds(golden: Callable[..., None]) -> None:
    clock = Clock()
    table = TableView("/runs/a/run.log", clock)
    clock.now += 2
    table.update(NODES)
    clock.now += 75.5
    golden("nodes.txt", "\n".join(drawn(table)))


def test_nodes_that_run_elsewhere_side_by_side_tick_on_from_what_is_known_of_each() -> None:
    clock = Clock()
    table = TableView("run.log", clock)
    table.update([NodeReport("Trainer", NodeState.RUNNING, 90), NodeReport("InputReport", NodeState.RUNNING, 20)])
    clock.now += 5
    assert [line.split(maxsplit=3)[-1] for line in drawn(table) if "running" in line] == ["1 min 35 s", "25.0 s"]


def test_a_failed_node_is_told_from_a_finished_one_without_colour() -> None:
    table = TableView("run.log", Clock())
    table.update([NodeReport("Trainer", NodeState.FAILED, 3.25)])
    assert "Trainer                   ✗ failed          3.2 s" in drawn(table)


def test_runs_have_words_while_nothing_is_known_and_under_the_table() -> None:
    assert "loading TFX" in "".join(drawn(TableView("run.log", Clock())))
    table = drawn(TableView("stops waiting", Clock(), label="Ctrl-C", loading="starting"))
    assert "starting" in "".join(table)
    assert table[-1] == "Ctrl-C: stops waiting"


def test_a_long_log_path_is_folded_and_never_cut() -> None:
    path = "/".join(["", "home", *["folder"] * 20, "run.log"])
    assert path in "".join(drawn(TableView(path, Clock()), width=60))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    table = TableView("run.log", Clock())
    table.update([*NODES, NodeReport("latest_blessed_model_resolver")])
    assert max(len(line) for line in drawn(table, width)) <= width
    assert any(line.startswith("latest_blessed_model_resolver") for line in drawn(table, width))


def test_notes_have_a_column_where_there_is_room() -> None:
    table = TableView("run.log", Clock())
    table.update([NodeReport("Trainer", NodeState.DONE, 3.25, note="attempt 2 of 3"), NodeReport("Pusher")])
    assert any(line.endswith("3.2 s  attempt 2 of 3") for line in drawn(table, width=80))
    assert max(len(line) for line in drawn(table, width=60)) <= 60
    assert any(line.endswith("3.2 s") for line in drawn(table, width=60))


def test_off_a_terminal_a_note_stands_behind_the_time(golden: Callable[..., None]) -> None:
    console = screen(terminal=False)
    with show_nodes(console, "run.log") as on_change:
        for note in ("", "driver", "", "attempt 2 of 3"):
            on_change([NodeReport("Trainer", NodeState.RUNNING, note=note)])
        on_change([NodeReport("Trainer", NodeState.DONE, 3.25, note="attempt 2 of 3")])
    golden("nodes-off-a-terminal.txt", "\n".join(lines(console)))


def test_progress_stands_below_the_table() -> None:
    table = TableView("run.log", Clock())
    table.update([NodeReport("Trainer", NodeState.RUNNING, progress="epoch 3/60, loss 0.4"), NodeReport("Pusher")])
    assert "Trainer: epoch 3/60, loss 0.4" in drawn(table, width=80)


def test_off_a_terminal_progress_is_told_twice_a_minute_and_at_the_end() -> None:
    console, clock = screen(terminal=False), Clock()
    view = LineView(console, clock)
    for epoch in range(1, 101):
        clock.now += 1
        view([NodeReport("Trainer", NodeState.RUNNING, epoch, progress=f"epoch {epoch}/100")])
    view([NodeReport("Trainer", NodeState.DONE, 100, note="epoch 100/100")])
    assert [line.split(maxsplit=2)[1:] for line in lines(console)] == [
        ["running", "epoch 1/100"],
        ["running", "30.0 s    epoch 31/100"],
        ["running", "1 min 00 s  epoch 61/100"],
        ["running", "1 min 30 s  epoch 91/100"],
        ["done", "1 min 40 s  epoch 100/100"],
    ]


def test_off_a_terminal_long_results_are_wrapped_between_words() -> None:
    console, words = screen(terminal=False), ", ".join(f"metric_{place} 0.1234" for place in range(12))
    LineView(console, Clock())([NodeReport("Trainer", NodeState.DONE, 35.9, note=words)])
    first, *others = lines(console)
    assert first.startswith("Trainer  ")
    assert max(len(line) for line in [first, *others]) <= 120
    assert " ".join([first.split(maxsplit=4)[4], *(line.strip() for line in others)]) == words


def test_off_a_terminal_nodes_that_report_nothing_have_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infeed.pipelines.console.nodes._SECONDS_OF_PROGRESS", 0.01)
    monkeypatch.setattr("infeed.pipelines.console.nodes._SECONDS_OF_TICK", 0.01)
    console = screen(terminal=True)
    with show_nodes(console, "run.log", plain=True) as on_change:
        on_change([NodeReport("Evaluator", NodeState.RUNNING), NodeReport("Pusher", NodeState.RUNNING)])
        # A tick may come when only one of the two is due.
        while {line.split()[0] for line in lines(console)[2:]} != {"Evaluator", "Pusher"}:
            time.sleep(0.01)


def changes(*states: NodeState) -> list[Sequence[NodeReport]]:
    return [(NodeReport("StatisticsGen", state, 1.94), NodeReport("SchemaGen")) for state in states]


def test_off_a_terminal_each_change_is_one_plain_line() -> None:
    console = screen(terminal=False)
    with show_nodes(console, "run.log") as on_change:
        for nodes in changes(NodeState.WAITING, NodeState.RUNNING, NodeState.RUNNING, NodeState.DONE):
            on_change(nodes)
    assert lines(console) == [
        "StatisticsGen                   running",
        "StatisticsGen                   done     1.9 s",
    ]


def test_on_a_terminal_the_last_table_stays_on_the_screen() -> None:
    console = screen(terminal=True)
    with show_nodes(console, "run.log") as on_change:
        for nodes in changes(NodeState.WAITING, NodeState.RUNNING, NodeState.DONE):
            on_change(nodes)
    shown = "\n".join(lines(console))
    assert shown.rindex("▸ running") < shown.rindex("✓ done") < shown.rindex("log: run.log")


def test_a_run_that_breaks_leaves_the_terminal_usable() -> None:
    console = screen(terminal=True)
    with pytest.raises(ValueError, match="broken"), show_nodes(console, "run.log"):
        raise ValueError("broken")
    shown = "\n".join(lines(console))
    assert shown.rindex(HIDE_CURSOR) < shown.rindex(SHOW_CURSOR)


def test_a_step_is_a_node_with_its_progress_which_fails_with_its_body() -> None:
    console = screen(terminal=False)
    with show_step(console, "Transform"):
        progress.count("example transformed", 12)
    with pytest.raises(ValueError, match="broken"), show_step(console, "Evaluator"):
        raise ValueError("broken")
    told = [line.split() for line in lines(console)]
    assert [words[:2] for words in told] == [
        *(["Transform", "running"], ["Transform", "done"]),
        *(["Evaluator", "running"], ["Evaluator", "failed"]),
    ]
    assert told[1][-3:] == ["12", "examples", "transformed"]


def test_a_short_step_leaves_no_trace_where_it_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> bool:
        console = screen(terminal=True)
        with show_step(console, "StatisticsGen", transient=True):
            pass
        return "StatisticsGen" in "\n".join(lines(console))

    assert not shown()
    monkeypatch.setattr(nodes, "_SECONDS_UNSHOWN", 0.0)
    assert shown()


DONE = NodeReport("ImageExampleGen", NodeState.DONE, 1.9)
FAILED = NodeReport("Trainer", NodeState.FAILED, 0.5, error="no model function 'build'")
WAITING = NodeReport("Pusher")


def test_a_report_is_json_as_it_stands() -> None:
    nodes = json.loads(json.dumps(asdict(RunReport((DONE,), seconds=2.0))))["nodes"]
    (node,) = nodes
    assert (node["name"], node["state"], node["seconds"], node["error"]) == ("ImageExampleGen", "done", 1.9, None)
    assert (node["note"], node["progress"]) == ("", "")


def test_a_run_succeeded_unless_a_node_stopped_it() -> None:
    done, stopped = RunReport((DONE,), 2.0), RunReport((DONE, FAILED, WAITING), 2.0)
    assert (done.succeeded, done.failed) == (True, None)
    assert (stopped.succeeded, stopped.failed) == (False, FAILED)
