"""The one place that writes to a terminal, and the log that all else writes to while a command runs.

Names, values and errors come from files, and are shown, never obeyed. Whatever TensorFlow, Beam, their C++ parts and
child processes write goes to a file.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

# Control characters but tab and newline, marks that turn the direction of text round, and halves of characters, which
# stand for the bytes of a file name that is not UTF-8.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STDIN, _STDOUT, _STDERR = 0, 1, 2


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


def command_line(*words: object, program: str = "") -> str:
    """Return a command for people to paste: each word is quoted for a POSIX shell.

    Args:
      words: arguments, not quoted.
      program: what to run; by default this program, as it was called.
    """
    own = "infeed" if shutil.which("infeed") else os.path.relpath(sys.argv[0])
    return shlex.join([program or own, *map(str, words)])


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


@contextlib.contextmanager
def quiet(log_path: str | Path) -> Iterator[Console]:
    """Appends all output of this process and its children to `log_path`; yields a console on what stdout was before.

    The file descriptors themselves are redirected: C++ code and child processes know no other stdout. They are given
    back on leaving, exceptions included, and taken again when the interpreter exits, since libraries still write then.
    The console serves inside the block only.
    """
    path = Path(log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("a", encoding="utf-8", buffering=1)  # never closed here: it is needed at the interpreter's exit
    _flush()
    screen, errors = os.dup(_STDOUT), os.dup(_STDERR)
    with os.fdopen(screen, "w", encoding=sys.stdout.encoding, errors="replace") as terminal:
        _point_to(log.fileno(), log.fileno())
        try:
            with _python_logging_to(log):
                yield _console(terminal)
        finally:
            _flush()
            _point_to(screen, errors)
            os.close(errors)
            atexit.register(_leave_quietly, log)


def _console(terminal: TextIO) -> Console:
    # Rich measures the width on stdin, stdout and stderr, of which only stdin is still a terminal, if at all.
    width = os.get_terminal_size(terminal.fileno()).columns if terminal.isatty() and not os.isatty(_STDIN) else None
    return Terminal(file=terminal, width=width)


@contextlib.contextmanager
def _python_logging_to(stream: TextIO) -> Iterator[None]:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(_LINE))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.setLevel(level)
        root.removeHandler(handler)


def _point_to(stdout: int, stderr: int) -> None:
    os.dup2(stdout, _STDOUT)
    os.dup2(stderr, _STDERR)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _leave_quietly(log: TextIO) -> None:
    _flush()
    _point_to(log.fileno(), log.fileno())
