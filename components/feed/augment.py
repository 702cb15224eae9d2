"""Random augmentation of whole image batches: crop, shift with reflected edges, flip, rotate, brightness, cutout.

One affine map combines all movements, so each image is resampled once. A second map changes brightness and contrast.
XLA compiles both, which is three times as fast as separate operations.

The random numbers of an image depend only on the seed and on the image's position in the training order. So images do
not change if a run is repeated, resumed or shared among workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import tensorflow as tf

from infeed.components.feed.options import COUNTERS, SINGLE_WORKER, Augment, Draws, Normalise, WorkerContext


def normalise(images: tf.Tensor, options: Normalise) -> tf.Tensor:
    """Normalize uint8 or float [batch, height, width, channels], 0 to 255, to float32 of the same shape."""
    return (tf.cast(images, tf.float32) / 255.0 - options.mean) / options.std


def augment(
    images: tf.Tensor, options: Augment, scale: Normalise, seed: tf.Tensor, workers: WorkerContext = SINGLE_WORKER
) -> tf.Tensor:
    """Augment and normalize uint8 [batch, height, width, channels] to float32 of the same shape.

    `seed` is int64 [2]: the seed of the run, and the number of this step since training began. `workers` identifies
    the worker that prepares this part of the global batch. All batches have the same size.
    """
    numbers = draw_batch(tf.shape(images, tf.int64)[0], seed, workers)
    change = _change(options, scale, compiled=not why_not_compiled(images.shape))
    return tf.ensure_shape(change(images, numbers), images.shape)


def draw_batch(size: tf.Tensor, seed: tf.Tensor, workers: WorkerContext) -> Draws:
    """Draw the random numbers of the `size` images of a batch. For `seed` and `workers`, see `augment`."""
    return draw(seed[0], (seed[1] * workers.count + workers.index) * size, size)


def how(shapes: Iterable[Sequence[int | None]]) -> str:
    """Describe for the plan whether XLA compiles the augmentation of images of these shapes."""
    reasons = {reason for shape in shapes if (reason := why_not_compiled(tf.TensorShape(shape)))}
    return f"not compiled: {'; '.join(sorted(reasons))}" if reasons else "compiled by XLA"


def why_not_compiled(shape: tf.TensorShape) -> str:
    """Return why XLA does not compile the augmentation of images of this shape. Empty if it does."""
    return _why_not_here() if shape.is_fully_defined() else f"XLA requires fixed shapes, but the images are {shape}"


_PHILOX = 1


def draw(seed: tf.Tensor, first: tf.Tensor, count: tf.Tensor) -> Draws:
    """Draw the random numbers of the images `first` to `first + count - 1` of the run."""
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.stack([tf.cast(seed, tf.int64), 0]))
    counter += tf.cast(tf.stack([first * COUNTERS, 0]), tf.uint64)
    shape = tf.stack([count, len(Draws._fields)])
    numbers = tf.raw_ops.StatelessRandomUniformV2(shape=shape, key=key, counter=counter, alg=_PHILOX)
    return Draws(*tf.unstack(numbers, axis=1))


def affine(height: tf.Tensor, width: tf.Tensor, options: Augment, draws: Draws) -> tf.Tensor:
    """Return one map per image for `warp`, float32 [batch, 6]: mirror, scale and rotate about the center, then move."""
    height, width = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
    mirror = tf.where(draws.mirror < (0.5 if options.flip == "horizontal" else 0.0), -1.0, 1.0)
    angle = _either_way(draws.angle) * (options.rotate * math.pi / 180)
    part_x, part_y = window(options, draws)
    a0, a1 = mirror * part_x * tf.cos(angle), -part_y * tf.sin(angle)
    b0, b1 = mirror * part_x * tf.sin(angle), part_y * tf.cos(angle)
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    move_x = _shift(draws.shift_x, options) + _either_way(draws.window_x) * (1 - part_x) * width / 2
    move_y = _shift(draws.shift_y, options) + _either_way(draws.window_y) * (1 - part_y) * height / 2
    a2 = centre_x + move_x - a0 * centre_x - a1 * centre_y
    b2 = centre_y + move_y - b0 * centre_x - b1 * centre_y
    return tf.stack([a0, a1, a2, b0, b1, b2], axis=1)


def window(options: Augment, draws: Draws) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the shares of width and height that the crop keeps, [batch] each, in 0 to 1."""
    area = options.crop + draws.area * (1 - options.crop)
    aspect = tf.exp(_either_way(draws.aspect) * math.log(options.stretch))
    return tf.minimum(tf.sqrt(area * aspect), 1.0), tf.minimum(tf.sqrt(area / aspect), 1.0)


def cutout_mask(height: tf.Tensor, width: tf.Tensor, side: int, draws: Draws) -> tf.Tensor:
    """Return a mask, bool [batch, height, width, 1], of a square of `side` pixels at a random pixel (DeVries 2017)."""
    top = tf.cast(draws.cutout_y * tf.cast(height, tf.float32), tf.int32)[:, tf.newaxis] - side // 2
    left = tf.cast(draws.cutout_x * tf.cast(width, tf.float32), tf.int32)[:, tf.newaxis] - side // 2
    y, x = tf.range(height)[tf.newaxis], tf.range(width)[tf.newaxis]
    rows, columns = (y >= top) & (y < top + side), (x >= left) & (x < left + side)
    return (rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :])[..., tf.newaxis]


def warp(images: tf.Tensor, maps: tf.Tensor, *, whole: bool = False) -> tf.Tensor:
    """Resample [batch, height, width, channels] by maps [batch, 6] to float32: bilinear, with reflected edges.

    The output pixel (x, y) of a map (a0, a1, a2, b0, b1, b2) is the input at (a0 x + a1 y + a2, b0 x + b1 y + b2).
    With `whole`, all maps move by whole pixels, so no interpolation is needed. Beyond an edge, the image is mirrored,
    edge pixels included: `reflect` in SciPy, `symmetric` in NumPy, `BORDER_REFLECT` in OpenCV.
    """
    height, width = tf.shape(images)[1], tf.shape(images)[2]
    x, y = sources(maps, height, width)
    x, y = reflected(x, width), reflected(y, height)
    left, top = tf.floor(x), tf.floor(y)
    row = PixelRow(images)

    def at(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.cast(row.at(x, y), tf.float32)

    if whole:
        return at(left, top)
    # The neighbor of the last pixel is the last pixel again.
    right = tf.minimum(left + 1, tf.cast(width - 1, tf.float32))
    bottom = tf.minimum(top + 1, tf.cast(height - 1, tf.float32))
    to_right, to_bottom = (x - left)[..., tf.newaxis], (y - top)[..., tf.newaxis]
    above = at(left, top) * (1 - to_right) + at(right, top) * to_right
    below = at(left, bottom) * (1 - to_right) + at(right, bottom) * to_right
    return above * (1 - to_bottom) + below * to_bottom


class PixelRow:
    """Batch as one long row of pixels. Gathering from it is much cheaper than by batch, row and column."""

    def __init__(self, images: tf.Tensor) -> None:
        batch, height, self.width, channels = tf.unstack(tf.shape(images))
        self.row = tf.reshape(images, [-1, channels])
        self.first = tf.range(batch)[:, tf.newaxis, tf.newaxis] * (height * self.width)  # index of each image

    def at(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Gather the pixels [batch, height, width, channels] at integer coordinates, float32 [batch, height, width]."""
        return tf.gather(self.row, self.first + tf.cast(y, tf.int32) * self.width + tf.cast(x, tf.int32))


def sources(maps: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the source x and y of each output pixel, float32 [batch, height, width], possibly outside the image."""
    x = tf.range(width)[tf.newaxis, tf.newaxis, :]
    y = tf.range(height)[tf.newaxis, :, tf.newaxis]
    x, y = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
    a0, a1, a2, b0, b1, b2 = (one[:, tf.newaxis, tf.newaxis] for one in tf.unstack(maps, axis=1))
    return a0 * x + a1 * y + a2, b0 * x + b1 * y + b2


def reflected(coordinates: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Reflect coordinates into 0 to size - 1.

    Pixel i covers i - 1/2 to i + 1/2, so the mirrors are at -1/2 and size - 1/2, and the image repeats every 2 size
    pixels. Within half a pixel of an edge, both neighbors are the edge pixel, so the result is clipped.
    """
    side = tf.cast(size, tf.float32)
    place = coordinates + 0.5
    place -= tf.floor(place / (2 * side)) * (2 * side)
    return tf.clip_by_value(side - tf.abs(place - side) - 0.5, 0.0, side - 1)


@cache
def _change(options: Augment, scale: Normalise, *, compiled: bool) -> Callable[[tf.Tensor, Draws], tf.Tensor]:
    """Return a function that moves pixels, then changes their values. The cache compiles each shape only once.

    Two functions are compiled. In a single one, XLA would move every pixel twice, once for the mean of the contrast.
    """

    def move(images: tf.Tensor, draws: Draws) -> tf.Tensor:
        height, width = tf.shape(images)[1], tf.shape(images)[2]
        if options.moves:
            return warp(images, affine(height, width, options, draws), whole=not options.resamples)
        return tf.cast(images, tf.float32)

    def color(pixels: tf.Tensor, draws: Draws) -> tf.Tensor:
        if options.brightness or options.contrast:
            added = _each(_either_way(draws.brightness)) * (options.brightness * 255)
            factor = 1 + _each(_either_way(draws.contrast)) * options.contrast
            mean = tf.reduce_mean(pixels, axis=[1, 2], keepdims=True)
            pixels = tf.clip_by_value(pixels * factor + (mean * (1 - factor) + added), 0, 255)
        pixels = normalise(pixels, scale)
        if options.cutout:  # last, because 0 is the mean of normalized pixels
            height, width = tf.shape(pixels)[1], tf.shape(pixels)[2]
            pixels = tf.where(cutout_mask(height, width, options.cutout, draws), 0.0, pixels)
        return pixels

    if compiled:
        move, color = (tf.function(step, jit_compile=True, autograph=False) for step in (move, color))
    return lambda images, draws: color(move(images, draws), draws)


@cache
def _why_not_here() -> str:
    """Return why XLA is unavailable: TensorFlow has no XLA, or no compiler for this processor. Empty if it is."""
    try:
        with tf.init_scope(), tf.device("cpu:0"):
            tf.function(tf.negative, jit_compile=True, autograph=False)(tf.zeros([]))
    except tf.errors.OpError as error:
        return f"XLA says: {error.message.splitlines()[0]}"
    return ""


def _either_way(numbers: tf.Tensor) -> tf.Tensor:
    """Map numbers from the range 0..1 to the range -1..1."""
    return numbers * 2 - 1


def _shift(numbers: tf.Tensor, options: Augment) -> tf.Tensor:
    """Map numbers from the range 0..1 to integers from -shift to shift."""
    return tf.floor(numbers * (2 * options.shift + 1)) - options.shift


def _each(numbers: tf.Tensor) -> tf.Tensor:
    return numbers[:, tf.newaxis, tf.newaxis, tf.newaxis]
