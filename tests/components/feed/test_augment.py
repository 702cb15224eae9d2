"""Every change against numpy, scipy or OpenCV's own definition of it, image by image."""

import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf

from infeed.components.feed import augment
from infeed.components.feed.options import SINGLE_WORKER, Augment, Draws, Normalise, WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

IMAGES = np.random.default_rng(0).integers(0, 256, (16, 12, 10, 3), np.uint8)
SEED = tf.constant([7, 3], tf.int64)
PLAIN = Normalise()
ALL = Augment(shift=2, flip="horizontal", rotate=10.0, crop=0.5, stretch=4 / 3, cutout=3, brightness=0.2, contrast=0.5)
DRAWS = augment.draw(SEED[0], tf.constant(48, tf.int64), tf.constant(16, tf.int64))  # of step 3


def run(options, seed=SEED, images=IMAGES, workers=SINGLE_WORKER):
    return augment.augment(tf.constant(images), options, PLAIN, seed, workers).numpy()


def one_by_one(options):
    """The whole of `ALL`, image by image, in float64, by scipy and numpy."""
    affine = augment.affine(12, 10, options, DRAWS).numpy()
    draws = {name: numbers.numpy().astype(np.float64) for name, numbers in DRAWS._asdict().items()}
    for number, (image, one) in enumerate(zip(IMAGES, affine, strict=True)):
        pixels = scipy_warp(image, one)
        added = (2 * draws["brightness"][number] - 1) * options.brightness * 255
        factor = 1 + (2 * draws["contrast"][number] - 1) * options.contrast
        mean = pixels.mean(axis=(0, 1))
        pixels = (np.clip((pixels - mean) * factor + mean + added, 0, 255) / 255 - PLAIN.mean) / PLAIN.std
        top = int(draws["cutout_y"][number] * 12) - options.cutout // 2
        left = int(draws["cutout_x"][number] * 10) - options.cutout // 2
        pixels[max(0, top) : top + options.cutout, max(0, left) : left + options.cutout] = 0
        yield pixels


def test_the_full_recipe_is_what_scipy_and_numpy_give_image_by_image():
    np.testing.assert_allclose(run(ALL), list(one_by_one(ALL)), atol=1e-3)  # of a range of 2: a tenth of a gray level


def test_an_affine_map_is_the_mirror_the_window_the_rotation_and_the_shift_in_turn():
    def matrix(*rows):
        return np.array([*rows, [0, 0, 1]])

    part_x, part_y = (share.numpy() for share in augment.window(ALL, DRAWS))
    for number, got in enumerate(augment.affine(12, 10, ALL, DRAWS).numpy()):
        draws = [float(values[number]) for values in DRAWS]
        either = [2 * value - 1 for value in draws]
        angle, names = np.radians(ALL.rotate) * either[0], Draws._fields
        cosine, sine = np.cos(angle), np.sin(angle)
        shift = [np.floor(draws[names.index(name)] * 5) - 2 for name in ("shift_x", "shift_y")]
        room = [either[-2] * (1 - part_x[number]) * 5, either[-1] * (1 - part_y[number]) * 6]
        expected = (
            matrix([1, 0, 4.5 + shift[0] + room[0]], [0, 1, 5.5 + shift[1] + room[1]])
            @ matrix([cosine, -sine, 0], [sine, cosine, 0])
            @ np.diag([part_x[number], part_y[number], 1])
            @ np.diag([-1 if draws[1] < 0.5 else 1, 1, 1])
            @ matrix([1, 0, -4.5], [0, 1, -5.5])
        )
        np.testing.assert_allclose(got, expected[:2].reshape(-1), atol=1e-5)


def test_a_flip_mirrors_exactly_and_about_half_of_the_images():
    got = run(Augment(flip="horizontal"))
    kept = run(Augment())
    mirrored = [np.array_equal(g, image[:, ::-1]) for g, image in zip(got, kept, strict=True)]
    same = [np.array_equal(g, image) for g, image in zip(got, kept, strict=True)]
    assert all(m != s for m, s in zip(mirrored, same, strict=True))
    assert 3 <= sum(mirrored) <= 13


def test_a_shift_moves_by_whole_pixels_and_reflects_the_edge():
    padded = np.pad(IMAGES, [(0, 0), (2, 2), (2, 2), (0, 0)], mode="symmetric")
    padded = augment.normalise(tf.constant(padded), PLAIN).numpy()
    places = set()
    for image, got in zip(padded, run(Augment(shift=2)), strict=True):
        parts = {(y, x): image[y : y + 12, x : x + 10] for y in range(5) for x in range(5)}
        fits = [place for place, part in parts.items() if np.allclose(part, got, atol=1e-5)]
        assert len(fits) == 1
        places.add(fits[0])
    assert len(places) > 6


def test_a_window_covers_the_share_asked_for_and_lies_inside_the_picture():
    options = Augment(crop=0.3, stretch=4 / 3)
    draws = augment.draw(SEED[0], tf.constant(0, tf.int64), tf.constant(5_000, tf.int64))
    part_x, part_y = (share.numpy() for share in augment.window(options, draws))
    assert 0.3 * 0.99 <= (part_x * part_y).min() < 0.32
    assert 0.95 < (part_x * part_y).max() <= 1
    inside = (part_x < 1) & (part_y < 1)
    assert (part_x / part_y)[inside].max() == pytest.approx(4 / 3, rel=0.01)
    a0, _, a2, _, b1, b2 = augment.affine(12, 10, options, draws).numpy().T
    assert min((a2 - 0.5 * a0).min(), (b2 - 0.5 * b1).min()) >= -0.501  # the window's outer edges
    assert (a2 + 9.5 * a0).max() <= 9.501
    assert (b2 + 11.5 * b1).max() <= 11.501


def test_cutout_covers_one_square_an_image_with_the_mean():
    plain, cut = run(Augment()), run(Augment(cutout=4))
    for before, after in zip(plain, cut, strict=True):
        changed = np.any(before != after, axis=-1)
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        assert 2 <= len(rows) <= 4  # a square round a random pixel, cut at the border
        assert 2 <= len(columns) <= 4
        assert changed.sum() <= 16
        assert np.all(after[changed] == 0)


def test_brightness_and_contrast_stay_within_what_is_asked_for():
    gray = np.full((64, 4, 4, 1), 100, np.uint8)
    brighter = (run(Augment(brightness=0.1), images=gray) / 2 + 0.5) * 255
    assert 74.4 <= brighter.min() < 80
    assert 120 < brighter.max() <= 125.6
    np.testing.assert_allclose(run(Augment(contrast=0.5), images=gray), run(Augment(), images=gray), atol=1e-5)
    assert run(Augment(brightness=1.0, contrast=1.0)).min() == -1  # some pixels are cut off


def test_normalise_maps_bytes_by_mean_and_deviation():
    got = augment.normalise(tf.constant(IMAGES), Normalise(mean=0.25, std=0.5)).numpy()
    np.testing.assert_allclose(got, (IMAGES / 255 - 0.25) / 0.5, atol=1e-6)


def test_without_any_change_only_normalisation_is_left():
    np.testing.assert_allclose(run(Augment()), augment.normalise(tf.constant(IMAGES), PLAIN), atol=1e-6)


def test_the_same_seed_repeats_exactly_and_the_next_step_differs():
    np.testing.assert_array_equal(run(ALL), run(ALL))
    assert not np.array_equal(run(ALL), run(ALL, tf.constant([7, 4], tf.int64)))
    assert not np.array_equal(run(ALL), run(ALL, tf.constant([8, 3], tf.int64)))


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_a_picture_changes_in_the_same_way_whatever_the_batch_size(batch):
    steps = range(48 // batch, 64 // batch)  # the same pictures as in step 3 of batches of 16
    parts = [
        run(ALL, tf.constant([7, step], tf.int64), IMAGES[place * batch : (place + 1) * batch])
        for place, step in enumerate(steps)
    ]
    np.testing.assert_allclose(np.concatenate(parts), run(ALL), atol=1e-5)


def test_workers_change_each_picture_as_one_worker_alone_would():
    halves = [run(ALL, images=part, workers=WorkerContext(i, 2)) for i, part in enumerate((IMAGES[:8], IMAGES[8:]))]
    np.testing.assert_allclose(np.concatenate(halves), run(ALL), atol=1e-5)


def test_the_numbers_of_a_picture_are_uniform_and_independent():
    numbers = np.stack(augment.draw(SEED[0], tf.constant(0, tf.int64), tf.constant(20_000, tf.int64)))
    assert numbers.mean(axis=1) == pytest.approx(0.5, abs=0.01)
    assert numbers.var(axis=1) == pytest.approx(1 / 12, abs=0.002)
    series = np.concatenate([numbers, np.roll(numbers, 1, axis=1)])  # with those of the picture before
    assert np.abs(np.corrcoef(series) - np.eye(len(series))).max() < 0.04


def test_shape_and_type_are_static_inside_a_dataset_and_code_is_compiled():
    dataset = tf.data.Dataset.from_tensors(IMAGES).map(lambda x: augment.augment(x, ALL, PLAIN, SEED))
    assert dataset.element_spec == tf.TensorSpec(IMAGES.shape, tf.float32)
    np.testing.assert_allclose(next(iter(dataset)), run(ALL), atol=1e-5)
    assert augment.how([IMAGES.shape]) == "compiled by XLA"


def test_a_batch_of_any_size_is_changed_in_the_same_way_but_not_compiled():
    dataset = tf.data.Dataset.from_tensor_slices(IMAGES).batch(16).map(lambda x: augment.augment(x, ALL, PLAIN, SEED))
    np.testing.assert_allclose(next(iter(dataset)), run(ALL), atol=1e-4)
    reason = "not compiled: XLA requires fixed shapes, but the images are (None, None, 3)"
    assert augment.how([[None, None, 3]]) == reason


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
    got = tf.function(augment.warp, jit_compile=compiled)(tf.constant(IMAGES), tf.constant(affine)).numpy()
    assert got.dtype == np.float32
    for image, one, warped in zip(IMAGES, affine, got, strict=True):
        np.testing.assert_allclose(warped, scipy_warp(image, one), atol=0.1)


def test_whole_pixels_are_taken_as_they_are():
    moves = np.random.default_rng(2).integers(-25, 26, (16, 2))
    affine = maps(np.zeros([16, 6]))
    affine[:, [2, 5]] = moves
    got = augment.warp(tf.constant(IMAGES), tf.constant(affine), whole=True).numpy()
    for image, (x, y), moved in zip(IMAGES, moves, got, strict=True):
        padded = np.pad(image, [(25, 25), (25, 25), (0, 0)], mode="symmetric")
        np.testing.assert_array_equal(moved, padded[25 + y : 37 + y, 25 + x : 35 + x])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_number_of_channels_and_float_pixels(channels):
    images = tf.random.stateless_uniform([3, 5, 7, channels], [1, 2])
    np.testing.assert_allclose(augment.warp(images, tf.constant(maps(0)[:3])), images, atol=1e-6)


def test_shapes_known_only_when_it_runs():
    signature = [tf.TensorSpec([None] * 4, tf.uint8), tf.TensorSpec([None, 6])]
    flexible = tf.function(augment.warp, input_signature=signature)
    np.testing.assert_array_equal(flexible(tf.constant(IMAGES), tf.constant(maps(0))), IMAGES)
