"""Pictures as features, and what decoding gives beside Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from sklearn.datasets import load_digits, load_sample_image

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.image import DecodeImage, PixelMoments, decode_batch, scaled

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


FLOWER = Image.fromarray(load_sample_image("flower.jpg")).crop((0, 0, 64, 48))


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@cache
def graph(height: int, width: int, channels: int, *how: str) -> tf.types.experimental.GenericFunction:
    """As in tf.data and in a saved model: a graph, of a batch of any size."""
    rules = dict(zip(("rule", "method"), how, strict=False))
    decode = partial(decode_batch, height=height, width=width, channels=channels, **rules)
    return tf.function(decode, [tf.TensorSpec([None], tf.string)])


def decoded_pixels(images: Sequence[bytes], height: int, width: int, channels: int, *how: str) -> np.ndarray:
    return graph(height, width, channels, *how)(tf.constant(images, tf.string)).numpy()


def test_scanned_digits_are_exact() -> None:
    digits = (load_digits().images[:20] * 255 / 16).astype("uint8")
    pixels = decoded_pixels([encoded(Image.fromarray(digit)) for digit in digits], 8, 8, 1)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels[..., 0], digits)


def test_jpeg_and_png_mix_in_one_batch() -> None:
    jpeg, png = encoded(FLOWER, "JPEG"), encoded(FLOWER)
    pixels = decoded_pixels([jpeg, png], 48, 64, 3).astype(int)
    np.testing.assert_array_equal(pixels[1], np.asarray(FLOWER))
    assert (
        np.abs(pixels[0] - np.asarray(Image.open(io.BytesIO(jpeg)))).max() <= 4
    )  # TensorFlow decodes with the faster DCT


@pytest.mark.parametrize(
    ("mode", "channels", "expected_mode", "tolerance"),
    [
        ("RGBA", 3, "RGB", 0),  # alpha is dropped, not blended
        ("RGBA", 4, "RGBA", 0),
        ("L", 3, "RGB", 0),
        ("P", 3, "RGB", 0),
        ("LA", 1, "L", 0),
    ],
)
def test_channels_are_converted(mode: str, channels: int, expected_mode: str, tolerance: int) -> None:
    image = FLOWER.convert(mode)
    (pixels,) = decoded_pixels([encoded(image)], 48, 64, channels)
    expected = np.asarray(image.convert(expected_mode)).reshape(48, 64, channels)
    assert np.abs(pixels.astype(int) - expected).max() <= tolerance


@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_camera_says(orientation: int, byte_order: str) -> None:
    exif, buffer = Image.Exif(), io.BytesIO()
    exif.endian, exif[0x0112], exif[0x010F] = byte_order, orientation, "camera"
    FLOWER.save(buffer, "JPEG", exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(buffer.getvalue())))
    plain = io.BytesIO()
    FLOWER.save(plain, "JPEG")
    assert (upright.size == FLOWER.size) == (orientation < 5)
    (pixels,) = decoded_pixels([buffer.getvalue()], upright.height, upright.width, 3)
    assert np.abs(pixels.astype(int) - np.asarray(upright)).max() <= 4  # TensorFlow decodes with the faster DCT


def test_sixteen_bits_become_eight() -> None:
    values = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) * 21
    (pixels,) = decoded_pixels([encoded(Image.fromarray(values))], 48, 64, 1)
    assert np.abs(pixels[..., 0].astype(int) - (values >> 8)).max() <= 1


def test_another_size_is_resized_with_antialias() -> None:
    (pixels,) = decoded_pixels([encoded(FLOWER)], 24, 32, 3)
    expected = np.asarray(FLOWER.resize((32, 24), Image.Resampling.BILINEAR)).astype(int)  # Pillow's is antialiased
    assert np.abs(pixels - expected).max() <= 1


@pytest.mark.parametrize(
    ("method", "resampling"),
    [
        ("nearest", Image.Resampling.NEAREST),
        ("bicubic", Image.Resampling.BICUBIC),
        ("lanczos3", Image.Resampling.LANCZOS),
        ("area", Image.Resampling.BOX),
    ],
)
def test_each_method_is_that_of_pillow(method: str, resampling: Image.Resampling) -> None:
    (pixels,) = decoded_pixels([encoded(FLOWER)], 24, 32, 3, "stretch", method)
    expected = np.asarray(FLOWER.resize((32, 24), resampling)).astype(int)
    # Of Keys' cubics, TensorFlow takes the one with -0.5 and so does Pillow.
    assert np.abs(pixels - expected).max() <= 1


@pytest.mark.parametrize(("height", "width"), [(24, 24), (40, 20), (10, 60), (96, 96), (1, 64)])
def test_fit_shows_the_whole_picture_between_black_bars(height: int, width: int) -> None:
    scale = min(height / 48, width / 64)
    inner = (max(1, round(64 * scale)), max(1, round(48 * scale)))
    expected = Image.new("RGB", (width, height))
    expected.paste(FLOWER.resize(inner, Image.Resampling.BILINEAR), ((width - inner[0]) // 2, (height - inner[1]) // 2))
    (pixels,) = decoded_pixels([encoded(FLOWER)], height, width, 3, "fit")
    assert np.abs(pixels - np.asarray(expected).astype(int)).max() <= 1


@pytest.mark.parametrize(("height", "width"), [(24, 24), (40, 20), (10, 60), (96, 96)])
def test_crop_shows_the_middle_of_the_picture(height: int, width: int) -> None:
    scale = max(height / 48, width / 64)
    inner = (min(64, round(width / scale)), min(48, round(height / scale)))
    left, top = (64 - inner[0]) // 2, (48 - inner[1]) // 2
    part = FLOWER.crop((left, top, left + inner[0], top + inner[1]))
    expected = np.asarray(part.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    (pixels,) = decoded_pixels([encoded(FLOWER)], height, width, 3, "crop")
    assert np.abs(pixels - expected).max() <= 1


@pytest.mark.parametrize("rule", ["fit", "crop"])
def test_right_proportions_are_kept_by_every_rule(rule: str) -> None:
    np.testing.assert_array_equal(
        decoded_pixels([encoded(FLOWER)], 24, 32, 3, rule), decoded_pixels([encoded(FLOWER)], 24, 32, 3, "stretch")
    )


def test_pixels_are_scaled_by_channel() -> None:
    pixels = np.asarray(FLOWER)[np.newaxis]
    mean, deviation = [100.0, 110.0, 120.0], [50.0, 0.0, 60.0]
    found = scaled(tf.constant(pixels), mean, deviation).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[..., [0, 2]], (pixels[..., [0, 2]] - [100.0, 120.0]) / [50.0, 60.0], rtol=1e-6)
    assert (found[..., 1] == 0).all()
    np.testing.assert_allclose(scaled(tf.constant(pixels), [0.0], [255.0]), pixels / 255, rtol=1e-6)


def test_a_batch_may_hold_all_sizes() -> None:
    small = FLOWER.resize((16, 12))
    assert decoded_pixels([encoded(FLOWER), encoded(small)], 48, 64, 3).shape == (2, 48, 64, 3)


def test_a_batch_may_be_empty() -> None:
    assert decoded_pixels([], 8, 8, 1).shape == (0, 8, 8, 1)


def test_a_saved_graph_decodes_too(tmp_path: Path) -> None:
    module = tf.Module()
    module.decode = graph(48, 64, 3)
    tf.saved_model.save(module, str(tmp_path))
    (pixels,) = tf.saved_model.load(str(tmp_path)).decode(tf.constant([encoded(FLOWER)]))
    np.testing.assert_array_equal(pixels, np.asarray(FLOWER))


def test_bytes_that_are_no_image_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="image"):
        decoded_pixels([b"not an image"], 8, 8, 1)


def test_a_jpeg_of_four_inks_among_grey_pictures() -> None:
    gray = FLOWER.convert("L")
    pixels = decoded_pixels([encoded(FLOWER.convert("CMYK"), "JPEG"), encoded(gray), encoded(gray, "JPEG")], 48, 64, 1)
    np.testing.assert_array_equal(pixels[1, ..., 0], np.asarray(gray))
    assert np.abs(pixels[0].astype(int) - pixels[1]).mean() < 6
