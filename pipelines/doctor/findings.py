"""What `infeed doctor` finds: one `Finding` a fact, from checks of which none can stop the others."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

# What the finding is needed for; the order in which they are shown.
Purpose = Literal["run", "compile", "build", "submit", "image"]


class Level(enum.Enum):
    """How much it matters."""

    OK = "OK"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One fact about this machine.

    Attributes:
      purpose: what it is needed for.
      name: what was looked at.
      found: in words, with versions or sizes; never a secret.
      level: a problem keeps its purpose from working, a warning only may.
      do: what the user can do about it; empty where all is well.
    """

    purpose: Purpose
    name: str
    found: str
    level: Level = Level.OK
    do: str = ""


Check = Callable[[], Iterable[Finding]]


def examine(checks: Sequence[tuple[Purpose, Check]]) -> list[Finding]:
    """Runs all checks side by side, since some wait for other programs; the findings are in the order of the checks."""
    with ThreadPoolExecutor(max_workers=max(1, len(checks))) as pool:
        return [finding for findings in pool.map(lambda check: _survive(*check), checks) for finding in findings]


def _survive(purpose: Purpose, check: Check) -> list[Finding]:
    try:
        return list(check())
    except Exception as error:  # whatever it is: the other checks are worth having
        name = getattr(check, "__name__", purpose).replace("_", " ")
        return [Finding(purpose, name, f"{type(error).__name__}: {error}", Level.PROBLEM, "Report this as a bug.")]
