"""Validate image files, read their headers, and re-encode them."""

from __future__ import annotations

import ctypes
import functools
import io
import math
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, Literal

from PIL import Image, ImageOps, UnidentifiedImageError

from infeed.components.base.checks import as_tuples, check_fields, require
from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.inputs import too_large
from infeed.components.example_gen.sources.images.damage import damage_of_jpeg, damage_of_png

Pixels = Literal["encoded", "raw"]
FORMATS = {"PNG": "png", "JPEG": "jpeg"}
_CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 2, "PA": 4, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3}
_PLAIN_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}  # conversions to 8 bits a channel
_MODES = {1: "L", 3: "RGB"}
_JPEG_QUALITY = 95  # of re-encoded images
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_PNG_HEAD = struct.Struct(">16xIIBB")  # width, height, bits, color
_PNG_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
_JPEG_FRAME = struct.Struct(">BBHBHHB")  # 0xFF, marker, length, bits, height, width, channels
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
UNREADABLE = (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError)
_DO = "remove the file, or replace it by a PNG or JPEG"
_STRIP_BYTES = 1 << 20
_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 8 << 20  # of glibc. Pillow allocates blocks of 16 MB
_LOCK = threading.Lock()


@dataclass(frozen=True)
class ImageOptions:
    """Options of images. The default keeps the bytes of each file.

    Attributes:
      pixels: "encoded" as PNG or JPEG like the file, or "raw": uint8 pixels, row by row, channels last.
      size: (height, width) to resize every image to. None keeps the size.
      channels: 1 (gray) or 3 (RGB). None keeps the channels.
    """

    pixels: Pixels = "encoded"
    size: tuple[int, int] | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "size")
        check_fields(self)
        if self.size is not None:
            is_size = len(self.size) == 2 and min(self.size) > 0
            require(is_size, self, "size", "use (height, width) in pixels")
        require(self.channels in (None, *_MODES), self, "channels", "use 1, 3 or None")


_ORIENTATION = 0x0112  # Exif 2.32: 1 to 8. From 5 on, height and width are swapped
_FIRST_TURNED = 5


@dataclass(frozen=True)
class ImageHeader:
    """Format and size of an image. `channels` is the number of channels after decoding."""

    format: str
    height: int
    width: int
    channels: int


def header_of(data: bytes, path: str) -> ImageHeader:
    """Return the header of an image in memory. Parsing by hand is five times faster than Pillow."""
    found = _png_header(data) if data.startswith(_PNG) else _jpeg_header(data) if data.startswith(_JPEG) else None
    return found or read_header(io.BytesIO(data), path)


def upright_size(file: BinaryIO, path: str) -> tuple[int, int, int]:
    """Return height, width and channels after applying the Exif orientation. Raises InfeedError like `read_header`."""
    header = read_header(file, path)
    file.seek(0)
    with open_image(file) as image:
        # Pillow would decode a PNG to find the tag, which TensorFlow ignores in PNGs.
        is_turned = header.format == "jpeg" and image.getexif().get(_ORIENTATION, 1) >= _FIRST_TURNED
    size = (header.width, header.height) if is_turned else (header.height, header.width)
    return *size, header.channels


def read_header(file: BinaryIO, path: str) -> ImageHeader:
    """Read the header of an image without decoding it. Raises InfeedError if the file is not a PNG or JPEG."""
    try:
        with open_image(file) as image:
            return _header_of(image, path)
    except InfeedError:
        raise
    except UNREADABLE as error:
        raise InfeedError("not an image", where=path, do=_DO) from error


def check_whole(data: bytes, header: ImageHeader, path: str) -> None:
    """Raise InfeedError if an image is truncated or damaged. Only unusual files are decoded."""
    check = damage_of_png if header.format == "png" else damage_of_jpeg
    damage = check(data)
    if damage:
        raise InfeedError(damage, where=path, do=_DO)
    if damage is None:
        try:
            with open_image(io.BytesIO(data)) as image:
                image.load()
        except UNREADABLE as error:
            raise InfeedError(f"the image is truncated or damaged: {error}", where=path, do=_DO) from error


def check_size(height: int, width: int, channels: int, path: str, most_mb: int) -> None:
    """Raise InfeedError if the pixels take more than `most_mb` megabytes."""
    size = -(-height * width * channels >> 20)
    if size > most_mb:
        what = f"the image of {width:,} x {height:,} pixels decodes to {size:,} MB, {too_large(most_mb)}"
        raise InfeedError(what, where=path, do=f"scale it down, or raise max_row_mb (--max-row-mb {size})")


def rewrite(data: bytes, path: str, options: ImageOptions, most_mb: int) -> tuple[bytes | bytearray, ImageHeader]:
    """Decode and resize an image. Return its raw or re-encoded pixels.

    Raises InfeedError for a damaged image, for pixels of more than `most_mb` megabytes, and for more than 8 bits per
    channel.
    """
    _return_freed_pixels()
    try:
        header, pixels = _decoded(data, path, options, most_mb)
    except InfeedError:
        raise
    except UnidentifiedImageError as error:
        raise InfeedError("not an image", where=path, do=_DO) from error
    except UNREADABLE as error:
        raise InfeedError(f"not an image, or truncated: {error}", where=path, do=_DO) from error
    header = replace(header, height=pixels.height, width=pixels.width, channels=len(pixels.getbands()))
    if options.pixels == "raw":
        return _raw(pixels), header
    file = io.BytesIO()
    # In the format of the file, because a photo as PNG would be several times larger.
    pixels.save(file, header.format, **({"quality": _JPEG_QUALITY} if header.format == "jpeg" else {}))
    return file.getvalue(), header


@functools.cache
def _return_freed_pixels() -> None:
    """Make glibc return large blocks to the system. By default, it keeps hundreds of megabytes."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)


def _decoded(data: bytes, path: str, options: ImageOptions, most_mb: int) -> tuple[ImageHeader, Image.Image]:
    """Return the header of the file, and 8-bit pixels. Intermediate images are freed on return."""
    with open_image(io.BytesIO(data)) as image:
        header = _header_of(image, path)
        height, width = max((header.height, header.width), options.size or (0, 0), key=math.prod)
        check_size(height, width, header.channels, path, most_mb)
        image.load()
        # The output has no orientation tag, so apply the tag to the pixels.
        is_turned = image.getexif().get(_ORIENTATION, 1) != 1
        upright = ImageOps.exif_transpose(image) if is_turned else image  # exif_transpose copies every image
        pixels = _to_8_bits(upright, path, options)
        if options.size is not None:
            height, width = options.size
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)  # averages when it shrinks
        return header, pixels


@contextmanager
def open_image(file: BinaryIO) -> Iterator[Image.Image]:
    """Open an image of any size. `check_size` has a limit that users can raise; Pillow's is global."""
    with _LOCK:
        most, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            opened = Image.open(file)
        finally:
            Image.MAX_IMAGE_PIXELS = most
    with opened as image:
        yield image


def _raw(image: Image.Image) -> bytearray:
    """Return the pixels row by row. Works in strips, because `tobytes` holds two copies."""
    row = image.width * len(image.getbands())
    rows = max(1, _STRIP_BYTES // row)
    pixels = bytearray(row * image.height)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        pixels[top * row : bottom * row] = image.crop((0, top, image.width, bottom)).tobytes()
    return pixels


def _png_header(data: bytes) -> ImageHeader | None:
    """Parse a PNG header. Returns None for palettes, whose channels depend on later chunks."""
    if len(data) < _PNG_HEAD.size or data[12:16] != b"IHDR":
        return None
    width, height, _, color = _PNG_HEAD.unpack_from(data)
    channels = _PNG_CHANNELS.get(color)
    return ImageHeader("png", height, width, channels) if channels and width and height else None


def _jpeg_header(data: bytes) -> ImageHeader | None:
    """Parse the first frame of a JPEG. Returns None if the segments are irregular."""
    place = 2
    while place + _JPEG_FRAME.size <= len(data):
        fill, marker, length, bits, height, width, channels = _JPEG_FRAME.unpack_from(data, place)
        if fill != 0xFF or (bits != 8 and marker in _JPEG_FRAMES):
            return None
        if marker in _JPEG_FRAMES:
            return ImageHeader("jpeg", height, width, channels) if width and height and channels else None
        place += 2 + length
    return None


def _header_of(image: Image.Image, path: str) -> ImageHeader:
    if image.format not in FORMATS:
        raise InfeedError(f"the format is {image.format}", where=path, do="convert the image to PNG or JPEG")
    channels = _CHANNELS.get(image.mode, len(image.getbands()))
    if image.mode == "P":  # decoding a palette image yields its colors
        channels = 4 if "transparency" in image.info else 3
    return ImageHeader(FORMATS[image.format], image.height, image.width, channels)


def _to_8_bits(image: Image.Image, path: str, options: ImageOptions) -> Image.Image:
    """Convert an image to gray or color with 8 bits per channel, with alpha if it has transparency."""
    if image.mode.startswith("I"):
        what = "the image has more than 8 bits per channel"
        raise InfeedError(what, where=path, do="keep the file's bytes: ImageOptions()")
    has_alpha = image.mode == "P" and "transparency" in image.info
    plain = _converted(image, "RGBA" if has_alpha else _PLAIN_MODES.get(image.mode, image.mode))
    return _converted(plain, _MODES[options.channels]) if options.channels else plain


def _converted(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)  # convert copies even if the mode is equal
