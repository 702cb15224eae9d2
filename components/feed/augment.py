"""Random changes to whole batches of images: shift with reflected edges, flip, rotate, brightness, contrast, cut out.

Shift, flip and rotation are one affine map, so every picture is resampled once; brightness and contrast are another, of
its pixels' values. All random numbers are stateless: they
depend on (seed, step, position in the batch) and on nothing else, so a run can be repeated and resumed exactly.
"""

from __future__ import annotations

import math

import tensorflow as tf

from infeed.components.feed.options import ALONE, Augment, Normalise, Workers


def normalise(images: tf.Tensor, options: Normalise) -> tf.Tensor:
    """uint8 or float [batch, height, width, channels], 0 to 255 -> float32 of the same shape."""
    return (tf.cast(images, tf.float32) / 255.0 - options.mean) / options.std


def augment(
    images: tf.Tensor, options: Augment, scale: Normalise, seed: tf.Tensor, workers: Workers = ALONE
) -> tf.Tensor:
    """uint8 [batch, height, width, channels], seed int [2] -> float32 of the same shape, normalised.

    The images are this worker's part of a global batch: each is changed as it would be if one worker made them all.
    """
    pixels = tf.cast(images, tf.float32)
    if options.shift or options.rotate or options.flip != "none":
        pixels = warp(pixels, affine(tf.shape(images), options, seed, workers))
    if options.brightness or options.contrast:
        pixels = adjust(pixels, *light(tf.shape(images), options, seed, workers))
    pixels = normalise(pixels, scale)
    if options.cutout:
        pixels *= tf.cast(~cutout_mask(tf.shape(images), options.cutout, seed, workers), tf.float32)
    return tf.ensure_shape(pixels, images.shape)


def affine(shape: tf.Tensor, options: Augment, seed: tf.Tensor, workers: Workers = ALONE) -> tf.Tensor:
    """One map an image, float32 [batch, 8], from output to input coordinates about the picture's centre.

    The layout is that of `tf.raw_ops.ImageProjectiveTransformV3`: (a0, a1, a2, b0, b1, b2, 0, 0) takes the output
    pixel (x, y) from the input at (a0 x + a1 y + a2, b0 x + b1 y + b2).
    """
    batch = shape[0]
    centre_y, centre_x = (tf.cast(shape[1], tf.float32) - 1) / 2, (tf.cast(shape[2], tf.float32) - 1) / 2
    draws = _draws(4, batch, _derive(seed, 0), workers)
    angle = (draws[0] * 2 - 1) * (options.rotate * math.pi / 180)
    mirror = tf.where(draws[1] < 0.5, -1.0, 1.0) if options.flip == "horizontal" else tf.ones([batch])
    shift_x, shift_y = (tf.floor(draw * (2 * options.shift + 1)) - options.shift for draw in (draws[2], draws[3]))
    a0, a1 = mirror * tf.cos(angle), -tf.sin(angle)
    b0, b1 = mirror * tf.sin(angle), tf.cos(angle)
    a2 = centre_x + shift_x - a0 * centre_x - a1 * centre_y
    b2 = centre_y + shift_y - b0 * centre_x - b1 * centre_y
    zero = tf.zeros([batch])
    return tf.stack([a0, a1, a2, b0, b1, b2, zero, zero], axis=1)


def warp(images: tf.Tensor, transforms: tf.Tensor) -> tf.Tensor:
    """Resamples float32 [batch, height, width, channels] by maps [batch, 8]: bilinear, edges reflected."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=tf.shape(images)[1:3],
        interpolation="BILINEAR",
        fill_mode="REFLECT",
        fill_value=0.0,
    )


def light(shape: tf.Tensor, options: Augment, seed: tf.Tensor, workers: Workers = ALONE) -> tuple[tf.Tensor, tf.Tensor]:
    """For each image what is added to its pixels, and by what their distance from the mean is multiplied: [batch]."""
    draws = _draws(2, shape[0], _derive(seed, 2), workers) * 2 - 1
    return draws[0] * (options.brightness * 255), 1 + draws[1] * options.contrast


def adjust(images: tf.Tensor, added: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Brightness and contrast of float32 [batch, height, width, channels], 0 to 255, by numbers [batch]."""
    added, factor = (numbers[:, tf.newaxis, tf.newaxis, tf.newaxis] for numbers in (added, factor))
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return tf.clip_by_value(images * factor + (mean * (1 - factor) + added), 0, 255)


def cutout_mask(shape: tf.Tensor, side: int, seed: tf.Tensor, workers: Workers = ALONE) -> tf.Tensor:
    """bool [batch, height, width, 1], true inside a square of `side` pixels round a random pixel (DeVries 2017)."""
    batch, height, width = shape[0], shape[1], shape[2]
    draws = _draws(2, batch, _derive(seed, 1), workers)[..., tf.newaxis]
    top = tf.cast(draws[0] * tf.cast(height, tf.float32), tf.int32) - side // 2
    left = tf.cast(draws[1] * tf.cast(width, tf.float32), tf.int32) - side // 2
    y, x = tf.range(height)[tf.newaxis], tf.range(width)[tf.newaxis]
    rows, columns = (y >= top) & (y < top + side), (x >= left) & (x < left + side)
    return (rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :])[..., tf.newaxis]


def _draws(kinds: int, batch: tf.Tensor, seed: tf.Tensor, workers: Workers) -> tf.Tensor:
    """Numbers from 0 to 1, float32 [kinds, batch]: those of this worker's part of the global batch."""
    draws = tf.random.stateless_uniform([kinds, batch * workers.count], seed)
    return draws[:, batch * workers.index :][:, :batch]


def _derive(seed: tf.Tensor, stream: int) -> tf.Tensor:
    """A seed for one use of many: adding numbers to a seed would make neighbouring steps share their draws."""
    return tf.random.experimental.stateless_fold_in(tf.cast(seed, tf.int32), stream)
