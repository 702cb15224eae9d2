"""A user's own functions, named in options as `package.module:function` or `path/to/file.py:function`.

`package.module.function`, as TFX writes it, names one as well. `user_modules` loads files, each once a process.

Sources make the digest that a function gets in cache keys. TFX gives a dotted function none at all: its pipelines go on
with the cached result of a source that has been edited since. Imports are read, not executed, so that TensorFlow is not
loaded for it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import linecache
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.components.errors import InfeedError
from infeed.components.user_modules import LIBRARIES, fingerprint, import_file

_HERE = Path(__file__).resolve().parent
# Whose lines tell a user nothing: libraries, and this package itself.
_NOT_USERS = tuple(
    f"{Path(folder).resolve()}{os.sep}" for folder in (*map(Path, LIBRARIES), _HERE, _HERE.with_name("pipelines"))
)


@dataclass(frozen=True)
class Reference:
    """`module:function`; `file` is where the module's source is, empty where it has none (a built-in)."""

    module: str
    function: str
    file: str

    @property
    def is_file(self) -> bool:
        return self.module.endswith(".py")


def resolve(text: str, option: str) -> Reference:
    """Finds the module without importing it, so that a typo fails before TensorFlow is loaded.

    Raises:
      InfeedError: the text names no function, there is no such module, or it defines no such function.
    """
    module, function = _parts(text)
    if not (module and function.isidentifier()) or (function == "py" and ":" not in text):
        raise InfeedError(
            f"{text!r} does not name a function",
            where=f"option {option}",
            do='write "package.module:function", "package.module.function" or "path/to/file.py:function"',
        )
    reference = Reference(module, function, _source_file(module, option))
    _check_defined(reference, option)
    return reference


def load(text: str, option: str) -> Callable[..., Any]:
    """Imports the module and returns the function. Its errors, like those of the import, are translated.

    Raises:
      InfeedError: as `resolve`, or the import fails.
    """
    reference = resolve(text, option)
    with translate_errors(option):
        module = import_file(reference.file) if reference.is_file else importlib.import_module(reference.module)
    function = getattr(module, reference.function, None)
    if not callable(function):
        raise _not_defined(reference, option)
    return _telling(function, option)


def digest(text: str, option: str) -> str:
    """A short fingerprint of the function's sources, for cache keys: what is edited must not be served from the cache.

    Its sources are its file and those of the same project that it imports; it is empty for a function without any.
    """
    reference = resolve(text, option)
    return fingerprint(Path(reference.file), reference.module) if reference.file else ""


@contextmanager
def translate_errors(option: str = "") -> Iterator[None]:
    """Report an exception that goes through a user's file by the file, the line and the exception's own words.

    `sys.exit` would end a run with a code of the user's choice, as if the run were done, so it counts as an exception.
    So does a KeyboardInterrupt that a line of the user raises; the one of Ctrl-C goes on.

    Raises:
      InfeedError: in place of any exception that went through such a file.
    """
    try:
        yield
    except InfeedError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        place = _place(error)
        if place is None or (isinstance(error, KeyboardInterrupt) and not _is_raised_by_user(error)):
            raise
        words = str(error).strip()
        raise InfeedError(
            f"{type(error).__name__}: {words}" if words else type(error).__name__,
            where=f"{place}, option {option}" if option else place,
            do="mend it there",
        ) from error


def _is_raised_by_user(error: BaseException) -> bool:
    *_, last = traceback.extract_tb(error.__traceback__)
    return _is_users(last.filename) and (last.line or "").startswith("raise")


def _telling(function: Callable[..., Any], option: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with translate_errors(option):
            return function(*arguments, **named)

    return call


def _place(error: BaseException) -> str | None:
    """`model.py, line 7, in build_model: "x = y"`: the innermost place in a file of the user's."""
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return f"{error.filename}, line {error.lineno}: {(error.text or '').strip()!r}"
    return users_line(traceback.extract_tb(error.__traceback__))


def users_line(frames: Sequence[Any]) -> str | None:
    """`model.py, line 7, in build_model: "x = y"`: the innermost of some frames that is in a file of the user's."""
    for frame in reversed(frames):
        if _is_users(frame.filename):
            line = frame.line or linecache.getline(frame.filename, frame.lineno).strip()  # TensorFlow's frames lack it
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {line!r}"
    return None


def _is_users(file: str) -> bool:
    """Whether somebody's project holds the file, neither a library nor this package."""
    path = os.path.realpath(file)
    return os.path.isfile(path) and not path.startswith(_NOT_USERS)


def _parts(text: str) -> tuple[str, str]:
    module, _, function = text.partition(":") if ":" in text else text.rpartition(".")
    return module, function


def _source_file(module: str, option: str) -> str:
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise InfeedError(
                f"there is no file {module}", where=f"option {option}", do="check the path; it is taken as it stands"
            )
        return str(Path(module).resolve())
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise InfeedError(
            f"there is no module {module!r}",
            where=f"option {option}",
            do="check the spelling, or install the package that holds it into this environment",
        )
    return spec.origin if spec.origin and spec.origin.endswith(".py") else ""


def _check_defined(reference: Reference, option: str) -> None:
    if not reference.file:
        return
    with translate_errors(option):
        names = _top_level_names(Path(reference.file))
    if reference.function not in names and "*" not in names:
        raise _not_defined(reference, option)


def _not_defined(reference: Reference, option: str) -> InfeedError:
    functions = sorted(_top_level_names(Path(reference.file), functions_only=True)) if reference.file else []
    return InfeedError(
        f"{reference.module} defines no function {reference.function!r}",
        where=f"option {option}",
        do=f"name one that it defines, or add it; it defines {', '.join(functions) or 'no function at all'}",
    )


def _top_level_names(file: Path, *, functions_only: bool = False) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(file.read_bytes(), str(file)).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif functions_only:
            continue
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            names.add("*")  # defined under a condition: only the import itself can tell
    return names
