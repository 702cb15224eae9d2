"""What a training with the callback `Watch` has left in its model run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def check_weights(ours: Any, theirs: Any, atol: float = 0.0) -> None:
    """Two lists of weights, or two models, have the same numbers: bit for bit without a tolerance."""
    for one, other in zip(*(getattr(both, "weights", both) for both in (ours, theirs)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7 if atol else 0, atol=atol)


def weights(place: Path) -> list[Any]:
    with np.load(place / "run" / "weights.npz") as file:
        return [file[name] for name in file.files]


def history(place: Path) -> dict[str, list[float]]:
    return json.loads((place / "run" / "history.json").read_text())  # type: ignore[no-any-return]


def profile(place: Path) -> dict[str, Any]:
    return json.loads((place / "run" / "input_profile.json").read_text())  # type: ignore[no-any-return]


def check_alike(place: Path, other: Path, tolerance: float = 1e-5) -> None:
    """Both trainings have the same weights, and the same loss and metrics in every epoch."""
    check_weights(weights(place), weights(other), tolerance)
    assert history(place).keys() == history(other).keys()
    for name, values in history(place).items():
        np.testing.assert_allclose(values, history(other)[name], rtol=0, atol=tolerance, err_msg=name)
