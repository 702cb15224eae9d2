from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from opened_sources import batches_of, rows_of
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import ingest
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.sources import parquet
from infeed.components.example_gen.sources.parquet import ParquetOptions

NOON = dt.datetime(2024, 1, 2, 12)
ROWS = [
    {"n": number, "text": "" if number % 2 else "x", "trip": {"fare": 0.0 if number % 3 else None, "paid": False}}
    for number in range(1_000)
]


def write(folder: Path, name: str, rows: list[dict[str, Any]], **options: Any) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / name, **options)


def flat(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "text": row["text"], "trip.fare": row["trip"]["fare"], "trip.paid": row["trip"]["paid"]}


def test_every_value_comes_back_in_order(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", ROWS, row_group_size=100)
    opened = parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(block_bytes=2_000), ParquetOptions())
    assert len(opened.tasks) > 5
    assert rows_of(opened) == [flat(row) for row in ROWS]


def test_files_with_other_columns_are_read_as_one(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [{"x": 1}])
    write(tmp_path, "b.parquet", [{"y": "", "x": None}])
    opened = parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(), ParquetOptions())
    assert rows_of(opened) == [{"x": 1, "y": None}, {"x": None, "y": ""}]


def test_files_that_disagree_are_both_named(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [{"x": 1}])
    write(tmp_path, "b.parquet", [{"x": "one"}])
    with pytest.raises(InfeedError, match=r"(?s)'x' is string, but int64 in .*a\.parquet.*where: .*b\.parquet"):
        parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(), ParquetOptions())


@pytest.mark.parametrize("options", [{}, {"write_statistics": False}, {"row_group_size": 1}])
def test_types_of_files_without_values_do_not_count(tmp_path: Path, options: dict[str, Any]) -> None:
    whole = pa.array([1, 2**53 + 1])
    pq.write_table(pa.table({"x": whole, "s": [{"y": 1}] * 2}), tmp_path / "a.parquet", **options)
    none = pa.array([None, None], pa.float64())  # as pandas writes it
    pq.write_table(pa.table({"x": none, "s": [{"y": None}] * 2}), tmp_path / "b.parquet", **options)
    empty = pa.table({"x": pa.array([], pa.string()), "s": pa.array([], pa.struct([("y", pa.list_(pa.string()))]))})
    pq.write_table(empty, tmp_path / "c.parquet", **options)
    opened = parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(), ParquetOptions())
    assert opened.schema == pa.schema([("x", pa.int64()), ("s.y", pa.int64())])
    assert [row["x"] for row in rows_of(opened)] == [1, 2**53 + 1, None, None]


def test_types_that_drift_are_widened_and_a_lost_digit_is_a_warning(tmp_path: Path, job: Callable[..., Job]) -> None:
    columns = {
        "a": [pa.array([2**53 + 1]), pa.array([Decimal("1.25")], pa.decimal128(7, 5)), pa.array([NOON])],
        "b": [pa.array([0.5]), pa.array([Decimal("8.25")], pa.decimal128(8, 5)), pa.array([NOON], pa.timestamp("ms"))],
    }
    for name, arrays in columns.items():
        pq.write_table(pa.table(dict(zip("xdt", arrays, strict=True))), tmp_path / f"{name}.parquet")
    opened = parquet.open_parquet(str(tmp_path), {None: "*.parquet"}, IngestOptions(), ParquetOptions())
    assert rows_of(opened) == [{"x": 2.0**53 + 2, "d": 1.25, "t": NOON}, {"x": 0.5, "d": 8.25, "t": NOON}]
    manifest = ingest.ingest(opened.tasks, job(opened, IngestOptions()))
    assert manifest.warnings == ("column 'x': double values rounded to float32: 1",)


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"PAR1 and no more"])
def test_a_file_that_is_not_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(InfeedError, match=r"(?s)not Parquet.*a\.parquet"):
        parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(), ParquetOptions())


@pytest.mark.parametrize("pickled", [b"", b"no pickle", b"\x80\x04\x95"])
def test_a_type_of_python_is_refused_whatever_its_bytes_are(tmp_path: Path, pickled: bytes) -> None:
    forged = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled}
    schema = pa.schema([pa.field("x", pa.int64(), metadata=forged)])
    pq.write_table(pa.table([[1]], schema=schema), tmp_path / "a.parquet")
    with pytest.raises(InfeedError, match=r"(?s)Python extension type.*a\.parquet.*cast such columns"):
        parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(), ParquetOptions())


def test_a_file_that_breaks_within(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", ROWS, compression="gzip")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[200:800] = bytes(600)
    (tmp_path / "a.parquet").write_bytes(content)
    opened = parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(), ParquetOptions())
    with pytest.raises(InfeedError, match=r"(?s)cannot read the Parquet file.*a\.parquet, row groups 0 to 0"):
        rows_of(opened)


def test_what_is_lost_is_told(tmp_path: Path, job: Callable[..., Job]) -> None:
    table = pa.table({"x": [0.1, 0.5, 0.2, 0.0], "u": pa.array([1, 2**63, 3, 4], pa.uint64())})
    pq.write_table(table, tmp_path / "a.parquet")
    options = IngestOptions(on_bad_row="reject")
    opened = parquet.open_parquet(str(tmp_path), {None: "*.parquet"}, options, ParquetOptions())
    manifest = ingest.ingest(opened.tasks, job(opened, options))
    assert manifest.warnings == ("column 'x': double values rounded to float32: 2",)
    assert (manifest.rows_read, manifest.rejected.rows) == (4, 1)
    assert Manifest.read(f"{tmp_path}/out") == manifest


def dictionary(values: list[str], picks: list[int]) -> pa.Array:
    """Text of which a Parquet file holds each value once."""
    return pa.DictionaryArray.from_arrays(pa.array(picks, pa.int32()), pa.array(values)).dictionary_decode()


def read_all(folder: Path, options: IngestOptions) -> list[pa.RecordBatch]:
    opened = parquet.open_parquet(str(folder), {None: "*"}, options, ParquetOptions())
    return list(batches_of(opened))


def test_blocks_are_cut_by_what_texts_decode_to_and_not_by_the_file(tmp_path: Path) -> None:
    texts = dictionary(["a" * 30_000, "b" * 10], [0, 1] * 500)
    pq.write_table(pa.table({"text": texts, "n": range(1_000)}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    batches = read_all(tmp_path, IngestOptions(block_bytes=1 << 20))
    assert max(batch.nbytes for batch in batches) < 1.2 * (1 << 20)
    assert pa.Table.from_batches(batches).column("text").combine_chunks().equals(texts)


def test_lists_of_repeated_texts_come_back_with_their_nulls(tmp_path: Path) -> None:
    rows = [["x" * 5_000, "y"], None, [], ["y"]] * 200
    pq.write_table(pa.table({"tags": pa.array(rows)}), tmp_path / "a.parquet")
    batches = read_all(tmp_path, IngestOptions(block_bytes=100_000))
    assert len(batches) > 5
    assert [row for batch in batches for row in batch.column(0).to_pylist()] == rows


WORDS = [f"w{number % 7}" if number % 5 else None for number in range(100)]
TAGS = [None if number % 11 == 0 else [f"w{number % 7}"] * (number % 3) for number in range(100)]
NESTED = {
    "list": pa.array(TAGS),
    "large list": pa.array(TAGS, pa.large_list(pa.large_string())),
    "fixed list": pa.array([[f"w{number % 7}", "x"] for number in range(100)], pa.list_(pa.string(), 2)),
    "list of dictionary": pa.ListArray.from_arrays(pa.array(TAGS).offsets, pa.array(TAGS).values.dictionary_encode()),
    "struct": pa.array([{"a": word} if number % 4 else None for number, word in enumerate(WORDS)]),
    "struct of dictionary": pa.StructArray.from_arrays([pa.array(WORDS).dictionary_encode()], ["a"]),
    "struct of list": pa.array([{"a": tags} if number % 4 else None for number, tags in enumerate(TAGS)]),
    "struct of struct": pa.array([{"a": {"b": word}} for word in WORDS]),
}
# A dictionary beyond its limit of bytes is followed by plain pages.
PAST_DICTIONARY = {"dictionary_pagesize_limit": 4, "write_batch_size": 3}
ENCODINGS: list[dict[str, Any]] = [{}, {"use_dictionary": False}, PAST_DICTIONARY]


@pytest.mark.parametrize("rows", [7, 100])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("nesting", NESTED)
def test_nested_text_comes_back_from_any_row_groups(
    tmp_path: Path, nesting: str, encoding: dict[str, Any], rows: int
) -> None:
    column = NESTED[nesting]
    table = pa.table({"c": column, "word": WORDS})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows, **encoding)
    opened = parquet.open_parquet(str(tmp_path), {None: "*"}, IngestOptions(), ParquetOptions())
    assert len(opened.tasks) == 1
    (nested, words) = ([*column] for column in zip(*(row.values() for row in rows_of(opened)), strict=True))
    expected = column.to_pylist()
    for name in opened.schema.names[0].split(".")[1:]:
        expected = [value and value[name] for value in expected]
    assert (nested, words) == (expected, WORDS)


def test_lists_of_repeated_texts_are_cut_by_what_they_decode_to_in_each_row_group(tmp_path: Path) -> None:
    tags = pa.ListArray.from_arrays(list(range(0, 1_001, 2)), dictionary(["a" * 30_000, "b"], [0, 1] * 500))
    pq.write_table(pa.table({"tags": tags}), tmp_path / "a.parquet", row_group_size=250)
    batches = read_all(tmp_path, IngestOptions(block_bytes=1 << 20))
    assert max(batch.nbytes for batch in batches) < 1.2 * (1 << 20)
    assert pa.Table.from_batches(batches).column("tags").to_pylist() == tags.to_pylist()


def test_a_column_of_arrows_dictionary_type_is_read_as_text(tmp_path: Path) -> None:
    words = pa.array(["a", None, "b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"word": words}), tmp_path / "a.parquet")
    (batch,) = read_all(tmp_path, IngestOptions())
    assert batch.to_pydict() == {"word": ["a", None, "b", "a"]}


def test_numbers_that_repeat_come_in_blocks_of_what_they_decode_to(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{n}": np.zeros(20_000) for n in range(20)}), tmp_path / "a.parquet")
    batches = read_all(tmp_path, IngestOptions(block_bytes=1 << 20))
    assert max(batch.nbytes for batch in batches) < 1.2 * (1 << 20)


def test_a_row_beyond_the_limit_is_named_and_the_limit_can_be_raised(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": dictionary(["a", "b" * 3_000_000], [0, 0, 1])}), tmp_path / "a.parquet")
    with pytest.raises(InfeedError, match="a row takes 2 MB") as raised:
        read_all(tmp_path, IngestOptions(max_row_mb=1))
    assert raised.value.where.endswith("a.parquet, row 3")
    assert "--max-row-mb" in raised.value.do
    assert sum(batch.num_rows for batch in read_all(tmp_path, IngestOptions(max_row_mb=16))) == 3


def test_a_table_of_many_columns_is_read_in_the_memory_of_a_narrow_one(tmp_path: Path) -> None:
    columns = 3_000  # a read-ahead of 1 MB each would be 3 GB
    pq.write_table(pa.table({f"c{n}": [n, n + 1] for n in range(columns)}), tmp_path / "a.parquet")
    (batch,) = read_all(tmp_path, IngestOptions())
    assert (batch.num_columns, batch.num_rows) == (columns, 2)
    assert batch.column("c2999").to_pylist() == [2_999, 3_000]
