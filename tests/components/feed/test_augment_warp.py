"""One warp of a whole batch against scipy and OpenCV's rule for edges, image by image."""

import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf

from infeed.components.feed.augment import warp

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

IMAGES = np.random.default_rng(0).integers(0, 256, (16, 12, 10, 3), np.uint8)
IDENTITY = np.array([1, 0, 0, 0, 1, 0], np.float32)


def maps(change):
    return np.tile(IDENTITY, (len(IMAGES), 1)) + np.float32(change)


def scipy_warp(image, affine):
    """The same map by scipy, whose coordinates are (row, column)."""
    a0, a1, a2, b0, b1, b2 = affine.astype(np.float64)
    matrix, offset = np.array([[b1, b0], [a1, a0]]), np.array([b2, a2])
    channels = [
        scipy.ndimage.affine_transform(image[..., channel].astype(np.float64), matrix, offset, order=1, mode="reflect")
        for channel in range(image.shape[-1])
    ]
    return np.stack(channels, axis=-1)


@pytest.mark.parametrize(
    "scale", [0.01, 0.3, 1.5], ids=["near the picture", "beyond its edges", "round and round its mirror images"]
)
@pytest.mark.parametrize(
    "compiled", [pytest.param(True, marks=pytest.mark.slow), False], ids=["compiled", "not compiled"]
)
def test_any_map_gives_what_scipy_gives_within_a_tenth_of_a_grey_level(scale, compiled):
    random = np.random.default_rng(1)
    affine = maps(random.normal(0, scale, (16, 6)) * [1, 1, 10, 1, 1, 10])
    got = tf.function(warp, jit_compile=compiled)(tf.constant(IMAGES), tf.constant(affine)).numpy()
    assert got.dtype == np.float32
    for image, one, warped in zip(IMAGES, affine, got, strict=True):
        np.testing.assert_allclose(warped, scipy_warp(image, one), atol=0.1)


def test_whole_pixels_are_taken_as_they_are():
    moves = np.random.default_rng(2).integers(-25, 26, (16, 2))
    affine = maps(np.zeros([16, 6]))
    affine[:, [2, 5]] = moves
    got = warp(tf.constant(IMAGES), tf.constant(affine), whole=True).numpy()
    for image, (x, y), moved in zip(IMAGES, moves, got, strict=True):
        padded = np.pad(image, [(25, 25), (25, 25), (0, 0)], mode="symmetric")
        np.testing.assert_array_equal(moved, padded[25 + y : 37 + y, 25 + x : 35 + x])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_number_of_channels_and_float_pixels(channels):
    images = tf.random.stateless_uniform([3, 5, 7, channels], [1, 2])
    np.testing.assert_allclose(warp(images, tf.constant(maps(0)[:3])), images, atol=1e-6)


def test_shapes_known_only_when_it_runs():
    flexible = tf.function(warp, input_signature=[tf.TensorSpec([None] * 4, tf.uint8), tf.TensorSpec([None, 6])])
    np.testing.assert_array_equal(flexible(tf.constant(IMAGES), tf.constant(maps(0))), IMAGES)
