"""A box of a picture as an image of another size: `components/load/resize.py`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from infeed.components.load.resize import show
from infeed.components.load.windows import Box


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
