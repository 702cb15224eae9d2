"""Every operation against scipy, image by image."""

import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf

from infeed.components.feed import augment
from infeed.components.feed.options import Augment, Normalise, Workers

IMAGES = np.random.default_rng(0).integers(0, 256, (16, 12, 10, 3), np.uint8)
SEED = tf.constant([7, 3])
PLAIN = Normalise()


def run(options, seed=SEED):
    return augment.augment(tf.constant(IMAGES), options, PLAIN, seed).numpy()


def scipy_warp(image, transform):
    """The same affine map by scipy, whose coordinates are (row, column)."""
    a0, a1, a2, b0, b1, b2 = transform[:6]
    matrix, offset = np.array([[b1, b0], [a1, a0]]), np.array([b2, a2])
    channels = [
        scipy.ndimage.affine_transform(image[..., c].astype(np.float64), matrix, offset, order=1, mode="reflect")
        for c in range(image.shape[-1])
    ]
    return np.stack(channels, axis=-1)


@pytest.mark.parametrize(
    "options",
    [
        Augment(shift=3),
        Augment(flip="horizontal"),
        Augment(rotate=25.0),
        Augment(shift=2, flip="horizontal", rotate=10.0),
    ],
    ids=lambda options: options.describe(),
)
def test_one_warp_does_what_scipy_does_image_by_image(options):
    transforms = augment.affine(tf.constant(IMAGES.shape), options, SEED)
    ours = augment.warp(tf.constant(IMAGES, tf.float32), transforms).numpy()
    for image, transform, got in zip(IMAGES, transforms.numpy(), ours, strict=True):
        np.testing.assert_allclose(got, scipy_warp(image, transform), atol=0.02)


def test_a_flip_mirrors_exactly_and_about_half_of_the_images():
    got = augment.warp(
        tf.constant(IMAGES, tf.float32), augment.affine(tf.constant(IMAGES.shape), Augment(flip="horizontal"), SEED)
    ).numpy()
    mirrored = [np.array_equal(g, image[:, ::-1]) for g, image in zip(got, IMAGES, strict=True)]
    kept = [np.array_equal(g, image) for g, image in zip(got, IMAGES, strict=True)]
    assert all(m != k for m, k in zip(mirrored, kept, strict=True))
    assert 3 <= sum(mirrored) <= 13


def test_a_shift_moves_by_whole_pixels_and_reflects_the_edge():
    options = Augment(shift=2)
    transforms = augment.affine(tf.constant(IMAGES.shape), options, SEED)
    got = augment.warp(tf.constant(IMAGES, tf.float32), transforms).numpy()
    for image, transform, shifted in zip(IMAGES, transforms.numpy(), got, strict=True):
        x, y = round(float(transform[2])), round(float(transform[5]))
        assert max(abs(x), abs(y)) <= 2
        padded = np.pad(image, [(2, 2), (2, 2), (0, 0)], mode="symmetric")
        np.testing.assert_allclose(shifted, padded[2 + y : 14 + y, 2 + x : 12 + x], atol=0.01)


def test_cutout_covers_one_square_an_image_with_the_mean():
    plain, cut = run(Augment()), run(Augment(cutout=4))
    for before, after in zip(plain, cut, strict=True):
        changed = np.any(before != after, axis=-1)
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        assert 2 <= len(rows) <= 4  # a square round a random pixel, cut at the border
        assert 2 <= len(columns) <= 4
        assert changed.sum() <= 16
        assert np.all(after[changed] == 0)


def test_normalise_maps_bytes_by_mean_and_deviation():
    got = augment.normalise(tf.constant(IMAGES), Normalise(mean=0.25, std=0.5)).numpy()
    np.testing.assert_allclose(got, (IMAGES / 255 - 0.25) / 0.5, atol=1e-6)


def test_without_any_change_only_normalisation_is_left():
    np.testing.assert_array_equal(run(Augment()), augment.normalise(tf.constant(IMAGES), PLAIN).numpy())


def test_the_same_seed_repeats_exactly_and_the_next_step_differs():
    options = Augment(shift=2, flip="horizontal", rotate=10.0, cutout=3)
    np.testing.assert_array_equal(run(options), run(options))
    assert not np.array_equal(run(options), run(options, tf.constant([7, 4])))


def test_brightness_and_contrast_do_what_numpy_does_image_by_image():
    options = Augment(brightness=0.2, contrast=0.5)
    added, factor = (numbers.numpy() for numbers in augment.light(tf.constant(IMAGES.shape), options, SEED))
    assert np.abs(added).max() <= 51
    assert np.abs(factor - 1).max() <= 0.5
    assert len(set(added)) == len(set(factor)) == len(IMAGES)
    ours = augment.adjust(tf.constant(IMAGES, tf.float32), tf.constant(added), tf.constant(factor)).numpy()
    for image, more, times, got in zip(IMAGES.astype(np.float64), added, factor, ours, strict=True):
        mean = image.mean(axis=(0, 1))
        np.testing.assert_allclose(got, np.clip((image - mean) * times + mean + more, 0, 255), atol=0.01)


def test_brightness_and_contrast_come_before_normalisation():
    got = run(Augment(brightness=1.0, contrast=1.0))
    assert -1 <= got.min() <= got.max() <= 1
    assert got.min() == -1  # some pixels are cut off


def test_workers_change_each_picture_as_one_worker_alone_would():
    options = Augment(shift=2, flip="horizontal", rotate=10.0, cutout=3, brightness=0.2, contrast=0.2)
    halves = [
        augment.augment(tf.constant(part), options, PLAIN, SEED, Workers(index, 2)).numpy()
        for index, part in enumerate((IMAGES[:8], IMAGES[8:]))
    ]
    np.testing.assert_allclose(np.concatenate(halves), run(options), atol=1e-5)


def test_shape_and_type_are_static_inside_a_dataset():
    dataset = tf.data.Dataset.from_tensors(IMAGES).map(lambda x: augment.augment(x, Augment(rotate=5.0), PLAIN, SEED))
    assert dataset.element_spec == tf.TensorSpec(IMAGES.shape, tf.float32)
