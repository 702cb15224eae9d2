"""Lines that a parser of JSON must not get. `test_jsonl.py` covers what becomes of them, and of bad lines."""

from __future__ import annotations

import json

import pytest

from infeed.components.example_gen.sources.json_lines import (
    MOST_LEVELS,
    MismatchError,
    count_objects,
    finite,
    has_too_many_values,
    is_deep,
    parse_line,
)
from infeed.components.example_gen.sources.kinds import LARGEST


def nested(levels: int) -> bytes:
    return b"{" + b'"a":[' * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_levels_are_counted_without_the_brackets_in_text() -> None:
    assert [is_deep(nested(levels)) for levels in (MOST_LEVELS, MOST_LEVELS + 1)] == [False, True]
    assert not is_deep(json.dumps({"a": '["' * 500}).encode())


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b'{"a": 1}\n\n{"a": 2}\r\n{"a": 3}', 3),
        (b'{"a": 1}\nnull\n', None),
        (nested(MOST_LEVELS + 1) + b"\n", None),
        (b"\n\n", 0),
    ],
)
def test_lines_that_may_be_no_object_are_not_counted(data: bytes, count: int | None) -> None:
    assert count_objects(data) == count


def test_values_are_counted_without_the_commas_in_text() -> None:
    most = (1 << 20) // 64
    assert not has_too_many_values(json.dumps({"a": "," * 2 * most}).encode(), 1)
    assert has_too_many_values(json.dumps({"a": [1] * (most + 1)}).encode(), 1)


def test_a_number_beyond_float64_is_the_largest() -> None:
    assert (finite("1e400"), finite("-1e400"), finite("1.5")) == (LARGEST, -LARGEST, 1.5)
    assert parse_line(b'{"a": 1e400}', 1) == {"a": LARGEST}


def test_a_name_that_occurs_twice_is_named() -> None:
    with pytest.raises(MismatchError) as raised:
        parse_line(b'{"a": 1, "a": 2}', 1)
    assert raised.value.column == "a"
