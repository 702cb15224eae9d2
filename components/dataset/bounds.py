"""Check that links in a data folder do not lead to files outside the folder."""

from __future__ import annotations

import os
import posixpath

from infeed.components.errors import InfeedError

_FILE = "file://"
ALLOW = "allow_outside (--allow-outside)"


class FolderBounds:
    """The bounds of a data folder, local or of a store. The folder may be a link, because the user named it."""

    def __init__(self, root: str, *, allow: bool = False) -> None:
        self._allow = allow
        self._is_local = _is_local(root)
        self._root = os.path.realpath(root.removeprefix(_FILE)) if self._is_local else root.rstrip("/")
        self._folders: dict[str, str] = {}  # folder -> real path, cached because few folders hold many files

    def outside(self, path: str) -> str:
        """Return the real path of `path` if it is outside the folder and not allowed, or ""."""
        if self._allow:
            return ""
        if not self._is_local:
            scheme, sign, inner = path.partition("://")
            place = f"{scheme}{sign}{posixpath.normpath(inner)}" if sign else path
        elif not _is_local(path):
            place = path
        else:
            folder, name = os.path.split(path.removeprefix(_FILE))
            if folder not in self._folders:
                self._folders[folder] = os.path.realpath(folder)
            place = os.path.join(self._folders[folder], name)
            place = os.path.realpath(place) if os.path.islink(place) or name in ("..", ".") else place
        return "" if place.startswith(self._root.rstrip("/") + "/") else place

    def check(self, path: str, allow: str = f"trust the folder: {ALLOW}") -> None:
        """Raise InfeedError if a path leads outside the folder. `allow` is the remedy that permits reading the file."""
        if place := self.outside(path):
            do = f"replace the link by the file, remove the link, or {allow}"
            raise InfeedError(f"the link leads out of the data folder, to {place!r}", where=path, do=do)


def _is_local(path: str) -> bool:
    return "://" not in path or path.startswith(_FILE)
