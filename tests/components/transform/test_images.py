"""Decoding in the graph, against Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image

from infeed.components.transform.images import decode_batch

FLOWER = Image.fromarray(load_sample_image("flower.jpg")).crop((0, 0, 64, 48))


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def decoded(images: Sequence[bytes], height: int, width: int, channels: int) -> np.ndarray:
    # As in tf.data: inside a graph.
    return tf.function(decode_batch)(tf.constant(images, tf.string), height, width, channels).numpy()


def test_scanned_digits_are_exact() -> None:
    digits = (load_digits().images[:20] * 255 / 16).astype("uint8")
    pixels = decoded([encoded(Image.fromarray(digit)) for digit in digits], 8, 8, 1)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels[..., 0], digits)


def test_jpeg_and_png_mix_in_one_batch() -> None:
    jpeg, png = encoded(FLOWER, "JPEG"), encoded(FLOWER)
    pixels = decoded([jpeg, png], 48, 64, 3).astype(int)
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
    (pixels,) = decoded([encoded(image)], 48, 64, channels)
    expected = np.asarray(image.convert(expected_mode)).reshape(48, 64, channels)
    assert np.abs(pixels.astype(int) - expected).max() <= tolerance


def test_sixteen_bits_become_eight() -> None:
    values = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) * 21
    (pixels,) = decoded([encoded(Image.fromarray(values))], 48, 64, 1)
    assert np.abs(pixels[..., 0].astype(int) - (values >> 8)).max() <= 1


def test_another_size_is_resized_with_antialias() -> None:
    (pixels,) = decoded([encoded(FLOWER)], 24, 32, 3)
    expected = np.asarray(FLOWER.resize((32, 24), Image.Resampling.BILINEAR)).astype(int)  # Pillow's is antialiased
    assert np.abs(pixels - expected).max() <= 1


def test_a_batch_may_hold_all_sizes() -> None:
    small = FLOWER.resize((16, 12))
    assert decoded([encoded(FLOWER), encoded(small)], 48, 64, 3).shape == (2, 48, 64, 3)


def test_a_batch_may_be_empty() -> None:
    assert decoded([], 8, 8, 1).shape == (0, 8, 8, 1)


def test_a_saved_graph_decodes_too(tmp_path: Path) -> None:
    module = tf.Module()
    module.decode = tf.function(
        partial(decode_batch, height=48, width=64, channels=3), [tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path))
    (pixels,) = tf.saved_model.load(str(tmp_path)).decode(tf.constant([encoded(FLOWER)]))
    np.testing.assert_array_equal(pixels, np.asarray(FLOWER))


def test_bytes_that_are_no_image_are_an_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="image"):
        decoded([b"not an image"], 8, 8, 1)
