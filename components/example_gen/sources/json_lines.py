"""Parsing of one JSON line, and detection of lines that are unsafe to parse: too deep, or with too many values.

At a few thousand levels, Python's parser overflows its stack, and Arrow aborts. Both need many bytes per value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from infeed.components.example_gen import inputs
from infeed.components.example_gen.sources import kinds
from infeed.components.example_gen.sources.kinds import MismatchError

MOST_LEVELS = 100
_LF, _CR = ord("\n"), ord("\r")
_OPEN, _CLOSE = ord("{"), ord("}")
_BRACE = 0x20  # ASCII bit that turns a bracket into a brace
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a surrogate pair. Arrow rejects a lone half, Python accepts it
_BYTES_OF_VALUE = 64  # that a parser needs for each value, about
_NUMBERS = ("parse_int", "parse_float", "parse_constant")  # hooks of Python's parser


def parse_line(line: bytes, most_mb: int, number: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Parse an object. `number` converts the text of its numbers. Raises MismatchError if the row is bad."""
    if has_too_many_values(line, most_mb):
        raise MismatchError("", f"its parsed values take {inputs.too_large(most_mb)}")
    if is_deep(line):
        raise MismatchError("", f"nested deeper than {MOST_LEVELS} levels")
    try:
        hooks: Any = {"parse_float": finite} if number is None else dict.fromkeys(_NUMBERS, number)
        row = json.loads(line.decode(), object_pairs_hook=_without_repeats, **hooks)
    except UnicodeDecodeError:
        raise MismatchError("", "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise MismatchError("", f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError:  # Python refuses to parse thousands of digits
        raise MismatchError("", "a number has too many digits") from None
    if _SURROGATE.search(line):
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise MismatchError("", "invalid Unicode: half of a surrogate pair") from None
    if not isinstance(row, dict):
        raise MismatchError("", "not a JSON object")
    return row


def finite(number: str) -> float:
    """Parse a JSON number. Numbers beyond the largest float become it, so that they count as changed."""
    return max(min(float(number), kinds.LARGEST), -kinds.LARGEST)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict[str, Any]()
    for name, value in pairs:
        if name in row:
            raise MismatchError(name, "the name occurs twice")
        row[name] = value
    return row


def count_objects(data: bytes) -> int | None:
    """Count the lines that are not blank. Returns None if a line may not be an object or is too deep."""
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _LF)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    if b"\r" in data:
        ends = ends - (text[ends - 1] == _CR)
    filled = ends > starts
    starts, ends = starts[filled], ends[filled]
    if not ((text[starts] == _OPEN).all() and (text[ends - 1] == _CLOSE).all()):
        return None
    if data.count(b"{") + data.count(b"[") < len(starts) + MOST_LEVELS:  # the fast path for nearly all data
        return len(starts)
    opened = np.add.reduceat(text | _BRACE == _OPEN, starts, dtype=np.int64)
    suspects = np.flatnonzero(opened > MOST_LEVELS)
    return None if any(is_deep(data[starts[line] : ends[line]]) for line in suspects) else len(starts)


def has_too_many_values(line: bytes, most_mb: int) -> bool:
    """Return whether parsing the values of a line may take more than `most_mb` megabytes."""
    most = most_values(most_mb)
    if len(line) <= most or _count_values(line) <= most:
        return False
    return _count_values(_STRING.sub(b"", line)) > most


def most_values(most_mb: int) -> int:
    return (most_mb << 20) // _BYTES_OF_VALUE


def _count_values(line: bytes) -> int:
    return sum(map(line.count, (b",", b"[", b"{")))


def is_deep(line: bytes) -> bool:
    """Return whether a line is nested deeper than `MOST_LEVELS` levels."""
    if line.count(b"{") + line.count(b"[") <= MOST_LEVELS:
        return False
    braces = np.frombuffer(_STRING.sub(b"", line), np.uint8) | _BRACE
    steps = (braces == _OPEN).astype(np.int8) - (braces == _CLOSE)
    return bool(np.cumsum(steps, dtype=np.int32).max(initial=0) > MOST_LEVELS)
