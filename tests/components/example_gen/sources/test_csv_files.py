from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opened_sources import batches_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource
from infeed.components.example_gen.sources import csv_files
from infeed.components.example_gen.sources.csv_rows import CsvOptions

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "data.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def open_csv(path: str, options: CsvOptions | None = None, block_bytes: int = 8 << 20) -> OpenedSource:
    """One file, or all that a pattern finds."""
    folder, name = path.rsplit("/", 1)
    return csv_files.open_csv(folder, {None: name}, IngestOptions(block_bytes=block_bytes), options)


def read_blocks(opened: OpenedSource) -> list[pa.RecordBatch]:
    return list(batches_of(opened))


def read(path: str, options: CsvOptions | None = None, **sizes: int) -> dict[str, list[Any]]:
    opened = open_csv(path, options, **sizes)
    return pa.Table.from_batches(read_blocks(opened), opened.schema).to_pydict()


def test_types_are_found_over_the_whole_input(write: Write) -> None:
    rows = ["1,1,1,"] * 3_000 + ["2,0.5,x,"]
    path = write("a,b,c,d\n" + "\n".join(rows))
    assert csv_files.scan(path, CsvOptions(), IngestOptions(block_bytes=1024)).rows == 3_001
    assert open_csv(path).schema.types == [pa.int64(), pa.float64(), pa.string(), pa.null()]


def test_types_fit_every_file(write: Write) -> None:
    for number, content in enumerate(["a,b\n1,\n", "a,b\n0.5,2\n", "a,b\n"]):
        path = write(content, f"{number}.csv")
    assert open_csv(f"{os.path.dirname(path)}/*.csv").schema.types == [pa.float64(), pa.int64()]


def test_cells_become_values_and_empty_cells_nulls(write: Write) -> None:
    path = write('i,f,s,n\n0,0.0,"",\n,,b,\n9007199254740993,1e400,"a, ""b""\nc",\n')
    assert read(path) == {
        "i": [0, None, 9007199254740993],
        "f": [0.0, None, sys.float_info.max],
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
        ("1,x\n2,y\n", CsvOptions(header=False, names=("a", "b"))),
        ("u,v\n1,x\n2,y\n", CsvOptions(names=("a", "b"))),
        ("a,b\n1,'x'\n2,y\n", CsvOptions(quote="'")),
        ("a|b\n1|x\n2|y\n", CsvOptions("|", quote=None)),
        ("\n\na,b\r1,x\r2,y\r", CsvOptions()),
        ("a,b\n1,x\n2,y\n".encode("utf-16"), CsvOptions(encoding="utf-16")),
        ("\ufeffa,b\n1,x\n2,y\n".encode("utf-16-le"), CsvOptions(encoding="utf-16-le")),
        ("\ufeff1,x\n2,y\n", CsvOptions(header=False, names=("a", "b"))),
        (gzip.compress(b"a,b\n1,x\n2,y\n"), CsvOptions()),
        (gzip.compress(b"a,b\n1,x\n") + gzip.compress(b"2,y\n"), CsvOptions()),
        (pa.compress(b"a,b\n1,x\n2,y\n", "zstd", asbytes=True), CsvOptions()),
    ],
)
def test_the_same_table_written_in_other_ways(write: Write, content: str | bytes, options: CsvOptions) -> None:
    assert read(write(content), options) == {"a": [1, 2], "b": ["x", "y"]}


def test_blocks_are_bounded_and_in_order(write: Write) -> None:
    path = write("a,b\n" + "".join(f'{row},"line\n{row}"\n' for row in range(2_000)))
    blocks = read_blocks(open_csv(path, block_bytes=4096))
    assert len(blocks) > 5
    assert max(block.nbytes for block in blocks) < 8 * 4096
    assert [row for block in blocks for row in block.column(0).to_pylist()] == list(range(2_000))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"no header line.*data\.csv, line 1"),
        ("a,b\n", r"the CSV file has no rows.*data\.csv"),
        ("a,b", r"the CSV file has no rows.*data\.csv"),
        ("1,2.5\n3,4\n", r"no header line: 1, 2\.5 are numbers.*line 1"),
        ("a,b,a\n1,2,3\n", r"column 'a' occurs twice.*line 1"),
        ("a,\n1,2\n", r"column 2 has no name.*line 1"),
        ("a,b\n1,2\n\n1,2,3\n", r"3 cells, but the header has 2.*data\.csv, line 4"),
        ('a,b\n1,"x\ny"\n1\n', r"1 cell, but the header has 2.*data\.csv, line 4"),
        ("a;b\n1;2,5\n", r"named 'a;b'.*line 1.*--delimiter ';'"),
        (b"a,b\n1,2\n1,\xff\xfe\n", r"not utf-8 text.*data\.csv, line 3"),
        (b"a,b\0\n1,2\n", r"NUL.*data\.csv, line 1"),
        ("a," + "b" * 200_000 + "\n1,2\n", r"no header line: field larger than.*data\.csv, line 1"),
        (b"a,\xff\n1,2\n", r"not utf-8 text.*data\.csv, line 1"),
        ('a,b\n1,"x\n2,y\n3,z\n', r"a quote is never closed.*data\.csv, line 2"),
    ],
)
def test_bad_files_are_named_with_their_line(write: Write, content: str | bytes, message: str) -> None:
    with pytest.raises(InfeedError, match=f"(?s){message}"):
        open_csv(write(content))


def test_a_lone_quote_inside_text_is_text(write: Write) -> None:
    assert read(write('a,b\n1,5" pipe\n2,x\n')) == {"a": [1, 2], "b": ['5" pipe', "x"]}


def test_files_with_other_columns(write: Write) -> None:
    write("a,b\n1,2\n", "1.csv")
    path = write("a,c\n1,2\n", "2.csv")
    with pytest.raises(InfeedError, match=r"(?s)columns a, c differ from a, b in .*1\.csv.*2\.csv, line 1"):
        open_csv(f"{os.path.dirname(path)}/*.csv")


def test_a_row_longer_than_a_block_is_a_block_of_its_own(write: Write) -> None:
    path = write("a,b\n1," + "x" * 5_000 + "\n2,y\n")
    assert read(path, block_bytes=1024) == {"a": [1, 2], "b": ["x" * 5_000, "y"]}


def test_latin_1(write: Write) -> None:
    path = write("größe,ä\nKöln,ü\n".encode("latin-1"))  # the header alone is longer as UTF-8 than up to its end here
    options = CsvOptions(encoding="latin-1")
    _, rows = csv_files.read_header(path, options)
    (block,) = csv_files.read_span(rows, open_csv(path, options).schema, options, IngestOptions(), bad_rows=BadRows())
    assert block.to_pydict() == {"größe": ["Köln"], "ä": ["ü"]}


def test_rows_of_white_space_are_rows(write: Write) -> None:
    assert read(write("a\tb\n\t\n \t\n"), CsvOptions("\t")) == {"a": [None, " "], "b": [None, None]}
    assert read(write("a\n \n\n  \n")) == {"a": [" ", "  "]}


def test_a_byte_order_mark_inside_the_data_is_text(write: Write) -> None:
    path = write("\ufeffa,b\n" + "\ufeffx,1\n" * 1_000)
    assert read(path, block_bytes=1024) == {"a": ["\ufeffx"] * 1_000, "b": [1] * 1_000}
    assert read(write("a\n" + "\ufeff\n" * 1_000), block_bytes=1024) == {"a": ["\ufeff"] * 1_000}


def test_surrogates_in_an_encoding_that_has_them(write: Write) -> None:
    with pytest.raises(InfeedError, match=r"(?s)not unicode_escape.*data\.csv"):
        read(write("a,b\n1,\\ud800\n"), CsvOptions(encoding="unicode_escape"))


def test_words_for_nothing(write: Write) -> None:
    content = "i,s\n1,NA\nNA,\n3,-\n"
    assert read(write(content), CsvOptions(nulls=("", "NA", "-"))) == {"i": [1, None, 3], "s": [None, None, None]}
    assert read(write(content), CsvOptions(nulls=("NA",)))["s"] == [None, "", "-"]


def test_given_types_stand(write: Write) -> None:
    path = write("zip,n,x\n01234,1,5\n00000,2,\n")
    options = CsvOptions(types={"zip": "bytes", "x": "float"})
    assert open_csv(path, options).schema.types == [pa.string(), pa.int64(), pa.float64()]
    assert read(path, options) == {"zip": ["01234", "00000"], "n": [1, 2], "x": [5.0, None]}


def test_quotes_that_are_text(write: Write) -> None:
    assert read(write('a,b\n1,"x\n2,y"\n'), CsvOptions(quote=None)) == {"a": [1, 2], "b": ['"x', 'y"']}


def open_rejecting(path: str, options: CsvOptions | None = None) -> tuple[dict[str, list[Any]], list[BadRow]]:
    folder, name = path.rsplit("/", 1)
    opened = csv_files.open_csv(folder, {None: name}, IngestOptions(on_bad_row="reject", block_bytes=1024), options)
    bad_rows = BadRows("reject", 100)
    batches = list(batches_of(opened, bad_rows))
    return pa.Table.from_batches(batches, opened.schema).to_pydict(), list(bad_rows.take())


@pytest.mark.parametrize("row", ["," * 2_000_000, '"a,b",' + "," * 1_999_999], ids=["plain", "quoted"])
def test_a_row_of_millions_of_cells_is_a_bad_row(write: Write, row: str) -> None:
    good, bad = open_rejecting(write(f"a,b\n1,x\n{row}\n3,z\n"))
    assert good == {"a": [1, 3], "b": ["x", "z"]}
    assert [(one.line, one.reason.partition(" ")[0]) for one in bad] == [(3, "2,000,001")]


def test_bad_rows_are_set_aside_and_do_not_count_for_types(write: Write) -> None:
    rows = [f'{row},"two\nlines"\n' for row in range(500)]
    rows[100], rows[300], rows[400] = "1\n", "x,y,z\n", "\n\n1,\xff\n"
    path = write(("a,b\n" + "".join(rows)).encode("latin-1"))
    good, bad = open_rejecting(path)
    assert good["a"] == [row for row in range(500) if row not in (100, 300, 400)]
    assert [(row.line, row.reason, row.text) for row in sorted(bad, key=lambda row: row.line or 0)] == [
        (202, "1 cell, but the header has 2. Is ',' the delimiter?", "1"),
        (601, "3 cells, but the header has 2. Is ',' the delimiter?", "x,y,z"),
        (802, "not utf-8 text", "1,\\xff"),
    ]


def test_cells_that_are_not_of_the_given_type(write: Write) -> None:
    path = write('n,x\n1,0.5\n"two\n",1\n3,0x1F\n99999999999999999999,nan\n')
    good, bad = open_rejecting(path, CsvOptions(types={"n": "int", "x": "float"}))
    assert good == {"n": [1], "x": [0.5]}
    assert [(row.line, row.column, row.reason) for row in bad] == [
        (3, "n", "'two\\n' is not of type int"),
        (5, "x", "'0x1F' is not of type float"),
        (6, "n", "'99999999999999999999' is not of type int"),
    ]
    with pytest.raises(InfeedError, match=r"(?s)'two.n' is not of type int.*data\.csv, line 3, column 'n'"):
        read(path, CsvOptions(types={"n": "int"}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:-8], r"cannot decompress.*data\.csv"),
        (gzip.compress(os.urandom(5000))[:2000], r"cannot decompress.*data\.csv"),
        (pa.compress(b"a,b\n" + b"1,2\n" * 1000, "zstd", asbytes=True)[:-4], r"cannot decompress.*data\.csv"),
    ],
)
def test_compressed_files_cut_short(write: Write, content: bytes, message: str) -> None:
    with pytest.raises(InfeedError, match=f"(?s){message}"):
        open_csv(write(content))


def test_the_index_that_pandas_writes_gets_the_name_that_pandas_reads(write: Write) -> None:
    assert open_csv(write(",a\n0,x\n1,y\n")).schema.names == ["Unnamed: 0", "a"]


def test_a_wrong_delimiter_names_the_right_one(write: Write) -> None:
    with pytest.raises(InfeedError, match=r"(?s)named 'a;b'.*--delimiter ';'.*--set 'names=\[\"a;b\"\]'"):
        open_rejecting(write("a;b\n1;2\n"))
    assert open_rejecting(write("a;b\n1;2\n"), CsvOptions(names=("a;b",)))[0] == {"a;b": ["1;2"]}


def test_a_byte_order_mark_names_the_encoding(write: Write) -> None:
    with pytest.raises(InfeedError) as raised:
        open_csv(write("a,b\n1,2\n".encode("utf-16")))
    assert raised.value.where.endswith("data.csv, line 1")
    assert "encoding=utf-16" in raised.value.do


def test_a_quote_that_never_closes_is_an_error_also_where_bad_rows_are_set_aside(write: Write) -> None:
    with pytest.raises(InfeedError, match=r"(?s)a quote is never closed.*line 3"):
        open_rejecting(write('a,b\n1,5" pipe\n2,"x\n3,y\n'))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"delimiter": one}, "delimiter is ") for one in ("", "ab", '"', "\n", "ö", "\0")),
        *(({"escape": one}, "escape is ") for one in ("", "ab", ",", '"', "\n", "ö")),
        ({"header": False}, "no header line"),
        ({"quote": ","}, "quote is ','"),
        ({"types": {"a": "date"}}, r"types\['a'\] is 'date'"),
        ({"encoding": "klingon"}, "encoding is 'klingon'"),
        ({"encoding": "base64"}, "encoding is 'base64'"),
        ({"encoding": "idna"}, "encoding is 'idna'"),
        ({"encoding": "undefined"}, "encoding is 'undefined'"),
        ({"encoding": "a\0b"}, "encoding is "),
        ({"quote": "\0"}, "quote is "),
        ({"nulls": "NA"}, "nulls is 'NA'"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        CsvOptions(**options)


def test_options_survive_json() -> None:
    options = CsvOptions(";", None, False, ("a", "b"), ("", "NA"), {"a": "int"}, "latin-1")
    assert CsvOptions(**json.loads(json.dumps(asdict(options)))) == options
