"""Windows of pictures: those of the Trainer's augmentation. Covers `windows` and `components/feed/draws.py`."""

import numpy as np
import pytest

from infeed.components.feed.options import Augment, GlobalBatch, Normalise, WorkerContext
from infeed.components.load.order import BatchOrder
from infeed.components.load.resize import show
from infeed.components.load.windows import Box, part_of, windows

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
