"""Resolution of a project's config for a command, with a question for a missing label on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import one_line
from infeed.components.kubeflow.message import is_packed
from infeed.pipelines.config import PipelineConfig, read_resolved
from infeed.pipelines.console.terminal import Terminal, command_line
from infeed.pipelines.project.config_file import Project, read_project
from infeed.pipelines.project.labels import Candidate, LabelNeededError
from infeed.pipelines.project.resolve import Overrides, resolve

_TYPES = {"int": "whole numbers", "float": "numbers", "bytes": "text"}
_SHOWN = 30  # columns shown in the table. The prompt accepts any column name


def decided(project: Project, given: Mapping[str, Any], *, may_ask: bool = True) -> PipelineConfig:
    """Resolve the config of a project. If the label is missing, ask for it on a terminal.

    `given` are fields of `Overrides`. The command does not ask if its output is for a program.

    Raises:
      InfeedError: see `resolve`. If the label is missing and there is no terminal, the error suggests a command line.
    """
    try:
        return resolve(project, Overrides(**given))
    except LabelNeededError as error:
        if given.get("label") or not error.candidates:
            raise
        if not (may_ask and can_ask()):
            again = command_line(*sys.argv[1:], "--label", error.candidates[0].name)
            raise InfeedError(error.what, where=error.where, do=f"{error.do}; for example:\n{again}") from error
        label = choose(error.candidates)
    sys.argv += ["--label", label]  # suggested commands repeat the arguments
    return resolve(project, Overrides(**{**given, "label": label}))


def can_ask() -> bool:
    """Return whether stdin and stdout are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def choose(candidates: Sequence[Candidate]) -> str:
    """Ask which column is the label. If the first candidate is likely, it is the default.

    Raises KeyboardInterrupt on Ctrl-C, or at the end of the input.
    """
    console, names = Terminal(), [one.name for one in candidates]
    headings = ("", "column", "type", "different values", "examples", "likely")
    table = Table(*headings, box=None, header_style="bold", pad_edge=False)
    for number, one in enumerate(candidates[:_SHOWN], start=1):
        name = Text(one_line(one.name), style="bold" if one.reasons else "")
        facts = (_TYPES[one.type], f"{one.distinct:,}", one.examples, ", ".join(one.reasons))
        table.add_row(str(number), name, *map(Text, map(one_line, facts)))
    console.print(table)
    if len(candidates) > _SHOWN:
        console.print(f"and {len(candidates) - _SHOWN:,} more, which you can name")

    def chosen(given: str) -> str:
        for name in (given, given.strip()):  # a column name may be a number
            if name in names:
                return name
        if given.strip().isdecimal() and 1 <= int(given) <= len(names):
            return names[int(given) - 1]
        raise click.UsageError(f"there is no {given!r}: enter a number from 1 to {len(names)}, or a name")

    default = names[0] if candidates[0].reasons else None
    question = "Which column should the model learn? Number or name"
    try:
        answer: str = click.prompt(question, default=default, value_proc=chosen)
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return answer


def is_project(text: str) -> bool:
    """Return whether `text` is a config file, or the config of a compiled job, and not data."""
    return text.endswith((".yaml", ".yml")) or is_packed(text)


def config_of(project: str, given: Mapping[str, Any], *, may_ask: bool = True) -> PipelineConfig:
    """Read and resolve a project, as `decided` does, or return the resolved config of a compiled job."""
    return read_resolved(project, given) or decided(read_project(project), given, may_ask=may_ask)
