"""Decoding and random windows by Pillow, for loaders without a decoder."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from jpegs import FILE_SIDE, LEAST, RATIO, SIDE
from PIL import Image

_WHOLE = FILE_SIDE


def window(encoded: bytes, kind: str, random: np.random.Generator) -> Any:
    """Return a random window, uint8 [224, 224, 3]."""
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    if kind == "cut":
        left, top = random.integers(0, FILE_SIDE - SIDE + 1, 2).tolist()
        image = image.crop((left, top, left + SIDE, top + SIDE))
    else:
        area, ratio = random.uniform(LEAST, 1) * _WHOLE**2, math.exp(random.uniform(-1, 1) * math.log(RATIO))
        across, down = (min(round(math.sqrt(one)), _WHOLE) for one in (area * ratio, area / ratio))
        left, top = random.integers(0, _WHOLE - across + 1), random.integers(0, _WHOLE - down + 1)
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (left, top, left + across, top + down))
    return np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image)
