from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import encode
from infeed.components.dataset.encode import encode_examples, encode_feature, in_protobuf_order, varint


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def encoded(*, empty_lists: bool = False, **columns: Any) -> list[bytes]:
    arrays = {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    return encode_examples(batch(**arrays), empty_lists=empty_lists).to_pylist()


@pytest.mark.parametrize(("value", "expected"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_varint(value: int, expected: bytes) -> None:
    assert varint(value) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1], b"\x0a\x0c\x0a\x0a\x0a\x01x\x12\x05\x1a\x03\x0a\x01\x01"),
        ([-1], b"\x0a\x15\x0a\x13\x0a\x01x\x12\x0e\x1a\x0c\x0a\x0a" + b"\xff" * 9 + b"\x01"),
        ([1.5], b"\x0a\x0f\x0a\x0d\x0a\x01x\x12\x08\x12\x06\x0a\x04\x00\x00\xc0\x3f"),
        (["ab"], b"\x0a\x0d\x0a\x0b\x0a\x01x\x12\x06\x0a\x04\x0a\x02ab"),
        ([[1, 2]], b"\x0a\x0d\x0a\x0b\x0a\x01x\x12\x06\x1a\x04\x0a\x02\x01\x02"),
        ([["a", ""]], b"\x0a\x0e\x0a\x0c\x0a\x01x\x12\x07\x0a\x05\x0a\x01a\x0a\x00"),
    ],
)
def test_the_bytes_of_one_feature(column: list[Any], expected: bytes) -> None:
    assert encoded(x=column) == [expected]


def test_features_stand_in_the_order_of_their_names() -> None:
    assert encoded(b=[1], a=[2]) == encoded(a=[2], b=[1])


def test_the_order_is_that_of_the_installed_protobuf() -> None:
    struct_pb2 = pytest.importorskip("google.protobuf.struct_pb2")
    names = ["label/text", "label", "b", "a", "", "ab", "a\x01", "B", "grün"]
    fields = {name: struct_pb2.Value() for name in names}
    rest, found = struct_pb2.Struct(fields=fields).SerializeToString(deterministic=True), []
    while rest:  # entry tag, its length, key tag, its length, key, ...
        found.append(rest[4 : 4 + rest[3]].decode())
        rest = rest[2 + rest[1] :]
    assert in_protobuf_order(names) == found


def test_a_null_is_a_missing_feature() -> None:
    assert encoded(x=[None, 1], y=["a", None]) == [*encoded(y=["a"]), *encoded(x=[1])]
    assert encoded(x=pa.array([None], pa.int64())) == [b"\x0a\x00"]


def test_a_null_can_be_a_present_but_empty_list() -> None:
    columns = {"i": pa.array([None], pa.int64()), "n": pa.nulls(1), "s": pa.array([None], pa.string())}
    entries = b"\x0a\x07\x0a\x01i\x12\x02\x1a\x00\x0a\x05\x0a\x01n\x12\x00\x0a\x07\x0a\x01s\x12\x02\x0a\x00"
    assert encoded(empty_lists=True, **columns) == [b"\x0a" + varint(len(entries)) + entries]


def test_zero_false_and_empty_text_are_values() -> None:
    for value in (0, 0.0, False, ""):
        present, missing = encoded(x=[value, None])
        assert len(present) > len(missing)


def test_an_empty_list_is_there_and_a_null_list_is_not() -> None:
    column = pa.array([[], None], pa.list_(pa.int64()))
    assert encoded(x=column) == [b"\x0a\x09\x0a\x07\x0a\x01x\x12\x02\x1a\x00", b"\x0a\x00"]


def test_a_slice_encodes_its_own_rows() -> None:
    whole = batch(
        i=pa.array([1, None, 3]),
        f=pa.array([0.5, None, 2.5]),
        s=pa.array(["a", None, "ccc"]),
        n=pa.array([[1], None, [2, 3]]),
        p=pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
    )
    assert encode_examples(whole.slice(1)).to_pylist() == encode_examples(whole).to_pylist()[1:]


def test_a_null_among_the_values_of_a_dictionary_is_a_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert encoded(x=column) == encoded(x=["a", None, None])


def test_no_rows_encode_to_no_examples() -> None:
    assert encoded(x=pa.array([], pa.int64()), s=pa.array([], pa.string()), n=pa.array([], pa.list_(pa.string()))) == []


def test_one_feature_alone() -> None:
    assert encode_feature(pa.array([1, None]), "x").to_pylist() == [b"\x1a\x03\x0a\x01\x01", b""]


def test_what_does_not_fit_names_row_and_column() -> None:
    with pytest.raises(InfeedError, match=r"(?s)9223372036854775808 does not fit.*column 'x', row 2"):
        encoded(x=pa.array([1, None, 2**63], pa.uint64()))


def test_a_null_inside_a_list_names_row_and_column() -> None:
    with pytest.raises(InfeedError, match=r"(?s)a list contains null.*column 'x', row 2"):
        encoded(x=[[1, 2], None, [3, None]])


def test_a_type_without_a_place_names_its_column() -> None:
    with pytest.raises(InfeedError, match=r"(?s)struct<a: int64>.*column 'x'"):
        encoded(x=[{"a": 1}])


def test_columns_of_one_type_are_encoded_together_as_they_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        "i": pa.array([1, None, -(2**40)]),
        "f": pa.array([0.5, None, -0.0]),
        "s": pa.array(["", None, "ccc"]),
        "n": pa.array([[1], None, [2, 300]]),
        "t": pa.array([["a", ""], [], None]),
        "d": pa.array(["x", None, "y"]).dictionary_encode(),
        "p": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
        "z": pa.nulls(3),
    }
    order = [2, 0, 1]
    table = batch(
        **{
            f"{n}{'x' * n}{key}": column.take(pa.array(order[n:] + order[:n]))
            for key, column in kinds.items()
            for n in range(3)
        }
    )
    together = [encode_examples(table, empty_lists=empty).to_pylist() for empty in (False, True)]
    monkeypatch.setattr(encode, "_CELLS", 1)
    assert together == [encode_examples(table, empty_lists=empty).to_pylist() for empty in (False, True)]


def test_what_does_not_fit_names_its_own_column_among_many_of_a_type() -> None:
    fitting, unfit = pa.array([1, 2, 3], pa.uint64()), pa.array([1, None, 2**63], pa.uint64())
    with pytest.raises(InfeedError, match=r"(?s)9223372036854775808 does not fit.*column 'b', row 2"):
        encoded(a=fitting, b=unfit, c=fitting)
    with pytest.raises(InfeedError, match=r"(?s)a list contains null.*column 'b', row 1"):
        encoded(a=[[1], [2, 3]], b=[[1, 2], [None]])


def test_a_column_without_any_value_leaves_its_name_so_that_a_schema_knows_it() -> None:
    assert encoded(x=pa.nulls(1)) == [b"\x0a\x07\x0a\x05\x0a\x01x\x12\x00"]
    assert encoded(x=pa.nulls(1)) == encoded(x=pa.nulls(1), empty_lists=True)
