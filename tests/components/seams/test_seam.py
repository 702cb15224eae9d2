from __future__ import annotations

import importlib
import importlib.util
import logging
import subprocess
import sys

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.seams.seam import Seam, after_import, listed


def seam(*names: str) -> Seam:
    return Seam("numpy", "a need", names, ("1.0",), "it is slow")


FITTING = (
    "json:dumps",
    "os:path.join",
    "json:JSONDecoder.decode(s, _w)",
    "queue:Queue@maxsize",
    "subprocess:Popen",
)


def test_names_that_are_as_they_were_read_are_available() -> None:
    assert seam(*FITTING).available() is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("json:_gone", "_gone"),
        ("json_gone:dumps", "json_gone"),
        ("json:JSONDecoder._gone.inner", "_gone"),
        ("json:JSONDecoder.decode(s)", "s, _w"),
        ("queue:Queue@_gone", "_gone"),
        ("json:__doc__()", "__doc__"),
    ],
)
def test_a_name_that_has_changed_is_the_reason(name: str, told: str) -> None:
    reason = seam("json:dumps", name).available()
    assert reason
    assert reason.startswith("numpy 1.") or reason.startswith("numpy 2.")
    assert told in reason


def test_a_package_that_is_not_installed_is_the_reason() -> None:
    found = Seam("no-such-package", "a need", ("no_such_package:f",), (), "it is slow").available()
    assert found
    assert "not installed" in found


def test_what_cannot_be_used_is_logged_once_with_the_consequence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert seam("json:dumps").usable()
        assert not caplog.records
        assert not seam("json:_gone").usable()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "_gone" in caplog.text
    assert "it is slow" in caplog.text


def test_a_need_without_a_way_round_is_an_error() -> None:
    seam("json:dumps").require("install another")
    with pytest.raises(InfeedError, match="_gone") as raised:
        seam("json:_gone").require("install another")
    assert raised.value.where == "a need"


def test_names_are_listed_by_module() -> None:
    assert listed({"json": "dumps loads", "os": "path"}) == ("json:dumps", "json:loads", "os:path")


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
