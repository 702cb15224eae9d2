"""Contenders, each in its own process and environment: install, start, measure in turns, and compare with ours.

`turns.py` runs in each process.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
from clock import Cost, median
from harness import Result, Side, as_json, interleave, report

Figures = dict[str, float]
ENVIRONMENTS = "~/.cache/tfx-infeed-benchmarks"
OURS = "ours"  # prefix of the names of our contenders
_MORE = 1.1  # maximum of CPU over wall times cores, above 1 because both are measured with an error


@dataclass(frozen=True)
class Contender:
    """A script with its options and its packages from PyPI. Without packages, it runs in this environment."""

    name: str
    script: str
    packages: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class CannotRunError(Exception):
    """Raised if a contender cannot be installed or started, with the reason."""


@dataclass(frozen=True)
class Prepared:
    """A contender with its Python and package versions, or the reason why it has none."""

    contender: Contender
    python: str = ""
    versions: str = ""
    absent: str = ""

    @property
    def side(self) -> Side:
        """Side of the result before the contender has run."""
        return Side(self.contender.name, also={"versions": self.versions} if self.versions else {}, absent=self.absent)


def prepared(contender: Contender, folder: Path, install: bool) -> Prepared:
    """Return a contender with an environment of its packages. Create the environment at the first call."""
    if not contender.packages:
        return Prepared(contender, sys.executable)
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
    path = folder.expanduser() / Path(contender.script).stem
    python = str(path / "bin" / "python")
    try:
        if not (path / "whole").exists():
            if not install:
                raise CannotRunError("not installed")
            _command(uv, "venv", "--clear", "--python", sys.executable, str(path))
            _command(uv, "pip", "install", "--python", python, "numpy", *contender.packages)
            (path / "whole").touch()
        frozen = _command(uv, "pip", "freeze", "--python", python).splitlines()
    except CannotRunError as error:
        return Prepared(contender, absent=str(error))
    versions = [line for line in frozen if line.partition("==")[0] in contender.packages]
    return Prepared(contender, python, ", ".join(versions))


def _command(*words: str) -> str:
    """Run a command and return its output. Raises CannotRunError if it fails."""
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotRunError((getattr(error, "stderr", "") or str(error)).strip()[-500:]) from error


@dataclass(frozen=True)
class Process:
    """A running contender. `errors` receives its standard error."""

    contender: Contender
    running: subprocess.Popen[str]
    errors: IO[str]

    def answer(self) -> Figures:
        """Return the next JSON line of the process. Skip lines that a library prints.

        Raises:
          CannotRunError: the process has ended.
        """
        assert self.running.stdout is not None
        for line in self.running.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        self.errors.seek(0)
        raise CannotRunError(self.errors.read().strip()[-500:])

    def turn(self, seconds: float) -> Cost:
        """Let the process work for `seconds`, and return the cost of a row."""
        assert self.running.stdin is not None
        print(seconds, file=self.running.stdin, flush=True)
        figures = self.answer()
        return Cost(figures["wall"], figures["cpu"]) / figures["rows"]


@dataclass(frozen=True)
class Contest:
    """Contenders, and the settings of their comparison."""

    benchmark: str  # name of the benchmark in the table
    scripts: Path  # folder of the contenders' scripts
    unit: str  # unit of rows, in the plural
    found: Sequence[Prepared]
    turns: int  # turns of each contender; results are medians
    seconds: float  # length of a turn

    def results(self, case: str, arguments: Sequence[str]) -> Iterator[Result]:
        """Measure all contenders in one case. Yield a result for each pair of one of ours and another."""
        sides = {one.contender.name: one.side for one in self.found}
        with self._started(arguments, sides) as processes:
            runs = {one.contender.name: partial(one.turn, self.seconds) for one in processes}
            for name, costs in interleave(runs, self.turns).items():
                sides[name] = judged(name, costs, self.unit, sides[name].also)
        yield from compared(self.benchmark, case, sides.values(), self.turns)

    @contextmanager
    def _started(self, arguments: Sequence[str], sides: dict[str, Side]) -> Iterator[list[Process]]:
        """Start all contenders that can run. Write the reason into `sides` for the others.

        Raises:
          CannotRunError: one of our contenders cannot run.
        """
        processes = []
        for one in self.found:
            name = one.contender.name
            try:
                processes += [self._start(one, arguments)] if one.python else []
            except CannotRunError as error:
                if name.startswith(OURS):
                    raise
                sides[name] = replace(sides[name], absent=f"cannot be run: {error}")
        yield processes
        for process in processes:
            process.running.communicate()
            process.errors.close()

    def _start(self, one: Prepared, arguments: Sequence[str]) -> Process:
        """Start a contender, and wait until it has made its first batch.

        Raises:
          CannotRunError: the contender has ended before its first batch.
        """
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - stays open as long as the process runs
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]  # this folder has turns.py
        words = [one.python, str(self.scripts / one.contender.script), *one.contender.options, *arguments]
        running = subprocess.Popen(words, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, **pipes)
        process = Process(one.contender, running, errors)
        process.answer()
        return process


def contest(
    benchmark: str, scripts: Path, unit: str, contenders: Sequence[Contender], *, seconds: float
) -> Callable[[Callable[..., Iterator[Result]]], Callable[..., None]]:
    """Decorate a command that measures a contest: it adds the options of a contest, and prints the results.

    The command is called with a `Contest` and its own options. `seconds` is the default length of a turn.
    """

    def decorate(measured: Callable[..., Iterator[Result]]) -> Callable[..., None]:
        @click.option("--turns", default=5, show_default=True, help="Turns of each contender. The table shows medians.")
        @click.option("--seconds", default=seconds, show_default=True, help="Length of a turn.")
        @click.option("--only", multiple=True, help="Contenders to run. Defaults to all.")
        @click.option("--environments", default=ENVIRONMENTS, show_default=True, type=Path)
        @click.option("--install/--no-install", default=True, show_default=True, help="Install missing environments.")
        @as_json
        @functools.wraps(measured)
        def command(
            turns: int,
            seconds: float,
            only: Sequence[str],
            environments: Path,
            install: bool,
            as_json: bool,
            **own: Any,
        ) -> None:
            chosen = [one for one in contenders if not only or one.name in only]
            found = [prepared(one, environments, install) for one in chosen]
            report(measured(Contest(benchmark, scripts, unit, found, turns, seconds), **own), as_json)

        return command

    return decorate


def judged(name: str, costs: Sequence[Cost], unit: str, also: Any, cores: int | None = None) -> Side:
    """Return the cost of a row. Refuse it if the CPU time exceeds wall time times cores, which shows other load."""
    cores, middle = cores or len(os.sched_getaffinity(0)), median(costs)
    if middle.cpu > _MORE * cores * middle.wall:
        busy = f"{middle.cpu / middle.wall:.1f} cores of {cores} would have been busy"
        return Side(name, also=also, absent=f"refused: {busy}")
    a_second = {f"{unit} a second": 1 / middle.wall, f"{unit} a CPU second": 1 / middle.cpu}
    return Side(name, middle.cpu, middle.wall, also={**also, **a_second})


def compared(benchmark: str, case: str, sides: Iterable[Side], turns: int) -> Iterator[Result]:
    """Yield a result for each pair of ours and another. Contenders absent for the same reason share one side."""
    known = list(sides)
    ours = [side for side in known if side.name.startswith(OURS)]
    others = [side for side in known if side not in ours]
    reasons = dict.fromkeys(side.absent for side in others)
    together = [[side for side in others if side.absent == reason] for reason in reasons if reason]
    absent = [Side(", ".join(side.name for side in some), absent=some[0].absent) for some in together]
    beside: list[Side | None] = [*(side for side in others if not side.absent), *absent]
    for own in ours:
        for other in beside or [None]:
            yield Result(benchmark, case, own, other, turns)
