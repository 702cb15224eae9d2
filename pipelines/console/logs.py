"""A quiet screen: whatever TensorFlow, Beam, their C++ parts and child processes write goes to one log file."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console

from infeed.pipelines.console.terminal import Terminal

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STDIN, _STDOUT, _STDERR = 0, 1, 2


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
