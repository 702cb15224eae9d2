"""Quotes, escapes and line ends, against Python's csv module."""

from __future__ import annotations

import csv
import io
import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import AFTER_QUOTE, AstrayError, BadRow, BadRows
from infeed.components.example_gen.sources import sampling, streams
from infeed.components.example_gen.sources.csv import reader, rows
from infeed.components.example_gen.sources.csv.rows import CsvOptions
from infeed.components.example_gen.sources.streams import TextBlock

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
    data = data[: rows.whole_rows(data + b"a", options)]  # up to the end of the last whole row
    block = TextBlock("t.csv", data, 0, 1, final=True)
    bounds = rows.row_starts(data, options) if data else np.zeros(1, np.int64)
    cells = [cells_of(data[start:stop].decode(), dialect) for start, stop in itertools.pairwise(bounds)]
    bad_rows = BadRows("reject", len(data))
    found = rows.parse_rows(block, ["1", "2"], options, bad_rows).columns
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
    names, below = reader.read_header(path, ESCAPING)
    assert names == ("one", "two\n")
    read = partial(rows.parse_rows, names=names, options=ESCAPING, bad_rows=BadRows())
    whole = partial(rows.whole_rows, options=ESCAPING)
    blocks = list(streams.read_blocks(below, "utf-8", block_bytes, whole))
    assert values(map(read, blocks)) == expected
    parts = sampling.PartReader(rows.rules_of(ESCAPING, 2), "utf-8", block_bytes, 1)
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
    opened = reader.open_csv(str(path.parent), {None: path.name}, IngestOptions(on_bad_row="reject"), options)
    bad_rows = BadRows("reject", limit)
    batches = [batch for task in opened.tasks for batch in opened.read(task.payload, bad_rows=bad_rows)]
    table = {name: [cell for batch in batches for cell in batch[name].to_pylist()] for name in opened.schema.names}
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
        reader.open_csv(str(tmp_path), {None: "*"}, IngestOptions(), CsvOptions())
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


@pytest.mark.parametrize("escape", ["", "ab", ",", '"', "\n", "ö"])
def test_impossible_escapes(escape: str) -> None:
    with pytest.raises(InfeedError, match="escape is "):
        CsvOptions(escape=escape)


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
    opened = reader.open_csv(str(tmp_path), {None: "*"}, options, CsvOptions())
    bad_rows = BadRows("reject", 10)
    for task in opened.tasks:
        list(opened.read(task.payload, bad_rows=bad_rows))
    assert [row.line for row in bad_rows.take()] == [1_002]
