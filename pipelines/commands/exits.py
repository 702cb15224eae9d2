"""How commands end: exit codes that scripts can use, and errors told without a traceback."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator

import click

from infeed.components.errors import InfeedError

EXIT_FAILED, EXIT_BAD_INPUT = 1, 2
EXIT_LOST = 3  # a run elsewhere was or may have been started, and how it ends was not seen
EXIT_INTERRUPTED = 130  # Ctrl-C, as shells have it


class LostError(InfeedError):
    """Something elsewhere was asked for, and whether it has begun is not known: to ask again could begin it twice."""


@contextlib.contextmanager
def errors(as_json: bool, debug: bool) -> Iterator[None]:
    """Tells of bad input without a traceback, and exits with 2; with 3 for a `LostError`."""
    try:
        yield
    except InfeedError as error:
        if debug:
            raise
        if as_json:
            click.echo(json.dumps({"error": {"what": error.what, "where": error.where, "do": error.do}}))
        else:
            click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_LOST if isinstance(error, LostError) else EXIT_BAD_INPUT)


@contextlib.contextmanager
def interruptible(words: str) -> Iterator[None]:
    """Ends with 130 and `words` at Ctrl-C, and at SIGTERM too, which would else leave files and processes behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted: {words}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
