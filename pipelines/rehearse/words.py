"""What a step that failed has to say, found in its log."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from infeed.components.errors import InfeedError

_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (.*)$")


def exit_in_words(status: int, log: Path, begun: int) -> str:
    """How a process ended, and of what: the last of our own errors, which others wrap, else the last that it named.

    Args:
      begun: where the output of the process begins in the log.
    """
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    with log.open("rb") as file:
        file.seek(begun)
        lines = file.read().decode(errors="replace").splitlines()
    named = [found for found in map(_ERROR.match, lines) if found]
    ours = [found for found in named if found[1] == InfeedError.__name__]
    return f"{(ours or named)[-1][1]}: {(ours or named)[-1][2]} ({how})" if named else how


def last_lines(log: Path, count: int = 15) -> list[str]:
    """The end of a log, long lines cut."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [line if len(line) <= 300 else f"{line[:300]} ..." for line in lines[-count:]]
