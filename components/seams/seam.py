"""Features of this package that depend on private names of another package, and calls after its import."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from infeed.components.base.errors import InfeedError

_NAME = re.compile(r"(?P<module>[\w.]+):(?P<path>[\w.]+)(\((?P<parameters>.*)\)|@(?P<attribute>\w+))?")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seam:
    """Private names of a package, and the fallback if a version does not have them.

    A name is `module:name`, `module:function(its, first, parameters)`, or `module:Class@attribute` for an attribute
    that the constructor sets.
    """

    package: str  # distribution that has the names
    need: str  # feature that uses the names, a noun phrase
    names: tuple[str, ...]
    versions: tuple[str, ...]  # versions of the package in which the names were checked
    instead: str  # fallback, or consequence, if a name is missing

    def available(self) -> str | None:
        """Return why the names cannot be used; None if they can."""
        reason = next(filter(None, map(_missing, self.names)), None)
        return f"{self.package} {_version(self.package)} {reason}" if reason else None

    def usable(self) -> bool:
        """Report whether the names can be used. If not, log one warning with the consequence."""
        if reason := self.available():
            _log.warning("%s: %s", reason, self.instead)
        return not reason

    def require(self, do: str) -> None:
        """Raise InfeedError if the names cannot be used. For features without a fallback."""
        if reason := self.available():
            raise InfeedError(reason, where=self.need, do=do)


def listed(names: Mapping[str, str]) -> tuple[str, ...]:
    """Return `module:name` for each name of each module. Spaces separate the names of a module."""
    return tuple(f"{module}:{name}" for module, those in names.items() for name in those.split())


def _missing(name: str) -> str | None:
    """Return why a name cannot be used; None if it exists with the same parameters."""
    found = _NAME.fullmatch(name)
    assert found, name
    module, path, parameters, attribute = found.group("module", "path", "parameters", "attribute")
    try:
        value = operator.attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        return f"has no {path} in {module} ({error})"
    if attribute and attribute not in value.__init__.__code__.co_names:
        return f"sets no {attribute} in {module}.{path}"
    if parameters is None:
        return None
    now = _parameters(value)
    return None if now == parameters else f"has {path}({now}) in {module}, not ({parameters})"


def _parameters(function: object) -> str:
    """Return the parameter names in order, without `self`, *args and **kwargs."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "which cannot be called"
    return ", ".join(one.name for one in found if one.name != "self" and one.kind not in kinds)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def after_import(module: str, call: Callable[[ModuleType], None]) -> None:
    """Call `call(module)` once the named module has been imported, or now if it is imported already."""
    if module in sys.modules:
        call(sys.modules[module])
    else:
        sys.meta_path.insert(0, _CallAfter(module, call))


class _CallAfter(MetaPathFinder):
    """Finder that finds one module as the other finders do, and makes its loader call a function at the end."""

    def __init__(self, module: str, call: Callable[[ModuleType], None]) -> None:
        self._module, self._call, self._searching = module, call, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module or self._searching or fullname in sys.modules:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._followed(spec.loader.exec_module)  # type: ignore
        return spec

    def _followed(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._call(module)

        return exec_module
