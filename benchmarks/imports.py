"""What starting up costs: what each command and the executor of each node import, ours beside TFX's.

    python benchmarks/imports.py
    python benchmarks/imports.py --only StatisticsGen --turns 1

A command is asked for its help: what it imports later depends on what it finds to do. A node is what a platform starts:
a process that imports the executor which the component names. Each turn is a process of its own, with bytecode of
earlier ones; seconds are those of the whole process, the interpreter's start included. One more process runs under
`-X importtime`, which says what the packages take: seconds within their own modules, of the clock, and not without the
cost of the look itself.
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
_LINE = re.compile(r"import time: +(\d+) \| +\d+ \| +(\w+)")  # microseconds of the module itself, and its package
_LARGEST, _LEAST = 4, 0.05  # of the packages that are named: how many at most, and seconds


@dataclass(frozen=True)
class Start:
    """Something that starts: the program of ours, and of TFX where it has one."""

    name: str
    ours: str
    theirs: str = ""


@click.command()
@click.option("--only", multiple=True, help="A command or a node; by default all.")
@click.option("--turns", default=3, show_default=True, help="Turns of each side, of which the medians are taken.")
@as_json
def main(only: tuple[str, ...], turns: int, as_json: bool) -> None:
    """Measures what is imported."""
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
    """The interpreter alone, which is part of all, and the help of each command."""
    from infeed.pipelines.cli import main

    yield Start("python", "pass")
    for name in main.list_commands(click.Context(main)):
        words = ["infeed", name, "--help"]
        yield Start(name, f"import sys; sys.argv = {words}; from infeed.pipelines.cli import main; main()")


def nodes() -> Iterator[Start]:
    """The executors that the components name, in the order of a pipeline."""
    if missing("tfx"):
        return
    import tfx.components

    import infeed.components

    for name in _NODES:
        theirs = executor(tfx.components, name) if hasattr(tfx.components, name) else ""
        yield Start(name, executor(infeed.components, name), theirs)


def executor(components: ModuleType, name: str) -> str:
    """The program that imports what a component's node runs."""
    path = getattr(components, name).EXECUTOR_SPEC.class_path
    return f"from {path.rpartition('.')[0]} import {path.rpartition('.')[2]}"


def packages(program: str) -> dict[str, float]:
    """Seconds of the packages that take most, by their names."""
    took = Counter[str]()
    for microseconds, package in _LINE.findall(_process(program, "-X", "importtime")):
        took[package] += int(microseconds)
    return {name: spent / 1e6 for name, spent in took.most_common(_LARGEST) if spent / 1e6 >= _LEAST}


def _process(program: str, *options: str) -> str:
    """What it says on standard error."""
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


if __name__ == "__main__":
    main()
