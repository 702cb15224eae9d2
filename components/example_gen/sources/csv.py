"""CSV files -> typed record batches.

The type of a column is given, or found over the whole input, not a sample, in one pass that also finds where rows
begin, so that several workers share a big file. A cell that stands for "no value" is a null.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import streams
from infeed.components.example_gen.sources.csv_options import CsvOptions as CsvOptions
from infeed.components.example_gen.sources.csv_rows import (
    TextRows,
    check_closed,
    locate,
    parse_rows,
    row_starts,
    whole_rows,
)
from infeed.components.example_gen.sources.csv_types import GIVEN, Kind, convert, infer_kind, kind_of_cell
from infeed.components.example_gen.sources.streams import Block, Span

_BLOCK_BYTES = 8 << 20
_HEADER_BYTES = 1 << 16  # enough for nearly every header; a longer one is read on
_OTHER_DELIMITERS = ",;\t|"
_WORDS = {arrow: word for word, arrow in GIVEN.items()}


@dataclass(frozen=True)
class Header:
    """Column names, and the rows below them."""

    names: tuple[str, ...]
    rows: Span


@dataclass(frozen=True)
class Scan:
    """What one pass over a file found: the kind of each column without a given type, the rows, and where to cut."""

    path: str
    names: tuple[str, ...]
    kinds: dict[str, Kind]
    rows: int
    spans: tuple[Span, ...]


def open_csv(
    root: str, patterns: inputs.Patterns, options: IngestOptions, csv_options: CsvOptions | None = None
) -> Input:
    """CSV files with the same columns."""
    csv_options = csv_options or CsvOptions()
    found = inputs.find(root, patterns)
    scans = {
        split: [scan(file.path, csv_options, options.block_bytes, options) for file in matched]
        for split, matched in found.items()
    }
    schema = merge_scans([one for scanned in scans.values() for one in scanned], csv_options)
    _check_delimiter(schema, csv_options, root)
    tasks = inputs.as_tasks((split, span) for split, scanned in scans.items() for one in scanned for span in one.spans)
    read = partial(read_span, schema=schema, options=csv_options, block_bytes=options.block_bytes)
    return Input(Source.of("csv", root, inputs.all_files(found)), schema, tasks, read, decimals=True)


def infer_schema(paths: Sequence[str], options: CsvOptions | None = None) -> pa.Schema:
    """int64, float64, string or null (an always empty column) for each column, over all files.

    Raises:
      InfeedError: no rows, a missing or repeated column name, files with different headers, a row with too many or
        too few cells, undecodable text; each with file and line.
    """
    csv_options = options or CsvOptions()
    return merge_scans([scan(path, csv_options) for path in paths], csv_options)


def scan(path: str, options: CsvOptions, block_bytes: int = _BLOCK_BYTES, ingest: IngestOptions | None = None) -> Scan:
    """One pass over one file, holding one block at a time. Rows that `ingest` would reject count for nothing."""
    bad_rows = BadRows(ingest.on_bad_row if ingest else "fail", sys.maxsize)
    header = read_header(path, options)
    kinds = {name: Kind.EMPTY for name in header.names if name not in options.types}
    rows, blocks = 0, list[Block]()
    for block in _read(header.rows, options, block_bytes):
        if block.final:
            check_closed(block, options)
        blocks.append(replace(block, data=b""))
        rows += _widen(kinds, block, header.names, options, bad_rows)
        bad_rows.take()
    plain = streams.is_plain(path, options.encoding)
    return Scan(
        path,
        header.names,
        kinds,
        rows,
        tuple(streams.split_spans(path, blocks, block_bytes)) if plain else (header.rows,),
    )


def merge_scans(scans: Iterable[Scan], options: CsvOptions) -> pa.Schema:
    """The schema that fits every file."""
    found = sorted(scans, key=lambda one: one.path)
    if not any(one.rows for one in found):
        where = ", ".join(one.path for one in found[:3]) or "no file"
        raise InfeedError("a CSV with no rows", where=where, do="give a file with a header line and at least one row")
    first = found[0]
    for other in found[1:]:
        if other.names != first.names:
            raise InfeedError(
                f"columns {_names(other.names)} differ from {_names(first.names)} in {first.path}",
                where=f"{other.path}, line 1",
                do="give all files the same header",
            )
    unknown = sorted(set(options.types) - set(first.names))
    if unknown:
        raise InfeedError(f"no column {unknown[0]!r}", where="types", do=f"name one of {_names(first.names)}")
    return pa.schema(
        [
            (name, GIVEN[options.types[name]] if name in options.types else max(one.kinds[name] for one in found).arrow)
            for name in first.names
        ]
    )


def read_blocks(
    path: str, schema: pa.Schema, options: CsvOptions | None = None, block_bytes: int = _BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows of one file in order, as batches of about `block_bytes` of text, with the types of `schema`."""
    csv_options = options or CsvOptions()
    yield from read_span(read_header(path, csv_options).rows, schema, csv_options, block_bytes, bad_rows=BadRows())


def read_span(
    span: Span, schema: pa.Schema, options: CsvOptions, block_bytes: int, *, bad_rows: BadRows
) -> Iterator[pa.RecordBatch]:
    """The same for a part of a file; rows that are no rows of `schema` are reported."""
    for block in _read(span, options, block_bytes):
        yield _convert(parse_rows(block, schema.names, options, bad_rows), schema, options, bad_rows)


def read_header(path: str, options: CsvOptions) -> Header:
    """The column names, as given or in the first line that is not blank.

    Raises:
      InfeedError: an empty file, an empty or repeated name, a line of numbers where the names should be.
    """
    if not options.header and options.names:
        _check_names(options.names, "names")
        return Header(options.names, Span(path))
    first = next(_read(Span(path), options, _HEADER_BYTES), Block(path, b"", 0, 1, final=True))
    bounds = row_starts(first.data, options) if first.data else np.zeros(1, np.int64)
    if len(bounds) < 2:
        raise InfeedError(
            "an empty CSV: no header line", where=f"{path}, line 1", do="put the column names in the first line"
        )
    found = _cells(first.data[bounds[0] : bounds[1]], options, path)
    if not options.names:
        _check_header(found, f"{path}, line 1")
    elif len(found) != len(options.names):
        raise InfeedError(
            f"{len(options.names)} names for {len(found)} columns", where=f"{path}, line 1", do="name every column"
        )
    line = first.line + streams.count_lines(first.data[: bounds[1]])
    return Header(options.names or tuple(found), Span(path, first.start + int(bounds[1]), None, line))


def _read(span: Span, options: CsvOptions, block_bytes: int) -> Iterator[Block]:
    return streams.read_blocks(span, options.encoding, block_bytes, partial(whole_rows, options=options))


def _widen(kinds: dict[str, Kind], block: Block, names: Sequence[str], options: CsvOptions, bad_rows: BadRows) -> int:
    """Makes each column's kind hold a block's cells as well; the number of rows."""
    undecided = [name for name, kind in kinds.items() if kind < Kind.TEXT] or names[:1]
    text = parse_rows(block, names, options, bad_rows, undecided)
    for name, column in zip(undecided, text.columns.columns, strict=True):
        if kinds.get(name, Kind.TEXT) < Kind.TEXT:
            kinds[name] = max(kinds[name], infer_kind(column))
    return int(text.columns.num_rows)


def _convert(rows: TextRows, schema: pa.Schema, options: CsvOptions, bad_rows: BadRows) -> pa.RecordBatch:
    arrays: list[pa.Array] = []
    unfit: dict[int, tuple[str, str]] = {}
    for column, field in zip(rows.columns.columns, schema, strict=True):
        values, places = convert(column, field.type)
        arrays.append(values)
        for place in places:
            reason = f"{column[place].as_py()!r} is no {_WORDS[field.type]}"
            unfit.setdefault(place, (field.name, reason))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return _without(batch, unfit, rows, options, bad_rows) if unfit else batch


def _without(
    batch: pa.RecordBatch, unfit: dict[int, tuple[str, str]], rows: TextRows, options: CsvOptions, bad_rows: BadRows
) -> pa.RecordBatch:
    places = sorted(unfit)
    for place, (line, text) in zip(places, locate(rows, places, options), strict=True):
        column, reason = unfit[place]
        bad_rows.report(rows.block.bad_row(line, reason, text, column))
    return batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), places)))


def _cells(row: bytes, options: CsvOptions, path: str) -> list[str]:
    if not streams.is_utf8(row):
        raise InfeedError(
            f"not {options.encoding} text: {row[:40]!r}", where=f"{path}, line 1", do="name the encoding of the file"
        )
    quoting = {"quotechar": options.quote} if options.quote else {"quoting": csv.QUOTE_NONE}
    cells: list[str] = next(csv.reader(io.StringIO(row.decode(), newline=""), delimiter=options.delimiter, **quoting))
    return cells


def _check_header(header: list[str], where: str) -> None:
    if all(kind_of_cell(name.encode()) < Kind.TEXT for name in header):
        raise InfeedError(
            f"no header line: {_names(header)} are numbers",
            where=where,
            do="put the column names in the first line, or give CsvOptions(header=False, names=...)",
        )
    _check_names(header, where)


def _check_names(names: Sequence[str], where: str) -> None:
    if not all(names):
        raise InfeedError(f"column {names.index('') + 1} has no name", where=where, do="give every column a name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InfeedError(f"column {twice[0]!r} stands there twice", where=where, do="give each column its own name")


def _check_delimiter(schema: pa.Schema, options: CsvOptions, where: str) -> None:
    if len(schema) > 1 or options.names:
        return
    for sign in _OTHER_DELIMITERS:
        if sign != options.delimiter and sign in schema.names[0]:
            raise InfeedError(
                f"a single column named {schema.names[0]!r}",
                where=where,
                do=f"give CsvOptions(delimiter={sign!r}), --delimiter {sign!r}, or names= where that is its name",
            )


def _names(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:5])
