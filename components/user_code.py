"""The user's own functions, named in options as `package.module:function` or `path/to/file.py:function`.

A file is loaded under a name of its own: a user's `model.py` must not hide, or be hidden by, somebody else's `model`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.components.errors import InfeedError


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
    """Finds the module without importing it, so that a typo is told before TensorFlow is loaded.

    Raises:
      InfeedError: the text has no `module:function` form, there is no such module, or it defines no such function.
    """
    module, colon, function = text.partition(":")
    if not (module and colon and function.isidentifier()):
        raise InfeedError(
            f"{text!r} does not name a function",
            where=f"option {option}",
            do='Write "package.module:function" or "path/to/file.py:function".',
        )
    reference = Reference(module, function, _source_file(module, option))
    _check_defined(reference, option)
    return reference


def load(text: str, option: str) -> Callable[..., Any]:
    """Imports the module and returns the function; errors as in `resolve`, those of the import itself as they are."""
    reference = resolve(text, option)
    module = _import_file(reference.file) if reference.is_file else importlib.import_module(reference.module)
    function = getattr(module, reference.function, None)
    if not callable(function):
        raise _not_defined(reference, option)
    return function  # type: ignore[no-any-return]


def digest(text: str, option: str) -> str:
    """A short fingerprint of the source, for cache keys: an edited function must not be served from the cache."""
    file = resolve(text, option).file
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""


def _source_file(module: str, option: str) -> str:
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise InfeedError(
                f"there is no file {module}", where=f"option {option}", do="Check the path; it is taken as it stands."
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
            do="Check the spelling, or install the package that holds it into this environment.",
        )
    return spec.origin if spec.origin and spec.origin.endswith(".py") else ""


def _check_defined(reference: Reference, option: str) -> None:
    if not reference.file:
        return
    names = _top_level_names(Path(reference.file))
    if reference.function not in names and "*" not in names:
        raise _not_defined(reference, option)


def _not_defined(reference: Reference, option: str) -> InfeedError:
    functions = sorted(_top_level_names(Path(reference.file), functions_only=True)) if reference.file else []
    return InfeedError(
        f"{reference.module} defines no function {reference.function!r}",
        where=f"option {option}",
        do=f"It defines: {', '.join(functions) or 'no function at all'}. Name one of those, or add it.",
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
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.If | ast.Try):
            names.add("*")  # defined under a condition: only the import itself can tell
    return names


def _import_file(file: str) -> Any:
    name = f"_infeed_user_{hashlib.sha256(file.encode()).hexdigest()[:12]}_{Path(file).stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, file
    assert spec.loader is not None, file  # a .py file always has one
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
