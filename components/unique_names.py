"""Names that stay apart where case does not count: in TensorFlow's graphs, and in the files of macOS and Windows."""

from __future__ import annotations

import unicodedata


class UniqueNames:
    """Gives out names, and numbers the ones that are taken: `A`, then `a_2`. Time is linear in the names."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # folded name -> last number that it was given

    def take(self, wanted: str) -> str:
        """`wanted`, or `wanted_2`, `wanted_3` and so on: the first that is free."""
        key, name = _folded(wanted), wanted
        while _folded(name) in self._taken:
            self._numbers[key] = number = self._numbers.get(key, 1) + 1
            name = f"{wanted}_{number}"
        self._taken.add(_folded(name))
        return name


def _folded(name: str) -> str:
    """Equal for names that a file system may take for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
