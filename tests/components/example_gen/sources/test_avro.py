"""Avro files, written by fastavro and read back; and a line for each type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from opened_sources import batches_of, rows_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import ingest
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.sources import avro
from infeed.components.example_gen.sources.avro import to_arrow

UTC = dt.timezone.utc
NOON = dt.datetime(2020, 2, 29, 12, tzinfo=UTC)
PLACE = {"type": "record", "name": "Place", "fields": [{"name": "name", "type": "string"}]}

UUID = "0f9e7a2c-0000-4000-8000-000000000000"
DECIMALS = {5: pa.decimal128, 50: pa.decimal256}


def decimal(digits: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}


# Each line: an Avro type, a value, what comes out.
TYPES = [
    ("boolean", False, pa.bool_(), False),
    ("int", 0, pa.int32(), 0),
    ("long", -(2**63), pa.int64(), -(2**63)),
    ("float", 0.0, pa.float32(), 0.0),
    ("double", 0.1, pa.float64(), 0.1),
    ("string", "", pa.string(), ""),
    ("bytes", b"\x00\xff", pa.binary(), b"\x00\xff"),
    (["null", "int"], None, pa.int32(), None),
    (["int", "null"], 0, pa.int32(), 0),
    (["null", "int", "long"], 2**40, pa.int64(), 2**40),
    (["int", "double"], 1.5, pa.float64(), 1.5),
    (["null", "long", "double"], 2**53 + 1, pa.float64(), 2.0**53 + 2),
    ({"type": "array", "items": ["long", "float"]}, [2**53 + 1, 0.5], pa.list_(pa.float64()), [2.0**53 + 2, 0.5]),
    ("null", None, pa.null(), None),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", pa.string(), "b"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(2), b"ab"),
    ({"type": "array", "items": "long"}, [0, 1], pa.list_(pa.int64()), [0, 1]),
    ({"type": "int", "logicalType": "date"}, dt.date(2020, 2, 29), pa.date32(), dt.date(2020, 2, 29)),
    ({"type": "long", "logicalType": "timestamp-millis"}, NOON, pa.timestamp("ms", "UTC"), NOON),
    ({"type": "long", "logicalType": "timestamp-micros"}, NOON, pa.timestamp("us", "UTC"), NOON),
    *((decimal(digits), Decimal("-1.50"), kind(digits, 2), Decimal("-1.50")) for digits, kind in DECIMALS.items()),
    (decimal(90), Decimal("-1.50"), pa.binary(), (-150).to_bytes(2, "big", signed=True)),  # beyond Arrow's digits
    ({"type": "string", "logicalType": "uuid"}, UUID, pa.string(), UUID),
    ({"type": "long", "logicalType": "made-up"}, 7, pa.int64(), 7),  # to be ignored, says the specification
]


def schema_of(**fields: Any) -> dict[str, Any]:
    types = [{"name": name, "type": type} for name, type in fields.items()]
    return {"type": "record", "name": "Row", "namespace": "a.b", "fields": types}


def write(folder: Path, schema: Any, rows: list[dict[str, Any]], name: str = "a.avro", **options: Any) -> Path:
    with open(folder / name, "wb") as file:
        fastavro.writer(file, schema, rows, **options)
    return folder / name


def open_(folder: Path, block_bytes: int = 8 << 20, **options: Any) -> OpenedSource:
    return avro.open_avro(str(folder), {None: "*"}, IngestOptions(block_bytes=block_bytes, **options))


@pytest.mark.parametrize(("type", "value", "arrow", "expected"), TYPES, ids=lambda value: str(value)[:40])
def test_the_table_of_types(tmp_path: Path, type: Any, value: Any, arrow: pa.DataType, expected: Any) -> None:
    write(tmp_path, schema_of(x=type), [{"x": value}])
    opened = open_(tmp_path)
    assert opened.schema.field("x").type == arrow
    assert rows_of(opened) == [{"x": expected}]


def test_records_within_records(tmp_path: Path) -> None:
    schema = schema_of(start=PLACE, stop=["null", "Place"])  # the second by name, which lies in the row's namespace
    write(tmp_path, schema, [{"start": {"name": ""}, "stop": None}, {"start": {"name": "a"}, "stop": {"name": "b"}}])
    assert rows_of(open_(tmp_path)) == [
        {"start.name": "", "stop.name": None},
        {"start.name": "a", "stop.name": "b"},
    ]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_blocks_are_shared_out_and_keep_their_order(tmp_path: Path, codec: str) -> None:
    rows = [{"n": number, "text": f"row {number}" * 3} for number in range(5_000)]
    write(tmp_path, schema_of(n="long", text="string"), rows, codec=codec, sync_interval=2_000)
    opened = open_(tmp_path, block_bytes=10_000)
    assert len(opened.tasks) >= 3
    assert rows_of(opened) == rows


def test_files_with_other_columns_are_read_as_one(tmp_path: Path) -> None:
    write(tmp_path, schema_of(x="int"), [{"x": 1}])
    write(tmp_path, schema_of(y="string", x="long"), [{"y": "", "x": 2**40}], name="b.avro")
    assert rows_of(open_(tmp_path)) == [{"x": 1, "y": None}, {"x": 2**40, "y": ""}]


def test_types_that_drift_between_files_are_widened_and_files_without_values_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, schema_of(x="long", y="long"), [{"x": 2**53 + 1, "y": 2**53 + 1}])
    write(tmp_path, schema_of(x="double", y=["null", "string"]), [{"x": 0.5, "y": None}], name="b.avro")
    write(tmp_path, schema_of(x="string", y="double"), [], name="c.avro")
    opened = open_(tmp_path)
    assert opened.schema == pa.schema([("x", pa.float64()), ("y", pa.int64())])
    assert rows_of(opened) == [{"x": 2.0**53 + 2, "y": 2**53 + 1}, {"x": 0.5, "y": None}]


def test_a_lost_digit_of_an_integer_beside_floats_is_a_warning(tmp_path: Path, job: Callable[..., Job]) -> None:
    write(tmp_path, schema_of(x=["long", "double"]), [{"x": value} for value in (1, 0.5, 2**53 + 1)])
    opened = open_(tmp_path)
    manifest = ingest.ingest(opened.tasks, job(opened, IngestOptions()))
    assert manifest.warnings == ("column 'x': double values rounded to float32: 1",)


def test_a_union_of_text_and_bytes_is_bytes(tmp_path: Path) -> None:
    name = {"type": "enum", "name": "Color", "symbols": ["red"]}
    values = ["é", b"\xff", None, "red"]
    write(tmp_path, schema_of(x=["null", "string", "bytes", name]), [{"x": value} for value in values])
    opened = open_(tmp_path)
    assert opened.schema == pa.schema([("x", pa.binary())])
    assert [row["x"] for row in rows_of(opened)] == ["é".encode(), b"\xff", None, b"red"]


def test_files_that_disagree_are_both_named(tmp_path: Path) -> None:
    write(tmp_path, schema_of(x="int"), [{"x": 1}])
    write(tmp_path, schema_of(x="string"), [{"x": ""}], name="b.avro")
    with pytest.raises(InfeedError, match=r"(?s)'x' is string, but int32 in .*a\.avro.*where: .*b\.avro"):
        open_(tmp_path)


@pytest.mark.parametrize(
    ("type", "says"),
    [
        ({"type": "map", "values": "int"}, "map"),
        (["int", "string"], "a union of int32 and string"),
        ({"type": "array", "items": PLACE}, "struct"),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, "lists of lists"),
        (
            {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]},
            "recursive record",
        ),
    ],
    ids=str,
)
def test_a_type_without_a_place(tmp_path: Path, type: Any, says: str) -> None:
    write(tmp_path, schema_of(x=type), [])
    with pytest.raises(InfeedError, match=rf"(?s){says}.*a\.avro, column 'x"):
        open_(tmp_path)


def test_a_file_of_something_else_than_records() -> None:
    with pytest.raises(InfeedError, match="schema is long, not a record"):
        to_arrow("long", "a.avro")


def whole(tmp_path: Path) -> bytes:
    rows = [{"n": number, "s": ["a", "b"][number % 2]} for number in range(3_000)]
    schema = schema_of(n="long", s={"type": "enum", "name": "S", "symbols": ["a", "b"]})
    return write(tmp_path, schema, rows, sync_interval=1_000).read_bytes()


@pytest.mark.parametrize("kept", [0, 3, 60])
def test_a_file_cut_short_in_its_header(tmp_path: Path, kept: int) -> None:
    content = whole(tmp_path)
    (tmp_path / "a.avro").write_bytes(content[:kept])
    with pytest.raises(InfeedError, match=r"(?s)not Avro.*a\.avro"):
        open_(tmp_path)


@pytest.mark.parametrize("missing", [1, 10, 500])
def test_a_file_cut_short_in_a_block(tmp_path: Path, missing: int) -> None:
    content = whole(tmp_path)
    (tmp_path / "a.avro").write_bytes(content[:-missing])
    with pytest.raises(InfeedError, match=r"(?s)a block ends too early.*a\.avro, row 2\d\d\d"):
        open_(tmp_path)


def test_a_file_with_broken_values_names_the_row(tmp_path: Path) -> None:
    content = bytearray(whole(tmp_path))
    content[-30] = 0x7E  # an enum's number beyond its symbols
    content[-31] = 0x7E
    (tmp_path / "a.avro").write_bytes(content)
    with pytest.raises(InfeedError, match=r"(?s)cannot read the Avro block.*a\.avro, row 29\d\d"):
        rows_of(open_(tmp_path))


def test_a_codec_that_nobody_knows(tmp_path: Path) -> None:
    content = whole(tmp_path).replace(b"\x08null", b"\x08lzma")
    (tmp_path / "a.avro").write_bytes(content)
    with pytest.raises(InfeedError, match=r"(?s)Avro.*a\.avro"):
        rows_of(open_(tmp_path))


def test_an_array_of_what_takes_no_bytes_is_refused(tmp_path: Path) -> None:
    write(tmp_path, schema_of(n="int", x={"type": "array", "items": "null"}), [{"n": 1, "x": [None]}])
    with pytest.raises(InfeedError, match=r"(?s)an array of nulls.*a\.avro, column 'x'"):
        open_(tmp_path)


def test_any_byte_of_a_file_may_be_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, schema_of(n="int", x=["null", "double"], p=PLACE), [{"n": 1, "p": {"name": "a"}}])
    whole = path.read_bytes()
    text = range(whole.index(b"{"), whole.rindex(b"}"))  # the schema, most of the file
    for place, bit in ((place, bit) for place in range(len(whole)) for bit in (0, 6, 7)):
        if place in text and bit != (0, 6, 7)[place % 3]:
            continue
        path.write_bytes(bytes([*whole[:place], whole[place] ^ 1 << bit, *whole[place + 1 :]]))
        with suppress(InfeedError):
            assert len(rows_of(open_(tmp_path))) == 1


@pytest.mark.parametrize(("rows", "size"), [(1 << 40, 20), (1, 1 << 62), (-1, 20), (1, -20)])
def test_a_block_of_forged_length(tmp_path: Path, rows: int, size: int) -> None:
    path = write(tmp_path, schema_of(n="int"), [{"n": 1}])
    header = avro.read_header(str(path))
    block = avro._encode_long(rows) if rows >= 0 else b"\x01"
    block += avro._encode_long(size) if size >= 0 else b"\x27"
    path.write_bytes(path.read_bytes()[: header.stop] + block + b"\x02" * 20 + header.sync)
    with pytest.raises(InfeedError, match=r"a\.avro, row"):
        rows_of(open_(tmp_path))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_a_row_beyond_the_limit_is_named(tmp_path: Path, codec: str) -> None:
    rows = [{"a": "x"}, {"a": "y" * 3_000_000}, {"a": "z"}]
    write(tmp_path, schema_of(a="string"), rows, codec=codec, sync_interval=1)
    with pytest.raises(InfeedError, match="a row takes 2 MB") as raised:
        rows_of(open_(tmp_path, 1 << 12, max_row_mb=1))
    assert raised.value.where.endswith("a.avro, row 2")
    assert "--max-row-mb" in raised.value.do


def test_a_block_that_unpacks_to_more_than_the_memory_limit_is_refused(tmp_path: Path) -> None:
    rows = [{"a": "y" * 300_000_000}]
    write(tmp_path, schema_of(a="string"), rows, codec="deflate", codec_compression_level=1)
    with pytest.raises(InfeedError, match="MB of memory") as raised:
        rows_of(open_(tmp_path, max_row_mb=1))
    assert raised.value.where.endswith("a.avro")


def test_large_values_come_row_by_row(tmp_path: Path) -> None:
    rows = [{"a": str(number) * 1_000_000} for number in range(5)]
    write(tmp_path, schema_of(a="string"), rows, codec="deflate")
    opened = open_(tmp_path, 1 << 20)
    sizes = [batch.num_rows for batch in batches_of(opened)]
    assert sizes == [2, 2, 1]
    assert rows_of(opened) == rows


def test_more_rows_without_values_than_bytes_are_refused(tmp_path: Path) -> None:
    write(tmp_path, schema_of(a="null"), [{"a": None}] * 1_000)
    with pytest.raises(InfeedError, match=r"(?s)1,000 rows without values.*a\.avro, row 1"):
        open_(tmp_path)
