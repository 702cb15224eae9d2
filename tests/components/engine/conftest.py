"""Functions that workers import."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def functions() -> Iterator[ModuleType]:
    """`engine_functions.py`, on the path of this process and of those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(Path(__file__).parent)
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")])))
        yield importlib.import_module("engine_functions")
