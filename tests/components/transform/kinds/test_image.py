"""Pictures as features; what decoding gives is in `test_pixels.py`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.image import DecodeImage, PixelMoments

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
PIXELS = np.random.default_rng(2).integers(0, 256, (5, 4, 6, 3), np.uint8)
PIXELS[..., 2] = 7


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


PICTURES = [png(pixels) for pixels in PIXELS]


def decoded(transform: Transform, **options: Any) -> np.ndarray:
    return transform({"x": PICTURES}, [DecodeImage(4, 6, column="x", **options)])["image"]


def test_pixels_are_whole_numbers_unless_told_otherwise(transform: Transform) -> None:
    found = decoded(transform)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, PIXELS)
    np.testing.assert_allclose(decoded(transform, scale="unit"), PIXELS / 255, rtol=1e-6)


def test_mean_and_deviation_are_measured_or_given(transform: Transform) -> None:
    mean, std = PIXELS.mean((0, 1, 2)), PIXELS.std((0, 1, 2))
    expected = np.divide(PIXELS - mean, std, out=np.zeros(PIXELS.shape), where=std > 0)
    np.testing.assert_allclose(decoded(transform, scale="mean_std"), expected, atol=1e-5)
    given = decoded(transform, scale="mean_std", mean=(0.5, 0.4, 0.3), std=[0.2, 0.1, 0.3])
    np.testing.assert_allclose(given, (PIXELS / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.1, 0.3], atol=1e-5)


def test_moments_are_those_of_all_batches() -> None:
    moments = PixelMoments()
    for part in (PIXELS[:2], PIXELS[2:2], PIXELS[2:]):
        moments.add(part, rows=len(part))
    np.testing.assert_allclose(moments.means, PIXELS.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(moments.deviations, PIXELS.std((0, 1, 2)), rtol=1e-12)
    assert (moments.rows, moments.count) == (5, 5)


def test_a_rule_and_a_method_reach_the_pixels(transform: Transform) -> None:
    tall = DecodeImage(12, 6, column="x", output="tall", resize="fit", method="nearest")
    wide = DecodeImage(2, 6, column="x", output="wide", resize="crop")
    found = transform({"x": PICTURES}, [tall, wide])
    np.testing.assert_array_equal(found["tall"][:, 4:8], PIXELS)
    assert not found["tall"][:, [0, 1, 2, 3, 8, 9, 10, 11]].any()
    np.testing.assert_array_equal(found["wide"], PIXELS[:, 1:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 2}, "channels is 2"),
        ({"resize": "zoom"}, "resize is 'zoom'"),
        ({"mean": (0.5, 0.5, 0.5)}, "mean is "),
        ({"mean": (0.5,), "std": (0.5,), "scale": "mean_std"}, "(?s)mean is .*3 numbers"),
        ({"mean": (0.5,) * 3, "std": (0.5,) * 3}, '(?s)mean is .*with scale "mean_std"'),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        DecodeImage(4, 6, **options)
