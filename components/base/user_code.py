"""A user's functions, named in options as `package.module:function` or `path/to/file.py:function`.

TFX's notation, `package.module.function`, works too. `user_modules` loads each file once in a process.

Cache keys contain a digest of the function's sources. TFX adds none for a dotted name, so TFX reuses cached results
after an edit. The digest parses imports without executing them, and does not import TensorFlow.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from infeed.components.base.errors import InfeedError
from infeed.components.base.user_modules import LIBRARIES, fingerprint, import_file, is_of_project

C = TypeVar("C")
_HERE = Path(__file__).resolve().parents[1]
# Libraries and this package, whose lines do not help a user.
_NOT_USERS = tuple(
    f"{Path(folder).resolve()}{os.sep}" for folder in (*map(Path, LIBRARIES), _HERE, _HERE.with_name("pipelines"))
)


@dataclass(frozen=True)
class Reference:
    """A `module:function`. `file` is the source of the module, or "" if it has none, like built-in modules."""

    module: str
    function: str
    file: str

    @property
    def is_file(self) -> bool:
        return self.module.endswith(".py")


def resolve(text: str, option: str) -> Reference:
    """Find the module without importing it, so that a typo fails before TensorFlow is imported.

    Raise InfeedError if the text names no function, or the module or function does not exist.
    """
    module, _, function = text.partition(":") if ":" in text else text.rpartition(".")
    if not (module and function.isidentifier()) or (function == "py" and ":" not in text):
        do = 'use "package.module:function", "package.module.function" or "path/to/file.py:function"'
        raise InfeedError(f"{text!r} does not name a function", where=f"option {option}", do=do)
    reference = Reference(module, function, _source_file(module, option))
    if reference.file:
        with translate_errors(option):
            names = _top_level_names(Path(reference.file))
        if function not in names and "*" not in names:
            raise _not_defined(reference, option)
    return reference


def load(text: str, option: str) -> Callable[..., Any]:
    """Import the module and return the function; raise InfeedError as `resolve` does, and for errors of both."""
    function = _imported(text, option)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with translate_errors(option):
            return function(*arguments, **named)

    return call


def load_class(text: str, option: str, base: type[C]) -> type[C]:
    """Import the module and return its class. Raise InfeedError as `resolve` does, or if it is not a `base`."""
    found = _imported(text, option)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InfeedError(
            f"{text} is not a {base.__name__}", where=f"option {option}", do=f"derive it from {base.__name__}"
        )
    return found


def _imported(text: str, option: str) -> Any:
    reference = resolve(text, option)
    with translate_errors(option):
        module = import_file(reference.file) if reference.is_file else importlib.import_module(reference.module)
    found = getattr(module, reference.function, None)
    if not callable(found):
        raise _not_defined(reference, option)
    return found


def name_of(function: Any, where: str = "a user's function") -> str:
    """Return the name of a function or class, by which another process can import it: `module:name` or `file:name`.

    Raise InfeedError if another process cannot import it: a local function, a method, or one in the main script.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module and is_of_project(module):
        module = sys.modules[module].__file__
    if not callable(function) or not name.isidentifier() or module in (None, "__main__"):
        do = 'define it at the top level of a module or file, and name it "path/to/file.py:function"'
        raise InfeedError(f"{function!r} cannot be imported by name", where=where, do=do)
    return f"{module}:{name}"


def digest(text: str, option: str) -> str:
    """Return a short digest of the function's sources for cache keys, or "" for a function without sources.

    The sources are its file and the files of its project that it imports.
    """
    reference = resolve(text, option)
    return fingerprint(Path(reference.file), reference.module) if reference.file else ""


@contextmanager
def translate_errors(option: str = "") -> Iterator[None]:
    """Convert an exception of a user's file in the body to an InfeedError with the file, the line and the message.

    `sys.exit` is converted too, because it would end the run with the user's exit code. So is a KeyboardInterrupt that
    the user's code raises. Ctrl-C stays a KeyboardInterrupt.
    """
    try:
        yield
    except InfeedError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        place = _place(error)
        if place is None or (isinstance(error, KeyboardInterrupt) and not _is_raised_by_user(error)):
            raise
        do = "correct the code there"
        raise InfeedError(_words(error), where=f"{place}, option {option}" if option else place, do=do) from error


def _is_raised_by_user(error: BaseException) -> bool:
    *_, last = traceback.extract_tb(error.__traceback__)
    return _is_users(last.filename) and (last.line or "").startswith("raise")


def _place(error: BaseException) -> str | None:
    """Return the innermost place in a user's file, such as `model.py, line 7, in build_model: "x = y"`."""
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return f"{error.filename}, line {error.lineno}: {(error.text or '').strip()!r}"
    if converted := _autograph(error):  # the frames of the error itself are in a file of AutoGraph
        frames = [traceback.FrameSummary(f.filename, f.lineno, f.function_name) for f in converted.translated_stack]
        return users_line(frames[::-1])
    return users_line(traceback.extract_tb(error.__traceback__))


def _words(error: BaseException) -> str:
    if converted := _autograph(error):
        return str(converted.cause_message).strip()
    words = str(error).strip()
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _autograph(error: BaseException) -> Any:
    """Return AutoGraph's note about an error in converted code. None for other errors."""
    links = (error, error.__context__)
    return next(filter(None, (getattr(one, "ag_error_metadata", None) for one in links)), None)


def users_line(frames: Sequence[Any]) -> str | None:
    """Return the innermost frame in a user's file, such as `model.py, line 7, in build_model: "x = y"`."""
    for frame in reversed(frames):
        if _is_users(frame.filename):
            # TensorFlow's frames have no line.
            line = frame.line or linecache.getline(frame.filename, frame.lineno).strip()
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {line!r}"
    return None


def _is_users(file: str) -> bool:
    """Return whether a file belongs to a user's project, not to a library or this package."""
    path = os.path.realpath(file)
    return os.path.isfile(path) and not path.startswith(_NOT_USERS)


def _source_file(module: str, option: str) -> str:
    if module.endswith(".py") or "/" in module:
        if not Path(module).is_file():
            do = "check the path, which is relative to the current folder"
            raise InfeedError(f"there is no file {module}", where=f"option {option}", do=do)
        if not module.endswith(".py"):
            raise InfeedError(f"{module} does not end in .py", where=f"option {option}", do="rename the file")
        return str(Path(module).resolve())
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        do = "check the spelling, or install its package in this environment"
        raise InfeedError(f"there is no module {module!r}", where=f"option {option}", do=do)
    return spec.origin if spec.origin and spec.origin.endswith(".py") else ""


def _not_defined(reference: Reference, option: str) -> InfeedError:
    names = _top_level_names(Path(reference.file), functions_only=True) if reference.file else ()
    functions = sorted(name for name in names if not name.startswith("_"))
    what = f"{reference.module} defines no function {reference.function!r}"
    do = f"add it, or use one of {', '.join(functions)}" if functions else "add it"
    return InfeedError(what, where=f"option {option}", do=do)


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
            names.add("*")  # defined conditionally, which only importing can resolve
    return names
