"""Rows, quotes, escapes and line ends, against Python's csv module; and the row behind any byte."""

from __future__ import annotations

import csv
import io
import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_sources import batches_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import AFTER_QUOTE, AstrayError, BadRow, BadRows
from infeed.components.example_gen.sources import csv_files, csv_rows, streams
from infeed.components.example_gen.sources.csv_files import read_header
from infeed.components.example_gen.sources.csv_rows import CsvOptions, rules_of
from infeed.components.example_gen.sources.streams import Span, TextBlock

OPTIONS = CsvOptions()
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.lists(st.text(st.sampled_from('a,"\n\r b'), max_size=6), min_size=width, max_size=width), max_size=12
    )
)


def split(path: str, block_bytes: int) -> tuple[tuple[str, ...], list[Span]]:
    names, rows = read_header(path, OPTIONS)
    rules = rules_of(OPTIONS, len(names))
    cutter = streams.SpanCutter(rows, block_bytes, rules)
    for block in streams.read_blocks(rows, "utf-8", block_bytes, rules.whole):
        cutter.add(block)
    return names, cutter.spans()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(table=TABLES, block_bytes=st.integers(1, 60), line_end=st.sampled_from(["\n", "\r\n"]))
def test_spans_read_apart_are_the_rows_that_the_csv_module_reads(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]], block_bytes: int, line_end: str
) -> None:
    path = str(tmp_path_factory.mktemp("csv") / "t.csv")
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator=line_end, quoting=csv.QUOTE_ALL)
        writer.writerows([[f"c{number}" for number in range(len(table[0]) if table else 1)], *table])
    names, spans = split(path, block_bytes)
    rows = []
    for span in spans:
        for block in streams.read_blocks(span, "utf-8", 1 << 20, partial(csv_rows.whole_rows, options=OPTIONS)):
            rows += csv_rows.parse_rows(block, names, OPTIONS, BadRows()).columns.to_pylist()
    assert [[cell or "" for cell in row.values()] for row in rows] == table
    assert [span.start for span in spans[1:]] == [span.stop for span in spans[:-1]]


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from('a,"\n'), max_size=30))
def test_rows_of_any_text_begin_where_the_csv_module_says(text: str) -> None:
    starts = csv_rows.row_starts(text.encode(), OPTIONS) if text else [0]
    rows = [text[start:stop] for start, stop in itertools.pairwise(starts)]
    parsed = [next(csv.reader(io.StringIO(row, newline=""))) for row in rows]
    assert parsed == [row for row in csv.reader(io.StringIO(text, newline="")) if row]


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", 0),
        (b"a,b", 0),
        (b"a\nb", 2),
        (b'a\n"b\nc', 2),
        (b'"a\nb"\nc', 6),
        (b'"a\n""b\n', 0),
        (b'x\n"a\n""b""\nc\n""d', 2),
        (b'"a\n""b"\n"c\n""d\n', 8),
        (b'5" pipe\n6" pipe\nx', 16),  # quotes inside a cell are text
        (b'5" pipe\n"x\ny', 8),
        (b"a\r\nb", 3),
        (b"a\rb\r", 2),  # the last CR may be half of a CR LF
    ],
)
def test_how_much_is_whole_rows(data: bytes, whole: int) -> None:
    assert csv_rows.whole_rows(data, OPTIONS) == whole


@settings(max_examples=200, deadline=None)
@given(
    table=st.lists(st.lists(st.text(st.sampled_from('a,"\n\r'), max_size=3), min_size=1, max_size=6), max_size=8),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    columns=st.integers(1, 4),
)
def test_cells_in_excess_are_counted_as_arrow_counts_them(table: list[list[str]], line_end: str, columns: int) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line_end).writerows(table)
    names = [f"c{number}" for number in range(columns)]
    read = {}
    for by_arrow in (True, False):  # so few cells do not reach the end of Arrow's buffer
        ragged: list[tuple[int, int]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_rows, "_EXCESS_OVERFLOWS", not by_arrow)
            cells = csv_rows.parse_cells(text.getvalue().encode(), names, names, OPTIONS, ragged)
        read[by_arrow] = cells.to_pydict(), ragged
    assert read[True] == read[False]


TEXTS = {
    "plain": "1,a b,2.5\n2,c,3\n3,d,4\n",
    "quoted": '1,"a, b",2.5\n2,"c ""d""",3\n3,"e",4\n',
    "line breaks": '1,"one\ntwo, three\n\nfour",2\n2,"x",3\n3,"a ""b""\nc",4\n',
    "CR LF": '1,"one\r\ntwo",2\r\n2,x,3\r\n',
    "CR": '1,"one\rtwo",2\r2,x,3\r',
    "stray quotes": '1,5" pipe,2\n2,6" pipe,3\n3,"two\nlines",4\n',
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_row_behind_any_byte_is_found(name: str) -> None:
    data = (TEXTS[name] * 30).encode()
    rules = rules_of(CsvOptions(), 3)
    ends = rules.ends(data)
    for offset in range(1, len(data) // 2):
        guessed = rules.guess(data[offset - 1 :], True)
        assert guessed is not None
        assert offset - 1 + guessed[0] == ends[np.searchsorted(ends, offset, side="right")]


def test_bytes_that_end_no_row_ask_for_more() -> None:
    assert rules_of(CsvOptions(), 3).guess(b"x,1,2", False) is None


def test_a_guess_is_sure_only_if_all_rows_have_the_columns_of_the_header() -> None:
    rows = b"5,6\n1,2\n3,4\n5,6\n"
    assert rules_of(CsvOptions(), 2).guess(rows, False) == (4, True)
    assert rules_of(CsvOptions(), 3).guess(rows, False) == (4, False)


def test_a_piece_is_closed_if_it_ends_with_a_row() -> None:
    rules = rules_of(CsvOptions(), 2)
    assert rules.is_closed(b'1,"two\nlines"\n')
    assert not rules.is_closed(b'1,"two\n')
    assert not rules.is_closed(b"1,2")


ESCAPING = CsvOptions(escape="\\")
DIALECTS = [
    (CsvOptions(), {}),
    (ESCAPING, {"escapechar": "\\"}),
    (CsvOptions(delimiter="x", quote="'", escape="^"), {"delimiter": "x", "quotechar": "'", "escapechar": "^"}),
    (CsvOptions(quote=None, escape="\\"), {"quoting": csv.QUOTE_NONE, "escapechar": "\\"}),
]
SIGNS = "a ,x\"'\\^\n\r"


def cells_of(row: str, dialect: dict[str, object]) -> list[str] | None:
    """The cells of one row by the csv module, or None if it finds text after a closing quote."""
    try:
        return next(csv.reader(io.StringIO(row, newline=""), strict=True, **dialect), [])  # type: ignore[call-overload]
    except csv.Error:
        return None


@pytest.mark.parametrize(("options", "dialect"), DIALECTS)
@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from(SIGNS), max_size=40))
def test_the_rows_of_any_text_are_those_of_the_csv_module(
    options: CsvOptions, dialect: dict[str, object], text: str
) -> None:
    data = text.encode()
    data = data[: csv_rows.whole_rows(data + b"a", options)]  # up to the end of the last whole row
    block = TextBlock("t.csv", data, 0, 1, final=True)
    bounds = csv_rows.row_starts(data, options) if data else np.zeros(1, np.int64)
    cells = [cells_of(data[start:stop].decode(), dialect) for start, stop in itertools.pairwise(bounds)]
    bad_rows = BadRows("reject", len(data))
    found = csv_rows.parse_rows(block, ["1", "2"], options, bad_rows).columns
    assert [list(row.values()) for row in found.to_pylist()] == [
        [cell or None for cell in row] for row in cells if row is not None and len(row) == 2
    ]
    bad = bad_rows.take()
    assert len(bad) == sum(row is None or len(row) != 2 for row in cells)
    assert sum(row.reason.startswith(AFTER_QUOTE) for row in bad) == cells.count(None)


CELLS = st.text(st.sampled_from('a,"\n\r\\ b'), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    table=st.lists(st.tuples(CELLS, CELLS), max_size=12),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE]),
    doublequote=st.booleans(),
    block_bytes=st.integers(1, 60),
    cuts=st.lists(st.integers(1, 200), max_size=3, unique=True),
)
def test_what_the_csv_module_writes_with_escapes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[tuple[str, str]],
    quoting: int,
    doublequote: bool,
    block_bytes: int,
    cuts: list[int],
) -> None:
    path = str(tmp_path_factory.mktemp("csv") / "t.csv")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=quoting, doublequote=doublequote, escapechar="\\")
        writer.writerows([["one", "two\n"], *table])
    content = Path(path).read_bytes()
    expected = list(csv.reader(io.StringIO(content.decode(), newline=""), escapechar="\\"))[1:]
    names, below = csv_files.read_header(path, ESCAPING)
    assert names == ("one", "two\n")
    read = partial(csv_rows.parse_rows, names=names, options=ESCAPING, bad_rows=BadRows())
    whole = partial(csv_rows.whole_rows, options=ESCAPING)
    blocks = list(streams.read_blocks(below, "utf-8", block_bytes, whole))
    assert values(map(read, blocks)) == expected
    parts = streams.PartReader(csv_rows.rules_of(ESCAPING, 2), "utf-8", block_bytes, 1)
    bounds = [0, *sorted({cut for cut in cuts if cut < len(content)}), None]
    try:
        apart = [
            read(block)
            for start, stop in itertools.pairwise(bounds)
            for block in parts.blocks(streams.Stretch(below, start or 0, stop), BadRows())
        ]
    except AstrayError:
        return  # the reader starts again with one process
    assert values(apart) == expected


def values(found: object) -> list[list[str]]:
    return [
        [cell or "" for cell in row.values()]
        for one in found  # type: ignore[attr-defined]
        for row in one.columns.to_pylist()
    ]


def read(path: Path, options: CsvOptions, limit: int = 100) -> tuple[dict[str, list[object]], list[BadRow]]:
    opened = csv_files.open_csv(str(path.parent), {None: path.name}, IngestOptions(on_bad_row="reject"), options)
    bad_rows = BadRows("reject", limit)
    table = pa.Table.from_batches(batches_of(opened, bad_rows), opened.schema).to_pydict()
    return table, list(bad_rows.take())


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ('"LAND " CATTLE CO."', " CATTLE CO."),
        ('"text with \\" quote"', " quote"),
        ('"a" ', " "),
        ('""a', "a"),
        ('"a""b"c', "c"),
        ('"LAND" ', "' '"),
    ],
)
def test_text_after_a_closing_quote_is_a_bad_row_that_names_the_option(tmp_path: Path, cell: str, reason: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f'a,b\n"x\ny",1\n2,{cell}\n"3",{cell}\n4,good\n')
    table, bad = read(path, CsvOptions())
    assert table == {"a": ["x\ny", "4"], "b": ["1", "good"]}
    assert [row.line for row in bad] == [4, 5]
    assert bad[0].reason.startswith(AFTER_QUOTE)
    assert reason in bad[0].reason
    with pytest.raises(InfeedError, match=AFTER_QUOTE) as raised:
        csv_files.open_csv(str(tmp_path), {None: "*"}, IngestOptions(), CsvOptions())
    assert raised.value.where == f"{path}, line 4"
    assert "escape=" in raised.value.do


@pytest.mark.parametrize(
    ("cell", "value"), [('O"Brian', 'O"Brian'), ('""""', '"'), ('"a""b"', 'a"b'), ('5" x 3"', '5" x 3"')]
)
def test_quotes_that_are_right_stay(tmp_path: Path, cell: str, value: str) -> None:
    (tmp_path / "t.csv").write_text(f"a,b\n1,{cell}\n")
    assert read(tmp_path / "t.csv", CsvOptions()) == ({"a": [1], "b": [value]}, [])


def test_files_of_spark_are_read_with_their_escape(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('n,"the \\"text\\""\n1,"say \\"hi\\", now"\n2,"back\\\\slash"\n3,"ends with \\""\n4,\\N\n')
    table, bad = read(path, CsvOptions(escape="\\", nulls=("", "N")))
    assert table == {"n": [1, 2, 3, 4], 'the "text"': ['say "hi", now', "back\\slash", 'ends with "', None]}
    assert not bad


def test_an_escape_at_the_end_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\\")
    with pytest.raises(InfeedError) as raised:
        read(tmp_path / "t.csv", ESCAPING)
    assert raised.value.where.endswith("t.csv, line 3")


def test_a_carriage_return_in_a_cell_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b,c\n1,2,3\n4,x\ry,6\n")
    table, bad = read(tmp_path / "t.csv", CsvOptions())
    assert table == {"a": [1], "b": [2], "c": [3]}
    assert [(row.line, "carriage return" in row.reason) for row in bad] == [(3, True), (4, True)]
    assert not any("delimiter" in row.reason for row in bad)


@pytest.mark.parametrize("ends", [[b"\n"], [b"\r\n"], [b"\r"], [b"\n", b"\r\n", b"\r"]])
@pytest.mark.parametrize("block_bytes", [1 << 10, 1 << 20])
def test_the_line_of_a_bad_row_counts_all_line_ends(tmp_path: Path, ends: list[bytes], block_bytes: int) -> None:
    lines = [b"a,b", *(b"1,2" for _ in range(1_000)), b"bad", b"3,4"]
    content = b"".join(line + ends[number % len(ends)] for number, line in enumerate(lines))
    (tmp_path / "t.csv").write_bytes(content)
    options = IngestOptions(on_bad_row="reject", block_bytes=block_bytes)
    opened = csv_files.open_csv(str(tmp_path), {None: "*"}, options, CsvOptions())
    bad_rows = BadRows("reject", 10)
    for task in opened.tasks:
        list(opened.read(task.payload, bad_rows=bad_rows))
    assert [row.line for row in bad_rows.take()] == [1_002]
