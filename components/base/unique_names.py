"""Names that differ by more than case, as TensorFlow graphs and the file systems of macOS and Windows require."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


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
