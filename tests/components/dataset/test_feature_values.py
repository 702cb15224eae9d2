from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.feature_values import NO_KIND, VALUE_HEAD, FeatureLayout, usual_layouts
from infeed.components.dataset.record_blocks import PADDING

FLOAT, INT, BYTES = 0x12, 0x1A, 0x0A


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag, len(content)]) + content


def entry(name: bytes, tag: int, value: bytes = b"") -> bytes:
    kind = b"" if tag == NO_KIND else field(tag, field(0x0A, value))
    return field(0x0A, field(0x0A, name) + field(0x12, kind))


def laid_out(entries: list[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The buffer, and where each entry starts and ends."""
    stops = np.cumsum([len(one) for one in entries])
    data = np.frombuffer(b"".join([*entries, PADDING]), np.uint8)
    return data, stops - [len(one) for one in entries], stops


@given(st.binary(max_size=40), st.sampled_from([FLOAT, INT, BYTES]), st.binary(max_size=70))
def test_a_short_value_is_found_where_it_lies(name: bytes, tag: int, value: bytes) -> None:
    data, starts, stops = laid_out([entry(name, tag, value)])
    [layout, *_] = usual_layouts(data, starts)
    found, ends = layout.find(data, starts, stops)
    at = int(starts[0]) + layout.head + VALUE_HEAD
    assert (layout.name, layout.tag, found.tolist(), ends.tolist()) == (name, tag, [True], stops.tolist())
    assert data[at : ends[0]].tobytes() == value


@given(st.data(), st.binary(min_size=1, max_size=12), st.binary(max_size=20))
def test_an_entry_with_another_byte_before_its_value_is_not_found(
    data: st.DataObject, name: bytes, value: bytes
) -> None:
    right = entry(name, BYTES, value)
    wrong = bytearray(right)
    place = data.draw(st.integers(0, len(right) - len(value) - 1))
    wrong[place] ^= data.draw(st.integers(1, 255))
    buffer, starts, stops = laid_out([right, bytes(wrong), right])
    found, _ = FeatureLayout.of(name, BYTES).find(buffer, starts, stops)
    assert found.tolist() == [True, False, True]


def test_a_value_that_leaves_its_record_is_not_found() -> None:
    data, starts, stops = laid_out([entry(b"x", BYTES, b"abc")] * 2)
    found, _ = FeatureLayout.of(b"x", BYTES).find(data, starts, stops - [1, 0])
    assert found.tolist() == [False, True]


@pytest.mark.parametrize("tag", [FLOAT, NO_KIND])
def test_the_name_that_most_of_a_sample_has_is_the_usual_one_with_all_its_kinds(tag: int) -> None:
    entries = [entry(b"a", FLOAT), entry(b"b", tag), entry(b"b", INT), entry(b"b", INT)]
    data, starts, _ = laid_out(entries)
    assert usual_layouts(data, starts) == [
        FeatureLayout.of(b"b", INT),
        *[FeatureLayout.of(b"b", tag) for tag in dict.fromkeys([tag, NO_KIND])],
    ]


def test_names_that_are_all_different_and_long_values_are_no_layout() -> None:
    different = [entry(b"name %d" % number, FLOAT) for number in range(8)]
    long = [field(0x0A, b"")[:1] + b"\xff\x01" + bytes(300)]
    for entries in (different, long):
        data, starts, _ = laid_out(entries)
        assert usual_layouts(data, starts) == []
