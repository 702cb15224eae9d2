"""Decoding of images to pixels inside a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import tensorflow as tf

_JPEG = b"\xff\xd8\xff"

# Orientation tag of cameras: Exif 2.32, tag 0x0112, one SHORT in either byte order. `\C` is any byte.
_EXIF_BYTES = 4096  # bytes at the start of a file that are searched for the tag
_ORIENTATION = (
    r"^\C*?Exif\x00\x00(?:"
    r"MM\C*?\x01\x12\x00\x03\x00\x00\x00\x01\x00([\x01-\x08])|II\C*?\x12\x01\x03\x00\x01\x00\x00\x00([\x01-\x08])"
    r")\C*$"
)


def decode_batch(
    encoded: tf.Tensor, height: int, width: int, channels: int, rule: str = "stretch", method: str = "bilinear"
) -> tf.Tensor:
    """Decode [batch] PNG, JPEG, BMP or GIF bytes to uint8 [batch, height, width, channels].

    Images of the right size keep their exact pixels. Others are resized.

    Args:
      rule: "stretch" ignores the aspect ratio. "fit" shows the whole image with black borders. "crop" shows the
          largest central part with the right aspect ratio.
      method: "bilinear", "bicubic", "lanczos3" or "area", all antialiased, or "nearest".
    """

    def decode_one(encoded: tf.Tensor) -> tf.Tensor:
        decoded = _decode(encoded, channels)  # [any, any, channels] uint8
        start = tf.strings.substr(encoded, 0, _EXIF_BYTES)
        has_tag = tf.strings.regex_full_match(start, _ORIENTATION)
        image = tf.cond(has_tag, lambda: _turned(decoded, start), lambda: decoded)
        fits = tf.reduce_all(tf.equal(tf.shape(image)[:2], [height, width]))
        image = tf.cond(fits, lambda: image, lambda: _RULES[rule](image, height, width, method))
        return tf.ensure_shape(image, [height, width, channels])

    function = tf.function(decode_one, [tf.TensorSpec([], tf.string)], autograph=False).get_concrete_function()
    # `tf.map_fn` is a loop of many small operations, which take nearly a third of the time for 32 x 32 images.
    (images,) = tf.raw_ops.MapDefun(
        arguments=[encoded],
        captured_inputs=[],
        output_types=[tf.uint8],
        output_shapes=[[height, width, channels]],
        f=function,
    )
    return images


def _decode(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    decode = partial(tf.io.decode_image, encoded, expand_animations=False)
    if channels != 1:
        return decode(channels)
    # TensorFlow decodes a CMYK JPEG to RGB but not to gray.
    is_jpeg = tf.equal(tf.strings.substr(encoded, 0, len(_JPEG)), _JPEG)
    is_cmyk = tf.cond(is_jpeg, lambda: tf.equal(tf.image.extract_jpeg_shape(encoded)[2], 4), lambda: tf.constant(False))
    return tf.cond(is_cmyk, lambda: tf.image.rgb_to_grayscale(decode(3)), lambda: decode(1))


def _turned(image: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """Rotate or mirror an image by the orientation tag, 1 to 8, in the first bytes of its file."""
    tag = tf.strings.regex_replace(start, _ORIENTATION, r"\1\2", replace_global=False)
    orientation = tf.cast(tf.io.decode_raw(tag, tf.uint8)[0], tf.int32)
    turn, transpose = tf.image.rot90, partial(tf.transpose, perm=[1, 0, 2])
    ways = [
        lambda: image,
        lambda: tf.reverse(image, [1]),
        lambda: turn(image, 2),
        lambda: tf.reverse(image, [0]),
        lambda: transpose(image),
        lambda: turn(image, 3),
        lambda: turn(transpose(image), 2),
        lambda: turn(image, 1),
    ]
    return tf.switch_case(orientation - 1, ways)


def _stretch(image: tf.Tensor, height: int | tf.Tensor, width: int | tf.Tensor, method: str) -> tf.Tensor:
    resized = tf.image.resize(image, tf.stack([height, width]), method=method, antialias=True)
    return resized if resized.dtype == tf.uint8 else tf.saturate_cast(tf.round(resized), tf.uint8)


def _fit(image: tf.Tensor, height: int, width: int, method: str) -> tf.Tensor:
    size = tf.cast(tf.shape(image)[:2], tf.float64)
    scale = tf.reduce_min(tf.constant([height, width], tf.float64) / size)
    inner = tf.clip_by_value(tf.cast(tf.round(size * scale), tf.int32), 1, [height, width])
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    return tf.image.pad_to_bounding_box(_stretch(image, inner[0], inner[1], method), top, left, height, width)


def _crop(image: tf.Tensor, height: int, width: int, method: str) -> tf.Tensor:
    # Crop before resizing, so that pixels outside do not affect the result.
    size = tf.cast(tf.shape(image)[:2], tf.float64)
    scale = tf.reduce_max(tf.constant([height, width], tf.float64) / size)
    outer = tf.shape(image)[:2]
    inner = tf.clip_by_value(tf.cast(tf.round(tf.constant([height, width], tf.float64) / scale), tf.int32), 1, outer)
    corner = (outer - inner) // 2
    part = tf.image.crop_to_bounding_box(image, corner[0], corner[1], inner[0], inner[1])
    return _stretch(part, height, width, method)


_RULES: Mapping[str, Callable[[tf.Tensor, int, int, str], tf.Tensor]] = {
    "stretch": _stretch,
    "fit": _fit,
    "crop": _crop,
}


def scaled(pixels: tf.Tensor, mean: Sequence[float], deviation: Sequence[float]) -> tf.Tensor:
    """Return (pixel - mean) / deviation by channel as float32 [batch, height, width, channels], 0 for deviation 0.

    Args:
      pixels: uint8 [batch, height, width, channels].
      mean, deviation: [channels] or [1], in units of a pixel, 0 to 255.
    """
    values = tf.cast(pixels, tf.float32) - tf.constant(mean, tf.float32)
    return tf.math.divide_no_nan(values, tf.constant(deviation, tf.float32))
