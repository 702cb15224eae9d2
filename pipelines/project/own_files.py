"""Files of a user's project that are sent to a cluster, in its image or in an archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size

# Hidden files may contain secrets. Commands write to `runs` and `rehearsals`.
_LEFT_OUT = (".*", "__pycache__", "runs", "rehearsals", "*.egg-info")
_VIRTUAL_ENVIRONMENT = "pyvenv.cfg"

Ignored = Callable[[str, list[str]], set[str]]


def ignoring(exclude: Sequence[str]) -> Ignored:
    """Return a `shutil.copytree` filter for excluded files, and for virtual environments of any name."""
    patterns = (*_LEFT_OUT, *exclude)

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {
            name
            for name in names
            if any(fnmatch(name, pattern) for pattern in patterns) or Path(folder, name, _VIRTUAL_ENVIRONMENT).exists()
        }

    return ignored


def names_of(folder: Path, ignored: Ignored) -> list[str]:
    """Return the paths of the included files below `folder`, with `/`."""
    found = []
    for name in _kept(folder, ignored):
        path = folder / name
        found += [f"{name}/{below}" for below in names_of(path, ignored)] if path.is_dir() else [name]
    return found


def check_size(folder: Path, ignored: Ignored, most_bytes: int, do: str) -> None:
    """Raise InfeedError if the included files exceed `most_bytes`.

    `{}` in the advice `do` stands for the largest entry.
    """
    sizes = {name: _bytes(folder / name, ignored) for name in _kept(folder, ignored)}
    if sum(sizes.values()) > most_bytes:
        largest = max(sizes, key=lambda name: sizes[name])
        raise InfeedError(
            f"the project has {size(sum(sizes.values()))}, too much for code; the largest entry is {largest!r} "
            f"({size(sizes[largest])})",
            where=str(folder),
            do=do.format(repr(largest)),
        )


def _kept(folder: Path, ignored: Ignored) -> Iterable[str]:
    names = os.listdir(folder)
    return sorted(set(names) - ignored(str(folder), names))


def _bytes(path: Path, ignored: Ignored) -> int:
    if path.is_dir():
        return sum(_bytes(path / name, ignored) for name in _kept(path, ignored))
    return path.stat().st_size
