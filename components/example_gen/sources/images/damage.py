"""Validate an image file without decoding it: checksums of a PNG, segments and tables of a JPEG.

Every chunk of a PNG has a checksum, so changed bits are always found. A JPEG has no checksums. The check covers the
segments before the pixels, and the end marker after them. Changed pixels are not found.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
import zlib
from collections.abc import Iterator

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
