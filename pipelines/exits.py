"""How commands end: exit codes that scripts can use, and errors told without a traceback."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator

import click

from infeed.components.errors import InfeedError

EXIT_FAILED, EXIT_BAD_INPUT = 1, 2


@contextlib.contextmanager
def errors(as_json: bool, debug: bool) -> Iterator[None]:
    """Tells of bad input without a traceback, and exits with 2."""
    try:
        yield
    except InfeedError as error:
        if debug:
            raise
        if as_json:
            click.echo(json.dumps({"error": {"what": error.what, "where": error.where, "do": error.do}}))
        else:
            click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_BAD_INPUT)
