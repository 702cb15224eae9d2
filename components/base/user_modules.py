"""Isolated import of a user's project, whose files import each other by plain names.

The files below a folder form a package named `infeed_project_` plus a digest of the folder's path. A process loads
each file once, even if several options name its functions. If a file changes, the whole project is reloaded.

Inside a project, `import helpers` finds the project's `helpers.py` before an installed `helpers`. Outside, a project's
`rich.py` hides nothing: Keras still imports the installed `rich`.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

# Resolved, because the folders of an environment are often links and the paths of sources are resolved too.
LIBRARIES = frozenset(
    os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)
_lock = threading.RLock()


def import_file(file: str) -> ModuleType:
    """Return the module of a file. Load the file if it is new or its project has changed."""
    path = Path(file)
    with _lock:
        home = _home(path, file)
        package = f"infeed_project_{hashlib.sha256(str(home).encode()).hexdigest()[:12]}"
        project = _projects.setdefault(package, _Project(home, package))
        project.folders += [folder for folder in _folders(path, home) if folder not in project.folders]
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        project.forget_if_changed()
        importlib.invalidate_caches()  # finds files written a moment ago
        return importlib.import_module(project.name_of(path))


def is_of_project(module: str) -> bool:
    """Return whether a module belongs to a project. Other processes cannot import such a module by name."""
    return module.partition(".")[0] in _projects


def fingerprint(file: Path, module: str) -> str:
    """Return 16 hexadecimal digits of the names and bytes of `own_sources`, independent of the project's folder."""
    home, sources = _home(file, module), hashlib.sha256()
    for source in sorted(own_sources(file, module)):
        sources.update(f"{source.relative_to(home)} {_digest(source)}\n".encode())
    return sources.hexdigest()[:16]


def own_sources(file: Path, module: str) -> set[Path]:
    """Return the file and all files of its project that it imports, directly or indirectly, without executing them.

    `file`, an absolute path, is the source of `module`, "package.module" or a path. Only files below the import root
    of `module` count. For an installed library, only files of the package count.
    """
    home = _home(file, module)
    folders = _folders(file, home) if module.endswith(".py") else [home]
    package = file.relative_to(home).parts[0] if os.path.realpath(home) in LIBRARIES else None
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            imported = _imported(source, home, folders)
            waiting += [one for one in imported if package in (None, one.relative_to(home).parts[0])]
    return found


@dataclass
class _Project:
    """A folder from which options import files."""

    home: Path  # folder that module names are relative to
    package: str  # name of the package for `home`
    # `home` and the folders of named files. Absolute imports search here first.
    folders: list[Path] = field(default_factory=list)
    named: dict[str, Path] = field(default_factory=dict)  # files that options name, by module
    loaded: dict[str, tuple[Path, str]] = field(default_factory=dict)  # path and digest of each loaded file, by module

    def name_of(self, file: Path) -> str:
        *parts, last = file.relative_to(self.home).with_suffix("").parts
        name = ".".join([self.package, *parts, last.replace(".", "_")])
        self.named[name] = file
        return name

    def forget_if_changed(self) -> None:
        if all(file.exists() and _digest(file) == digest for file, digest in self.loaded.values()):
            return
        # Remove all modules: an unchanged one holds objects of the changed one that it imported.
        for name in [name for name in sys.modules if name.startswith(f"{self.package}.")]:
            del sys.modules[name]
        self.loaded.clear()

    def find(self, name: str) -> str | None:
        """Return the full name of a top-level module or package of the project, or None."""
        for folder in self.folders:
            place = folder / name
            is_module = place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()
            # As in Python, a folder without __init__.py is a package only if no other module has the name.
            if is_module or (any(place.glob("*.py")) and importlib.util.find_spec(name) is None):
                return ".".join([self.package, *folder.relative_to(self.home).parts, name])
        return None


_projects: dict[str, _Project] = {}


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in _projects:
            return None
        project = _projects[package]
        if fullname == package:
            spec = ModuleSpec(package, None, is_package=True)
            spec.submodule_search_locations = [str(project.home)]
            return spec
        # A file that an option names may have a name that no import finds, such as `my-model.v1.py`.
        if fullname in project.named:
            loader = _Loader(fullname, str(project.named[fullname]), project)
            return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)
        found = PathFinder.find_spec(fullname, path, target)
        if found and found.origin and isinstance(found.loader, SourceFileLoader):
            found.loader = _Loader(fullname, found.origin, project)
        return found


class _Loader(SourceFileLoader):
    """Loader that executes a file of a project, whose `import` statements search the project first.

    Bytecode is neither read nor written: if a file is edited twice within a second, Python uses stale bytecode.
    """

    def __init__(self, fullname: str, path: str, project: _Project) -> None:
        super().__init__(fullname, path)
        self._project = project

    def get_code(self, fullname: str) -> CodeType:
        self._project.loaded[fullname] = (Path(self.path), _digest(Path(self.path)))
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": partial(_import, self._project)}
        super().exec_module(module)


def _import(
    project: _Project,
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Replace `__import__` inside a project (https://docs.python.org/3/library/functions.html#import__)."""
    first, dot, rest = name.partition(".")
    top = project.find(first) if level == 0 else None
    if top is None:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    module = builtins.__import__(top + dot + rest, globals, locals, fromlist or ("",), 0)
    return module if fromlist else sys.modules[top]


def _home(file: Path, module: str) -> Path:
    """Return the import root of a module. For a file: the first parent folder that is not a package."""
    if not module.endswith(".py"):
        return file.parents[module.count(".") + (file.name == "__init__.py")]
    home = file.parent
    while (home / "__init__.py").exists() and home.name.isidentifier():
        home = home.parent
    return home


def _folders(file: Path, home: Path) -> list[Path]:
    """Return the folders that absolute imports of a named file search: the folder of the file, then `home`."""
    return list(dict.fromkeys([file.parent, home]))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _imported(source: Path, home: Path, folders: Sequence[Path]) -> Iterator[Path]:
    try:
        tree = ast.parse(source.read_bytes(), str(source))
    except SyntaxError:  # importing the file will report the error
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _first(folders, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            bases = [source.parents[node.level - 1]] if node.level else folders
            names = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _first([base for base in bases if base.is_relative_to(home)], [*names, alias.name])


def _first(bases: Sequence[Path], names: list[str]) -> list[Path]:
    """Return the files that an import executes, in the first folder that contains the module."""
    for base in bases:
        paths = [base.joinpath(*names[:depth]) for depth in range(1, len(names) + 1)]
        found = [one for path in paths for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()]
        if found:
            return found
    return []
