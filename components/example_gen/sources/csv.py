"""CSV files -> typed record batches, with the types that TFX's CsvExampleGen gives: int, float or bytes for a column.

A type is found over the whole input, not a sample: int where every cell reads as a 64-bit integer, else float where
every cell reads as a number, else bytes. An integer beyond 64 bits makes its column bytes, so that no digit is lost.
An empty cell is a null.
"""

from __future__ import annotations

import csv
import enum
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from infeed.components.dataset import files
from infeed.components.errors import InfeedError

_INT64 = range(-(1 << 63), 1 << 63)
_NOT_IN_PYTHON = (b"x", b"X", b"(")  # Arrow reads `0x1F` and `nan(1)` as numbers, Python and TFX as text
_BLOCK_BYTES = 8 << 20
_PROBE = 100  # cells that tell whether a cast is worth trying on all


@dataclass(frozen=True)
class CsvOptions:
    """How the files are written. `delimiter` is one character; cells may be quoted by `"` and hold line breaks."""

    delimiter: str = ","

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise InfeedError(f"delimiter={self.delimiter!r}", where="CsvOptions", do="give one character, such as ';'")


class Kind(enum.IntEnum):
    """What a column can hold, each more general than the one before."""

    EMPTY = 0
    INT = 1
    FLOAT = 2
    TEXT = 3

    @property
    def arrow(self) -> pa.DataType:
        return {Kind.EMPTY: pa.null(), Kind.INT: pa.int64(), Kind.FLOAT: pa.float64(), Kind.TEXT: pa.string()}[self]


@dataclass(frozen=True)
class Scan:
    """What one pass over a file found: the kind of each column, and the number of rows."""

    path: str
    kinds: dict[str, Kind]
    rows: int


def infer_schema(paths: Sequence[str], options: CsvOptions | None = None) -> pa.Schema:
    """int64, float64, string or null (an always empty column) for each column, over all files.

    Raises:
      InfeedError: no rows, a missing or repeated column name, files with different headers, a row with too many or
        too few cells, text that is not UTF-8; each with file and line.
    """
    return merge_scans(scan(path, options or CsvOptions()) for path in paths)


def scan(path: str, options: CsvOptions, block_bytes: int = _BLOCK_BYTES) -> Scan:
    """One pass over one file, holding one block at a time."""
    kinds, rows = dict.fromkeys(read_header(path, options), Kind.EMPTY), 0
    _check_quotes(path, options)
    for text in _read_text(path, options, block_bytes):
        rows += text.num_rows
        for name, column in zip(text.schema.names, text.columns, strict=True):
            if kinds[name] < Kind.TEXT:
                kinds[name] = max(kinds[name], infer_kind(column))
    return Scan(path, kinds, rows)


def merge_scans(scans: Iterable[Scan]) -> pa.Schema:
    """The schema that fits every file."""
    found = sorted(scans, key=lambda one: one.path)
    if not any(one.rows for one in found):
        where = ", ".join(one.path for one in found[:3]) or "no file"
        raise InfeedError("a CSV with no rows", where=where, do="give a file with a header line and at least one row")
    first = found[0]
    for other in found[1:]:
        if list(other.kinds) != list(first.kinds):
            raise InfeedError(
                f"columns {_names(other.kinds)} differ from {_names(first.kinds)} in {first.path}",
                where=f"{other.path}, line 1",
                do="give all files the same header",
            )
    return pa.schema([(name, max(one.kinds[name] for one in found).arrow) for name in first.kinds])


def read_blocks(
    path: str, schema: pa.Schema, options: CsvOptions | None = None, block_bytes: int = _BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows of one file in order, as batches of about `block_bytes` of text, with the types of `schema`."""
    for text in _read_text(path, options or CsvOptions(), block_bytes):
        arrays = [_convert(column, field.type) for column, field in zip(text.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_header(path: str, options: CsvOptions) -> list[str]:
    """The column names in the first line.

    Raises:
      InfeedError: an empty file, an empty or repeated name, a line of numbers where the names should be.
    """
    with _csv_reader(path, options, strict=False) as reader:
        try:
            header: list[str] = next(reader, [])
        except UnicodeDecodeError as error:
            raise _undecodable(path) or error from None
    _check_header(header, f"{path}, line 1")
    return header


def infer_kind(cells: pa.StringArray) -> Kind:
    """The narrowest kind that holds every cell; nulls count for nothing."""
    cells = cells.drop_null()
    if not len(cells):
        return Kind.EMPTY
    if not _may_mislead(cells):
        if _try_cast(cells, pa.int64()) is not None:
            return Kind.INT
        floats = _try_cast(cells, pa.float64())
        if floats is not None and not _any_beyond_int64(floats):
            return Kind.FLOAT
    return _infer_slowly(cells)


def _infer_slowly(cells: pa.StringArray) -> Kind:
    kind = Kind.EMPTY
    for cell in cells.unique():
        kind = max(kind, _kind_of_cell(cell.as_py().encode()))
        if kind == Kind.TEXT:
            break
    return kind


def _kind_of_cell(cell: bytes) -> Kind:
    # bytes, not str: int() and float() of str accept digits of other scripts, TFX does not.
    try:
        return Kind.INT if int(cell) in _INT64 else Kind.TEXT
    except ValueError:
        pass
    try:
        float(cell)
    except ValueError:
        return Kind.TEXT
    return Kind.FLOAT


def _convert(cells: pa.StringArray, to: pa.DataType) -> pa.Array:
    if pa.types.is_string(to):
        return cells
    if pa.types.is_null(to):
        return pa.nulls(len(cells))
    converted = _try_cast(cells, to)
    if converted is not None:
        return converted
    read = int if pa.types.is_integer(to) else float  # `1_000`, ` 7`, `+2.5`: Python reads them, Arrow does not
    return pa.array([None if cell is None else read(cell.encode()) for cell in cells.to_pylist()], to)


def _try_cast(cells: pa.StringArray, to: pa.DataType) -> pa.Array | None:
    try:
        cells[:_PROBE].cast(to)  # Arrow goes on to the end after a cell that fails, at ten times the cost
        return cells.cast(to)
    except pa.ArrowInvalid:
        return None


def _may_mislead(cells: pa.StringArray) -> bool:
    text = bytes(cells.buffers()[2] or b"")
    return any(sign in text for sign in _NOT_IN_PYTHON)


def _any_beyond_int64(floats: pa.DoubleArray) -> bool:
    finite = pc.if_else(pc.is_finite(floats), pc.abs(floats), 0.0)
    return bool(pc.max(finite).as_py() >= 2.0**63)


def _read_text(path: str, options: CsvOptions, block_bytes: int) -> Iterator[pa.RecordBatch]:
    """Every cell as text, an empty one as null."""
    names = read_header(path, options)
    try:
        with files.open_input(path) as file:
            reader = arrow_csv.open_csv(
                file,
                # Without threads: with them Arrow reads ahead of a slower consumer, without a bound.
                read_options=arrow_csv.ReadOptions(block_size=block_bytes, use_threads=False),
                parse_options=arrow_csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )
            yield from reader
    except pa.ArrowInvalid as error:
        explained = _explain(path, len(names), options, str(error))
        if explained is not None:
            raise explained from error


def _check_header(header: list[str], where: str) -> None:
    if not header:
        raise InfeedError("an empty CSV: no header line", where=where, do="put the column names in the first line")
    if not all(header):
        number = header.index("") + 1
        raise InfeedError(f"column {number} has no name", where=where, do="name every column in the first line")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InfeedError(f"column {twice[0]!r} stands there twice", where=where, do="give each column its own name")
    if all(_kind_of_cell(name.encode()) < Kind.TEXT for name in header):
        raise InfeedError(
            f"no header line: {_names(header)} are numbers", where=where, do="put the column names in the first line"
        )


def _check_quotes(path: str, options: CsvOptions) -> None:
    """Arrow takes the rest of the file for one cell when a quote never closes; rows would be lost without a word."""
    with files.open_input(path) as file:
        quotes = sum(chunk.count(b'"') for chunk in iter(lambda: file.read(1 << 20), b""))
    if quotes % 2 == 0:
        return
    with _csv_reader(path, options, strict=True) as reader:
        line = 1
        try:
            for _ in reader:
                line = reader.line_num + 1
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                where = f"{path}, line {line}"
                raise InfeedError("a quote that never closes", where=where, do="close it, or double it") from error


def _explain(path: str, cells: int, options: CsvOptions, arrow_says: str) -> InfeedError | None:
    """Finds the line that Arrow stumbled over; slow, so only once something is wrong. None: there are no rows."""
    undecodable = _undecodable(path)
    if undecodable is not None:
        return undecodable
    rows = -1
    with _csv_reader(path, options, strict=False) as reader:
        for row in filter(None, reader):
            rows += 1
            if len(row) != cells:
                return InfeedError(
                    f"{len(row)} cells where the header names {cells}",
                    where=f"{path}, line {reader.line_num}",
                    do="mend the row, or set the delimiter that the file uses",
                )
    if not rows:
        return None
    return InfeedError(
        f"unreadable CSV: {arrow_says}", where=path, do="check quotes and delimiter; a long row needs more block_bytes"
    )


def _undecodable(path: str) -> InfeedError | None:
    with files.open_input(path) as file:
        for number, line in enumerate(io.BufferedReader(file), start=1):
            if not _decodes(line):
                return InfeedError(
                    f"not UTF-8: {line[:40]!r}",
                    where=f"{path}, line {number}",
                    do="save the file as UTF-8",
                )
    return None


def _decodes(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def _csv_reader(path: str, options: CsvOptions, *, strict: bool) -> Iterator[Any]:
    with files.open_input(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        yield csv.reader(text, delimiter=options.delimiter, strict=strict)


def _names(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:5])
