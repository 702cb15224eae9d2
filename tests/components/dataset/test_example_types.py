from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types
from infeed.components.dataset.manifest import Column

EPOCH_DAY = dt.date(1970, 1, 2)
DAY_MICROSECONDS = 86_400_000_000
UTC = dt.timezone.utc

# The table of the types: each line what goes in, and what a tf.Example holds of it.
TYPES = [
    (pa.int8(), [-128, 127], "int", [-128, 127]),
    (pa.int16(), [-(2**15)], "int", [-(2**15)]),
    (pa.int32(), [2**31 - 1], "int", [2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1], "int", [-(2**63), 2**63 - 1]),
    (pa.uint8(), [255], "int", [255]),
    (pa.uint16(), [65_535], "int", [65_535]),
    (pa.uint32(), [2**32 - 1], "int", [2**32 - 1]),
    (pa.uint64(), [2**63 - 1], "int", [2**63 - 1]),
    (pa.bool_(), [False, True], "int", [0, 1]),
    (pa.date32(), [EPOCH_DAY], "int", [DAY_MICROSECONDS]),
    (pa.date64(), [EPOCH_DAY], "int", [DAY_MICROSECONDS]),
    (pa.timestamp("s"), [dt.datetime(1970, 1, 2)], "int", [DAY_MICROSECONDS]),
    (pa.timestamp("ms"), [dt.datetime(1969, 12, 31)], "int", [-DAY_MICROSECONDS]),
    (pa.timestamp("us"), [dt.datetime(1970, 1, 1, microsecond=7)], "int", [7]),
    (pa.timestamp("ns"), [1_999], "int", [1]),  # finer than a microsecond is cut off
    (pa.timestamp("us", "Europe/Paris"), [dt.datetime(1970, 1, 2, tzinfo=UTC)], "int", [DAY_MICROSECONDS]),
    (pa.float32(), [0.0, 0.1], "float", [0.0, pytest.approx(0.1)]),
    (pa.float64(), [-0.0, 1e39], "float", [-0.0, float("inf")]),  # as protobuf stores it
    (pa.decimal128(5, 2), [Decimal("1.25")], "float", [1.25]),
    (pa.string(), ["", "grün"], "bytes", [b"", "grün".encode()]),
    (pa.large_string(), ["a"], "bytes", [b"a"]),
    (pa.binary(), [b"\x00\xff"], "bytes", [b"\x00\xff"]),
    (pa.large_binary(), [b"\x00"], "bytes", [b"\x00"]),
    (pa.binary(2), [b"ab"], "bytes", [b"ab"]),
    (pa.dictionary(pa.int8(), pa.string()), ["x", "x"], "bytes", [b"x", b"x"]),
    (pa.dictionary(pa.int8(), pa.int32()), [7], "int", [7]),
]


@pytest.mark.parametrize(("column", "items", "kind", "expected"), TYPES, ids=lambda value: str(value)[:30])
def test_the_table_of_types(column: pa.DataType, items: list[Any], kind: str, expected: list[Any]) -> None:
    assert example_types.kind_of(column) == kind
    assert example_types.to_values(pa.array([*items, None], column)).to_pylist() == [*expected, None]


@pytest.mark.parametrize("column", [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 3)])
def test_a_list_is_of_its_items_kind(column: pa.DataType) -> None:
    assert example_types.kind_of(column) == "int"


def test_nothing_is_of_no_kind() -> None:
    assert example_types.kind_of(pa.null()) is None


@pytest.mark.parametrize("column", [pa.struct([("x", pa.int64())]), pa.time32("s"), pa.duration("s")])
def test_a_type_without_a_place_is_refused(column: pa.DataType) -> None:
    with pytest.raises(InfeedError, match=r"cannot hold"):
        example_types.kind_of(column)


def test_an_integer_beyond_int64_names_its_item() -> None:
    with pytest.raises(example_types.InvalidValueError, match=str(2**63)) as caught:
        example_types.to_values(pa.array([1, None, 2**63], pa.uint64()))
    assert caught.value.item == 2


def test_a_manifest_describes_every_column_that_holds_something() -> None:
    schema = pa.schema(
        [("a", pa.int8()), ("b", pa.list_(pa.float32(), 2)), ("c", pa.list_(pa.string())), ("d", pa.null())]
    )
    assert example_types.describe(schema, (0, 1, 2, 9)) == (
        Column("a", "int", (1,), 0),
        Column("b", "float", (2,), 1),
        Column("c", "bytes", None, 2),
    )


@pytest.mark.parametrize(
    ("column", "items", "rounded"),
    [
        (pa.float64(), [0.1, 0.5, None, float("nan"), float("inf"), 1e39], 2),
        (pa.float64(), [float(2**24), float(2**24 + 1)], 1),
        (pa.decimal128(9, 2), [Decimal("0.10"), Decimal("0.25")], 1),
        (pa.list_(pa.float64()), [[0.1, 0.5], None, [0.2]], 2),
        (pa.float32(), [0.1], 0),
        (pa.int64(), [2**60], 0),
    ],
)
def test_values_that_float32_changes_are_counted(column: pa.DataType, items: list[Any], rounded: int) -> None:
    assert example_types.count_rounded(pa.array(items, column)) == rounded


@pytest.mark.parametrize(
    ("items", "lost"),
    [
        ([0.1, 12.35, -87.6256879, 1.5e-7, 123456789.25, 1e30, float("nan"), float("inf"), None], 0),
        ([2.0**24, 2.0**24 + 1, -(2.0**40) - 1, 0.5], 2),  # keys, of which two would become one
        ([1e39, -1e300, 1e-46, 0.0, -0.0], 3),
    ],
)
def test_of_decimals_what_float32_changes_by_more_than_rounding_is_counted(items: list[Any], lost: int) -> None:
    assert example_types.count_rounded(pa.array(items, pa.float64()), decimals=True) == lost
