"""Calls after the import of a module."""

import importlib
import importlib.util
import subprocess
import sys

import pytest

from infeed.components.base.import_hooks import after_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "hooked_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield "hooked_module"
    sys.modules.pop("hooked_module", None)


def test_a_function_is_called_after_the_import(module):
    seen = []
    after_import(module, lambda imported: seen.append(imported.value))
    assert importlib.util.find_spec(module) is not None
    assert seen == []
    imported = importlib.import_module(module)
    assert (seen, imported.__spec__.name) == ([1], module)
    importlib.reload(imported)
    assert seen == [1]


def test_a_module_that_is_imported_or_missing_needs_no_hook(module):
    importlib.import_module(module)
    seen = []
    after_import(module, lambda imported: seen.append(imported.value))
    after_import("no_such_module", seen.append)
    assert seen == [1]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module")


@pytest.mark.parametrize("unused", ["asyncio", "multiprocessing.pool", "concurrent.futures.process", "wrapt"])
def test_a_load_imports_nothing_that_it_does_not_use(unused):
    script = f"import infeed, sys; infeed.load; sys.exit({unused!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
