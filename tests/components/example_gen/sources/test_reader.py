"""Data of this process, and of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from opened_sources import rows_of

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import fingerprint_of, open_source
from infeed.components.example_gen.inputs import BadRows

ROWS = """
import datetime
def rows(part, parts):
    for number in range(part, 2_500, parts):
        yield {
            "id": number,
            "text": None if number % 5 == 0 else f"ü{number}",
            "x": number / 8,
            "tags": list(range(number % 3)),
            "raw": b"\\xff",
            "day": datetime.date(2026, 1, 1),
        }
"""
TABLE = """
import pyarrow as pa
def rows(version, part, parts):
    return pa.table({"a": range(part, 100, parts), "version": [str(version)] * len(range(part, 100, parts))})
rows.version = lambda: open(__file__ + ".version").read()
"""


def write(folder: Path, code: str) -> str:
    (folder / "mine.py").write_text(code)
    return f"{folder}/mine.py:rows"


def read(function: str, bad_rows: BadRows | None = None, **settings: Any) -> list[dict[str, Any]]:
    opened = open_source(function, "reader", IngestOptions(block_bytes=10_000), settings)
    bad_rows = bad_rows or BadRows()
    return rows_of(opened, bad_rows)


@pytest.mark.parametrize("parts", [1, 7])
def test_every_row_of_every_part_comes_back(tmp_path: Path, parts: int) -> None:
    function, made = write(tmp_path, ROWS), dict[str, Any]()
    exec(ROWS, made)
    assert read(function, parts=parts) == [row for part in range(parts) for row in made["rows"](part, parts)]


def test_a_function_without_parts_is_called_once_for_all_rows(tmp_path: Path) -> None:
    function = write(tmp_path, "def rows():\n    yield from ({'a': n} for n in range(5))")
    assert read(function) == [{"a": number} for number in range(5)]
    assert len(open_source(function, "reader", IngestOptions(), {}).tasks) == 1


def test_parts_without_rows_are_parts(tmp_path: Path) -> None:
    function = write(tmp_path, "def rows(part, parts):\n    yield from ({'a': n} for n in range(part - 13))")
    assert read(function) == [{"a": 0}, {"a": 0}, {"a": 1}]


def test_processes_write_the_bytes_of_one(tmp_path: Path) -> None:
    function = write(tmp_path, ROWS)
    written = [
        infeed.ingest(function, tmp_path / f"{workers}", format="reader", source_options={"parts": 4}, workers=workers)
        for workers in (1, 2)
    ]
    assert written[0].splits == written[1].splits
    assert written[0].rows_read == 2_500


def test_the_version_of_the_data_goes_into_every_part_the_manifest_and_the_key_of_caches(tmp_path: Path) -> None:
    function = write(tmp_path, TABLE)
    version = tmp_path / "mine.py.version"
    version.write_text("7")
    assert {row["version"] for row in read(function)} == {"7"}
    assert infeed.ingest(function, tmp_path / "newest", format="reader").source.version == "7"
    older = infeed.ingest(function, tmp_path / "older", format="reader", source_options={"version": 3})
    assert older.source.version == "3"
    before = fingerprint_of("reader", {None: function}, {})
    assert before == fingerprint_of("reader", {None: function}, {})
    version.write_text("8")
    assert before != fingerprint_of("reader", {None: function}, {})


def test_a_version_that_no_function_takes_is_an_error(tmp_path: Path) -> None:
    function = write(tmp_path, ROWS)
    with pytest.raises(InfeedError, match="version is 3") as error:
        read(function, version=3)
    assert error.value.where == function


@pytest.mark.parametrize(
    ("row", "place", "word"),
    [
        ('{"a": "text"}', ", line 1202, column 'a'", "'text'"),
        ('{"a": 1, "b": 2}', ", line 1202, column 'b'", "no column 'b'"),
        ('{"a": 0.5}', ", line 1202, column 'a'", "0.5"),
    ],
)
def test_a_later_row_that_does_not_fit_is_a_bad_row(tmp_path: Path, row: str, place: str, word: str) -> None:
    lines = ["yield from ({'a': n} for n in range(1_201))", f"yield {row}", "yield {'a': 7}"]
    function = write(tmp_path, "\n    ".join(["def rows(part, parts):", *lines]))
    with pytest.raises(InfeedError, match=word) as error:
        read(function, parts=1)
    assert error.value.where == f"{function}, part 0 of 1{place}"
    bad_rows = BadRows("reject", 10)
    assert len(read(function, bad_rows, parts=1)) == 1_202
    assert len(bad_rows.take()) == 1


@pytest.mark.parametrize(
    ("code", "word", "place"),
    [
        ("def rows(part, parts):\n    yield {'a': 1 / part}", "division", "mine.py"),
        ("def rows(part, parts):\n    yield 3", "a row has the type int", "part 0 of 16"),
        ("def rows(part, parts):\n    return []", "no rows", "mine.py:rows"),
        ("def rows():\n    return 3", "data of type int", "mine.py:rows"),
        ("def rows(part, parts):\n    yield {'a': object()}", "unsupported", "column 'a'"),
        ("def other(): pass", "rows", "reader"),
    ],
)
def test_a_function_that_cannot_be_read_is_an_error(tmp_path: Path, code: str, word: str, place: str) -> None:
    with pytest.raises(InfeedError, match=word) as error:
        read(write(tmp_path, code))
    assert place in error.value.where


NESTED = pa.table(
    {
        "a": [1, 2, None] * 40,
        "text": ["x", None, "z"] * 40,
        "inner": [{"n": 1.5}, None, {"n": 2.0}] * 40,
        "tags": [[1], [], None] * 40,
        "code": pa.array(["u", "v", None] * 40).dictionary_encode(),
    }
)


def _pandas() -> Any:
    import pandas

    return pandas.DataFrame({"a": [1, 2], "text": ["x", None]})


def _dataset() -> Any:
    from pyarrow import dataset

    return dataset.dataset(NESTED)


@pytest.mark.parametrize(
    "data",
    [
        lambda: NESTED,
        lambda: NESTED.to_reader(),
        lambda: NESTED.combine_chunks().to_batches()[0],
        _dataset,
        lambda: iter(NESTED.to_batches(max_chunksize=7)),
        lambda: (NESTED.slice(start, 13) for start in range(0, len(NESTED), 13)),
    ],
)
def test_every_form_of_a_table_becomes_the_records_of_its_parquet_file(tmp_path: Path, data: Callable[[], Any]) -> None:
    from pyarrow import parquet

    parquet.write_table(NESTED, tmp_path / "t.parquet")
    expected = infeed.ingest(tmp_path / "t.parquet", tmp_path / "parquet")
    written = infeed.ingest(data(), tmp_path / "door")
    assert written.splits == expected.splits
    assert written.schema == expected.schema


def test_rows_of_a_list_and_a_data_frame_are_rows(tmp_path: Path) -> None:
    frame = infeed.ingest(_pandas(), tmp_path / "frame")
    rows = infeed.ingest([{"a": 1, "text": "x"}, {"a": 2, "text": None}], tmp_path / "rows")
    assert frame.splits == rows.splits


def test_arrays_of_several_axes_are_lists_in_the_order_of_c(tmp_path: Path) -> None:
    rows = [{"a": np.arange(6).reshape(2, 3), "b": np.float32(0.5), "c": np.array(7)}]
    expected = infeed.ingest([{"a": [0, 1, 2, 3, 4, 5], "b": 0.5, "c": 7}], tmp_path / "lists")
    assert infeed.ingest(rows, tmp_path / "arrays").splits == expected.splits


def test_options_of_the_reader_hold_for_data_of_this_process(tmp_path: Path) -> None:
    asked = {"columns": ["a", "inner"], "version": 12}
    written = infeed.ingest(NESTED, tmp_path / "out", source_options=asked)
    assert ([column.name for column in written.schema], written.source.version) == (["a", "inner.n"], "12")


def _breaks() -> Iterator[dict[str, int]]:
    yield from ({"a": number} for number in range(2_000))
    raise ConnectionError("lost")


@pytest.mark.parametrize(
    ("data", "word", "where"),
    [
        (5, "of type int", "source (int)"),
        ({"secret": [1]}, "of type dict", "source (dict)"),
        ([(1, "secret")], "a row has the type tuple", "source (list)"),
        ([{"a": 1}, "secret"], "a row has the type str", "source (list), row 2"),
        (np.zeros((2, 2)), r"a row has the type numpy\.ndarray", "source (numpy.ndarray)"),
        ([], "no rows", "source (list)"),
        ([pa.table({"a": [1]}), pa.table({"a": ["x"]})], "'a' is string, but int64", "source (list), row 2"),
        ([pa.table({"a": [1]}), pa.table({"a": [0.5]})], "'a' is double, but int64", "source (list), row 2"),
        ([pa.table({"a": [1]}), pa.table({"b": [1]})], "'b' is int64, but missing", "source (list), row 2"),
        (pa.table({"a": [[[1]]]}), "lists of lists", "source (pyarrow.Table), column 'a'"),
        (_breaks(), "lost", __file__),
    ],
)
def test_what_is_no_source_is_named_by_its_type(tmp_path: Path, data: Any, word: str, where: str) -> None:
    with pytest.raises(InfeedError, match=word) as error:
        infeed.ingest(data, tmp_path / "out")
    assert where in error.value.where
    assert "secret" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_format_beside_data_of_this_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="format is 'csv'") as error:
        infeed.ingest(NESTED, tmp_path / "out", format="csv")
    assert error.value.where == "infeed.ingest, format"
