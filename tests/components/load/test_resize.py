"""A box of a picture as an image of another size: `components/load/resize.py`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from infeed.components.feed.options import Augment, GlobalBatch, Normalise, WorkerContext
from infeed.components.load.order import BatchOrder
from infeed.components.load.resize import Box, part_of, show, windows


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_box_beyond_the_edges_shows_a_reflection_or_black(mirrored):
    picture = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3) + 1
    for edges in ("symmetric", "constant"):
        out = np.empty((4, 5, 3), np.uint8)
        show(picture, Box(-2, 1, 3, 5), out, mirrored=mirrored, edges=edges)
        padded = np.pad(picture, ((0, 1), (2, 0), (0, 0)), edges)[1:, :5]
        np.testing.assert_array_equal(out, padded[:, ::-1] if mirrored else padded)


@st.composite
def boxes(draw):
    """A picture's height and width, a box inside of it, often at its edges, and the size of the result."""
    height, width = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    edges = []
    for side in (width, height):
        share = st.floats(0, 1) | st.sampled_from([0.0, 1.0])
        first, last = sorted((draw(share) * side, draw(share) * side))
        edges.append((first, max(last, first + side / 100)) if first < side * 0.99 else (0.0, float(side)))
    (left, right), (top, bottom) = edges
    return (
        (height, width),
        Box(left, top, min(right, width), min(bottom, height)),
        draw(st.tuples(*[st.integers(1, 50)] * 2)),
    )


@given(boxes(), st.booleans(), st.integers(0, 9))
def test_resizing_is_that_of_pillow_to_within_one(case, mirrored, seed):
    (height, width), box, size = case
    picture = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    out = np.empty((*size, 3), np.uint8)
    show(picture, box, out, mirrored=mirrored)
    expected = np.asarray(Image.fromarray(picture).resize(size[::-1], Image.Resampling.BILINEAR, box))
    np.testing.assert_allclose(out[:, ::-1] if mirrored else out, expected, atol=1)


def test_a_slice_of_a_larger_picture_is_resized_and_written_into_a_slice():
    whole = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    part, result = whole[3:33, 7:47], np.zeros((30, 30, 3), np.uint8)
    show(part, Box(0, 0, 40, 30), result[5:25, 4:28], mirrored=True)
    alone = np.empty((20, 24, 3), np.uint8)
    show(part.copy(), Box(0, 0, 40, 30), alone)
    np.testing.assert_array_equal(result[5:25, 4:28], alone[:, ::-1])
    assert not result[:5].any()
    assert not result[:, 28:].any()


ALL = Augment(shift=3, flip="horizontal", crop=0.3, stretch=4 / 3)


def order_of(workers=None, size=16, seed=7):
    return BatchOrder(1000, GlobalBatch(size, seed, workers or WorkerContext(0, 1)), True)


@pytest.mark.parametrize(
    ("rule", "picture", "size", "part"),
    [
        ("stretch", (100, 200), (50, 50), Box(0, 0, 200, 100)),
        ("crop", (100, 200), (50, 50), Box(50, 0, 150, 100)),
        ("crop", (300, 100), (50, 100), Box(0, 125, 100, 175)),
        ("none", (100, 200), (50, 40), Box(80, 25, 120, 75)),
        ("none", (10, 200), (50, 40), Box(80, -20, 120, 30)),
    ],
)
def test_a_rule_chooses_the_part_that_is_shown(rule, picture, size, part):
    assert part_of(picture, size, rule) == part


def test_workers_draw_the_windows_of_one_worker():
    whole = list(windows(ALL, order_of(), 5, 16))
    halves = [window for index in (0, 1) for window in windows(ALL, order_of(WorkerContext(index, 2)), 5, 8)]
    assert halves == whole
    assert len({window.shares for window in whole}) == 16


@pytest.mark.slow
@pytest.mark.stack
@pytest.mark.parametrize(
    "options",
    [
        Augment(shift=3),
        Augment(flip="horizontal"),
        Augment(crop=0.3, stretch=4 / 3),
        Augment(shift=2, crop=0.5, flip="horizontal"),
    ],
)
def test_pictures_of_the_size_get_the_pixels_of_the_trainer(options):
    import tensorflow as tf

    from infeed.components.feed.augment import augment

    images = np.random.default_rng(0).integers(0, 256, (16, 24, 20, 3), np.uint8)
    expected = augment(tf.constant(images), options, Normalise(0.0, 1 / 255), tf.constant([7, 5], tf.int64)).numpy()
    found = np.empty_like(images)
    for image, window, out in zip(images, windows(options, order_of(), 5, 16), found, strict=True):
        show(image, window.on(Box(0, 0, 20, 24), (24, 20)), out, mirrored=window.mirrored)
    np.testing.assert_allclose(found, expected, atol=1.51 if options.resamples else 0)
