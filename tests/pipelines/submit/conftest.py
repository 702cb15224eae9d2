from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins and the jobs of this folder are imported by their bare names, and only by tests that use them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
