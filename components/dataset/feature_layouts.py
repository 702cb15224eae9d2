"""Recognition of short features in tf.Examples by their bytes.

A feature that holds one value, or one packed list, is an entry of the map of features:

    0A e  0A k name  12 v  kind s  0A n  value

`kind` is the tag of its kind. The lengths of the name and the value determine all other lengths. If the value is
short, each length takes one byte, and only these lengths vary before the value. The prefixes of all records are
compared at once, eight bytes at a time.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
NO_KIND = 0  # for the tag of a feature without a kind, which has no bytes
FIELD_1, FIELD_2 = 0x0A, 0x12  # tags of length-delimited fields
MORE = 0x80  # continuation bit of a varint
VALUE_HEAD = 4  # bytes of a feature before its value
_WIDTH = 8  # bytes compared at once
_SAMPLE = 8  # entries whose names are read
RARE = 3  # a layout is useful if at least one in this many entries has it


@dataclass(frozen=True)
class FeatureLayout:
    """Byte layout of a short feature of one name and kind."""

    name: bytes
    tag: int  # of the kind, or NO_KIND
    least: int  # length `e` of the entry if the value is empty
    head: int  # bytes of the entry before the feature
    # Offset, mask of the compared bytes, their values if the value is empty, and a 1 at each length.
    words: tuple[tuple[int, np.uint64, np.uint64, np.uint64], ...]

    @classmethod
    @functools.lru_cache(1 << 12)
    def of(cls, name: bytes, tag: int) -> FeatureLayout:
        kind = b"" if tag == NO_KIND else bytes([tag, 2, FIELD_1, 0])
        rest = bytes([FIELD_1, len(name), *name, FIELD_2, len(kind)])
        empty = bytes([FIELD_1, len(rest) + len(kind)]) + rest + kind
        ones = bytearray(len(empty))
        for place in (1, -1, -3, -5) if kind else ():
            ones[place] = 1
        words = tuple(
            (
                place,
                np.uint64((1 << 8 * len(empty[place : place + _WIDTH])) - 1),
                _word(empty, place),
                _word(ones, place),
            )
            for place in range(0, len(empty), _WIDTH)
        )
        return cls(name, tag, len(rest) + len(kind), 2 + len(rest), words)

    def find(self, data: Bytes, starts: Ints, limits: Ints) -> tuple[Mask, Ints]:
        """Return whether the entry at each offset has this layout, and its end offset if so."""
        lengths = data[starts + 1]
        ends = starts + lengths + 2
        # Size of the values. A shorter entry wraps around, and is not below MORE.
        sizes = lengths - np.uint64(self.least)
        found = (sizes < MORE - self.least) & (ends <= limits)
        for place, mask, wanted, ones in self.words:
            words = words_at(data, "<u8")[np.minimum(starts + place, len(data) - _WIDTH)]
            found &= ((words - sizes * ones if ones else words) & mask) == wanted
        return found, ends


def usual_layouts(data: Bytes, starts: Ints) -> list[FeatureLayout]:
    """Return the most likely layouts of short features of the name, judged by a sample of the entries."""
    some = starts[:: -(-len(starts) // _SAMPLE)].tolist()
    seen = [_name_and_tag(data[at : at + 2 + MORE].tobytes()) for at in some]
    [(name, count), *_] = Counter(found and found[0] for found in seen).most_common(1)
    if name is None or RARE * count < len(some):
        return []
    tags = Counter(found[1] for found in seen if found and found[0] == name)
    return [FeatureLayout.of(name, tag) for tag in dict.fromkeys([*(tag for tag, _ in tags.most_common()), NO_KIND])]


def _name_and_tag(entry: bytes) -> tuple[bytes, int] | None:
    """Return the name and the kind of a short feature, or None for any other."""
    length, size = entry[1], entry[3]
    rest = length - size - 4  # bytes of the feature itself
    if length >= MORE or len(entry) < length + 2 or rest < 0 or entry[5 + size] != rest:
        return None
    tag, *lengths = entry[6 + size : 6 + size + VALUE_HEAD]
    if rest and lengths != [rest - 2, FIELD_1, rest - 4]:
        return None
    return entry[4 : 4 + size], tag if rest else NO_KIND


def words_at(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """Return the number that starts at each byte offset."""
    width = np.dtype(dtype).itemsize
    words: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), dtype, data, strides=(1,))
    return words


def _word(data: bytes | bytearray, place: int) -> np.uint64:
    return np.uint64(int.from_bytes(data[place : place + _WIDTH], "little"))
