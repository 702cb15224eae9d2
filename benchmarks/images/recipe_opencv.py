"""The recipe for one image with OpenCV: pad, crop, flip and rotation as one warp, which is its fastest way."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from protocol import SIDE, Recipe

cv2.setNumThreads(0)  # threads do not help for such small images, and the loaders have worker processes


def decode(stored: bytes, kind: str) -> Any:
    """Decode stored bytes to uint8 [32, 32, 3]."""
    if kind == "raw":
        return np.frombuffer(stored, np.uint8).reshape(SIDE, SIDE, 3)
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(stored, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def augment(image: Any, random: np.random.Generator, recipe: Recipe) -> Any:
    """Augment an image, uint8 [32, 32, 3], to normalized float32 of the same shape."""
    draws = random.random(8)
    warped = cv2.warpAffine(
        image,
        matrix(draws, recipe),
        (SIDE, SIDE),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REFLECT,
    )
    factor = 1 + (2 * draws[4] - 1) * recipe.contrast
    added = (2 * draws[5] - 1) * recipe.brightness * 255
    mean = np.array(cv2.mean(warped)[:3])
    pixels = np.clip(warped * np.float32(factor) + (mean * (1 - factor) + added).astype(np.float32), 0, 255)
    pixels = pixels * np.float32(1 / (255 * recipe.std)) - np.float32(recipe.mean / recipe.std)
    top, left = (int(draw * SIDE) - recipe.cutout // 2 for draw in draws[6:])
    pixels[max(0, top) : top + recipe.cutout, max(0, left) : left + recipe.cutout] = 0
    return pixels


def matrix(draws: Any, recipe: Recipe) -> Any:
    """Return the affine matrix from output to input coordinates, about the center."""
    angle = (2 * draws[0] - 1) * recipe.rotate * math.pi / 180
    mirror = -1.0 if draws[1] < 0.5 else 1.0
    shift_x, shift_y = (math.floor(draw * (2 * recipe.shift + 1)) - recipe.shift for draw in draws[2:4])
    cosine, sine, center = math.cos(angle), math.sin(angle), (SIDE - 1) / 2
    a0, a1, b0, b1 = mirror * cosine, -sine, mirror * sine, cosine
    return np.array(
        [
            [a0, a1, center + shift_x - a0 * center - a1 * center],
            [b0, b1, center + shift_y - b0 * center - b1 * center],
        ]
    )
