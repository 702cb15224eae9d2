"""Random numbers of the augmentation of an image, in the order in which they are drawn."""

from __future__ import annotations

from typing import Any, NamedTuple


class Draws(NamedTuple):
    """Random numbers of each image, 0 to 1, float32 [batch] each."""

    angle: Any
    mirror: Any
    shift_x: Any
    shift_y: Any
    brightness: Any
    contrast: Any
    cutout_x: Any
    cutout_y: Any
    area: Any
    aspect: Any
    window_x: Any
    window_y: Any


# Philox (Salmon 2011) turns a key and a counter into four numbers. Each image uses three counters.
COUNTERS = len(Draws._fields) // 4
