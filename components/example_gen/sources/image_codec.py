"""Validate image files, read their headers, find damaged ones, and re-encode them."""

from __future__ import annotations

import ctypes
import functools
import io
import itertools
import math
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, Literal

from PIL import Image, ImageOps, UnidentifiedImageError

from infeed.components.base.checks import as_tuples, check_fields, require
from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.inputs import too_large

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
_PNG_SIGNATURE = 8  # bytes
_CHUNK_HEAD, _CHUNK_CRC = struct.Struct(">I4s"), struct.Struct(">I")
_SEGMENT = struct.Struct(">BBH")  # 0xFF, marker, length
_DHT, _DQT, _SOS, _COM, _DRI = 0xC4, 0xDB, 0xDA, 0xFE, 0xDD
_FRAMES = (0xC0, 0xC1, _PROGRESSIVE := 0xC2)  # baseline, extended, progressive
_PLAIN = {_COM, _DRI, *range(0xE0, 0xF0)}
_AFTER_PIXELS = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # a marker other than stuffing or a restart
_NO_END = "the image is truncated: it has no end"
_END = b"\xff\xd9"
_LAST_COEFFICIENT, _MOST_SHIFT = 63, 13
_HUFFMAN_HEAD, _MOST_CODES, _MOST_COMPONENTS = 17, 256, 4


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


def damage_of_png(data: bytes) -> str:
    """Return the damage of a PNG, or "" if it is intact."""
    view, place = memoryview(data), _PNG_SIGNATURE
    while place + _CHUNK_HEAD.size + _CHUNK_CRC.size <= len(data):
        length, kind = _CHUNK_HEAD.unpack_from(data, place)
        end = place + _CHUNK_HEAD.size + length
        if end + _CHUNK_CRC.size > len(data):
            break
        if zlib.crc32(view[place + 4 : end]) != _CHUNK_CRC.unpack_from(data, end)[0]:
            return f"the PNG is damaged: wrong checksum of the chunk at byte {place}"
        if kind == b"IEND":
            return ""
        place = end + _CHUNK_CRC.size
    return _NO_END


def damage_of_jpeg(data: bytes) -> str | None:
    """Return the damage of a JPEG, "" if it is intact, or None if only a decoder can decide."""
    frame, quantization = b"", set[int]()  # the frame with its marker
    for marker, payload, end in _segments(data):
        if marker == _SOS:
            usual = _is_frame(frame, frozenset(quantization)) and _is_scan(frame, payload)
            return _damage_of_pixels(data, end, frame) if usual else None
        if marker in _FRAMES and not frame:
            frame = bytes([marker]) + payload
        elif marker == _DQT:
            quantization |= _quantization_tables(payload)
        elif not (_is_huffman(payload) if marker == _DHT else marker in _PLAIN):
            return None
    return None


def _segments(data: bytes, place: int = 2) -> Iterator[tuple[int, bytes, int]]:
    """Yield (marker, content, end offset) of each segment from `place` on."""
    while place + _SEGMENT.size <= len(data):
        fill, marker, length = _SEGMENT.unpack_from(data, place)
        end = place + 2 + length
        if fill != 0xFF or length < 2 or end > len(data):
            return
        yield marker, data[place + _SEGMENT.size : end], end
        place = end


@functools.lru_cache(maxsize=1024)
def _is_frame(frame: bytes, quantization: frozenset[int]) -> bool:
    """Return whether the components of a frame have valid sizes and existing tables."""
    if len(frame) < 7 or frame[1] != 8 or not 0 < frame[6] <= _MOST_COMPONENTS or len(frame) != 7 + 3 * frame[6]:
        return False
    names, sampling, tables = frame[7::3], frame[8::3], frame[9::3]
    sizes = {size for one in sampling for size in (one >> 4, one & 15)}
    return len(set(names)) == len(names) and sizes <= {1, 2, 3, 4} and set(tables) <= quantization


@functools.lru_cache(maxsize=1024)
def _is_scan(frame: bytes, scan: bytes) -> bool:
    """Return whether a scan's components occur in the frame, and its part of the pixels exists."""
    if not scan or len(scan) != 4 + 2 * scan[0] or not set(scan[1:-3:2]) <= set(frame[7::3]):
        return False
    start, end, bits = scan[-3:]
    if any(tables & 0xCC for tables in scan[2:-3:2]) or len(set(scan[1:-3:2])) != scan[0]:
        return False
    if frame[0] != _PROGRESSIVE:
        return (start, end, bits) == (0, _LAST_COEFFICIENT, 0)
    finer, coarser = bits & 15, bits >> 4
    part = end == 0 if start == 0 else start <= end <= _LAST_COEFFICIENT and scan[0] == 1
    return part and finer <= _MOST_SHIFT and coarser in (0, finer + 1)


@functools.lru_cache(maxsize=1024)  # most images of a folder have the same tables
def _is_huffman(payload: bytes) -> bool:
    while payload:
        kind, counts = payload[0], payload[1:_HUFFMAN_HEAD]
        size = _HUFFMAN_HEAD + sum(counts)
        room = itertools.accumulate(counts, lambda before, count: 2 * before - count, initial=1)  # for further codes
        if kind & ~0x13 or size > min(len(payload), _HUFFMAN_HEAD + _MOST_CODES) or min(room) < 0:
            return False
        payload = payload[size:]
    return True


@functools.lru_cache(maxsize=1024)
def _quantization_tables(payload: bytes) -> frozenset[int]:
    """Return the numbers of the tables in a segment. Empty if they are invalid."""
    found = set[int]()
    while payload:
        size = 1 + 64 * (1 + (payload[0] >> 4))
        if payload[0] & ~0x13 or size > len(payload):
            return frozenset()
        found.add(payload[0])
        payload = payload[size:]
    return frozenset(one & 3 for one in found)


def _damage_of_pixels(data: bytes, place: int, frame: bytes) -> str:
    """Return the damage after the first scan. Tables and further scans may precede the end."""
    while found := _AFTER_PIXELS.search(data, place):
        if found.group() == _END:
            return ""
        marker, payload, place = next(_segments(data, found.start()), (0, b"", 0))
        are_tables = _is_huffman(payload) if marker == _DHT else marker == _DQT and _quantization_tables(payload)
        if not (_is_scan(frame, payload) if marker == _SOS else are_tables):
            return f"the JPEG is damaged: its pixels end at byte {found.start()}"
    return _NO_END
