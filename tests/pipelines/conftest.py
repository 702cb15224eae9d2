from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from infeed.pipelines.containers import problem


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`trial_pipelines.py`, imported by the tests that ask for it and not while tests are collected: it loads TFX."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("trial_pipelines")


class FakeEngines:
    """Container engines that are shell scripts, and write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, script: str = "") -> None:
        """An engine that does `script` in sh, with its own arguments; by default it only succeeds."""
        file = self._folder / name
        file.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" '' >>{self._folder}/{name}.calls\n{script}\n")
        file.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of each call so far."""
        text = (self._folder / f"{name}.calls").read_text()
        return [call.split("\n") for call in text.removesuffix("\n\n").split("\n\n")]


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngines:
    """The only container engines on the PATH; none at first."""
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "bash").symlink_to(shutil.which("bash") or "")
    monkeypatch.setenv("PATH", str(folder))
    problem.cache_clear()
    return FakeEngines(folder)
