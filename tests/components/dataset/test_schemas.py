from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types, schemas
from infeed.components.dataset.schemas import FileSchema

TRIPS = [{"id": 1, "trip": {"fare": 0.0, "place": {"name": ""}}}, {"id": 2, "trip": None}]


def unify(*found: pa.Schema) -> pa.Schema:
    return schemas.unify(
        [FileSchema(f"{letter}.parquet", schema) for letter, schema in zip("abc", found, strict=False)]
    )


def test_structs_become_columns_named_with_dots() -> None:
    batch = pa.RecordBatch.from_pylist(TRIPS)
    flat = schemas.flatten_batch(batch)
    assert flat.to_pydict() == {"id": [1, 2], "trip.fare": [0.0, None], "trip.place.name": ["", None]}
    assert schemas.flatten_schema(batch.schema) == flat.schema


def test_a_batch_without_rows_is_flattened_too() -> None:
    batch = pa.RecordBatch.from_pylist(TRIPS).slice(0, 0)
    assert schemas.flatten_batch(batch).schema.names == ["id", "trip.fare", "trip.place.name"]


def test_files_that_differ_a_little_are_read_as_one() -> None:
    merged = unify(
        pa.schema([("x", pa.int32()), ("f", pa.float32()), ("s", pa.string()), ("n", pa.null())]),
        pa.schema([("x", pa.int64()), ("f", pa.float64()), ("s", pa.large_string()), ("n", pa.bool_())]),
        pa.schema([("late", pa.date32()), ("s", pa.dictionary(pa.int8(), pa.string()))]),
    )
    assert merged == pa.schema(
        [
            ("x", pa.int64()),
            ("f", pa.float64()),
            ("s", pa.large_string()),
            ("n", pa.bool_()),
            ("late", pa.date32()),
        ]
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int64(), pa.string()),
        (pa.timestamp("us"), pa.string()),
        (pa.timestamp("us"), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.bool_(), pa.float64()),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.list_(pa.int8()), pa.list_(pa.string())),
    ],
)
def test_files_that_disagree_are_both_named(one: pa.DataType, other: pa.DataType) -> None:
    with pytest.raises(InfeedError, match=r"(?s)column 'x' is .* in a\.parquet.*where: b\.parquet"):
        unify(pa.schema([("x", one)]), pa.schema([("x", other)]))


def test_two_of_three_files_that_disagree_are_named() -> None:
    with pytest.raises(InfeedError, match=r"(?s)'x' is double, but bool in a\.parquet.*where: c\.parquet"):
        unify(*(pa.schema([("x", kind)]) for kind in (pa.bool_(), pa.int64(), pa.float64())))


HOUR = dt.datetime(2024, 1, 2, 3)
SAME_FORM: dict[str, list[pa.Array]] = {
    "int": [
        pa.array([1, None], pa.int64()),
        pa.array([7], pa.int8()),
        pa.array([(1 << 63) - 1, None], pa.uint64()),
        pa.array([True, None, False]),
    ],
    "time": [
        *(pa.array([HOUR, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        pa.array([dt.date(2024, 1, 2)], pa.date32()),
        pa.array([dt.date(1960, 1, 2), None], pa.date64()),
    ],
    "instant": [pa.array([HOUR, None], pa.timestamp("ms", "UTC")), pa.array([HOUR], pa.timestamp("us", "Asia/Tokyo"))],
    "float": [
        pa.array([0.1, None]),
        pa.array([1.5], pa.float32()),
        pa.array([Decimal("12.34567"), None], pa.decimal128(7, 5)),
        pa.array([Decimal("166.47135")], pa.decimal128(8, 5)),
        pa.array([Decimal("-1.25"), None], pa.decimal256(50, 9)),
    ],
    "bytes": [
        pa.array(["a", None]),
        pa.array(["b"], pa.large_string()),
        pa.array([b"\xff", None]),
        pa.array([b"xyz", None], pa.binary(3)),
        pa.array(["a", "a", None]).dictionary_encode(),
    ],
}


def in_lists(column: pa.Array) -> list[pa.Array]:
    """The column as the last row of lists, and as lists of a fixed size."""
    items = pa.concat_arrays([column.drop_null()] * 2)
    fixed = pa.FixedSizeListArray.from_arrays(items, len(items) // 2)
    return [pa.ListArray.from_arrays([0, 0, None, len(items)], items), fixed]


def form_of(column: pa.Array) -> tuple[object, list[object]]:
    """What a tf.Example holds of a column: the numbers of items, or None if each row has one, and the items."""
    is_list = example_types.is_list(column.type)
    counts = example_types.item_counts(column).tolist() if is_list else None
    return counts, example_types.to_values(example_types.items_of(column)).to_pylist()


PAIRS = [(kind, *pair) for kind, columns in SAME_FORM.items() for pair in itertools.permutations(columns, 2)]


@pytest.mark.parametrize(("kind", "one", "other"), PAIRS, ids=[f"{kind}-{a.type}-{b.type}" for kind, a, b in PAIRS])
def test_types_of_one_form_in_an_example_are_read_as_one(kind: str, one: pa.Array, other: pa.Array) -> None:
    for first, second in [(one, other), *itertools.product(in_lists(one), in_lists(other))]:
        schema = unify(pa.schema([("x", first.type)]), pa.schema([("x", second.type)]))
        for column in (first, second):
            filled = schemas.fill(pa.record_batch([column], names=["x"]), schema).column(0)
            assert filled.type == schema.types[0]
            assert filled.is_null().to_pylist() == column.is_null().to_pylist()
            assert form_of(filled) == form_of(column)


@pytest.mark.parametrize(
    "whole", [0, 1, -1, 1 << 24, (1 << 24) + 1, (1 << 53) + 1, -(1 << 53) - 1, (1 << 60) + 1, (1 << 63) - 1, -(1 << 63)]
)
def test_an_integer_beside_floats_is_the_nearest_float_and_a_lost_digit_is_counted(whole: int) -> None:
    schema = unify(pa.schema([("x", pa.int64())]), pa.schema([("x", pa.float64())]))
    filled = schemas.fill(pa.record_batch([pa.array([None, whole])], names=["x"]), schema).column(0)
    nearest = float(np.array([whole]).astype(np.float32)[0])
    assert example_types.to_values(filled).to_pylist() == [None, nearest]
    assert example_types.count_rounded(filled) == (int(nearest) != whole)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_integer_between_two_floats_becomes_the_odd_one(whole: int) -> None:
    (value,) = example_types.to_float64(pa.array([whole])).to_pylist()
    assert abs(int(value) - whole) <= abs(whole) >> 52
    if int(value) != whole:
        assert abs(whole) > 1 << 53
        assert float(np.float32(value)) != value


def test_types_of_files_without_values_do_not_count() -> None:
    kinds = {"a": pa.string(), "b": pa.int64(), "c": pa.float64()}
    found = [FileSchema(path, pa.schema([("x", kind)])) for path, kind in kinds.items()]
    for valued in kinds:
        schema = schemas.unify(found, has_values=lambda path, name, valued=valued: path == valued)  # type: ignore[misc]
        assert schema.types == [kinds[valued]]
        for kind in kinds.values():
            filled = schemas.fill(pa.record_batch([pa.nulls(2, kind)], names=["x"]), schema)
            assert filled.column(0).to_pylist() == [None, None]
    assert schemas.unify(found, has_values=lambda path, name: False).types == [pa.string()]


def test_a_name_that_stands_twice() -> None:
    with pytest.raises(InfeedError, match=r"(?s)'a\.b' occurs twice.*a\.parquet"):
        unify(pa.schema([("a", pa.struct([("b", pa.int8())])), ("a.b", pa.int8())]))


def test_a_type_without_a_place_names_file_and_column() -> None:
    with pytest.raises(InfeedError, match=r"(?s)time64.*a\.parquet, column 't'"):
        unify(pa.schema([("t", pa.time64("us"))]))


def test_a_column_that_a_file_lacks_is_null_there() -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array([1], pa.int8())})
    filled = schemas.fill(batch, pa.schema([("y", pa.string()), ("x", pa.int64())]))
    assert filled.to_pydict() == {"y": [None], "x": [1]}


ORDERS = [
    {"items": [{"sku": "a", "price": 2, "tags": ["x", "y"]}, {"sku": "b", "price": None, "tags": None}]},
    {"items": None},
    {"items": []},
    {"items": [{"sku": "c", "price": 5, "tags": ["z"]}]},
]


@pytest.mark.parametrize("start", [0, 1, 3])
def test_objects_in_lists_become_lists_of_their_fields(start: int) -> None:
    batch = pa.RecordBatch.from_pylist(ORDERS).slice(start)
    assert schemas.is_nested(batch.schema.field("items").type)
    found = schemas.flatten_lists(batch).to_pydict()
    assert found["items.sku"] == [["a", "b"], None, [], ["c"]][start:]
    assert found["items.price"] == [[2], None, [], [5]][start:]
    assert found["items.tags"] == [["x", "y"], None, [], ["z"]][start:]


def test_lists_of_lists_are_joined() -> None:
    batch = pa.RecordBatch.from_pydict({"grid": [[[1, 2], [3]], [], None, [[], [4]]]})
    assert schemas.flatten_lists(batch).to_pydict() == {"grid": [[1, 2, 3], [], None, [4]]}


def test_other_columns_stay_as_they_are() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1], "list": [["a"]]})
    assert schemas.flatten_lists(batch) == batch
