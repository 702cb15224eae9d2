from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`small_jobs.py`: compiled jobs whose steps are a few lines of Python."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("small_jobs")
