"""SequenceExamples as columns: the same values as protobuf reads. Covers `feature_values`, too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset import feature_values
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.decode_columns import LISTS, decode_columns

VALUES = {
    "f": st.floats(width=32, allow_nan=False),
    "i": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9),
    "b": st.binary(max_size=5),
}


def features(kind: str) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(VALUES[kind], min_size=1, max_size=3)


def optional(**strategies: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=strategies)


CONTEXTS = optional(**{kind: features(kind) for kind in VALUES})
STEPS = optional(**{kind: st.lists(features(kind), max_size=4) for kind in (*VALUES,)})
ROWS = st.lists(st.tuples(CONTEXTS, STEPS), max_size=6)


def one_by_one(records: list[bytes]) -> dict[str, list[Any]]:
    """Return the values of each column as protobuf reads them."""
    decoded = [decode_example(record) for record in records]
    found = {}
    for name in sorted({name for one in decoded for name, values in one.features.items() if values.type}):
        values = [one.features.get(name) for one in decoded]
        found[name] = [list(one.values) if one and one.type else None for one in values]
    for name in sorted({name for one in decoded for name in one.steps}):
        steps = [one.steps.get(name) for one in decoded]
        found[LISTS + name] = [None if one is None else [list(step.values) for step in one] for one in steps]
    return dict(sorted(found.items()))


def together(records: list[bytes]) -> dict[str, list[Any]]:
    """Return the decoded columns. A step without a kind has no values."""
    found = {name: column.to_pylist() for name, column in decode_columns(records, sequence=True).items()}
    for name, rows in found.items():
        if name.startswith(LISTS):
            found[name] = [row and [step or [] for step in row] for row in rows]
    return found


@pytest.fixture(autouse=True, scope="module", params=[0, 64], ids="Python reads at most {} lists".format)
def few(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_values, "_FEW", request.param)
        yield


@given(ROWS)
def test_the_columns_hold_what_protobuf_reads(wire, rows):
    records = [wire.sequence_example(*row) for row in rows]
    assert together(records) == one_by_one(records)


@given(ROWS, st.integers(0, 5))
def test_a_record_of_another_form_has_the_same_values(wire, rows, place):
    """An unknown field, a feature list twice, and numbers that are not packed."""
    records = [wire.sequence_example(*row) for row in rows]
    place = min(place, len(records))
    odd = b"\x7a\x03abc"
    for step in (wire.feature([7]), b"\x1a\x04\x08\x05\x08\x06"):
        entry = wire.field(0x0A, b"i") + wire.field(0x12, wire.field(0x0A, step))
        odd += wire.field(0x12, wire.field(0x0A, entry))
    records.insert(place, odd)
    assert together(records) == one_by_one(records)
    assert together(records)[f"{LISTS}i"][place] == [[5, 6]]


@given(ROWS, st.data())
def test_a_damaged_record_is_an_error_or_read_as_protobuf_reads_it(wire, rows, data):
    whole = bytearray(wire.sequence_example({"i": [1]}, {"f": [[1.5], [2.5]], "b": [[b"x", b"y"]]}))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    records = [*(wire.sequence_example(*row) for row in rows), damaged]
    try:
        found = together(records)
    except ValueError:
        return
    assert found == one_by_one(records)


def test_a_feature_list_of_two_types_is_an_error(wire):
    with pytest.raises(ValueError, match=f"{LISTS}x"):
        decode_columns([wire.sequence_example({}, {"x": [[1], [1.5]]})], sequence=True)


def test_a_tf_example_is_a_sequence_example_without_steps_but_not_the_other_way_round(wire):
    records = [wire.sequence_example({"x": [1]}, {})]
    assert decode_columns(records, sequence=True) == decode_columns(records)
    with pytest.raises(ValueError, match="SequenceExample"):
        decode_columns([*records, wire.sequence_example({}, {"x": [[1]]})])


def test_lengths_of_several_bytes(wire):
    rows = [({}, {"b": [[b"x" * size] for size in (0, 127, 128, 300, 20_000)]})] * 2
    records = [wire.sequence_example(*row) for row in rows]
    assert together(records) == one_by_one(records)


def test_an_element_that_ends_after_its_list_is_an_error(wire):
    for size in range(1, 4):  # of the element, of which the list holds the first two bytes
        steps = wire.field(0x0A, wire.field(0x0A, b"b") + wire.field(0x12, b"\x0a" + bytes([size])))
        with pytest.raises(ValueError, match="not a serialized"):
            decode_columns([wire.field(0x12, steps)], sequence=True)


def test_only_the_wanted_feature_lists_are_read(wire):
    records = [wire.sequence_example({"x": [1]}, {"x": [[1]], "y": [[2]]})]
    assert list(decode_columns(records, {f"{LISTS}y"}, sequence=True)) == [f"{LISTS}y"]
