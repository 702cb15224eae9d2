from __future__ import annotations

import pyarrow as pa
import pytest

from infeed.components.dataset import schemas
from infeed.components.dataset.schemas import FileSchema
from infeed.components.errors import InfeedError

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
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.uint64()),  # beyond int64 there is no common type
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.string(), pa.binary()),
    ],
)
def test_files_that_disagree_are_both_named(one: pa.DataType, other: pa.DataType) -> None:
    with pytest.raises(InfeedError, match=r"(?s)column 'x' is .* in a\.parquet.*where: b\.parquet"):
        unify(pa.schema([("x", one)]), pa.schema([("x", other)]))


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
