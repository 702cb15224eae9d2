"""The one place that writes to a terminal: names, values and errors come from files, and are shown, never obeyed."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

# Control characters but tab and newline, marks that turn the direction of text round, and halves of characters, which
# stand for the bytes of a file name that is not UTF-8.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    r"""The text with what a terminal would obey written as Python writes it: `\x1b[2J`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def echo(text: str, *, err: bool = False) -> None:
    """Prints plain lines."""
    click.echo(plain(text), err=err)


class Terminal(Console):
    """A rich console; only its own styles and movements are control sequences."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(plain(text), style)


def command_line() -> str:
    """How this program was called, so that the line can be pasted."""
    return "infeed" if shutil.which("infeed") else os.path.relpath(sys.argv[0])


def in_lines(facts: Iterable[tuple[str, ...]], width: int = 20) -> Text:
    """A line for each (name, words) or (name, words, style); no table, so that a long path can be copied whole."""
    return Text("\n").join(
        Text.assemble(f"{name:<{width}}", (words, style[0] if style else "")) for name, words, *style in facts
    )


def show_facts(console: Console, facts: Sequence[tuple[str, ...]]) -> None:
    """The same on a console: wrapped between words where somebody looks, a line each where a program reads."""
    if not console.is_terminal:
        console.print(in_lines(facts), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=19)
    table.add_column(overflow="fold")
    for name, words, *_ in facts:
        table.add_row(name, Text(words))
    console.print(table)
