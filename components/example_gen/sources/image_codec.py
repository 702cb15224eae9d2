"""One image file's bytes: what they say about themselves, and what else can be made of them."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, replace
from typing import BinaryIO, Literal, get_args

from PIL import Image, UnidentifiedImageError

from infeed.components.errors import InfeedError

Pixels = Literal["encoded", "raw"]
FORMATS = {"PNG": "png", "JPEG": "jpeg"}
_CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 2, "PA": 4, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3}
_PLAIN_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}  # to 8 bits a channel
_MODES = {1: "L", 3: "RGB"}
_JPEG_QUALITY = 95  # of an image that is written again
_LAST_BYTES = {"png": b"IEND", "jpeg": b"\xff\xd9"}
_TAIL = 64
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_PNG_HEAD = struct.Struct(">16xIIBB")  # width, height, bits, colour
_PNG_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
_JPEG_FRAME = struct.Struct(">BBHBHHB")  # 0xFF, marker, length, bits, height, width, channels
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_UNREADABLE = (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError)
_DO = "remove it, or replace it by a PNG or JPEG"


@dataclass(frozen=True)
class ImageOptions:
    """What is written of an image. By default its file's own bytes.

    Args:
      pixels: "encoded" as PNG or JPEG, whichever the file is, or "raw": uint8, row by row, channels last.
      size: (height, width) that every image is scaled to; None leaves it.
      channels: 1 (grey) or 3 (RGB); None leaves them.
    """

    pixels: Pixels = "encoded"
    size: tuple[int, int] | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", None if self.size is None else tuple(self.size))  # a list, from JSON
        if self.pixels not in get_args(Pixels):
            raise _error(f"pixels={self.pixels!r}", 'give "encoded" or "raw"')
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise _error(f"size={self.size}", "give (height, width) in pixels")
        if self.channels not in (None, *_MODES):
            raise _error(f"channels={self.channels}", "give 1 or 3, or None to leave them")

    @property
    def keeps_bytes(self) -> bool:
        return self == ImageOptions()


@dataclass(frozen=True)
class Header:
    """What an image file says about itself; `channels` is what decoding it as it is gives."""

    format: str
    height: int
    width: int
    channels: int


def header_of(data: bytes, path: str) -> Header:
    """The same for a whole file in memory, where it is worth looking by hand first: five times faster."""
    found = _png_header(data) if data.startswith(_PNG) else _jpeg_header(data) if data.startswith(_JPEG) else None
    return found or read_header(io.BytesIO(data), path)


def read_header(file: BinaryIO, path: str) -> Header:
    """Format and size from an image's header; nothing is decoded.

    Raises:
      InfeedError: not an image, or neither PNG nor JPEG.
    """
    try:
        with Image.open(file) as image:
            return _header_of(image, path)
    except _UNREADABLE as error:
        raise InfeedError("not an image", where=path, do=_DO) from error


def check_whole(data: bytes, header: Header, path: str) -> None:
    """Raises InfeedError where an image is cut short; a JPEG is decoded only where its end looks like that."""
    end = _LAST_BYTES[header.format]
    if end in data[-_TAIL:]:
        return
    if header.format == "png" and end not in data:
        raise InfeedError("an image cut short: it has no end", where=path, do=_DO)
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except _UNREADABLE as error:
        raise InfeedError(f"an image cut short: {error}", where=path, do=_DO) from error


def rewrite(data: bytes, path: str, options: ImageOptions) -> tuple[bytes, Header]:
    """Decodes an image, scales it, and gives its raw pixels or encodes it again.

    Raises:
      InfeedError: not an image, cut short, or more than 8 bits a channel.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            header = _header_of(image, path)
            pixels = _scaled(_plain(image, path, options), options)
    except _UNREADABLE as error:
        raise InfeedError(f"not an image, or cut short: {error}", where=path, do=_DO) from error
    header = replace(header, height=pixels.height, width=pixels.width, channels=len(pixels.getbands()))
    return (pixels.tobytes() if options.pixels == "raw" else _encoded(pixels, header.format)), header


def _png_header(data: bytes) -> Header | None:
    """None where it takes more than a look: palettes, whose channels depend on what follows."""
    if len(data) < _PNG_HEAD.size or data[12:16] != b"IHDR":
        return None
    width, height, _, colour = _PNG_HEAD.unpack_from(data)
    channels = _PNG_CHANNELS.get(colour)
    return Header("png", height, width, channels) if channels and width and height else None


def _jpeg_header(data: bytes) -> Header | None:
    """The first frame's; None where segments do not follow one another as they should."""
    place = 2
    while place + _JPEG_FRAME.size <= len(data):
        fill, marker, length, bits, height, width, channels = _JPEG_FRAME.unpack_from(data, place)
        if fill != 0xFF or (bits != 8 and marker in _JPEG_FRAMES):
            return None
        if marker in _JPEG_FRAMES:
            return Header("jpeg", height, width, channels) if width and height else None
        place += 2 + length
    return None


def _header_of(image: Image.Image, path: str) -> Header:
    if image.format not in FORMATS:
        raise InfeedError(f"a {image.format} image", where=path, do="convert it to PNG or JPEG")
    return Header(FORMATS[image.format], image.height, image.width, _channels(image))


def _channels(image: Image.Image) -> int:
    if image.mode == "P":
        return 4 if "transparency" in image.info else 3  # a palette is decoded to its colours
    return _CHANNELS.get(image.mode, len(image.getbands()))


def _plain(image: Image.Image, path: str, options: ImageOptions) -> Image.Image:
    """Grey or colour, with alpha where it has some, 8 bits a channel."""
    if image.mode.startswith("I"):
        raise InfeedError("an image of more than 8 bits a channel", where=path, do="keep its bytes: ImageOptions()")
    has_alpha = image.mode == "P" and "transparency" in image.info
    plain = image.convert("RGBA" if has_alpha else _PLAIN_MODES.get(image.mode, image.mode))
    return plain.convert(_MODES[options.channels]) if options.channels else plain


def _scaled(image: Image.Image, options: ImageOptions) -> Image.Image:
    if options.size is None:
        return image
    height, width = options.size
    return image.resize((width, height), Image.Resampling.BILINEAR)  # which in Pillow averages when it shrinks


def _encoded(image: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **({"quality": _JPEG_QUALITY} if form == "jpeg" else {}))
    return file.getvalue()


def _error(what: str, do: str) -> InfeedError:
    return InfeedError(what, where="ImageOptions", do=do)
