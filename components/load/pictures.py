"""Encoded pictures of a batch as pixels of one size: a stage before the maps of `infeed.load`.

simplejpeg decodes ordinary JPEGs, to exactly the pixels of Pillow, and large ones at a half or a smaller scale. Pillow
decodes all other files, and JPEGs that simplejpeg rejects. Both release the GIL, so threads run in parallel. No package
on PyPI with its own libjpeg-turbo decodes a window alone: simplejpeg 1.9, imagecodecs 2026.3, OpenCV 5.0, kornia-rs 0.2
and imgread 0.3 do not, nor does PyTurboJPEG 2.6. It would save little, because a decoder reads every bit of the file.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from infeed.components.base.checks import check_fields, is_whole, require
from infeed.components.base.errors import InfeedError, required
from infeed.components.feed.capacity import Machine
from infeed.components.feed.options import Augment
from infeed.components.load.columns import FeatureSpec, PlacedFeature
from infeed.components.load.order import BatchOrder, Ints
from infeed.components.load.resize import Box, PictureWindow, Pixels, Resize, Size, part_of, show, windows

_JPEG, _APP1, _SCAN = b"\xff\xd8\xff", b"\xff\xe1", b"\xff\xda"  # of a JPEG: start, Exif or XMP, compressed pixels
_ORIENTATION = 0x0112  # tag of Exif
_TURBO = ("YCbCr", "Gray")  # color spaces that simplejpeg decodes like Pillow
_HALF = 2  # simplejpeg scales by powers of two and their sums; less than a half costs more than it saves
_WHOLE = PictureWindow(Box(0, 0, 1, 1), (0, 0), False)
_UNSUPPORTED = ("rotate", "cutout", "brightness", "contrast")


@dataclass(frozen=True)
class PictureOptions:
    """Options of the pictures of `infeed.load`.

    Attributes:
      decode: name of the feature of encoded pictures. `image` also finds `image/encoded`.
      size: height and width in pixels, or one number for both.
      resize: "stretch" ignores the aspect ratio. "crop" cuts off the margins. "fit" shows the whole picture with black
        borders. "none" cuts the central part without resizing; missing pixels are black.
      augment: random crops, shifts and flips. A crop is cut from the picture before it is resized. The Trainer draws
        the same windows from the same seed.
      threads: number of threads that decode batches. None uses one per core.
    """

    decode: str | None = None
    size: int | tuple[int, int] | None = None
    resize: Resize = "stretch"
    augment: Augment | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.decode is None:
            for name in ("size", "augment", "threads"):
                require(getattr(self, name) is None, self, name, 'set decode to the feature of the pictures: "image"')
            return
        sides: Any = (self.size, self.size) if is_whole(self.size) else self.size
        is_pair = isinstance(sides, tuple | list) and len(sides) == 2
        is_size = is_pair and all(is_whole(side) and side > 0 for side in sides or ())
        require(is_size, self, "size", "use the pixels of a side, such as 224, or (height, width)")
        object.__setattr__(self, "size", tuple(map(int, sides or ())))
        require(self.augment is None or isinstance(self.augment, Augment), self, "augment", "use Augment(...)")
        do = "use crop, stretch, shift and flip here, and the others in a function of map"
        for name in _UNSUPPORTED:
            require(not getattr(self.augment, name, 0), self, "augment", do)
        require(self.threads is None or self.threads > 0, self, "threads", "use an integer of at least 1")

    def stage(self, placed: Mapping[str, PlacedFeature], place: str) -> Pictures | None:
        """Return the stage that decodes. Raises InfeedError if the dataset has no such feature of pictures."""
        if self.decode is None:
            return None
        found = next((name for name in (self.decode, f"{self.decode}/encoded") if name in placed), None)
        texts = [name for name, one in placed.items() if one.spec.type == "bytes"]
        one = placed.get(found or "")
        if found is None or one is None or one.spec.type != "bytes" or not (one.spec.shape == () or one.is_optional):
            what = f"there is no feature {self.decode!r} of encoded pictures"
            names = ", ".join(map(repr, texts)) or "none"
            do = f"name the feature of the encoded files; features of bytes: {names}"
            raise InfeedError(what, where=f"infeed.load, decode; {place}", do=do)
        required("simplejpeg")
        threads = self.threads or Machine.here().cpus
        assert isinstance(self.size, tuple), "created by `__post_init__`"
        return Pictures(found, self.decode, self.size, self.resize, self.augment, threads, place)


@dataclass(frozen=True)
class Pictures:
    """Stage that decodes the feature `column` of a batch to uint8 [batch, height, width, 3], named `output`."""

    column: str
    output: str
    size: Size
    resize: Resize
    augment: Augment | None
    threads: int
    place: str
    spec: FeatureSpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", FeatureSpec("uint8", (*self.size, 3)))

    @property
    def name(self) -> str:
        changes = f", {self.augment.describe()}" if self.augment else ""
        return f"picture decodes {self.column!r} to {self.size[0]} x {self.size[1]} pixels{changes},"

    def __call__(self, batch: dict[str, Any], rows: Ints, order: BatchOrder | None = None, step: int = 0) -> Any:
        """Return the batch with its pictures decoded. Without an order, they are not augmented.

        Raises InfeedError if a row has no picture, or its file is damaged.
        """
        encoded = batch[self.column]
        chosen = iter([_WHOLE] * len(encoded))
        if self.augment is not None and order is not None:
            chosen = windows(self.augment, order, step, len(encoded))
        pixels = np.empty((len(encoded), *self.size, 3), np.uint8)
        for number, (data, window) in enumerate(zip(encoded, chosen, strict=True)):
            self._checked(data, window, rows[number], pixels[number])
        return self.renamed(batch, pixels)

    def renamed(self, features: Mapping[str, Any], picture: Any) -> dict[str, Any]:
        """Return features by name with the picture in place of its file."""
        return {**{name: one for name, one in features.items() if name != self.column}, self.output: picture}

    def _checked(self, data: bytes, window: PictureWindow, row: int, out: Pixels) -> None:
        try:
            self._show(data, window, out)
        except Exception as error:
            is_other = type(error).__name__ == "UnidentifiedImageError"  # Pillow's text shows an object of Python
            said = "its format is unknown" if is_other else error
            what = f"the picture cannot be decoded: {said}" if data else "the row has no picture"
            where = f"{self.place}, row {row}, {self.column}"
            raise InfeedError(what, where=where, do="remove the row, or write its picture again") from error

    def _show(self, data: bytes, window: PictureWindow, out: Pixels) -> None:
        """Write the window of an encoded picture to `out`, [height, width, 3]."""
        size = _turbo_size(data)
        picture = None if size else _by_pillow(data)
        height, width = size or picture.shape[:2]  # type: ignore[union-attr]
        if self.resize == "fit":
            picture, (height, width) = self._framed(data, picture, (height, width)), self.size
        part = part_of((height, width), self.size, self.resize)
        box = window.on(part, self.size)
        if picture is None:
            reduction = min(side / to for side, to in zip(box.size, self.size, strict=True))
            picture = _by_turbo(data, (height, width), reduction)
        y, x = picture.shape[0] / height, picture.shape[1] / width
        part, box = part.scaled(x, y), box.scaled(x, y)
        if self.resize == "crop":  # pixels outside do not affect the result
            picture = picture[round(part.top) : round(part.bottom), round(part.left) : round(part.right)]
            box = box.moved(-round(part.left), -round(part.top))
        show(picture, box, out, mirrored=window.mirrored, edges="constant" if self.resize == "none" else "symmetric")

    def _framed(self, data: bytes, picture: Pixels | None, size: Size) -> Pixels:
        """Return a whole picture with black borders: uint8 [height, width, 3]."""
        scale = min(self.size[0] / size[0], self.size[1] / size[1])
        inner = [min(max(round(side * scale), 1), most) for side, most in zip(size, self.size, strict=True)]
        picture = _by_turbo(data, size, 1 / scale) if picture is None else picture
        top, left = ((most - side) // 2 for most, side in zip(self.size, inner, strict=True))
        framed = np.zeros((*self.size, 3), np.uint8)
        whole = Box(0, 0, picture.shape[1], picture.shape[0])
        show(picture, whole, framed[top : top + inner[0], left : left + inner[1]])
        return framed


@cache  # an import takes several microseconds, even of a module that is loaded
def _turbo() -> Any:
    return required("simplejpeg")


def _turbo_size(data: bytes) -> Size | None:
    """Return the height and width of a JPEG that simplejpeg decodes like Pillow, or None for other files."""
    if not data.startswith(_JPEG) or (_may_be_turned(data) and _orientation(data) > 1):
        return None
    try:
        height, width, space, _ = _turbo().decode_jpeg_header(data)
    except ValueError:
        return None
    return (height, width) if space in _TURBO else None


def _may_be_turned(data: bytes) -> bool:
    """Return whether a JPEG has Exif or XMP before its pixels, or an unusual structure."""
    place = 2
    while (marker := data[place : place + 2]) != _SCAN:
        if marker == _APP1 or marker[:1] != b"\xff" or marker == b"\xff\xff":
            return True
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return False


def _by_turbo(data: bytes, size: Size, reduction: float) -> Pixels:
    """Decode a JPEG, at a smaller scale if the result needs less than half of its pixels in both directions."""
    least = [math.ceil(side / reduction) if reduction >= _HALF else 0 for side in size]
    try:
        sizes = {"min_height": least[0], "min_width": least[1], "min_factor": _HALF}
        pixels: Pixels = _turbo().decode_jpeg(data, "RGB", **sizes)
    except ValueError:  # the file is damaged, or has an oddity that Pillow ignores
        return _by_pillow(data)
    return pixels


def _by_pillow(data: bytes) -> Pixels:
    """Decode a file to RGB as Pillow does, turned by its orientation. 16-bit gray is reduced to 8 bits."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data)) as image:
        turned = ImageOps.exif_transpose(image)
        if turned.mode.startswith("I"):
            gray = (np.asarray(turned).astype(np.uint16) >> 8).astype(np.uint8)
            return np.repeat(gray[..., np.newaxis], 3, axis=2)
        return np.asarray(turned.convert("RGB"))


def _orientation(data: bytes) -> int:
    """Return the orientation tag of a JPEG, 1 to 8. 1 is upright."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return int(image.getexif().get(_ORIENTATION, 1))
