"""Functions that are called after the import of a module of another package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


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
