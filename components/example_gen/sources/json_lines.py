"""Parsing of one JSON line, and the kinds of JSON values.

Lines that are too deep or have too many values are not parsed: at a few thousand levels, Python's parser overflows its
stack, and Arrow aborts. Both need many bytes per value.

Rows widen the known kinds of columns one after the other. An int and a float make a float, and a null fits every kind.
Any other two kinds conflict, and an integer beyond 64 bits is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from infeed.components.dataset import example_types
from infeed.components.example_gen import inputs
from infeed.components.example_gen.sources.kinds import INT64, LARGEST

MOST_LEVELS = 100
_LF, _CR = ord("\n"), ord("\r")
_OPEN, _CLOSE = ord("{"), ord("}")
_BRACE = 0x20  # ASCII bit that turns a bracket into a brace
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a surrogate pair. Arrow rejects a lone half, Python accepts it
_BYTES_OF_VALUE = 64  # that a parser needs for each value, about
_HOOKS = ("parse_int", "parse_float", "parse_constant")  # hooks of Python's parser
Object = dict[str, "JsonKind"]
# A kind is plain JSON: a key of _ARROW, a list of the one kind of its items, an object, or None for only nulls so far.
JsonKind = str | list["JsonKind"] | Object | None
_ARROW = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}
_PYTHON = {bool: "bool", int: "int", float: "float", str: "text"}
_NUMBERS = ("int", "float")
_WORDS = {"bool": "true or false", "int": "a number", "float": "a number", "text": "text"}
_SHOWN_DIGITS = 40


def parse_line(line: bytes, most_mb: int, number: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Parse an object. `number` converts the text of its numbers. Raises MismatchError if the row is bad."""
    if has_too_many_values(line, most_mb):
        raise MismatchError("", f"its parsed values take {inputs.too_large(most_mb)}")
    if is_deep(line):
        raise MismatchError("", f"nested deeper than {MOST_LEVELS} levels")
    try:
        hooks: Any = {"parse_float": finite} if number is None else dict.fromkeys(_HOOKS, number)
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
    return max(min(float(number), LARGEST), -LARGEST)


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


class MismatchError(Exception):
    """A value conflicts with the known kind of its column."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


def kind_of(value: Any, column: str = "") -> JsonKind:
    """Return the kind of a JSON value. Raises MismatchError for a list of nulls or mixed kinds, or beyond 64 bits."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: kind_of(inner, f"{column}.{name}".lstrip(".")) for name, inner in value.items()}
    if isinstance(value, list):
        known: JsonKind = None
        for item in value:
            if (new := kind_of(item, column)) is None:
                raise MismatchError(column, "a list contains null")
            known = widen(known, new, column)
        return [known]
    kind = _PYTHON[type(value)]
    if kind == "int" and value not in INT64:
        digits = str(value)
        if len(digits) > _SHOWN_DIGITS:
            digits = f"{digits[:_SHOWN_DIGITS]}... of {len(digits.lstrip('-'))} digits"
        raise MismatchError(column, f"{digits} does not fit into a signed 64-bit integer")
    return kind


def kind_of_arrow(inferred: pa.DataType) -> JsonKind:
    """Return the kind of a type that Arrow inferred. Arrow infers dates from text, which JSON does not have."""
    if types.is_struct(inferred):
        return {field.name: kind_of_arrow(field.type) for field in inferred}
    if types.is_list(inferred):
        return [kind_of_arrow(inferred.value_type)]
    if types.is_null(inferred):
        return None
    return next((kind for kind, arrow in _ARROW.items() if arrow == inferred), "text")


def to_arrow(kind: JsonKind) -> pa.DataType:
    """Return the Arrow type of a column, or the struct type of an object."""
    if isinstance(kind, dict):
        return pa.struct([(name, to_arrow(inner)) for name, inner in kind.items()])
    if isinstance(kind, list):
        return pa.list_(to_arrow(kind[0]))
    return pa.null() if kind is None else _ARROW[kind]


def widen(known: JsonKind, new: JsonKind, column: str = "") -> JsonKind:
    """Return the narrowest kind for both kinds of values, or `known` itself. Raises MismatchError if they conflict."""
    if new is None or known == new:
        return known
    if known is None:
        return new
    if known in _NUMBERS and new in _NUMBERS:
        return known if known == "float" else "float"
    if isinstance(known, list) and isinstance(new, list):
        items = widen(known[0], new[0], column)
        return known if items is known[0] else [items]
    if isinstance(known, dict) and isinstance(new, dict):
        return widen_object(known, new, column)
    raise MismatchError(column, f"{_in_words(new)}, but earlier rows have {_in_words(known)}")


def widen_object(known: Object, new: Object, column: str = "") -> Object:
    """Widen an object, in time proportional to `new`. The object known from many rows may be much wider."""
    wider: Object = {}
    for name, kind in new.items():
        before = known.get(name)
        found = widen(before, kind, f"{column}.{name}".lstrip("."))
        if found is not before or name not in known:
            wider[name] = found
    return {**known, **wider} if wider else known


def restrict(wider: JsonKind, known: JsonKind) -> Any:
    """Return the kinds of `wider` for the columns of `known`. The first rows determine the order of columns."""
    if isinstance(wider, dict):
        fields = known if isinstance(known, dict) else Object()
        return {name: restrict(wider[name], inner) for name, inner in fields.items()} if fields else known
    if isinstance(wider, list):
        return [restrict(wider[0], known[0])] if isinstance(known, list) else known
    return wider


def fit(value: Any, to: JsonKind) -> Any:
    """Convert integers of float columns to floats, so that Arrow accepts the value; see `example_types.to_float64`."""
    if value is None:
        return None
    if isinstance(to, dict):
        return {name: fit(inner, to[name]) for name, inner in value.items()}
    if isinstance(to, list):
        return [fit(item, to[0]) for item in value]
    if to != "float":
        return value
    return example_types.to_float64(pa.array([value]))[0].as_py() if isinstance(value, int) else value


def _in_words(kind: JsonKind) -> str:
    if isinstance(kind, list):
        return "a list"
    return _WORDS[kind] if isinstance(kind, str) else "an object"
