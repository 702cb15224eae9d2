"""Questions on a terminal: a table of choices, and a prompt that accepts a number or a name."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click
from rich.table import Table
from rich.text import Text

from infeed.pipelines.console.terminal import Terminal

_SHOWN = 30  # choices in the table; the prompt accepts the name of any choice


class Choice(NamedTuple):
    """One possible answer.

    Attributes:
      name: the answer.
      facts: cells of the table, by heading.
      likely: why the choice is likely; empty if it is not.
    """

    name: str
    facts: Mapping[str, str]
    likely: str = ""


def can_ask() -> bool:
    """Return whether stdin and stdout are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def choose(question: str, choices: Sequence[Choice]) -> str:
    """Ask for a choice and return its name. If the first choice is likely, it is the default.

    Raises:
      KeyboardInterrupt: Ctrl-C, or the end of the input.
    """
    console = Terminal()
    table = Table("", "column", *choices[0].facts, "likely", box=None, header_style="bold", pad_edge=False)
    for number, choice in enumerate(choices[:_SHOWN], start=1):
        name = Text(choice.name, style="bold" if choice.likely else "")
        table.add_row(str(number), name, *(Text(fact) for fact in choice.facts.values()), Text(choice.likely))
    console.print(table)
    if len(choices) > _SHOWN:
        console.print(f"and {len(choices) - _SHOWN:,} more, which you can name")
    default = choices[0].name if choices[0].likely else None
    try:
        answer: str = click.prompt(
            f"{question} Number or name", default=default, value_proc=lambda given: _answer(given, choices)
        )
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return answer


def _answer(given: str, choices: Sequence[Choice]) -> str:
    names = [choice.name for choice in choices]
    for name in (given, given.strip()):  # a name may well be a number
        if name in names:
            return name
    if given.strip().isdecimal() and 1 <= int(given) <= len(names):
        return names[int(given) - 1]
    raise click.UsageError(f"there is no {given!r}: give a number from 1 to {len(names)}, or a name")
