from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources import csv
from infeed.components.example_gen.sources.csv import CsvOptions, Kind

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "data.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def read(path: str, options: CsvOptions | None = None, **sizes: int) -> dict[str, list[Any]]:
    schema = csv.infer_schema([path], options)
    batches = list(csv.read_blocks(path, schema, options, **sizes))
    return pa.Table.from_batches(batches, schema).to_pydict()


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([None, None], Kind.EMPTY),
        (["1", "-2", None], Kind.INT),
        (["9223372036854775807", "-9223372036854775808"], Kind.INT),
        (["9223372036854775808"], Kind.TEXT),  # beyond 64 bits every digit counts
        (["0.5", "9223372036854775808"], Kind.TEXT),
        (["007", " 7", "+7", "1_000"], Kind.INT),  # whatever int() reads, as TFX does
        (["1", "0.5"], Kind.FLOAT),
        (["1e5", "nan", "-inf", "Infinity", ".5", "5.", "+1.5"], Kind.FLOAT),
        (["1e30", "1"], Kind.FLOAT),
        (["0x1F"], Kind.TEXT),  # Arrow alone would read 31
        (["nan(1)"], Kind.TEXT),
        (["1", "two"], Kind.TEXT),
        (["true"], Kind.TEXT),
        (["2020-01-01"], Kind.TEXT),
        ([" "], Kind.TEXT),
        (["١"], Kind.TEXT),  # a digit to str, not to the bytes that TFX reads  # noqa: RUF001
    ],
)
def test_the_kind_of_a_column(cells: list[str | None], kind: Kind) -> None:
    assert csv.infer_kind(pa.array(cells, pa.string())) == kind


def test_types_are_found_over_the_whole_input(write: Write) -> None:
    rows = ["1,1,1,"] * 3_000 + ["2,0.5,x,"]
    path = write("a,b,c,d\n" + "\n".join(rows))
    assert csv.scan(path, CsvOptions(), block_bytes=1024).rows == 3_001
    schema = csv.infer_schema([path])
    assert schema.types == [pa.int64(), pa.float64(), pa.string(), pa.null()]


def test_types_fit_every_file(write: Write) -> None:
    paths = [write("a,b\n1,\n", "1.csv"), write("a,b\n0.5,2\n", "2.csv"), write("a,b\n", "3.csv")]
    assert csv.infer_schema(paths).types == [pa.float64(), pa.int64()]


def test_cells_become_values_and_empty_cells_nulls(write: Write) -> None:
    path = write('i,f,s,n\n0,0.0,"",\n,,b,\n9007199254740993,1e400,"a, ""b""\nc",\n')
    assert read(path) == {
        "i": [0, None, 9007199254740993],
        "f": [0.0, None, math.inf],
        "s": [None, "b", 'a, "b"\nc'],
        "n": [None, None, None],
    }


def test_numbers_that_only_python_reads(write: Write) -> None:
    assert read(write("i,f\n1_000,+1.5\n 7,2\n")) == {"i": [1000, 7], "f": [1.5, 2.0]}


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("a,b\n1,x\n2,y\n", CsvOptions()),
        ("a,b\r\n1,x\r\n2,y\r\n", CsvOptions()),
        ("\ufeffa,b\n1,x\n2,y", CsvOptions()),
        ("a,b\n\n1,x\n\n2,y\n\n", CsvOptions()),
        ("a;b\n1;x\n2;y\n", CsvOptions(";")),
        ("a\tb\n1\tx\n2\ty\n", CsvOptions("\t")),
        ('"a","b"\n"1","x"\n2,y\n', CsvOptions()),
    ],
)
def test_the_same_table_written_in_other_ways(write: Write, content: str, options: CsvOptions) -> None:
    assert read(write(content), options) == {"a": [1, 2], "b": ["x", "y"]}


def test_blocks_are_bounded_and_in_order(write: Write) -> None:
    path = write("a,b\n" + "".join(f'{row},"line\n{row}"\n' for row in range(2_000)))
    schema = csv.infer_schema([path])
    blocks = list(csv.read_blocks(path, schema, block_bytes=4096))
    assert len(blocks) > 5
    assert max(block.nbytes for block in blocks) < 8 * 4096
    assert [row for block in blocks for row in block.column(0).to_pylist()] == list(range(2_000))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"an empty CSV: no header line.*data\.csv, line 1"),
        ("a,b\n", r"a CSV with no rows.*data\.csv"),
        ("a,b", r"a CSV with no rows.*data\.csv"),
        ("1,2.5\n3,4\n", r"no header line: 1, 2\.5 are numbers.*line 1"),
        ("a,b,a\n1,2,3\n", r"column 'a' stands there twice.*line 1"),
        ("a,\n1,2\n", r"column 2 has no name.*line 1"),
        ("a,b\n1,2\n\n1,2,3\n", r"3 cells where the header names 2.*data\.csv, line 4"),
        ('a,b\n1,"x\ny"\n1\n', r"1 cells where the header names 2.*data\.csv, line 4"),
        ("a;b\n1;2,5\n", r"2 cells where the header names 1.*line 2.*delimiter"),
        (b"a,b\n1,2\n1,\xff\xfe\n", r"not UTF-8: b'1,.xff.xfe.n'.*data\.csv, line 3"),
        (b"a,\xff\n1,2\n", r"not UTF-8.*data\.csv, line 1"),
        ('a,b\n1,"x\n2,y\n3,z\n', r"a quote that never closes.*data\.csv, line 2"),
    ],
)
def test_bad_files_are_named_with_their_line(write: Write, content: str | bytes, message: str) -> None:
    with pytest.raises(InfeedError, match=f"(?s){message}"):
        csv.infer_schema([write(content)])


def test_a_lone_quote_inside_text_is_text(write: Write) -> None:
    assert read(write('a,b\n1,5" pipe\n2,x\n')) == {"a": [1, 2], "b": ['5" pipe', "x"]}


def test_files_with_other_columns(write: Write) -> None:
    paths = [write("a,b\n1,2\n", "1.csv"), write("a,c\n1,2\n", "2.csv")]
    with pytest.raises(InfeedError, match=r"(?s)columns a, c differ from a, b in .*1\.csv.*2\.csv, line 1"):
        csv.infer_schema(paths)


def test_a_row_longer_than_a_block(write: Write) -> None:
    path = write("a,b\n1," + "x" * 5_000 + "\n2,y\n")
    schema = csv.infer_schema([path])
    with pytest.raises(InfeedError, match="block_bytes"):
        list(csv.read_blocks(path, schema, block_bytes=1024))


@pytest.mark.parametrize("delimiter", ["", "ab", '"', "\n"])
def test_impossible_delimiters(delimiter: str) -> None:
    with pytest.raises(InfeedError, match="delimiter="):
        CsvOptions(delimiter)
