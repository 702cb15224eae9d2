"""SequenceExamples written without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from infeed.components.dataset.encode import varint

_CONTEXT, _LISTS = 0x0A, 0x12  # tags of the fields of a SequenceExample
_KINDS = {bytes: 0x0A, float: 0x12, int: 0x1A}
Values = Sequence[Any] | None  # of one type; without a kind if None


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + varint(len(content)) + content


def feature(values: Values) -> bytes:
    """Encode a tf.train.Feature. An empty list is one of integers."""
    if values is None:
        return b""
    kind = type(values[0]) if values else int
    if kind is bytes:
        content = b"".join(field(0x0A, one) for one in values)
    else:
        packed = struct.pack(f"<{len(values)}f", *values) if kind is float else b"".join(map(_signed, values))
        content = field(0x0A, packed) if values else b""
    return field(_KINDS[kind], content)


def sequence_example(context: Mapping[str, Values], lists: Mapping[str, Sequence[Values]]) -> bytes:
    """Encode a record. `lists` are the values of each step."""
    steps = {name: b"".join(field(0x0A, feature(one)) for one in values) for name, values in lists.items()}
    features = {name: feature(values) for name, values in context.items()}
    parts = [(_CONTEXT, features), (_LISTS, steps)]
    return b"".join(field(tag, b"".join(_entry(*one) for one in some.items())) for tag, some in parts if some)


def _entry(name: str, value: bytes) -> bytes:
    return field(0x0A, field(0x0A, name.encode()) + field(0x12, value))


def _signed(value: int) -> bytes:
    return varint(value % (1 << 64))
