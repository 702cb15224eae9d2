"""Features of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from infeed.components.base.checks import as_tuples, at_least, require
from infeed.components.transform.analyses import Analysis, Array
from infeed.components.transform.feature import Feature, FlatColumn, Tables, Tensor, is_finite, tf

Resize = Literal["stretch", "fit", "crop"]


class PixelMoments(Analysis):
    """Mean and deviation of each channel, from exact sums over all pixels of all training rows."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(folder)
        self.pixels = 0
        self.sum: Array = np.zeros(1, np.int64)  # [channels]
        self.squares: Array = np.zeros(1, np.int64)  # the sum of 10^14 pixels fits

    def add(self, values: Array, missing: int = 0, rows: int = 0) -> None:
        """Add the images of a batch: uint8 [n, height, width, channels]."""
        self.rows += rows
        self.count += len(values)
        self.missing += missing
        self.pixels += values[..., 0].size
        self.sum = self.sum + values.sum((0, 1, 2), dtype=np.int64)
        self.squares = self.squares + np.square(values, dtype=np.int64).sum((0, 1, 2))

    def _merge(self, other: PixelMoments) -> None:
        self.pixels += other.pixels
        self.sum, self.squares = self.sum + other.sum, self.squares + other.squares

    @property
    def means(self) -> list[float]:
        """Return the mean of each channel: [channels], 0 to 255."""
        return [int(total) / max(1, self.pixels) for total in self.sum]

    @property
    def deviations(self) -> list[float]:
        """Return the deviation of each channel: [channels], 0 to 127.5."""
        number = max(1, self.pixels)
        # n * squares - sum^2 is exact; the difference of two quotients is not.
        pairs = zip(self.sum.tolist(), self.squares.tolist(), strict=True)
        return [math.sqrt(number * squares - total * total) / number for total, squares in pairs]


@dataclass(frozen=True)
class DecodeImage(Feature):
    """Decode PNG, JPEG, BMP or the first frame of a GIF, to float32 [batch, height, width, channels].

    By default, pixels are integers from 0 to 255, so a cast to uint8 is exact. A transform graph cannot return uint8.

    16-bit channels are reduced to 8 bits. JPEGs are rotated according to their orientation tag. A row without an image
    is an error.

    Attributes:
      height, width: size of the result. Images of another size are resized.
      channels: 1 (gray), 3 (RGB, without an alpha channel) or 4 (RGBA, from PNG only).
      resize: "stretch" ignores the aspect ratio. "fit" centers the whole image and pads it with black. "crop" cuts off
        the margins.
      method: "bilinear", "bicubic", "lanczos3" or "area", with antialiasing, or "nearest".
      scale: "bytes" keeps 0 to 255. "unit" is pixel / 255. "mean_std" is (pixel / 255 - mean) / std for each channel.
      mean, std: mean and standard deviation of pixel / 255 for each channel, for example those of a pretrained model.
      None computes them from the resized images of the training rows. A channel with std 0 becomes 0.
    """

    height: int
    width: int
    channels: int = 3
    column: str = "image/encoded"
    output: str | None = "image"
    resize: Resize = field(default="stretch", kw_only=True)
    method: Literal["bilinear", "nearest", "bicubic", "area", "lanczos3"] = field(default="bilinear", kw_only=True)
    scale: Literal["bytes", "unit", "mean_std"] = field(default="bytes", kw_only=True)
    mean: tuple[float, ...] | None = field(default=None, kw_only=True)
    std: tuple[float, ...] | None = field(default=None, kw_only=True)
    kind: Literal["decode_image"] = field(default="decode_image", kw_only=True, repr=False)
    takes = ("bytes",)

    def __post_init__(self) -> None:
        as_tuples(self, "mean", "std")
        super().__post_init__()
        at_least(self, 1, "height", "width")
        require(self.channels in (1, 3, 4), self, "channels", "use 1 (gray), 3 (RGB) or 4 (RGBA)")
        both = (self.mean is None) == (self.std is None) and (self.mean is None or self.scale == "mean_std")
        require(both, self, "mean", 'set mean and std together, with scale "mean_std"')
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            fits = numbers is None or (len(numbers) == self.channels and all(map(is_finite, numbers)))
            require(fits, self, name, f"use {self.channels} numbers, one for each channel")

    @property
    def needs(self) -> tuple[type[Analysis], ...]:  # type: ignore[override]
        return (PixelMoments,) if self.scale == "mean_std" and self.mean is None else ()

    def analyzed(self, column: FlatColumn) -> FlatColumn:
        return column._replace(values=self._decoded(column))

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        pixels = self._decoded(column)
        if self.scale == "bytes":
            return tf.cast(pixels, tf.float32)
        if self.scale == "unit":
            return scaled(pixels, [0.0], [255.0])
        if self.mean is None or self.std is None:
            return scaled(pixels, found[0].means, found[0].deviations)
        return scaled(pixels, [255 * number for number in self.mean], [255 * number for number in self.std])

    def _decoded(self, column: FlatColumn) -> Any:
        """Return uint8 [n, height, width, channels]."""
        return decode_batch(column.values, self.height, self.width, self.channels, self.resize, self.method)


_JPEG = b"\xff\xd8\xff"

# Orientation tag of cameras: Exif 2.32, tag 0x0112, one SHORT in either byte order. `\C` is any byte.
_EXIF_BYTES = 4096  # bytes at the start of a file that are searched for the tag
_ORIENTATION = (
    r"^\C*?Exif\x00\x00(?:"
    r"MM\C*?\x01\x12\x00\x03\x00\x00\x00\x01\x00([\x01-\x08])|II\C*?\x12\x01\x03\x00\x01\x00\x00\x00([\x01-\x08])"
    r")\C*$"
)


def decode_batch(
    encoded: Tensor, height: int, width: int, channels: int, rule: str = "stretch", method: str = "bilinear"
) -> Tensor:
    """Decode [batch] PNG, JPEG, BMP or GIF bytes to uint8 [batch, height, width, channels].

    Images of the right size keep their exact pixels. Others are resized.

    Args:
      rule: "stretch" ignores the aspect ratio. "fit" shows the whole image with black borders. "crop" shows the
          largest central part with the right aspect ratio.
      method: "bilinear", "bicubic", "lanczos3" or "area", all antialiased, or "nearest".
    """

    def decode_one(encoded: Tensor) -> Tensor:
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


def _decode(encoded: Tensor, channels: int) -> Tensor:
    decode = partial(tf.io.decode_image, encoded, expand_animations=False)
    if channels != 1:
        return decode(channels)
    # TensorFlow decodes a CMYK JPEG to RGB but not to gray.
    is_jpeg = tf.equal(tf.strings.substr(encoded, 0, len(_JPEG)), _JPEG)
    is_cmyk = tf.cond(is_jpeg, lambda: tf.equal(tf.image.extract_jpeg_shape(encoded)[2], 4), lambda: tf.constant(False))
    return tf.cond(is_cmyk, lambda: tf.image.rgb_to_grayscale(decode(3)), lambda: decode(1))


def _turned(image: Tensor, start: Tensor) -> Tensor:
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


def _stretch(image: Tensor, height: int | Tensor, width: int | Tensor, method: str) -> Tensor:
    resized = tf.image.resize(image, tf.stack([height, width]), method=method, antialias=True)
    return resized if resized.dtype == tf.uint8 else tf.saturate_cast(tf.round(resized), tf.uint8)


def _fit(image: Tensor, height: int, width: int, method: str) -> Tensor:
    size = tf.cast(tf.shape(image)[:2], tf.float64)
    scale = tf.reduce_min(tf.constant([height, width], tf.float64) / size)
    inner = tf.clip_by_value(tf.cast(tf.round(size * scale), tf.int32), 1, [height, width])
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    return tf.image.pad_to_bounding_box(_stretch(image, inner[0], inner[1], method), top, left, height, width)


def _crop(image: Tensor, height: int, width: int, method: str) -> Tensor:
    # Crop before resizing, so that pixels outside do not affect the result.
    size = tf.cast(tf.shape(image)[:2], tf.float64)
    scale = tf.reduce_max(tf.constant([height, width], tf.float64) / size)
    outer = tf.shape(image)[:2]
    inner = tf.clip_by_value(tf.cast(tf.round(tf.constant([height, width], tf.float64) / scale), tf.int32), 1, outer)
    corner = (outer - inner) // 2
    part = tf.image.crop_to_bounding_box(image, corner[0], corner[1], inner[0], inner[1])
    return _stretch(part, height, width, method)


_RULES: Mapping[str, Callable[[Tensor, int, int, str], Tensor]] = {
    "stretch": _stretch,
    "fit": _fit,
    "crop": _crop,
}


def scaled(pixels: Tensor, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
    """Return (pixel - mean) / deviation by channel as float32 [batch, height, width, channels], 0 for deviation 0.

    Args:
      pixels: uint8 [batch, height, width, channels].
      mean, deviation: [channels] or [1], in units of a pixel, 0 to 255.
    """
    values = tf.cast(pixels, tf.float32) - tf.constant(mean, tf.float32)
    return tf.math.divide_no_nan(values, tf.constant(deviation, tf.float32))
