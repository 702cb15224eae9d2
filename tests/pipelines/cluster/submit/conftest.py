from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture(autouse=True)
def jobs(compiled_jobs: ModuleType) -> ModuleType:
    """`jobs.py`. Tests import its neighbors, the stand-ins, by their bare names."""
    return compiled_jobs


@pytest.fixture
def kubeflow() -> ModuleType:
    from infeed.pipelines.cluster.submit import kubeflow

    return kubeflow
