"""Features of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from infeed.components.base.checks import as_tuples, at_least, require
from infeed.components.transform.analyses import Analysis, Array
from infeed.components.transform.feature import Feature, FlatColumn, Tables, is_finite, tf

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
    is
    an error.

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
        from infeed.components.transform.pixels import scaled

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
        from infeed.components.transform.pixels import decode_batch

        return decode_batch(column.values, self.height, self.width, self.channels, self.resize, self.method)
