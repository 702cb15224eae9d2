from __future__ import annotations

import csv
import io
import itertools
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources import streams
from infeed.components.example_gen.sources.csv import rows as csv_rows
from infeed.components.example_gen.sources.csv.reader import read_header
from infeed.components.example_gen.sources.csv.rows import CsvOptions, rules_of
from infeed.components.example_gen.sources.streams import Span

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
