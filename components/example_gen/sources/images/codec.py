"""One image file's bytes: what they say about themselves, and what else can be made of them."""

from __future__ import annotations

import ctypes
import functools
import io
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

from infeed.components.checks import as_tuples, check_choices, require
from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import too_large

# Whether an image file is whole, without decoding it: checksums of a PNG, segments and tables of a JPEG.
#
# Every chunk of a PNG has a checksum, so a change of a few bits is always found. A JPEG has none: what stands before
# its pixels is checked as a decoder does, and that nothing but its end follows them. Changed pixels decode to others.


_PNG_SIGNATURE = 8  # bytes
_CHUNK_HEAD, _CHUNK_CRC = struct.Struct(">I4s"), struct.Struct(">I")
_SEGMENT = struct.Struct(">BBH")  # 0xFF, marker, length
_DHT, _DQT, _SOS, _COM, _DRI = 0xC4, 0xDB, 0xDA, 0xFE, 0xDD
_FRAMES = (0xC0, 0xC1, _PROGRESSIVE := 0xC2)  # the first two: baseline, extended
_PLAIN = {_COM, _DRI, *range(0xE0, 0xF0)}
_AFTER_PIXELS = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # a marker that is neither stuffing nor a restart
_NO_END = "an image cut short: it has no end"
_END = b"\xff\xd9"
_LAST_COEFFICIENT, _MOST_SHIFT = 63, 13
_HUFFMAN_HEAD, _MOST_CODES, _MOST_COMPONENTS = 17, 256, 4


def damage_of_png(data: bytes) -> str:
    """What is wrong with a PNG; empty where it is whole."""
    view, place = memoryview(data), _PNG_SIGNATURE
    while place + _CHUNK_HEAD.size + _CHUNK_CRC.size <= len(data):
        length, kind = _CHUNK_HEAD.unpack_from(data, place)
        end = place + _CHUNK_HEAD.size + length
        if end + _CHUNK_CRC.size > len(data):
            break
        if zlib.crc32(view[place + 4 : end]) != _CHUNK_CRC.unpack_from(data, end)[0]:
            return f"a damaged PNG: wrong checksum of the chunk at byte {place}"
        if kind == b"IEND":
            return ""
        place = end + _CHUNK_CRC.size
    return _NO_END


def damage_of_jpeg(data: bytes) -> str | None:
    """What is wrong with a JPEG; empty where it is whole, None where a decoder has to tell: it is of no usual build."""
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
    """(marker, content, place behind it) of each segment from `place` on."""
    while place + _SEGMENT.size <= len(data):
        fill, marker, length = _SEGMENT.unpack_from(data, place)
        end = place + 2 + length
        if fill != 0xFF or length < 2 or end > len(data):
            return
        yield marker, data[place + _SEGMENT.size : end], end
        place = end


@functools.lru_cache(maxsize=1024)
def _is_frame(frame: bytes, quantization: frozenset[int]) -> bool:
    """Whether its components have sizes, and tables that are there."""
    if len(frame) < 7 or frame[1] != 8 or not 0 < frame[6] <= _MOST_COMPONENTS or len(frame) != 7 + 3 * frame[6]:
        return False
    names, sampling, tables = frame[7::3], frame[8::3], frame[9::3]
    sizes = {size for one in sampling for size in (one >> 4, one & 15)}
    return len(set(names)) == len(names) and sizes <= {1, 2, 3, 4} and set(tables) <= quantization


@functools.lru_cache(maxsize=1024)
def _is_scan(frame: bytes, scan: bytes) -> bool:
    """Whether its components are those of the frame, and it holds a part of their pixels that there is."""
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


@functools.lru_cache(maxsize=1024)  # most images of a folder have the same
def _is_huffman(payload: bytes) -> bool:
    while payload:
        kind, counts = payload[0], payload[1:_HUFFMAN_HEAD]
        size = _HUFFMAN_HEAD + sum(counts)
        if kind & ~0x13 or size > min(len(payload), _HUFFMAN_HEAD + _MOST_CODES) or not _is_code(counts):
            return False
        payload = payload[size:]
    return True


def _is_code(counts: bytes) -> bool:
    """Whether there are not more codes of each length than have room."""
    room = 1
    for count in counts:
        room = 2 * room - count
        if room < 0:
            return False
    return True


@functools.lru_cache(maxsize=1024)
def _quantization_tables(payload: bytes) -> frozenset[int]:
    """The numbers of the tables in it; none where they are no tables."""
    found = set[int]()
    while payload:
        size = 1 + 64 * (1 + (payload[0] >> 4))
        if payload[0] & ~0x13 or size > len(payload):
            return frozenset()
        found.add(payload[0])
        payload = payload[size:]
    return frozenset(one & 3 for one in found)


def _damage_of_pixels(data: bytes, place: int, frame: bytes) -> str:
    """What follows the pixels, if it is not their end: tables and further scans may come before that."""
    while found := _AFTER_PIXELS.search(data, place):
        if found.group() == _END:
            return ""
        marker, payload, place = next(_segments(data, found.start()), (0, b"", 0))
        if not _may_follow(marker, payload, frame):
            return f"a damaged JPEG: its pixels break off at byte {found.start()}"
    return _NO_END


def _may_follow(marker: int, payload: bytes, frame: bytes) -> bool:
    if marker == _SOS:
        return _is_scan(frame, payload)
    return _is_huffman(payload) if marker == _DHT else marker == _DQT and bool(_quantization_tables(payload))


Pixels = Literal["encoded", "raw"]
FORMATS = {"PNG": "png", "JPEG": "jpeg"}
_CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 2, "PA": 4, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3}
_PLAIN_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}  # to 8 bits a channel
_MODES = {1: "L", 3: "RGB"}
_JPEG_QUALITY = 95  # of an image that is written again
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_PNG_HEAD = struct.Struct(">16xIIBB")  # width, height, bits, color
_PNG_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
_JPEG_FRAME = struct.Struct(">BBHBHHB")  # 0xFF, marker, length, bits, height, width, channels
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
UNREADABLE = (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError)
_DO = "remove it, or replace it by a PNG or JPEG"
_STRIP_BYTES = 1 << 20
_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 8 << 20  # of glibc; Pillow has blocks of 16 MB
_LOCK = threading.Lock()


@dataclass(frozen=True)
class ImageOptions:
    """What is written of an image. By default its file's own bytes.

    Attributes:
      pixels: "encoded" as PNG or JPEG, whichever the file is, or "raw": uint8, row by row, channels last.
      size: (height, width) that every image is scaled to; None leaves it.
      channels: 1 (gray) or 3 (RGB); None leaves them.
    """

    pixels: Pixels = "encoded"
    size: tuple[int, int] | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "size")
        check_choices(self)
        if self.size is not None:
            is_size = len(self.size) == 2 and min(self.size) > 0
            require(is_size, self, "size", "give (height, width) in pixels")
        require(self.channels in (None, *_MODES), self, "channels", "give 1 or 3, or None to leave them")

    @property
    def keeps_bytes(self) -> bool:
        return self == ImageOptions()


_ORIENTATION = 0x0112  # Exif 2.32: 1 to 8; from 5 on, height and width change places
_FIRST_TURNED = 5


@dataclass(frozen=True)
class ImageHeader:
    """What an image file says about itself; `channels` is what decoding it as it is gives."""

    format: str
    height: int
    width: int
    channels: int


def header_of(data: bytes, path: str) -> ImageHeader:
    """The same for a whole file in memory, where it is worth looking by hand first: five times faster."""
    found = _png_header(data) if data.startswith(_PNG) else _jpeg_header(data) if data.startswith(_JPEG) else None
    return found or read_header(io.BytesIO(data), path)


def upright_size(file: BinaryIO, path: str) -> tuple[int, int, int]:
    """Height, width and channels as the picture is looked at: the camera may have lain on its side.

    Raises:
      InfeedError: as `read_header`.
    """
    header = read_header(file, path)
    file.seek(0)
    with open_image(file) as image:
        # A PNG would be decoded to look for the tag, which TensorFlow takes no notice of there.
        is_turned = header.format == "jpeg" and image.getexif().get(_ORIENTATION, 1) >= _FIRST_TURNED
    size = (header.width, header.height) if is_turned else (header.height, header.width)
    return *size, header.channels


def read_header(file: BinaryIO, path: str) -> ImageHeader:
    """Format and size from an image's header; nothing is decoded.

    Raises:
      InfeedError: not an image, or neither PNG nor JPEG.
    """
    try:
        with open_image(file) as image:
            return _header_of(image, path)
    except UNREADABLE as error:
        raise InfeedError("not an image", where=path, do=_DO) from error


def check_whole(data: bytes, header: ImageHeader, path: str) -> None:
    """Raises InfeedError where an image is cut short or damaged; only one that looks odd is decoded to find out."""
    check = damage_of_png if header.format == "png" else damage_of_jpeg
    damage = check(data)
    if damage is None:
        _check_decodes(data, path)
    elif damage:
        raise InfeedError(damage, where=path, do=_DO)


def _check_decodes(data: bytes, path: str) -> None:
    try:
        with open_image(io.BytesIO(data)) as image:
            image.load()
    except UNREADABLE as error:
        raise InfeedError(f"an image cut short or damaged: {error}", where=path, do=_DO) from error


def check_size(height: int, width: int, channels: int, path: str, most_mb: int) -> None:
    """Raise InfeedError if the pixels take more than `most_mb` megabytes."""
    size = -(-height * width * channels >> 20)
    if size > most_mb:
        raise InfeedError(
            f"a picture of {width:,} x {height:,} pixels decodes to {size:,} MB, {too_large(most_mb)}",
            where=path,
            do=f"scale it down, or raise max_row_mb (--max-row-mb {size})",
        )


def rewrite(data: bytes, path: str, options: ImageOptions, most_mb: int) -> tuple[bytes | bytearray, ImageHeader]:
    """Decodes an image, scales it, and gives its raw pixels or encodes it again.

    Raises:
      InfeedError: not an image, cut short, more than 8 bits a channel, or pixels of more than `most_mb` megabytes.
    """
    _return_freed_pixels()
    try:
        header, pixels = _decoded(data, path, options, most_mb)
    except UnidentifiedImageError as error:
        raise InfeedError("not an image", where=path, do=_DO) from error
    except UNREADABLE as error:
        raise InfeedError(f"not an image, or cut short: {error}", where=path, do=_DO) from error
    header = replace(header, height=pixels.height, width=pixels.width, channels=len(pixels.getbands()))
    return (_raw(pixels) if options.pixels == "raw" else _encoded(pixels, header.format)), header


@functools.cache
def _return_freed_pixels() -> None:
    """Have glibc return large blocks to the system: it keeps hundreds of megabytes of a picture that is freed."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)


def _decoded(data: bytes, path: str, options: ImageOptions, most_mb: int) -> tuple[ImageHeader, Image.Image]:
    with open_image(io.BytesIO(data)) as image:
        header = _header_of(image, path)
        height, width = max((header.height, header.width), options.size or (0, 0), key=math.prod)
        check_size(height, width, header.channels, path, most_mb)
        image.load()
        # What is written anew has no orientation tag any more.
        is_turned = image.getexif().get(_ORIENTATION, 1) != 1
        upright = ImageOps.exif_transpose(image) if is_turned else image  # which copies any other as well
        return header, _scaled(_plain(upright, path, options), options)


@contextmanager
def open_image(file: BinaryIO) -> Iterator[Image.Image]:
    """Open an image of any size: `check_size` has a limit that a user can raise, and Pillow's is one of the process."""
    with _LOCK:
        most, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            opened = Image.open(file)
        finally:
            Image.MAX_IMAGE_PIXELS = most
    with opened as image:
        yield image


def _raw(image: Image.Image) -> bytearray:
    """The pixels row by row. Strip by strip, since `tobytes` holds them twice."""
    row = image.width * len(image.getbands())
    rows = max(1, _STRIP_BYTES // row)
    pixels = bytearray(row * image.height)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        pixels[top * row : bottom * row] = image.crop((0, top, image.width, bottom)).tobytes()
    return pixels


def _png_header(data: bytes) -> ImageHeader | None:
    """None where it takes more than a look: palettes, whose channels depend on what follows."""
    if len(data) < _PNG_HEAD.size or data[12:16] != b"IHDR":
        return None
    width, height, _, color = _PNG_HEAD.unpack_from(data)
    channels = _PNG_CHANNELS.get(color)
    return ImageHeader("png", height, width, channels) if channels and width and height else None


def _jpeg_header(data: bytes) -> ImageHeader | None:
    """The first frame's; None where segments do not follow one another as they should."""
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
        raise InfeedError(
            f"a {image.format} image", where=path, do="convert it to PNG or JPEG, the formats that are read"
        )
    return ImageHeader(FORMATS[image.format], image.height, image.width, _channels(image))


def _channels(image: Image.Image) -> int:
    if image.mode == "P":
        return 4 if "transparency" in image.info else 3  # a palette is decoded to its colors
    return _CHANNELS.get(image.mode, len(image.getbands()))


def _plain(image: Image.Image, path: str, options: ImageOptions) -> Image.Image:
    """Gray or color, with alpha where it has some, 8 bits a channel."""
    if image.mode.startswith("I"):
        raise InfeedError("an image of more than 8 bits a channel", where=path, do="keep its bytes: ImageOptions()")
    has_alpha = image.mode == "P" and "transparency" in image.info
    plain = _converted(image, "RGBA" if has_alpha else _PLAIN_MODES.get(image.mode, image.mode))
    return _converted(plain, _MODES[options.channels]) if options.channels else plain


def _converted(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)  # which copies one of the same mode


def _scaled(image: Image.Image, options: ImageOptions) -> Image.Image:
    if options.size is None:
        return image
    height, width = options.size
    return image.resize((width, height), Image.Resampling.BILINEAR)  # which in Pillow averages when it shrinks


def _encoded(image: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **({"quality": _JPEG_QUALITY} if form == "jpeg" else {}))
    return file.getvalue()
