"""Masks and boxes beside their images: by scipy's warp, and by each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.ndimage
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.feed import augment
from infeed.components.feed.augment_batch import augment_batch, move_boxes
from infeed.components.feed.options import Augment, Normalise, WorkerContext
from infeed.components.feed.user_maps import Ragged

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Array = npt.NDArray[Any]
BATCH, HEIGHT, WIDTH = 16, 40, 32
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (BATCH, HEIGHT, WIDTH, 3), np.uint8)
MASKS = RANDOM.integers(0, 6, (BATCH, HEIGHT, WIDTH), np.uint8)
SEED = tf.constant([7, 3], tf.int64)
ALL = Augment(shift=3, flip="horizontal", rotate=15.0, crop=0.5, stretch=4 / 3, brightness=0.2, cutout=4)
FILLED = Augment(rotate=30.0, mask_fill=255)
MOVES = {
    "flip": Augment(flip="horizontal"),
    "shift": Augment(shift=3),
    "crop": Augment(crop=0.4, stretch=1.5),
    "rotate": Augment(rotate=20.0),
    "all": ALL,
}


def maps_of(options: Augment) -> Array:
    draws = augment.draw_batch(tf.constant(BATCH, tf.int64), SEED, WorkerContext())
    return np.asarray(augment.affine(HEIGHT, WIDTH, options, draws))


def rectangles(boxes: Array) -> Array:
    """Masks of 1 inside the boxes, [batch, 4] in pixels, and 0 outside."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    top, left, bottom, right = (boxes[:, side, np.newaxis, np.newaxis] for side in range(4))
    return ((y >= top) & (y < bottom) & (x >= left) & (x < right)).astype(np.uint8)


def moved(options: Augment, **features: Any) -> dict[str, Any]:
    roles = {role: [name for name in features if name.startswith(role)] for role in ("masks", "boxes")}
    return augment_batch({"image": IMAGES, **features}, options, SEED, **roles)


@pytest.mark.parametrize("options", MOVES.values(), ids=MOVES)
def test_masks_move_as_scipy_moves_them_to_the_nearest_pixel(options: Augment) -> None:
    got = moved(options, masks=MASKS)["masks"]
    for mask, (a0, a1, a2, b0, b1, b2), mine in zip(MASKS, maps_of(options), got, strict=True):
        warp = {"matrix": np.array([[b1, b0], [a1, a0]]), "offset": np.array([b2, a2]), "order": 0, "mode": "reflect"}
        same = mine == scipy.ndimage.affine_transform(mask, **warp)
        assert same.mean() > 0.99  # float32 rounds a few coordinates in the middle of two pixels otherwise


def test_masks_keep_their_type_and_shape_and_get_no_new_classes() -> None:
    few = np.where(MASKS > 3, 200, 9)
    for dtype in (np.uint8, np.int32, np.int64, np.float32):
        got = moved(ALL, masks=few.astype(dtype))["masks"]
        assert got.dtype == dtype
        assert got.shape == few.shape
        assert set(np.unique(got)) == {9, 200}
    channels = np.stack([MASKS, 5 - MASKS], axis=-1)
    got = moved(ALL, masks=channels)["masks"]
    np.testing.assert_array_equal(got.sum(axis=-1), np.full(MASKS.shape, 5))


def test_pixels_from_beyond_the_edges_get_the_class_that_is_asked_for() -> None:
    got = moved(FILLED, masks=MASKS)["masks"]
    maps = maps_of(FILLED)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for mine, (a0, a1, a2, b0, b1, b2) in zip(got, maps, strict=True):
        from_x, from_y = a0 * x + a1 * y + a2, b0 * x + b1 * y + b2
        far_outside = (from_x < -0.6) | (from_x > WIDTH - 0.4) | (from_y < -0.6) | (from_y > HEIGHT - 0.4)
        inside = (from_x > -0.4) & (from_x < WIDTH - 0.6) & (from_y > -0.4) & (from_y < HEIGHT - 0.6)
        assert (mine[far_outside] == 255).all()
        assert (mine[inside] < 6).all()


@pytest.mark.parametrize("options", MOVES.values(), ids=MOVES)
def test_a_moved_box_lies_round_the_moved_mask_of_its_object(options: Augment) -> None:
    top, left = RANDOM.integers(4, 20, BATCH), RANDOM.integers(4, 16, BATCH)
    boxes = np.stack([top, left, top + 14, left + 12], axis=1)
    shares = (boxes / [HEIGHT, WIDTH, HEIGHT, WIDTH]).astype(np.float32)[:, np.newaxis]
    without_reflection = Augment(**{**vars(options), "mask_fill": 0})
    got = moved(without_reflection, masks=rectangles(boxes), boxes=shares)
    for mask, box in zip(got["masks"], got["boxes"][:, 0] * [HEIGHT, WIDTH, HEIGHT, WIDTH], strict=True):
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        round_the_mask = [rows[0], columns[0], rows[-1] + 1, columns[-1] + 1]
        np.testing.assert_allclose(box, round_the_mask, atol=1.01)


@given(
    crop=st.floats(0.2, 1.0),
    stretch=st.floats(1.0, 2.0),
    rotate=st.floats(0.0, 90.0),
    shift=st.integers(0, 8),
    flip=st.sampled_from(["none", "horizontal"]),
)
def test_boxes_stay_in_the_image_and_in_order_or_vanish(
    crop: float, stretch: float, rotate: float, shift: int, flip: Any
) -> None:
    corners = np.sort(RANDOM.random((BATCH, 5, 2, 2)).astype(np.float32), axis=2)
    boxes = corners.reshape(BATCH, 5, 4)
    options = Augment(crop=crop, stretch=stretch, rotate=rotate, shift=shift, flip=flip)
    got = move_boxes(tf.constant(boxes), maps_of(options), HEIGHT, WIDTH).numpy()  # without an image to compile for
    assert got.shape == boxes.shape
    assert ((got >= 0) & (got <= 1)).all()
    has_area = (got[..., 2:] > got[..., :2]).all(axis=-1)
    assert (got[~has_area] == 0).all()


def test_padding_does_not_move_and_a_box_that_leaves_becomes_zeros() -> None:
    corner = np.tile(np.array([[[0.0, 0.0, 0.02, 0.02], [0, 0, 0, 0], [-1, -1, -1, -1]]], np.float32), (BATCH, 1, 1))
    got = moved(Augment(crop=0.3), boxes=corner)["boxes"]
    np.testing.assert_array_equal(got[:, 1:], corner[:, 1:])
    gone = (got[:, 0] == 0).all(axis=-1)
    assert 8 <= gone.sum() <= BATCH


def test_dense_flat_ragged_and_sparse_boxes_move_alike() -> None:
    boxes = np.tile(np.array([[0.2, 0.3, 0.5, 0.6], [0.1, 0.1, 0.4, 0.3]], np.float32), (BATCH, 1, 1))
    expected = moved(ALL, boxes=boxes)["boxes"]
    flat = boxes.reshape(BATCH, 8)
    given: dict[str, Any] = {
        "boxes_flat": flat,
        "boxes_ragged": tf.RaggedTensor.from_tensor(flat),
        "boxes_of_four": tf.RaggedTensor.from_tensor(tf.constant(boxes), ragged_rank=1),
        "boxes_sparse": tf.sparse.from_dense(flat),
        "boxes_numpy": Ragged(flat.reshape(-1), np.arange(0, 8 * BATCH + 1, 8)),
    }
    got = moved(ALL, **given)
    assert isinstance(got["boxes_numpy"], Ragged)
    assert isinstance(got["boxes_sparse"], tf.SparseTensor)
    dense = {
        "boxes_flat": got["boxes_flat"],
        "boxes_ragged": got["boxes_ragged"].to_tensor().numpy(),
        "boxes_of_four": got["boxes_of_four"].to_tensor().numpy(),
        "boxes_sparse": tf.sparse.to_dense(got["boxes_sparse"]).numpy(),
        "boxes_numpy": got["boxes_numpy"].values,
    }
    for name, values in dense.items():
        np.testing.assert_allclose(np.reshape(values, expected.shape), expected, atol=1e-6, err_msg=name)


def test_rows_of_different_numbers_of_boxes_move_with_their_own_image() -> None:
    box = [0.2, 0.3, 0.5, 0.6]
    counts = [number % 3 for number in range(BATCH)]
    ragged = tf.ragged.constant([box * count for count in counts], dtype=tf.float32)
    got = moved(ALL, boxes=ragged)["boxes"].to_list()
    alone = moved(ALL, boxes=np.tile(np.array([box], np.float32), (BATCH, 1)))["boxes"]
    for count, mine, expected in zip(counts, got, alone, strict=True):
        np.testing.assert_allclose(np.reshape(mine, (count, 4)), np.tile(expected, (count, 1)), atol=1e-6)


def test_images_change_as_without_masks_and_other_features_stay() -> None:
    words = np.array([b"a"] * BATCH)
    got = moved(ALL, masks=MASKS, word=words)
    expected = augment.augment(tf.constant(IMAGES), ALL, Normalise(), SEED)
    np.testing.assert_array_equal(got["image"], expected)
    assert got["word"] is words


def test_several_workers_move_their_parts_of_the_batch_as_one_worker_does() -> None:
    boxes = np.tile(np.array([[0.2, 0.3, 0.5, 0.6]], np.float32), (BATCH, 1))
    features = {"image": IMAGES, "mask": MASKS, "box": boxes}
    roles: dict[str, Any] = {"masks": ["mask"], "boxes": ["box"]}
    whole = augment_batch(features, ALL, SEED, **roles)
    for index in range(2):
        part = {name: values[index * 8 : (index + 1) * 8] for name, values in features.items()}
        got = augment_batch(part, ALL, SEED, workers=WorkerContext(index, 2), **roles)
        for name, values in got.items():
            expected = whole[name][index * 8 : (index + 1) * 8]
            if name == "mask":  # a coordinate in the middle of two pixels
                assert (values == expected).mean() > 0.999
            else:
                np.testing.assert_allclose(values, expected, atol=1e-4)


def test_it_works_within_a_dataset_of_images_whose_size_is_not_known() -> None:
    signature = {"image": tf.TensorSpec([None, None, None, 3], tf.uint8), "mask": tf.TensorSpec([None] * 3, tf.uint8)}
    batches = tf.data.Dataset.from_generator(lambda: [{"image": IMAGES, "mask": MASKS}], output_signature=signature)
    mapped = batches.map(lambda batch: augment_batch(batch, ALL, SEED, masks=["mask"]))
    got = next(iter(mapped))["mask"].numpy()
    assert (got == moved(ALL, masks=MASKS)["masks"]).mean() > 0.999


@pytest.mark.parametrize(
    ("features", "roles", "where", "value"),
    [
        ({}, {"masks": ["masque"]}, "option masks", "masque"),
        ({"mask": np.zeros((BATCH, 5))}, {"masks": ["mask"]}, "option masks", "5"),
        ({"mask": MASKS > 2}, {"masks": ["mask"]}, "option masks", "bool"),
        ({"mask": MASKS.astype(np.int8)}, {"masks": ["mask"], "options": FILLED}, "option mask_fill", "255"),
        ({"mask": MASKS[:, :9]}, {"masks": ["mask"]}, "options images and masks", "9"),
        ({"box": np.zeros((BATCH, 2, 4), np.int64)}, {"boxes": ["box"]}, "option boxes", "int64"),
        ({"box": np.zeros((BATCH, 6), np.float32)}, {"boxes": ["box"]}, "option boxes", "6"),
        ({"mask": MASKS}, {"masks": ["mask"], "images": []}, "option images", "no image"),
    ],
)
def test_what_cannot_follow_the_images_is_refused(
    features: dict[str, Any], roles: dict[str, Any], where: str, value: str
) -> None:
    with pytest.raises(InfeedError) as raised:
        augment_batch({"image": IMAGES, **features}, **{"options": ALL, "seed": SEED, **roles})
    assert raised.value.where == where
    assert value in raised.value.what


def test_a_row_of_half_a_box_is_an_error() -> None:
    odd = tf.ragged.constant([[0.1, 0.2, 0.3, 0.4]] * (BATCH - 1) + [[0.1] * 6], dtype=tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError):
        moved(ALL, boxes=odd)


def test_boxes_in_pixels_are_an_error() -> None:
    pixels = np.tile(np.array([[4, 5, 20, 25]], np.float32), (BATCH, 1))
    with pytest.raises(tf.errors.InvalidArgumentError):
        moved(ALL, boxes=pixels)
