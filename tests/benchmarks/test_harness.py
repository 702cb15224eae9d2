"""What all benchmarks have in common: turns, medians, ratios, the table, and what becomes of one that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))  # the scripts lie in one folder and import one another by name

import clock  # noqa: E402
import harness  # noqa: E402
import run  # noqa: E402

OURS = harness.Side("ours", cpu=2.0, wall=1.0, memory=3_000_000, also={"bytes written": 12_345, "share": 1.0003})
THEIRS = harness.Side("theirs", cpu=5.0, wall=0.5)
ABSENT = harness.Side("theirs", absent="grain is not installed")
RESULT = harness.Result("ingest csv", "10 rows", OURS, THEIRS, 3)


def test_medians_of_wall_and_cpu_are_taken_apart() -> None:
    costs = [clock.Cost(1, 30), clock.Cost(2, 10), clock.Cost(9, 20)]
    assert clock.median(costs) == clock.Cost(2, 20)
    side = harness.Side.of("ours", iter(costs), also={"bytes written": 7})
    assert (side.wall, side.cpu, side.also) == (2, 20, {"bytes written": 7})
    assert clock.median(costs[:2]) / 2 == clock.Cost(0.75, 10)


def test_contenders_take_turns() -> None:
    calls = ""

    def contender(name: str) -> int:
        nonlocal calls
        calls += name
        return len(calls)

    took = harness.interleave({name: lambda name=name: contender(name) for name in "abc"}, turns=3)
    assert calls == "abcabcabc"
    assert took == {"a": [1, 4, 7], "b": [2, 5, 8], "c": [3, 6, 9]}


def test_cpu_of_children_counts_while_they_run_and_after() -> None:
    work = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\nsys.stdin.read()"
    watch = clock.Stopwatch()
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-S", "-c", work], **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert list(clock.below(child.pid)) == []
        running = watch.cpu
        child.communicate()
    assert running > 0.15
    assert watch.cpu >= 0.2
    assert watch.wall >= 0.2


@pytest.mark.parametrize(("cpu", "naps"), [(0.0, 1), (0.01, 5)], ids=["at rest", "working"])
def test_a_process_at_rest_has_settled(monkeypatch: pytest.MonkeyPatch, cpu: float, naps: int) -> None:
    taken: list[float] = []
    monkeypatch.setattr(clock, "Stopwatch", lambda: SimpleNamespace(cpu=cpu))
    monkeypatch.setattr(clock.time, "sleep", taken.append)
    clock.settle(every=0.01, rounds=5)
    assert taken == [0.01] * naps


def test_ratios_are_the_other_sides_cost_over_ours() -> None:
    assert (RESULT.cpu_ratio, RESULT.wall_ratio) == (2.5, 0.5)
    for other in (None, ABSENT):
        result = harness.Result("images", "png", OURS, other, 1)
        assert (result.cpu_ratio, result.wall_ratio) == (None, None)


@pytest.mark.parametrize("other", [THEIRS, ABSENT, None])
def test_a_result_survives_json(other: Any) -> None:
    result = harness.Result("feed", "batch 1024", OURS, other, 3)
    line = result.to_json()
    assert line.startswith(harness.Result.FIRST)
    assert "\n" not in line
    assert harness.Result.from_json(line) == result


def test_the_rows_of_the_table() -> None:
    theirs = ("theirs: 5 s CPU, 500 ms", "2.5", "0.5", "3")
    assert harness.row(RESULT) == ("ingest csv", "10 rows", "ours: 2 s CPU, 1 s, 3 MB", *theirs)
    absent = harness.row(harness.Result("images", "png", OURS, ABSENT, 3))
    assert absent[3:] == ("theirs: grain is not installed", "-", "-", "3")
    alone = harness.row(harness.Result("ingest memory", "", harness.Side("ours", memory=2_000_000_000), None, 1))
    assert alone[2:] == ("ours: 2,000 MB", "-", "-", "-", "1")


def test_durations_have_three_digits() -> None:
    seconds = (1234.5, 99.96, 1.0, 0.0456, 7.891e-6, 2e-8, 0.0)
    written = ["1,234 s", "100 s", "1 s", "45.6 ms", "7.89 us", "0.02 us", "0 us"]
    assert [harness.duration(one) for one in seconds] == written


def test_a_module_that_is_missing_is_named() -> None:
    assert harness.missing("json") == ""
    assert harness.missing("no_such_module_here") == "no_such_module_here is not installed"


def test_a_benchmark_prints_a_table_or_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    harness.report([RESULT, RESULT], as_json=False)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.count("| ingest csv | 10 rows | ours: 2 s CPU, 1 s, 3 MB | theirs: 5 s CPU, 500 ms |") == 2
    assert printed.count("10 rows, ours: bytes written 12,345\n10 rows, ours: share 1.0003\n") == 1
    harness.report([RESULT], as_json=True)
    assert capsys.readouterr().out == RESULT.to_json() + "\n"


def script(folder: Path, name: str, *lines: str) -> Any:
    (folder / name).write_text("\n".join(lines))
    return run.Benchmark(name, str(folder / name), ("--always",), ("--small",))


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three benchmarks: one works, one crashes after its first result, and one finds nothing."""
    result, crash = f"print({RESULT.to_json()!r})", "raise SystemExit('it is broken')"
    options = "assert sys.argv[1:] in (['--json', '--always'], ['--json', '--always', '--small'])"
    works = script(tmp_path, "works", "import sys", options, "print('a library speaks')", result)
    crashes = script(tmp_path, "crashes", result, crash)
    monkeypatch.setattr(run, "BENCHMARKS", (crashes, script(tmp_path, "is silent", ""), works))
    choice = next(option for option in run.main.params if option.name == "only")
    monkeypatch.setattr(choice, "type", click.Choice(["crashes", "is silent", "works"]))


@pytest.mark.usefixtures("scripts")
def test_a_benchmark_that_crashes_is_named_and_the_others_run() -> None:
    ended = CliRunner().invoke(run.main, ["--short"])
    assert ended.exit_code == 1
    assert ended.output.count("| ingest csv ") == 2
    assert "it is broken" in ended.output
    assert "| crashes    |         | did not end well: exit code 1, 1 results" in ended.output
    assert "| is silent  |         | did not end well: exit code 0, 0 results" in ended.output
    assert "Error: did not end well: crashes, is silent\n" in ended.output


@pytest.mark.usefixtures("scripts")
def test_benchmarks_that_end_well_are_gathered() -> None:
    ended = CliRunner().invoke(run.main, ["--only", "works", "--json"])
    assert ended.exit_code == 0
    assert RESULT.to_json() in ended.output.splitlines()
    assert "did not end well" not in ended.output


def test_every_script_with_options_is_run() -> None:
    with_options = {path.name for path in FOLDER.glob("*.py") if "click.command" in path.read_text()}
    assert {one.script for one in run.BENCHMARKS} == with_options - {"run.py"}
    assert len({one.name for one in run.BENCHMARKS}) == len(run.BENCHMARKS)


def test_short_sizes_replace_the_others() -> None:
    [whole] = [one for one in run.BENCHMARKS if one.name == "whole"]
    assert whole.arguments(short=False) == ("--rows=100000",)
    assert whole.arguments(short=True) == ("--rows=6000",)
