from __future__ import annotations

import struct
import zlib
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples, varint

SCHEMA = pa.schema(
    [
        ("int", pa.int64()),
        ("floats", pa.list_(pa.float32())),
        ("ints", pa.list_(pa.int64())),
        ("text", pa.large_binary()),
        ("texts", pa.list_(pa.large_binary())),
    ]
)
INTS = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1))
ROW = st.fixed_dictionaries(
    {
        "int": st.one_of(st.none(), INTS),
        "floats": st.one_of(st.none(), st.lists(st.floats(width=32, allow_nan=False), max_size=3)),
        "ints": st.one_of(st.none(), st.lists(INTS, max_size=3)),
        "text": st.one_of(st.none(), st.binary(max_size=200)),
        "texts": st.one_of(st.none(), st.lists(st.binary(max_size=3), max_size=3)),
    }
)


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + varint(len(content)) + content


def entry(name: bytes, feature: bytes) -> bytes:
    return field(0x0A, field(0x0A, name) + field(0x12, feature))


def example(*entries: bytes) -> bytes:
    return field(0x0A, b"".join(entries))


def one_by_one(records: list[bytes]) -> dict[str, list[Any]]:
    """What the records hold by protobuf's own reading."""
    decoded = [decode_example(record).features for record in records]
    names = sorted({name for features in decoded for name, feature in features.items() if feature.type})
    rows = [[features.get(name) for features in decoded] for name in names]
    return {
        name: [list(found.values) if found and found.type else None for found in column]
        for name, column in zip(names, rows, strict=True)
    }


def together(records: list[bytes]) -> dict[str, list[Any]]:
    return {name: column.to_pylist() for name, column in decode_columns(records).items()}


@given(st.lists(ROW, max_size=8))
def test_what_was_encoded_is_decoded(rows: list[dict[str, Any]]) -> None:
    records = encode_examples(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)).to_pylist()
    assert together(records) == one_by_one(records)


@given(st.lists(st.tuples(ROW, st.randoms()), max_size=6))
def test_any_order_of_features_will_do(rows: list[tuple[dict[str, Any], Any]]) -> None:
    records = []
    for row, random in rows:
        kinds = [(name, kind) for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True) if row[name] is not None]
        random.shuffle(kinds)
        one = [
            encode_examples(pa.RecordBatch.from_pydict({name: pa.array([row[name]], kind)})).to_pylist()[0]
            for name, kind in kinds
        ]
        records.append(b"".join(one))  # messages that are joined are merged
        records.append(example(*(whole[len(varint(len(whole))) + 1 :] for whole in one if len(whole) < 120)))
    assert together(records) == one_by_one(records)


@pytest.mark.parametrize("order", ["sorted", "by_hash", "shuffled"])
@pytest.mark.parametrize("missing", ["absent", "without a kind"])
def test_records_that_lack_features_and_hold_lists_and_long_values_among_short_ones(order: str, missing: str) -> None:
    random = Random(order + missing)

    def value(column: int) -> bytes:
        count = random.choice([1, 1, 1, 1, 0, 2])
        match column % 3:
            case 0:
                return field(0x12, field(0x0A, struct.pack(f"<{count}f", *(random.random() for _ in range(count)))))
            case 1:
                return field(0x1A, field(0x0A, b"".join(varint(random.randrange(1 << 20)) for _ in range(count))))
        return field(0x0A, b"".join(field(0x0A, b"y" * random.choice([0, 3, 9, 100, 300])) for _ in range(count)))

    def record() -> bytes:
        present = {column: random.random() < (0.5, 0.9, 0.99, 1)[column % 4] for column in range(12)}
        found = [
            entry(b"feature_%02d" % column, value(column) if here else b"")
            for column, here in present.items()
            if here or missing == "without a kind"
        ]
        if order == "by_hash":
            found.sort(key=lambda one: zlib.crc32(one[:14]))
        if order == "shuffled":
            random.shuffle(found)
        return example(*found)

    records = [record() for _ in range(400)]
    assert together(records) == one_by_one(records)


UNUSUAL = {
    "unpacked": example(entry(b"x", field(0x12, b"\x0d" + struct.pack("<f", 1.5) + b"\x0d" + struct.pack("<f", 2)))),
    "packed in two": example(entry(b"x", field(0x12, field(0x0A, struct.pack("<f", 1)) * 2))),
    "value before key": example(field(0x0A, field(0x12, field(0x12, b"")) + field(0x0A, b"x"))),
    "twice": example(entry(b"x", field(0x12, b"")), entry(b"x", field(0x12, field(0x0A, struct.pack("<f", 3))))),
    "twice, of two types": example(
        entry(b"x", field(0x1A, field(0x0A, b"\x07"))), entry(b"x", field(0x12, field(0x0A, struct.pack("<f", 3))))
    ),
    "a value of two types": example(
        entry(b"x", field(0x1A, field(0x0A, b"\x07")) + field(0x12, field(0x0A, struct.pack("<f", 3))))
    ),
    "without a value": example(field(0x0A, field(0x0A, b"x"))),
    "without a kind": example(entry(b"x", b"")),
    "an unknown field": example(entry(b"x", field(0x12, b""))) + field(0x2A, b"abc"),
    "nothing": b"",
    "no features": example(),
    "a long varint": bytes([0x0A, 0x80 | 13, 0])
    + entry(b"x", field(0x12, field(0x0A, bytes(4))))[:13].ljust(13, b"\0"),
}


@pytest.mark.parametrize("record", [pytest.param(record, id=name) for name, record in UNUSUAL.items()])
def test_unusual_records_stand_among_usual_ones(record: bytes) -> None:
    usual = encode_examples(pa.RecordBatch.from_pydict({"x": pa.array([[0.5], [1.0, 2.0]], pa.list_(pa.float32()))}))
    records = [usual[0].as_py(), record, usual[1].as_py()]
    try:
        expected = one_by_one(records)
    except ValueError:
        with pytest.raises(ValueError, match=r"not a serialized tf\.Example"):
            together(records)
    else:
        assert together(records) == expected


@given(st.lists(ROW, min_size=1, max_size=3), st.data())
def test_damaged_records_are_read_as_protobuf_reads_them_or_refused(rows: list[dict[str, Any]], data: Any) -> None:
    records = encode_examples(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)).to_pylist()
    damaged = bytearray(records[0])
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    records[0] = bytes(damaged)[: data.draw(st.integers(0, len(damaged)))]
    try:
        expected = one_by_one(records)
        kinds = {(name, feature.type) for one in records for name, feature in decode_example(one).features.items()}
    except ValueError:
        expected, kinds = None, set()
    typed = [name for name, kind in kinds if kind]
    if expected is None or len(typed) > len(set(typed)):
        with pytest.raises(ValueError, match=r"not a serialized tf.Example|feature .* is .* and|decode"):
            decode_columns(records)
    else:
        assert repr(together(records)) == repr(expected)  # NaN is not itself


def test_a_feature_of_two_types_is_an_error() -> None:
    records = [example(entry(b"x", field(0x12, b""))), example(entry(b"x", field(0x1A, b"")))]
    with pytest.raises(ValueError, match="feature 'x' is float and int"):
        decode_columns(records)
    odd = records[0] + field(0x2A, b"of a later version")
    with pytest.raises(ValueError, match="feature 'x' is float and int"):
        decode_columns([odd, records[1]])
    with pytest.raises(ValueError, match="feature 'x' is float and int"):
        decode_columns([odd, records[1] + field(0x2A, b"")])


WIRE = {0: b"\x96\x01", 1: bytes(8), 2: b"\x03abc", 3: b"", 5: bytes(4)}
UNKNOWN = st.builds(
    lambda number, wire: (
        varint(number << 3 | wire) + WIRE[wire] + (varint(number << 3 | 4) if wire == 3 else b"")  # a group has an end
    ),
    st.integers(16, 1 << 20),
    st.sampled_from(sorted(WIRE)),
)
ANYWHERE = st.lists(UNKNOWN | st.just(b""), min_size=10, max_size=10)
KIND = st.sampled_from([(0x0A, b"\x0a\x02ab\x0a\x00"), (0x12, b"\x0a\x04\0\0\x80\x3f"), (0x1A, b"\x0a\x02\x96\x01")])


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b""]), KIND, ANYWHERE), min_size=1, max_size=4))
def test_unknown_fields_are_skipped_at_every_level_as_tensorflow_skips_them(rows: list[Any]) -> None:
    from google.protobuf.internal import api_implementation
    from tensorflow.train import Example

    # Since version 4 protobuf takes a whole entry of a map for unknown if one field in it is.
    skips_in_entries = api_implementation.Type() != "upb"
    records = []
    for name, (tag, values), (a, b, c, d, e, f, g, h, i, j) in rows:
        if not skips_in_entries:
            b = g = h = b""
        feature = c + field(tag, d + values + e) + f
        pair = g + field(0x0A, name) + h + field(0x12, feature) + b
        records.append(a + field(0x0A, i + field(0x0A, pair) + j) + a)
    read = [Example.FromString(record).features.feature for record in records]
    theirs = {
        name: [_their_values(one[name]) if name in one else None for one in read]
        for name in {n for o in read for n in o}
    }
    kinds = [{one[name].WhichOneof("kind") for one in read if name in one} for name in theirs]
    if all(len(kind) == 1 for kind in kinds):
        assert together(records) == theirs == one_by_one(records)
    else:
        with pytest.raises(ValueError, match=r"feature .* is .* and"):
            decode_columns(records)


def _their_values(feature: Any) -> list[Any]:
    return list(getattr(feature, feature.WhichOneof("kind")).value)


def test_a_sequence_example_is_refused() -> None:
    with pytest.raises(ValueError, match="SequenceExample"):
        decode_columns([b"\x0a\x00\x12\x00"])
