"""Serialized tf.Examples and SequenceExamples -> Python values, for eyes: without TensorFlow, and not fast."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infeed.components.dataset.manifest import ColumnType

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types
_KINDS: dict[int, ColumnType] = {1: "bytes", 2: "float", 3: "int"}  # fields of a Feature


@dataclass(frozen=True)
class Feature:
    """The values of one feature: bytes, floats or ints; `type` is None where the record does not say which."""

    type: ColumnType | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Example:
    """A record: its features, and those of each step where it is a SequenceExample."""

    features: dict[str, Feature]
    steps: dict[str, tuple[Feature, ...]]


def decode_example(record: bytes) -> Example:
    """Features sorted by name.

    Raises:
      ValueError: not a serialized tf.Example or SequenceExample.
    """
    try:
        features = {name: _feature(value) for name, value in _map(record, 1)}
        steps = {name: tuple(map(_feature, _all(value, 1))) for name, value in _map(record, 2)}
    except (IndexError, struct.error, UnicodeDecodeError, TypeError) as error:
        raise ValueError(f"not a serialized tf.Example: {error}") from error
    return Example(dict(sorted(features.items())), dict(sorted(steps.items())))


def _map(record: bytes, field: int) -> Iterator[tuple[str, bytes]]:
    for part in _all(record, field):
        for entry in _all(part, 1):
            yield b"".join(_all(entry, 1)).decode(), b"".join(_all(entry, 2))


def _feature(message: bytes) -> Feature:
    for field, _, content in _fields(message):
        kind = _KINDS.get(field)
        if kind == "bytes":
            return Feature(kind, tuple(_all(content, 1)))
        if kind is not None:
            return Feature(kind, tuple(_numbers(content, kind)))
    return Feature(None, ())


def _numbers(message: bytes, kind: ColumnType) -> Iterator[float]:
    """Packed or one by one: a writer may do either."""
    for _, wire, content in _fields(message):
        if wire != _BYTES:
            yield _signed(content) if wire == _VARINT else struct.unpack("<f", content)[0]
        elif kind == "float":
            yield from (value for (value,) in struct.iter_unpack("<f", content))
        else:
            at = 0
            while at < len(content):
                value, at = _varint(content, at)
                yield _signed(value)


def _all(message: bytes, number: int) -> list[bytes]:
    return [content for field, _, content in _fields(message) if field == number]


def _fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """(field number, wire type, content): bytes, or an int for a varint."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire = tag & 7
        if wire == _VARINT:
            content, at = _varint(message, at)
            yield tag >> 3, wire, content
            continue
        if wire not in (_BYTES, _FOUR_BYTES, _EIGHT_BYTES):
            raise IndexError(f"wire type {wire}")
        size, at = _varint(message, at) if wire == _BYTES else (4 if wire == _FOUR_BYTES else 8, at)
        if at + size > len(message):
            raise IndexError("cut short")
        yield tag >> 3, wire, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """(value, place behind it)"""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
