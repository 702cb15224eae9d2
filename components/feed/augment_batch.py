"""Augmentation of whole batches: one warp moves images together with the masks and boxes of their objects.

All features of an example share its random numbers, so the images, masks and boxes of a row move together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed import augment as images_of
from infeed.components.feed.options import SINGLE_WORKER, Augment, Draws, Normalise, WorkerContext
from infeed.components.feed.user_maps import Ragged

_PIXELS = Normalise()
# Box coordinates this large must be pixels, not shares, although boxes may extend beyond their images.
_PIXELS_FROM = 4.0


def augment_batch(
    features: Mapping[str, Any],
    options: Augment,
    seed: Any,
    *,
    images: Sequence[str] = ("image",),
    masks: Sequence[str] = (),
    boxes: Sequence[str] = (),
    normalise: Normalise = _PIXELS,
    workers: WorkerContext = SINGLE_WORKER,
) -> dict[str, Any]:
    """Augment and normalize the images of a batch, and move their masks and boxes by the same warp.

    Masks keep their type: each pixel takes the class of the nearest pixel. Boxes stay axis-aligned and are clipped at
    the edges. A box outside the image becomes [0, 0, 0, 0], so that other features of the objects still match by
    position. Boxes with no area, which are padding, do not change.

    Args:
      features: tensors or NumPy arrays by name, [batch, ...]; other features are unchanged.
      seed: int64 [2]: the seed of the run, and the number of this step. The seed of `infeed.load(...).map` is suitable.
      images: names of images, uint8 [batch, height, width, channels].
      masks: names of masks, [batch, height, width] or [batch, height, width, channels], integers.
      boxes: names of boxes, float32 [batch, n, 4], or lists of 4 n numbers: ymin, xmin, ymax, xmax as shares of height
        and width. May be ragged or sparse.
      normalise: normalization of the images.
      workers: the worker that prepares this part of the global batch.

    Returns:
      All features by name. Arrays stay arrays, and tensors stay tensors.

    Raises:
      InfeedError: a feature is missing, or its shape or type does not fit its role.
    """
    roles = {*images, *masks, *boxes}
    tensors = {name: _tensor(value) if name in roles else value for name, value in features.items()}
    specs = {
        name: tf.TensorSpec(value.shape, value.dtype) if isinstance(value, tf.Tensor) else None
        for name, value in tensors.items()
    }
    check_roles(specs, options, images, masks, boxes)
    # Masks and boxes draw the same numbers from this seed as the images, and therefore move with them.
    seed = tf.cast(seed, tf.int64)
    for name in images:
        tensors[name] = images_of.augment(tensors[name], options, normalise, seed, workers)
    if options.moves and (masks or boxes):
        height, width = tf.unstack(tf.shape(tensors[images[0]])[1:3])
        draws = images_of.draw_batch(tf.shape(tensors[images[0]], tf.int64)[0], seed, workers)
        for name in masks:
            planes = tensors[name] if tensors[name].shape.rank == 4 else tensors[name][..., tf.newaxis]
            move = _mask_mover(options, compiled=not images_of.why_not_compiled(planes.shape))
            moved = tf.reshape(move(planes, draws), tf.shape(tensors[name]))
            tensors[name] = tf.ensure_shape(moved, tensors[name].shape)
        for name in boxes:
            tensors[name] = move_boxes(tensors[name], images_of.affine(height, width, options, draws), height, width)
    return {name: _like(value, tensors[name]) if name in roles else value for name, value in features.items()}


def check_roles(
    specs: Mapping[str, tf.TensorSpec | None],
    options: Augment,
    images: Sequence[str],
    masks: Sequence[str],
    boxes: Sequence[str],
) -> None:
    """Raise InfeedError if a mask or a box cannot follow the images.

    `specs` are the type and shape [batch, ...] of each feature. Ragged and sparse features have shape None.
    """
    for option, names in (("images", images), ("masks", masks), ("boxes", boxes)):
        if unknown := [name for name in names if name not in specs]:
            do = f"name one of {', '.join(sorted(specs))}"
            raise InfeedError(f"there is no feature {unknown[0]!r}", where=f"option {option}", do=do)
    for name in masks:
        spec = specs[name]
        if spec is None or spec.dtype in (tf.string, tf.bool) or spec.shape.rank not in (3, 4):
            found = f"{spec.dtype.name} {spec.shape[1:]}" if spec is not None else "of varying length"
            do = "use integers [height, width] or [height, width, channels], as DecodeImage(method='nearest') returns"
            raise InfeedError(f"mask {name!r} is {found}", where="option masks", do=do)
        if options.mask_fill is not None and options.mask_fill > spec.dtype.max:
            do = f"use a class that fits into {spec.dtype.name}, or masks of uint8"
            what = f"mask {name!r} is {spec.dtype.name}, but mask_fill is {options.mask_fill}"
            raise InfeedError(what, where="option mask_fill", do=do)
    for name in boxes:
        spec = specs[name]
        if spec is not None and not (
            spec.dtype.is_floating and spec.shape.rank in (2, 3) and (spec.shape[-1] or 4) % 4 == 0
        ):
            do = "use float32 [n, 4]: ymin, xmin, ymax, xmax of each box as shares of height and width"
            raise InfeedError(f"boxes {name!r} are {spec.dtype.name} {spec.shape[1:]}", where="option boxes", do=do)
    if options.moves and (masks or boxes):
        _check_sizes({name: specs[name] for name in (*images, *masks)}, images)


def _check_sizes(specs: Mapping[str, tf.TensorSpec | None], images: Sequence[str]) -> None:
    if not images:
        do = "set images to the images that the masks and boxes belong to"
        raise InfeedError("there are masks or boxes, but no image", where="option images", do=do)
    sizes = {name: spec.shape[1:3] for name, spec in specs.items() if spec is not None}
    for name, size in sizes.items():
        if not size.is_compatible_with(sizes[images[0]]):
            what = f"{name!r} is {size} pixels, and {images[0]!r} is {sizes[images[0]]}"
            do = "give images and masks that move together the same height and width"
            raise InfeedError(what, where="options images and masks", do=do)


@cache
def _mask_mover(options: Augment, *, compiled: bool) -> Callable[[tf.Tensor, Draws], tf.Tensor]:
    """Return a function that warps masks [batch, height, width, channels] like `augment.warp`, to the nearest pixel."""

    def move(masks: tf.Tensor, draws: Draws) -> tf.Tensor:
        height, width = tf.shape(masks)[1], tf.shape(masks)[2]
        x, y = images_of.sources(images_of.affine(height, width, options, draws), height, width)
        nearest = [tf.floor(images_of.reflected(one, size) + 0.5) for one, size in ((x, width), (y, height))]
        moved = images_of.PixelRow(masks).at(*nearest)
        if options.mask_fill is None:
            return moved
        inside = _is_inside(x, width) & _is_inside(y, height)
        return tf.where(inside[..., tf.newaxis], moved, tf.constant(options.mask_fill, masks.dtype))

    return tf.function(move, jit_compile=True, autograph=False) if compiled else move


def _is_inside(coordinates: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Return whether coordinates are on a pixel: pixel i covers i - 1/2 to i + 1/2."""
    return (coordinates >= -0.5) & (coordinates < tf.cast(size, tf.float32) - 0.5)


def move_boxes(boxes: Any, maps: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> Any:
    """Move boxes, [batch, n, 4] or [batch, 4 n], dense, ragged or sparse, by maps [batch, 6] as `augment.warp` does."""
    if isinstance(boxes, tf.SparseTensor):
        return boxes.with_values(_moved_values(boxes.values, boxes.indices[:, 0], maps, height, width))
    if isinstance(boxes, tf.RaggedTensor):
        by_row = boxes.merge_dims(1, -1) if boxes.shape.rank == 3 else boxes
        moved = _moved_values(by_row.flat_values, by_row.value_rowids(), maps, height, width)
        return boxes.with_flat_values(tf.reshape(moved, tf.shape(boxes.flat_values)))
    each = tf.reshape(boxes, [tf.shape(boxes)[0], -1, 4])
    return tf.ensure_shape(tf.reshape(_moved(each, maps[:, tf.newaxis], height, width), tf.shape(boxes)), boxes.shape)


def _moved_values(
    values: tf.Tensor, rows: tf.Tensor, maps: tf.Tensor, height: tf.Tensor, width: tf.Tensor
) -> tf.Tensor:
    """Move boxes whose numbers are concatenated: [4 n], with the batch row of each number."""
    counts = tf.math.bincount(tf.cast(rows, tf.int32))
    complaint = "a row of boxes has a number of values that is not a multiple of 4"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(counts % 4 == 0), [complaint])]):
        each = tf.reshape(values, [-1, 4])
    return tf.reshape(_moved(each, tf.gather(maps, rows[::4]), height, width), [-1])


def _moved(boxes: tf.Tensor, maps: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Move boxes [..., 4] by maps [..., 6]. The result is the bounding box of the moved corners, clipped at the edges.

    A map gives the source of each output pixel, so corners move by its inverse.
    """
    size = tf.cast(tf.stack([height, width, height, width]), tf.float32)
    complaint = "boxes must be shares of height and width, but these seem to be pixels:"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(boxes < _PIXELS_FROM), [complaint, boxes])]):
        boxes = tf.identity(boxes)
    top, left, bottom, right = tf.unstack(boxes * size - 0.5, axis=-1)
    a0, a1, a2, b0, b1, b2 = (one[..., tf.newaxis] for one in tf.unstack(maps, axis=-1))
    x, y = tf.stack([left, right, left, right], -1) - a2, tf.stack([top, top, bottom, bottom], -1) - b2
    area = a0 * b1 - a1 * b0
    moved_x, moved_y = (b1 * x - a1 * y) / area, (a0 * y - b0 * x) / area
    least, most = partial(tf.reduce_min, axis=-1), partial(tf.reduce_max, axis=-1)
    ends = tf.stack([least(moved_y), least(moved_x), most(moved_y), most(moved_x)], -1)
    moved = tf.clip_by_value((ends + 0.5) / size, 0.0, 1.0)
    moved = tf.where(_has_area(moved), moved, 0.0)
    return tf.where(_has_area(boxes), moved, boxes)


def _has_area(boxes: tf.Tensor) -> tf.Tensor:
    """Return whether boxes [..., 4] have an area: bool [..., 1]."""
    return tf.reduce_all(boxes[..., 2:] > boxes[..., :2], axis=-1, keepdims=True)


def _tensor(value: Any) -> Any:
    if isinstance(value, Ragged):
        return tf.RaggedTensor.from_row_splits(value.values, value.row_splits, validate=False)
    return tf.constant(value) if isinstance(value, np.ndarray) else value


def _like(given: Any, tensor: Any) -> Any:
    """Convert a tensor to an array if the input was an array."""
    if isinstance(given, Ragged):
        return Ragged(tensor.values.numpy(), given.row_splits)
    return tensor.numpy() if isinstance(given, np.ndarray) else tensor
