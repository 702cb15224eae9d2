"""Click types of the paths that commands take; `Command` checks the given ones before it does anything else.

What is missing at a path that is read, the command itself reports: it knows what it looks for there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable

import click

from infeed.components.errors import InfeedError


class InputPath(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click
    """A file, a folder, a pattern or a URI to read; of a database a table or a query."""

    name = "path"

    def check(self, path: str, where: str) -> None:
        """Raise InfeedError if a command cannot use `path`; `where` names the path for the error."""
        if not path or "\0" in path:
            what = "the path has a NUL character" if path else "the path is empty"
            raise InfeedError(what, where=where, do="name a file or a folder")


class InputFolder(InputPath):
    """A folder of this machine to read."""

    def check(self, path: str, where: str) -> None:
        super().check(path, where)
        if not os.path.isdir(path):
            what = "a file, not a folder" if os.path.exists(path) else "there is no such folder"
            raise InfeedError(what, where=where, do="name a folder")


class OutputPath(InputPath):
    """A file or a folder to write; missing folders above it are created."""

    replaced: tuple[str, ...] = ("a file", "a folder")

    def check(self, path: str, where: str) -> None:
        super().check(path, where)
        if "://" in path:
            return
        if os.path.lexists(path) and (kind := _kind(path)) not in self.replaced:
            raise InfeedError(f"{kind} is there", where=where, do=f"name {' or '.join(self.replaced)}")
        _check_writable(*os.path.split(os.path.abspath(path)), where=where)


class OutputFile(OutputPath):
    """A file to write."""

    replaced = ("a file",)


class OutputFolder(InputPath):
    """A folder to write to, created if it is missing."""

    def check(self, path: str, where: str) -> None:
        super().check(path, where)
        if "://" not in path:
            _check_writable(os.path.abspath(path), where=where)


class MappedFolder(OutputFolder):
    """The folder in `gs://bucket=FOLDER`."""

    def check(self, path: str, where: str) -> None:
        place, _, folder = path.partition("=")
        super().check(folder or place, where)


def check_paths(parameters: Iterable[click.Parameter], context: click.Context) -> None:
    """Check the paths that a command was given; a default is checked where it is used.

    Raises:
      InfeedError: one of them cannot be read or written.
    """
    for parameter in parameters:
        name = parameter.name or ""
        given = context.params.get(name)
        by_default = context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT
        if given is None or by_default or not isinstance(parameter.type, InputPath):
            continue
        title = parameter.opts[0] if isinstance(parameter, click.Option) else name.upper()
        for path in given if isinstance(given, tuple) else (given,):
            parameter.type.check(path, f"{title} {path}" if path else title)


def _check_writable(folder: str, *below: str, where: str) -> None:
    """Write a nameless file where `folder` is or will be, since root may have the permission and still be refused.

    Args:
      below: names in the folder that will be created.

    Raises:
      InfeedError: the system refuses, a name is too long or not UTF-8, or no folder can be there.
    """
    there, missing = folder, [*below]
    while not os.path.lexists(there) and there != "/":
        there, name = os.path.split(there)
        missing.append(name)
    if not os.path.isdir(there):
        raise InfeedError(f"{there!r} is {_kind(there)}, not a folder", where=where, do="name another place")
    try:
        with contextlib.suppress(FileNotFoundError):  # of a path that is too long, it says so
            os.lstat(os.path.join(folder, *below))
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        do = "name another place, or change the permissions"
        raise InfeedError(f"cannot write in {there!r}: {error.strerror}", where=where, do=do) from error
    for name in missing:
        _check_name(name, os.pathconf(there, "PC_NAME_MAX"), where)


def _check_name(name: str, longest: int, where: str) -> None:
    encoded = os.fsencode(name)
    if len(encoded) > longest:
        raise InfeedError(f"a name of {len(encoded)} bytes, more than {longest}", where=where, do="give a shorter name")
    try:
        encoded.decode()
    except UnicodeDecodeError as error:
        raise InfeedError(f"a name that is not UTF-8: {encoded!r}", where=where, do="give another name") from error


def _kind(path: str) -> str:
    if os.path.isdir(path):
        return "a folder"
    if os.path.isfile(path):
        return "a file"
    return "a device or a pipe" if os.path.exists(path) else "a link that leads nowhere"
