"""The module file of `users_pipeline.py`, which TFX carries to the steps in a wheel."""

from __future__ import annotations

from typing import Any

import tensorflow_transform as tft


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Scale a column."""
    return {"a_scaled": tft.scale_to_z_score(inputs["a"])}
