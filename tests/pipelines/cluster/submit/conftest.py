from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(autouse=True)
def _neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins and the jobs of this folder are imported by their bare names, and only by tests that use them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def jobs(_neighbours: None) -> ModuleType:
    """`jobs.py`: small compiled jobs."""
    return importlib.import_module("jobs")


@pytest.fixture
def kubeflow() -> ModuleType:
    from infeed.pipelines.cluster.submit import kubeflow

    return kubeflow
