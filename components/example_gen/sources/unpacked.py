"""How large compressed bytes are once they are unpacked, told without room for them.

A few kilobytes may become gigabytes.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

_PIECE = 1 << 20
_INFLATE = 1_032  # deflate makes at most so many bytes of one; bzip2 and xz have no such bound
_UNPACK: dict[str, Callable[[], Any]] = {
    "deflate": partial(zlib.decompressobj, -zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}


def may_exceed(codec: str, packed: int, most: int) -> bool:
    """Whether so many packed bytes of a codec, by Avro's name, can become more than `most`, which few blocks can."""
    return codec in _UNPACK and (codec != "deflate" or packed * _INFLATE > most)


def exceeds(codec: str, packed: bytes, most: int) -> bool:
    """Whether they become more than `most` bytes. Broken ones do not: their decoder says what is wrong with them."""
    size, unpacker = 0, _UNPACK[codec]()
    try:
        while size <= most and not (unpacker.eof and not unpacker.unused_data):
            if unpacker.eof:  # one stream behind another
                packed, unpacker = unpacker.unused_data, _UNPACK[codec]()
            piece = unpacker.decompress(packed, _PIECE)
            packed = getattr(unpacker, "unconsumed_tail", b"")  # the others keep it themselves
            if not piece and not unpacker.eof:
                break
            size += len(piece)
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        return False
    return size > most
