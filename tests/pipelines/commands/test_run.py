from __future__ import annotations

import dataclasses
import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from infeed.pipelines.cli import main
from infeed.pipelines.commands import run
from infeed.pipelines.console.exit_codes import EXIT_BAD_INPUT
from infeed.pipelines.console.nodes import NodeReport, NodeState, RunReport
from infeed.pipelines.local.outcome import RunOutcome, only_process
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

NODES = [
    NodeReport("CsvExampleGen", NodeState.CACHED),
    NodeReport("Transform", NodeState.DONE),
    NodeReport("Trainer", NodeState.RUNNING),
    NodeReport("Pusher"),
]


@pytest.fixture
def config(tmp_path: Path) -> Any:
    return resolve(read_project("tabular"), Overrides(root=str(tmp_path)))


@pytest.mark.parametrize(("step", "training"), [(0, []), (1_200, ["the training until step 1,200"])])
def test_ctrl_c_says_what_is_kept_and_how_to_go_on(
    config: Any, step: int, training: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["infeed", "run", "tabular", "--data", "my file.csv"])
    monkeypatch.setattr(run, "_checkpoint", lambda config: step)
    screen = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        _interrupted(config, Console(file=screen, width=200))
    lines = screen.getvalue().splitlines()[1:]
    assert lines[0].split(maxsplit=1) == ["kept", "2 of 4 nodes: the next run takes them from the cache"]
    assert [line.strip().partition(":")[0] for line in lines[1:-1]] == training
    assert lines[-1].endswith("run tabular --data 'my file.csv'")


FAILED = RunReport([NodeReport("Trainer", NodeState.FAILED, error="ValueError: no")], 1.0)


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["tabular", "--data", "my file.csv", "--set", 'nulls=["", "NA"]'],
        ["--from", "Transform", "--label", "it's"],
        ["--from=Transform", "--delimiter", ";"],
    ],
)
def test_a_failed_run_proposes_a_command_that_a_shell_can_run(
    given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["infeed", "run", *given])
    line = run._failure(FAILED, Path("run.log")).plain.rpartition(": ")[2]
    kept = [word for word in given if word not in ("--from", "Transform", "--from=Transform")]
    assert shlex.split(line)[1:] == ["run", *kept, "--from", "Trainer"]


def _interrupted(config: Any, console: Console) -> None:
    with run._report_interrupt(config, console, False) as watch:
        watch(NODES)
        raise KeyboardInterrupt


def test_a_second_run_in_one_root_is_refused_and_names_the_first(tmp_path: Path) -> None:
    arguments = ["run", "tabular", "--root", str(tmp_path)]
    with only_process(str(tmp_path)):
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == EXIT_BAD_INPUT
    assert f"process {os.getpid()} on host" in result.output
    assert str(tmp_path) in result.output


def test_a_root_that_cannot_be_written_is_an_error() -> None:
    result = CliRunner().invoke(main, ["run", "tabular", "--root", "/proc/none"])
    assert result.exit_code == EXIT_BAD_INPUT
    assert "/proc/none" in result.output


def test_a_column_that_gives_the_label_away_stops_a_strict_run_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(
        "x,code,refunded\n" + "".join(f"{i % 7},{'' if i % 3 else 'R'},{int(not i % 3)}\n" for i in range(90))
    )
    words = ["tabular", "--data", str(path), "--label", "refunded", "--root", str(tmp_path / "runs")]
    done = CliRunner().invoke(run.command, [*words, "--strict"])
    assert done.exit_code == 2
    assert "code" in done.output
    assert not (tmp_path / "runs").exists()
    done = CliRunner().invoke(run.command, [*words, "--strict", "--keep", "cod"])
    assert done.exit_code == 2
    assert "'cod'" in done.output


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(("blessed", "code"), [(True, 0), (False, 3)])
def test_a_run_from_the_cache_exits_with_3_unless_the_model_is_blessed(
    blessed: bool,
    code: int,
    as_json: list[str],
    run_outcome: RunOutcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    outcome = dataclasses.replace(run_outcome, blessed=blessed, pushed="runs/serving/1" if blessed else None)
    report = RunReport((NodeReport("Trainer", NodeState.CACHED),), 1.0)
    monkeypatch.setattr(run, "_run", lambda *given: (report, outcome))
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    with pytest.raises(SystemExit) as ended:
        main.main(["run", "tabular", "--root", str(tmp_path), *as_json], standalone_mode=False)
    assert ended.value.code == code
    shown = capfd.readouterr().out
    if as_json:
        told = json.loads(shown)
        assert (told["exit_code"], told["succeeded"], told["outcome"]["blessed"]) == (code, True, blessed)
        assert told["outcome"]["rows"] == 33
    else:
        assert shown.splitlines()[-1].startswith("predict with" if blessed else "exit code           3:")


def test_a_failed_run_exits_with_1() -> None:
    assert run._exit_code(None) == 1
