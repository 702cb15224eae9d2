"""Click types for paths. `Command` checks all given paths first.

The command itself reports a missing input, because only the command knows what to expect.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.kubeflow import disk


class InputPath(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click
    """Input: a file, folder, pattern or URI, or a table or query of a database."""

    name = "path"
    completed = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete the path."""
        return [CompletionItem(incomplete, type=self.completed)]

    def check(self, path: str, where: str) -> None:
        """Raise InfeedError if a command cannot use `path`. `where` is the location in the error."""
        if not path or "\0" in path:
            what = "the path contains a NUL character" if path else "the path is empty"
            raise InfeedError(what, where=where, do="use a file or a folder")
        files.refuse_password(path)


class InputFolder(InputPath):
    """Local folder to read."""

    completed = "dir"

    def check(self, path: str, where: str) -> None:
        super().check(path, where)
        if not os.path.isdir(path):
            what = "a file, not a folder" if os.path.exists(path) else "there is no such folder"
            raise InfeedError(what, where=where, do="use a folder")


class OutputPath(InputPath):
    """File or folder to write. Missing parent folders are created."""

    replaced: tuple[str, ...] = ("a file", "a folder")

    def check(self, path: str, where: str) -> None:
        super().check(path, where)
        if "://" in path:
            return
        if os.path.lexists(path) and (kind := _kind(path)) not in self.replaced:
            raise InfeedError(f"{kind} is there", where=where, do=f"name {' or '.join(self.replaced)}")
        _check_writable(*os.path.split(os.path.abspath(path)), where=where)


class OutputFile(OutputPath):
    """File to write."""

    replaced = ("a file",)


class OutputFolder(InputPath):
    """Folder to write to. Created if missing."""

    completed = "dir"

    def check(self, path: str, where: str) -> None:
        super().check(path, where)
        if "://" not in path:
            _check_writable(os.path.abspath(path), where=where)


class ServingFolder(InputPath):
    """Folder of pushed models, local or in a store. The first push creates it."""

    completed = "dir"

    def check(self, path: str, where: str) -> None:
        super().check(path, where)
        if "://" not in path:
            _check_possible(os.path.abspath(path), where=where)


class MappedFolder(OutputFolder):
    """Existing folder in `gs://bucket=FOLDER`."""

    def check(self, path: str, where: str) -> None:
        place, _, folder = path.partition("=")
        folder = folder or place
        super().check(folder, where)
        if "://" not in folder and not os.path.isdir(folder):
            do = f"create it with the bucket's data: mkdir {folder}"
            raise InfeedError(f"the folder {folder!r} does not exist", where=where, do=do)


def check_paths(parameters: Iterable[click.Parameter], context: click.Context) -> None:
    """Check the given paths of a command. Defaults are checked on use.

    In a Kubeflow step, local inputs are artifacts that the launcher has downloaded. Raises InfeedError if a path
    cannot be read or written, or the inputs exceed the step's limit of the pod's disk.
    """
    here = []
    for parameter in parameters:
        name = parameter.name or ""
        given = context.params.get(name)
        by_default = context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT
        if given is None or by_default or not isinstance(parameter.type, InputPath):
            continue
        title = parameter.opts[0] if isinstance(parameter, click.Option) else name.upper()
        for path in given if isinstance(given, tuple) else (given,):
            parameter.type.check(path, f"{title} {path}" if path else title)
            # The data is in a store or on a volume.
            is_artifact = name != "data" and type(parameter.type) in (InputPath, InputFolder)
            here += [path] if is_artifact and os.path.exists(path) else []
    disk.check_inputs(here, disk.limit_of())


def _check_writable(folder: str, *below: str, where: str) -> None:
    """Write a temporary file into `folder` or its nearest parent, because permission bits are not conclusive."""
    there = _check_possible(folder, *below, where=where)
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        do = "use another place, or change the permissions"
        raise InfeedError(f"cannot write in {there!r}: {error.strerror}", where=where, do=do) from error


def _check_possible(folder: str, *below: str, where: str) -> str:
    """Return `folder` or its nearest existing parent, and check that the remaining names are valid there."""
    there, missing = folder, [*below]
    while not os.path.lexists(there) and there != "/":
        there, name = os.path.split(there)
        missing.append(name)
    if not os.path.isdir(there):
        raise InfeedError(f"{there!r} is {_kind(there)}, not a folder", where=where, do="use another place")
    try:
        with contextlib.suppress(FileNotFoundError):  # raises OSError if the path is too long
            os.lstat(os.path.join(folder, *below))
    except OSError as error:
        raise InfeedError(f"{folder!r}: {error.strerror}", where=where, do="use another place") from error
    longest = os.pathconf(there, "PC_NAME_MAX") if missing else 0
    for encoded in map(os.fsencode, missing):
        if len(encoded) > longest:
            what = f"a name has {len(encoded)} bytes, more than {longest}"
            raise InfeedError(what, where=where, do="use a shorter name")
        try:
            encoded.decode()
        except UnicodeDecodeError as error:
            raise InfeedError(f"a name is not UTF-8: {encoded!r}", where=where, do="use another name") from error
    return there


def _kind(path: str) -> str:
    if os.path.isdir(path):
        return "a folder"
    if os.path.isfile(path):
        return "a file"
    return "a device or a pipe" if os.path.exists(path) else "a dangling link"
