"""Keras' `fit`, `predict` and `evaluate` on NumPy batches, on each of its backends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROWS = {"train": 7 * 64 + 9, "eval": 203}
SCRIPT = Path(__file__).with_name("keras_script.py")


@pytest.fixture
def where(write) -> str:
    """y = 2 * x1 - x2 in two splits."""
    for split, count in ROWS.items():
        x1, x2 = np.random.default_rng(count).normal(size=(2, count)).astype(np.float32)
        path = write(f"line-{split}.tfrecord", {"x1": x1, "x2": x2, "y": 2 * x1 - x2})
    return str(Path(path).parent)


def run(where: str, cache: str, env: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), where, cache]
    ran = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=pytest.mark.slow),
        pytest.param("jax", marks=pytest.mark.frameworks),
        pytest.param("torch", marks=pytest.mark.frameworks),
    ],
)
def test_keras_reads_all_batches_in_each_epoch(where, cache, backend, request):
    warm = request.getfixturevalue("warm") if backend == "tensorflow" else {}
    found = run(where, cache, {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", **warm})
    for name in ("endless", "one epoch"):
        fitted = found[name]
        assert fitted["steps"] == [7, 7, 7], name
        assert fitted["validated"] == [4, 4, 4], name
        assert fitted["val_loss"] == pytest.approx(fitted["truth"], rel=1e-4), name
    assert found["predicted"] == ROWS["eval"]
    assert np.isfinite(found["weighted"]).all()
