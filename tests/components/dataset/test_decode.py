from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.dataset.decode import DecodedFeature, decode_example
from infeed.components.dataset.encode import encode_examples

COLUMNS = {
    "int": (pa.list_(pa.int64()), st.integers(-(1 << 63), (1 << 63) - 1)),
    "float": (pa.list_(pa.float32()), st.floats(width=32, allow_nan=False)),
    "bytes": (pa.list_(pa.large_binary()), st.binary(max_size=20)),
}


@settings(deadline=None, max_examples=50)
@given(st.fixed_dictionaries({kind: st.none() | st.lists(value, max_size=4) for kind, (_, value) in COLUMNS.items()}))
def test_what_was_encoded_is_decoded(row: dict[str, list[Any] | None]) -> None:
    schema = pa.schema([(kind, type_) for kind, (type_, _) in COLUMNS.items()])
    record = encode_examples(pa.RecordBatch.from_pylist([row], schema=schema))[0].as_py()
    features = decode_example(record).features
    assert {name: feature.values for name, feature in features.items()} == {
        name: tuple(values) for name, values in row.items() if values is not None
    }
    assert all(feature.type == name for name, feature in features.items())


def test_numbers_may_stand_one_by_one() -> None:
    floats = b"\x12\x0a\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40"
    ints = b"\x1a\x04\x08\x01\x08\x02"
    for value, expected in ((floats, DecodedFeature("float", (1.0, 2.0))), (ints, DecodedFeature("int", (1, 2)))):
        entry = b"\x0a\x01x\x12" + bytes([len(value)]) + value
        features = b"\x0a" + bytes([len(entry)]) + entry
        assert decode_example(b"\x0a" + bytes([len(features)]) + features).features == {"x": expected}


@pytest.mark.parametrize("record", [b"plain text", b"\x0a\x05abc", b"\x0a", b"\xff\xff", b"text that ends a group"])
def test_anything_else_is_an_error(record: bytes) -> None:
    with pytest.raises(ValueError, match="not a serialized"):
        decode_example(record)
