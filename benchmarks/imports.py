"""Start-up cost: the imports of each command, and of the executor of each node, ours and TFX's.

    python benchmarks/imports.py
    python benchmarks/imports.py --only StatisticsGen --turns 1

A command prints its help, because later imports depend on its work. A node is a process that imports the component's
executor, as a platform starts it. Each turn is a new process that finds compiled bytecode. Its seconds include the
start of the interpreter. One more process runs with `-X importtime` and reports the wall seconds of each package's own
modules, which include the overhead of the report.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import click
from clock import timed
from harness import Result, Side, as_json, interleave, missing, report

_NODES = ("CsvExampleGen", "StatisticsGen", "Transform", "Trainer", "Tuner", "Evaluator", "BulkInferrer", "InputReport")
# Microseconds of a module without its imports, and its package.
_LINE = re.compile(r"import time: +(\d+) \| +\d+ \| +(\w+)")
_LARGEST, _LEAST = 4, 0.05  # packages to show: maximum number, and minimum seconds


@dataclass(frozen=True)
class Start:
    """A program of ours to start, and TFX's counterpart if there is one."""

    name: str
    ours: str
    theirs: str = ""


@click.command()
@click.option("--only", multiple=True, help="Command or node to measure. Defaults to all.")
@click.option("--turns", default=3, show_default=True, help="Turns of each side. The table shows medians.")
@as_json
def main(only: tuple[str, ...], turns: int, as_json: bool) -> None:
    """Measure imports."""
    report(results(only, turns), as_json)


def results(only: Sequence[str], turns: int) -> Iterator[Result]:
    for start in [*commands(), *nodes()]:
        if not only or start.name in only:
            programs = {"infeed": start.ours, "tfx": start.theirs}
            sides = {side: program for side, program in programs.items() if program}
            runs = {side: partial(timed, partial(_process, program)) for side, program in sides.items()}
            took = interleave(runs, turns)
            found = {side: Side.of(side, took[side], also=packages(sides[side])) for side in sides}
            yield Result("imports", start.name, found["infeed"], found.get("tfx"), turns)


def commands() -> Iterator[Start]:
    """Yield the interpreter alone, which all others include, and the help of each command."""
    from infeed.pipelines.cli import main

    yield Start("python", "pass")
    for name in main.list_commands(click.Context(main)):
        words = ["infeed", name, "--help"]
        yield Start(name, f"import sys; sys.argv = {words}; from infeed.pipelines.cli import main; main()")


def nodes() -> Iterator[Start]:
    """Yield the executors of the components, in the order of a pipeline."""
    if missing("tfx"):
        return
    import tfx.components

    import infeed.components

    for name in _NODES:
        theirs = executor(tfx.components, name) if hasattr(tfx.components, name) else ""
        yield Start(name, executor(infeed.components, name), theirs)


def executor(components: ModuleType, name: str) -> str:
    """Return a program that imports the executor of a component."""
    path = getattr(components, name).EXECUTOR_SPEC.class_path
    return f"from {path.rpartition('.')[0]} import {path.rpartition('.')[2]}"


def packages(program: str) -> dict[str, float]:
    """Return the seconds of the most expensive packages, by name."""
    took = Counter[str]()
    for microseconds, package in _LINE.findall(_process(program, "-X", "importtime")):
        took[package] += int(microseconds)
    return {name: spent / 1e6 for name, spent in took.most_common(_LARGEST) if spent / 1e6 >= _LEAST}


def _process(program: str, *options: str) -> str:
    """Run a program and return its standard error."""
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


if __name__ == "__main__":
    main()
