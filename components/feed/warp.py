"""Whole batches of pictures resampled, each by an affine map of its own; written so that XLA makes one loop of it."""

from __future__ import annotations

import tensorflow as tf


def warp(images: tf.Tensor, maps: tf.Tensor, *, whole: bool = False) -> tf.Tensor:
    """Resamples [batch, height, width, channels] by maps [batch, 6]: bilinear, edges reflected. float32.

    A map (a0, a1, a2, b0, b1, b2) takes the output pixel (x, y) from the input at (a0 x + a1 y + a2, b0 x + b1 y + b2).
    Beyond its edge a picture goes on as its mirror image, edge pixels twice: scipy's `reflect`, numpy's `symmetric`,
    OpenCV's `BORDER_REFLECT`.

    Args:
      whole: every map leads from whole pixels to whole pixels, so that nothing is to be interpolated.
    """
    height, width = tf.shape(images)[1], tf.shape(images)[2]
    x, y = _sources(maps, height, width)
    left, top = tf.floor(x), tf.floor(y)
    pixels = _Pixels(images)
    if whole:
        return pixels.at(left, top)
    # Beyond the last pixel lies the last pixel again.
    right = tf.minimum(left + 1, tf.cast(width - 1, tf.float32))
    bottom = tf.minimum(top + 1, tf.cast(height - 1, tf.float32))
    to_right, to_bottom = (x - left)[..., tf.newaxis], (y - top)[..., tf.newaxis]
    above = pixels.at(left, top) * (1 - to_right) + pixels.at(right, top) * to_right
    below = pixels.at(left, bottom) * (1 - to_right) + pixels.at(right, bottom) * to_right
    return above * (1 - to_bottom) + below * to_bottom


class _Pixels:
    """A batch as one long row of pixels: gathering from that is much cheaper than by batch, row and column."""

    def __init__(self, images: tf.Tensor) -> None:
        batch, height, self.width, channels = tf.unstack(tf.shape(images))
        self.row = tf.reshape(images, [-1, channels])
        self.first = tf.range(batch)[:, tf.newaxis, tf.newaxis] * (height * self.width)  # of each picture

    def at(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Whole coordinates, float32 [batch, height, width] -> float32 [batch, height, width, channels]."""
        place = self.first + tf.cast(y, tf.int32) * self.width + tf.cast(x, tf.int32)
        return tf.cast(tf.gather(self.row, place), tf.float32)


def _sources(maps: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where each output pixel comes from, inside the picture: x and y, float32 [batch, height, width]."""
    x = tf.range(width)[tf.newaxis, tf.newaxis, :]
    y = tf.range(height)[tf.newaxis, :, tf.newaxis]
    x, y = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
    a0, a1, a2, b0, b1, b2 = (one[:, tf.newaxis, tf.newaxis] for one in tf.unstack(maps, axis=1))
    return _reflected(a0 * x + a1 * y + a2, width), _reflected(b0 * x + b1 * y + b2, height)


def _reflected(coordinates: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Coordinates from anywhere into 0 to size - 1.

    Pixel i covers i - 1/2 to i + 1/2, so mirrors stand at -1/2 and size - 1/2 and what they show repeats every
    2 size pixels. Within half a pixel of the edge both neighbours are the edge pixel, hence the clip.
    """
    side = tf.cast(size, tf.float32)
    place = coordinates + 0.5
    place -= tf.floor(place / (2 * side)) * (2 * side)
    return tf.clip_by_value(side - tf.abs(place - side) - 0.5, 0.0, side - 1)
