"""Part of each picture that an augmented batch shows: the windows of `feed.augment`, computed in NumPy.

A window depends on the seed and on the position of the picture in the training order, as in the Trainer. The file is
decoded first, so a picture is resampled once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.components.feed.draws import COUNTERS, Draws
from infeed.components.feed.options import Augment
from infeed.components.load.order import BatchOrder
from infeed.components.load.philox import Philox

Resize = Literal["stretch", "crop", "fit", "none"]
Size = tuple[int, int]
_MANTISSA, _ONE = 0x7FFFFF, 0x3F800000  # bits of a float32 from 1 to 2


class Box(NamedTuple):
    """Rectangle in pixels, counted from the edges of a picture. It may extend beyond them."""

    left: float
    top: float
    right: float
    bottom: float

    def moved(self, x: float, y: float) -> Box:
        return Box(self.left + x, self.top + y, self.right + x, self.bottom + y)

    def scaled(self, x: float, y: float) -> Box:
        return Box(self.left * x, self.top * y, self.right * x, self.bottom * y)

    @property
    def size(self) -> tuple[float, float]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left


_ALL = Box(0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class PictureWindow:
    """Window as shares of height and width, a shift in pixels of the result, and whether the result is mirrored."""

    shares: Box = _ALL
    shift: tuple[float, float] = (0.0, 0.0)  # x, y
    mirrored: bool = False

    def on(self, part: Box, size: Size) -> Box:
        """Return the window of a part of a picture, whose result has `size` pixels."""
        height, width = part.size
        box = self.shares.scaled(width, height).moved(part.left, part.top)
        return box.moved(self.shift[0] * width / size[1], self.shift[1] * height / size[0])


def windows(options: Augment, order: BatchOrder, step: int, rows: int) -> Iterator[PictureWindow]:
    """Draw the windows of the `rows` pictures of this worker's batch, as `augment.draw_batch` and `augment.affine`."""
    workers = order.batch.workers
    first = (step * workers.count + workers.index) * rows
    numbers = Draws(*_uniforms((order.batch.seed, 0), first * COUNTERS, rows * len(Draws._fields)))
    area = options.crop + numbers.area * (1 - options.crop)
    aspect = np.exp(_either_way(numbers.aspect) * math.log(options.stretch))
    part_x, part_y = (np.minimum(np.sqrt(share), 1.0) for share in (area * aspect, area / aspect))
    left, top = numbers.window_x * (1 - part_x), numbers.window_y * (1 - part_y)
    shifts = [np.floor(one * (2 * options.shift + 1)) - options.shift for one in (numbers.shift_x, numbers.shift_y)]
    mirrored = numbers.mirror < (0.5 if options.flip == "horizontal" else 0.0)
    columns = (left, top, left + part_x, top + part_y, *shifts, mirrored)
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield PictureWindow(Box(*values[:4]), values[4:6], values[6])


def part_of(picture: Size, size: Size, rule: Resize) -> Box:
    """Return the part of a picture that an image of `size` shows without augmentation."""
    height, width = picture
    if rule in ("stretch", "fit"):
        return Box(0, 0, width, height)
    if rule == "none":
        inner = size
    else:  # the largest central part with the right aspect ratio, as in `DecodeImage`
        scale = max(size[0] / height, size[1] / width)
        inner = (min(max(round(size[0] / scale), 1), height), min(max(round(size[1] / scale), 1), width))
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    return Box(left, top, left + inner[1], top + inner[0])


def _uniforms(seed: tuple[int, int], block: int, count: int) -> npt.NDArray[Any]:
    """Return `count` numbers from 0 to 1 as TensorFlow makes them from words, float32 [12, count / 12]."""
    words = Philox(seed).words(count, block) & np.uint32(_MANTISSA) | np.uint32(_ONE)
    numbers: npt.NDArray[Any] = words.view(np.float32) - np.float32(1)
    return numbers.reshape(-1, len(Draws._fields)).T


def _either_way(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Map numbers from the range 0..1 to the range -1..1."""
    return numbers * 2 - 1
