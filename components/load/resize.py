"""Windows of pictures, drawn as the Trainer draws them, and a window as an image of another size.

Resizing is bilinear and antialiased. Every path gives the pixels of Pillow, to within 1 of 255. The libraries release
the GIL while they resize.

A window depends on the seed and on the position of the picture in the training order, as in the Trainer. The file is
decoded first, so a picture is resampled once.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from infeed.components.feed.options import COUNTERS, Augment, Draws
from infeed.components.load.order import BatchOrder
from infeed.components.load.shuffle import Philox

Resize = Literal["stretch", "crop", "fit", "none"]
Size = tuple[int, int]
Pixels = npt.NDArray[np.uint8]  # [height, width, 3]
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


class PictureWindow(NamedTuple):
    """Window as shares of height and width, a shift in pixels of the result, and whether the result is mirrored."""

    shares: Box
    shift: tuple[float, float]  # x, y
    mirrored: bool

    def on(self, part: Box, size: Size) -> Box:
        """Return the window of a part of a picture, whose result has `size` pixels."""
        height, width = part.size
        box = self.shares.scaled(width, height).moved(part.left, part.top)
        return box.moved(self.shift[0] * width / size[1], self.shift[1] * height / size[0])


def windows(options: Augment, order: BatchOrder, step: int, rows: int) -> Iterator[PictureWindow]:
    """Draw the windows of the `rows` pictures of this worker's batch, as `augment.draw_batch` and `augment.affine`."""
    workers = order.batch.workers
    first = (step * workers.count + workers.index) * rows
    words = Philox((order.batch.seed, 0)).words(rows * len(Draws._fields), first * COUNTERS)
    # TensorFlow makes numbers from 0 to 1 of the words as mantissas of numbers from 1 to 2.
    uniforms = (words & np.uint32(_MANTISSA) | np.uint32(_ONE)).view(np.float32) - np.float32(1)
    numbers = Draws(*uniforms.reshape(rows, len(Draws._fields)).T)
    area = options.crop + numbers.area * (1 - options.crop)
    aspect = np.exp((numbers.aspect * 2 - 1) * math.log(options.stretch))
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


def show(
    picture: Pixels,
    box: Box,
    out: Pixels,
    *,
    mirrored: bool = False,
    edges: Literal["symmetric", "constant"] = "symmetric",
) -> None:
    """Resize the box of a picture to `out`, bilinear and antialiased. A box of the size of `out` is copied.

    Beyond the edges, the picture is reflected, edge pixels included, or black.
    """
    is_copy = box.size == out.shape[:2] and all(side == int(side) for side in box)
    # A bilinear filter reads so many pixels around the box.
    reach = [0 if is_copy else math.ceil(max(1.0, side / to)) for side, to in zip(box.size, out.shape, strict=False)]
    missing = [
        [_missing(-first, more), _missing(last - side, more)]
        for first, last, side, more in zip(box[1::-1], box[:1:-1], picture.shape, reach, strict=False)
    ]
    if any(map(any, missing)):
        picture = np.pad(picture, (*missing, (0, 0)), edges)
        box = box.moved(missing[1][0], missing[0][0])
    left, top = max(0, math.floor(box.left) - reach[1]), max(0, math.floor(box.top) - reach[0])
    region = picture[top : math.ceil(box.bottom) + reach[0], left : math.ceil(box.right) + reach[1]]
    if is_copy:
        _copy(region, out, mirrored)
    else:
        resize = _by_resizer if _resizer() else _by_pillow
        resized = resize(np.ascontiguousarray(region), box.moved(-left, -top), (out.shape[0], out.shape[1]))
        _copy(resized, out, mirrored)


def _missing(beyond: float, reach: int) -> int:
    """Return the number of pixels to add at an edge, if a box ends `beyond` it."""
    return math.ceil(beyond) + reach if beyond > 0 else 0


def _copy(region: Pixels, out: Pixels, mirrored: bool) -> None:
    if mirrored:  # whole pixels, because copying single bytes backwards takes twice the time
        out.view("V3")[..., 0][:] = region.view("V3")[:, ::-1, 0]
    else:
        out[:] = region


def _by_resizer(region: Pixels, box: Box, size: Size) -> Pixels:
    """Resize like Pillow, to within 1 of 255, in a third of the time."""
    fast, (height, width), (most_height, most_width) = _resizer(), region.shape[:2], box.size
    window = fast.CropBox(box.left, box.top, min(most_width, width - box.left), min(most_height, height - box.top))
    source = fast.ImageData(width, height, fast.PixelType.U8x3, region.tobytes())
    resized = fast.ImageData(size[1], size[0], fast.PixelType.U8x3)
    bilinear = fast.ResizeAlg.convolution(fast.FilterType.bilinear)
    fast.Resizer().resize(source, resized, fast.ResizeOptions(bilinear, crop_box=window))
    return np.frombuffer(resized.get_buffer(), np.uint8).reshape(*size, 3)


def _by_pillow(region: Pixels, box: Box, size: Size) -> Pixels:
    from PIL import Image

    return np.asarray(Image.fromarray(region).resize(size[::-1], Image.Resampling.BILINEAR, box))


@cache
def _resizer() -> Any:
    """Return cykooz_resizer, or None on a machine for which it has no wheel."""
    name = "cykooz_resizer"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None
