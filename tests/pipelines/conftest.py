from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`trial_pipelines.py`, imported by the tests that ask for it and not while tests are collected: it loads TFX."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("trial_pipelines")
