"""Values as text for people: numbers of three significant digits with a unit, escaped text, names that differ.

`rich.filesize` is similar, but prints a decimal for large numbers (`160.0 MB`). Only the command line may depend on
rich.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def percent(fraction: float) -> str:
    """Format a share: 0.343 -> "34 %". Values near 0 and near 1 have one decimal: 0.9965 -> "99.6 %"."""
    value = 100 * fraction
    if 99.5 <= value < 100:
        return f"{math.floor(10 * value) / 10:.1f} %"
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"


def points(fraction: float) -> str:
    """Format a share as percentage points, rounded up: 0.03 -> "3", 0.0451 -> "5"."""
    return f"{math.ceil(round(100 * fraction, 6))}"


def times(factor: float) -> str:
    """Format a factor: 1.0134 -> "1.01 times", 2.38 -> "2.4 times", 10.2 -> "10 times"."""
    decimals = 2 if factor < 2 else 1 if factor < 9.95 else 0
    return f"{factor:.{decimals}f} times"


def seconds(value: float) -> str:
    """Format a duration: 0.0021 -> "2.1 ms", 1.23 -> "1.2 s", 754 -> "12 min 34 s"."""
    if value < 0.9995:
        return f"{1000 * value:.1f} ms" if value < 0.00995 else f"{1000 * value:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def seconds_left(value: float) -> str:
    """Format an estimate of the remaining time, rounded: 4.2 -> "4 s left", 754 -> "13 min left"."""
    if value < 90:
        return f"{math.ceil(value)} s left"
    hours, minutes = divmod(math.ceil(value / 60), 60)
    return f"{hours} h {minutes} min left" if hours else f"{minutes} min left"


def stopwatch(value: float) -> str:
    """Format the time of a running clock: 0.04 -> "0.0 s", 1.93 -> "1.9 s", 125 -> "2 min 05 s"."""
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60):02} s"


def size(count: float) -> str:
    """Format bytes in powers of 1,000: 1234567 -> "1.2 MB"."""
    value = float(count)
    for unit in _DECIMAL_UNITS:
        if value < 999.5 or unit == _DECIMAL_UNITS[-1]:
            break
        value /= 1000
    return f"{value:.1f} {unit}" if unit != "B" and value < 9.95 else f"{value:.0f} {unit}"


def number(value: float) -> str:
    """Format a number or rate: 133009.4 -> "133,009". Small values have one decimal: 3.21 -> "3.2"."""
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def significant(value: float | None) -> str:
    """Format four significant digits, or all digits before the point: 22374.2 -> "22,374", 0.93421 -> "0.9342"."""
    if value is None or math.isnan(value):
        return "unknown"
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e15 else f"{value:.4g}"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: 1, "epoch" -> "1 epoch"; 2, "batch" -> "2 batches"; 1200, "row" -> "1,200 rows"."""
    plural = "" if count == 1 else "es" if noun.endswith(("tch", "ss")) else "s"
    return f"{count:,} {noun}{plural}"


def listed(items: list[str] | tuple[str, ...]) -> str:
    """Join words as a list: ["read", "parse", "augment"] -> "read, parse and augment"."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def short_path(path: str | Path) -> str:
    """Return the path relative to the working directory if that is shorter."""
    if "://" in str(path):
        return str(path)
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


# Control characters except tab and newline, marks of text direction, and surrogates, which represent the bytes of file
# names that are not UTF-8.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    r"""Escape the control characters of a text as Python does, for example `\x1b[2J`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    r"""Escape line breaks and tabs as well, for a cell of a table or a name within a sentence."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


class UniqueNames:
    """Makes names unique by numbering repeated ones: `A`, then `a_2`. Time is linear in the number of names."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # folded name -> last number

    def take(self, wanted: str) -> str:
        """Return `wanted`, `wanted_2`, `wanted_3`, and so on: the first unused name."""
        key, name = _folded(wanted), wanted
        while _folded(name) in self._taken:
            self._numbers[key] = number = self._numbers.get(key, 1) + 1
            name = f"{wanted}_{number}"
        self._taken.add(_folded(name))
        return name


def _folded(name: str) -> str:
    """Return a key that is equal for names that some file system treats as equal."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def like(name: str) -> str:
    """Return a key that is equal for names that people take for one: in case, outer spaces and forms of Unicode."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().casefold())


def told_apart(names: Iterable[str]) -> list[str]:
    """Quote names that are `like` each other so that their difference shows, with escapes if they look the same."""
    names = list(names)
    looks = {unicodedata.normalize("NFC", name) for name in names}
    return [ascii(name) if len(looks) < len(names) else repr(name) for name in names]
