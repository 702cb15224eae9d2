"""Check for paths outside a data folder: paths named by the data, and links.

Links are followed, as in TFX, tf.data and torchvision, because the owner of the folder made them. Data from others,
such as a list of images, may name only paths inside the folder.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable

from infeed.components.base.errors import InfeedError

_FILE = "file://"
ALLOW = "allow_outside (--allow-outside)"


class FolderBounds:
    """Bounds of a data folder, local or in an object store, for the paths that its data name."""

    def __init__(self, root: str, *, allow: bool = False) -> None:
        self._allow = allow
        self._roots = tuple(f"{one(root).rstrip('/')}/" for one in (_absolute, _real))

    def outside(self, path: str) -> str:
        """Return the absolute form of a forbidden path outside the folder, or "". Links count as inside."""
        # Behind a link, `..` is the folder that holds the link's target.
        place = (_real if ".." in path.split("/") else _absolute)(path)
        return "" if self._allow or place.startswith(self._roots) else place

    def check(self, path: str) -> None:
        """Raise InfeedError if a path is outside the folder."""
        if place := self.outside(path):
            do = f"move the file into the folder, or trust its data: {ALLOW}"
            raise InfeedError(f"the path leads out of the data folder, to {place!r}", where=path, do=do)


def count_leading_out(root: str, paths: Iterable[str]) -> int:
    """Return how many local paths below `root` are links to files outside `root`. 0 in an object store."""
    if not _is_local(root):
        return 0
    below = f"{_real(root).rstrip('/')}/"
    real: dict[str, str] = {}  # folder -> real path, cached because few folders hold many files

    def leads_out(path: str) -> bool:
        folder, name = os.path.split(path.removeprefix(_FILE))
        if folder not in real:
            real[folder] = os.path.realpath(folder)
        place = os.path.join(real[folder], name)
        return not (os.path.realpath(place) if os.path.islink(place) else place).startswith(below)

    return sum(map(leads_out, paths))


def _absolute(path: str) -> str:
    if _is_local(path):
        return os.path.abspath(path.removeprefix(_FILE))
    scheme, sign, inner = path.partition("://")
    return f"{scheme}{sign}{posixpath.normpath(inner)}"


def _real(path: str) -> str:
    """Return an absolute path without links."""
    return os.path.realpath(path.removeprefix(_FILE)) if _is_local(path) else _absolute(path)


def _is_local(path: str) -> bool:
    return "://" not in path or path.startswith(_FILE)
