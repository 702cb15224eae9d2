"""Terminal output of a command, and the log that collects all other output.

Names, values and errors come from files, so control characters in them are escaped. The output of TensorFlow, Beam,
their C++ code and child processes goes to the log file.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import itertools
import logging
import os
import shlex
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from infeed.components.base.units import plain

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SECONDS_OF_COPY = 0.2  # seconds between two copies of the log to a terminal
_WIDTH = 120  # maximum characters of a line without a terminal
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def echo(text: str, *, err: bool = False) -> None:
    """Print text with escaped control characters."""
    click.echo(plain(text), err=err)


def escape_unencodable() -> None:
    """Escape characters that the encoding of stdout or stderr, such as ASCII, does not support, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the stream is None if closed
            with contextlib.suppress(OSError):  # reconfiguring flushes. The next write will report a failed write
                stream.reconfigure(errors="backslashreplace")


class Terminal(Console):
    """Rich console that escapes control characters in text; only Rich itself emits control sequences.

    In a notebook (Jupyter, Colab, VS Code) it is not interactive: the output only appends text, so a live table would
    print a copy at each change.
    """

    def __init__(self, **given: Any) -> None:
        in_notebook = "JPY_PARENT_PID" in os.environ or "inline" in os.environ.get("MPLBACKEND", "")
        super().__init__(**{"force_interactive": False if in_notebook else None, **given})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(plain(text), style)


def command_line(*words: object, program: str = "") -> str:
    """Return a command to paste, quoted for a POSIX shell. `program` defaults to this program as it was called."""
    own = "infeed" if shutil.which("infeed") else os.path.relpath(sys.argv[0])
    return shlex.join([program or own, *map(str, words)])


def in_lines(facts: Iterable[tuple[str, ...]], width: int = 20) -> Text:
    """Format (name, words) or (name, words, style) as lines. Unlike tables, lines keep long paths whole."""
    return Text("\n").join(
        Text.assemble(f"{name:<{width - 1}} ", (words, style[0] if style else "")) for name, words, *style in facts
    )


def show_facts(console: Console, facts: Sequence[tuple[str, ...]]) -> None:
    """Print facts, wrapped between words. On a terminal, long words such as paths are split, too."""
    if not console.is_terminal:
        console.print("\n".join(itertools.chain(*(_wrapped(*fact[:2]) for fact in facts))), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=19)
    table.add_column(overflow="fold")
    for name, words, *_ in facts:
        table.add_row(name, Text(words))
    console.print(table)


def _wrapped(name: str, words: str) -> list[str]:
    """Wrap a fact for a pipe or a file, between words."""
    return textwrap.wrap(
        f"{name:<20}{words}", _WIDTH, subsequent_indent=" " * 20, break_long_words=False, break_on_hyphens=False
    )


@contextlib.contextmanager
def quiet(log_path: str | Path | None, verbose: bool = False) -> Iterator[Console]:
    """Append all output of this process and its children to `log_path`. Yield a console on the original stdout.

    Without a path, the output goes to stderr. If `verbose`, stderr also shows the log.

    The file descriptors themselves are redirected, because C++ code and child processes write to them. They are
    restored at the end of the body, and redirected again at interpreter exit, when libraries still write. Use the
    console only in the body.
    """
    _flush()
    if log_path:
        Path(log_path).parent.mkdir(parents=True, exist_ok=True)
    log = open(log_path or os.dup(_STDERR), "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until the exit
    screen, errors = os.dup(_STDOUT), os.dup(_STDERR)
    with os.fdopen(screen, "w", encoding=sys.stdout.encoding, errors="replace") as terminal:
        _point_to(log.fileno(), log.fileno())
        try:
            copying = _copying(log_path, errors) if verbose and log_path else contextlib.nullcontext()
            # Rich measures the width of stdin, stdout and stderr, but now only stdin may be a terminal.
            has_width = terminal.isatty() and not os.isatty(_STDIN)
            width = os.get_terminal_size(terminal.fileno()).columns if has_width else None
            with copying, _python_logging_to(log):
                yield Terminal(file=terminal, width=width)
        finally:
            _flush()
            _point_to(screen, errors)
            os.close(errors)
            atexit.register(_leave_quietly, log)


def with_log(log_path: str | Path, verbose: bool = False) -> contextlib.AbstractContextManager[Console]:
    """Log like `quiet` if stdout is a terminal, and otherwise to stderr, so that container logs include it."""
    return quiet(log_path if sys.stdout.isatty() else None, verbose)


verbose_option = click.option("--verbose", is_flag=True, help="Also show the log of TensorFlow and TFX on stderr.")


@contextlib.contextmanager
def _copying(path: str | Path, descriptor: int) -> Iterator[None]:
    """Copy text that the body appends to a file to a file descriptor."""
    ended = threading.Event()
    # a second file object, so that `descriptor` stays open
    with open(path, encoding="utf-8", errors="replace") as log, open(descriptor, "w", closefd=False) as screen:
        log.seek(0, os.SEEK_END)

        def copy() -> None:
            with contextlib.suppress(OSError):  # the reader of stderr has exited
                while not ended.wait(_SECONDS_OF_COPY):
                    print(plain(log.read()), end="", file=screen, flush=True)
                print(plain(log.read()), end="", file=screen, flush=True)

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        try:
            yield
        finally:
            _flush()
            ended.set()
            thread.join()


class _PlainFormatter(logging.Formatter):
    """Formatter that escapes control characters, because `cat` would send them to the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


@contextlib.contextmanager
def _python_logging_to(stream: TextIO) -> Iterator[None]:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_PlainFormatter(_LINE))
    handler.addFilter(_tells_something)
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


def _tells_something(record: logging.LogRecord) -> bool:
    """Filter out about 80 log lines about type hints that the import of Beam prints."""
    return record.levelno >= logging.WARNING or not record.name.startswith("apache_beam.typehints.")


def _point_to(stdout: int, stderr: int) -> None:
    os.dup2(stdout, _STDOUT)
    os.dup2(stderr, _STDERR)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _leave_quietly(log: TextIO) -> None:
    _flush()
    _point_to(log.fileno(), log.fileno())
