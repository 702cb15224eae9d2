"""Reader of CSV files.

Column types are given, or inferred over the whole input. `open_csv` reads the input once to infer types and to find
row starts. `open_sampled_csv` infers types from a sample, which each task verifies while it reads. Cells listed in
`nulls` are null.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import MAX_ROW_MB, IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.codes import find_codes
from infeed.components.example_gen.inputs import BadRow, BadRows, Batches, Findings, OpenedSource, Patterns, Sample
from infeed.components.example_gen.sources import file_kinds, streams
from infeed.components.example_gen.sources.csv_rows import (
    CsvOptions,
    TextRows,
    check_closed,
    locate,
    parse_rows,
    row_starts,
    rules_of,
    whole_rows,
)
from infeed.components.example_gen.sources.kinds import (
    GIVEN,
    CellKind,
    convert,
    convert_found,
    infer_kind,
    kind_of_cell,
    not_a_number,
)
from infeed.components.example_gen.sources.streams import (
    Part,
    PartReader,
    Span,
    SpanCutter,
    TextBlock,
    is_small,
    parts_of,
)

_HEADER_BYTES = 1 << 16  # long enough for nearly every header. Longer headers are read on
_INDEX = "Unnamed: 0"
_OTHER_DELIMITERS = ",;\t|"
_HEADER = "put the column names in the first line"
_WORDS = {arrow: word for word, arrow in GIVEN.items()}


@dataclass(frozen=True)
class Scan:
    """The result of reading one file: column kinds, number of rows, spans, and the first bad row."""

    path: str
    names: tuple[str, ...]
    kinds: dict[str, CellKind]
    rows: int
    spans: tuple[Span, ...]
    bad: tuple[BadRow, ...]


def open_csv(
    root: str, patterns: Patterns, options: IngestOptions, csv_options: CsvOptions | None = None
) -> OpenedSource:
    """Open CSV files with equal columns, each int64, float64, string or null. Raises InfeedError if headers differ."""
    csv_options = csv_options or CsvOptions()
    scans = inputs.look(inputs.find(root, patterns), lambda path: scan(path, csv_options, options))
    found = sorted((one for _, _, one in scans), key=lambda one: one.path)
    if not any(one.rows for one in found):
        inputs.check_any_good([row for one in found for row in one.bad])
        do = "use a file with a header line and at least one row"
        raise InfeedError("the CSV file has no rows", where=", ".join(one.path for one in found[:3]), do=do)
    names = check_headers([(one.path, one.names) for one in found], csv_options)
    schema = _schema({name: max(one.kinds[name] for one in found) for name in found[0].kinds}, names, csv_options)
    read = partial(read_span, schema=schema, options=csv_options, ingest=options)
    parts = [(split, file, one.spans) for split, file, one in scans]
    return inputs.of_parts("csv", root, schema, parts, read, decimals=True)


def scan(path: str, options: CsvOptions, ingest: IngestOptions) -> Scan:
    """Read one file block by block. Rows that `ingest` would reject are ignored."""
    bad_rows = BadRows(ingest.on_bad_row, sys.maxsize)
    names, below = read_header(path, options)
    kinds = {name: CellKind.EMPTY for name in names if name not in options.given_types}
    cutter = SpanCutter(below, ingest.block_bytes, rules_of(options, len(names)))
    rows, bad = 0, tuple[BadRow, ...]()
    for block in _read(below, options, ingest.block_bytes, ingest.max_row_mb):
        if block.final:
            check_closed(block, options)
        cutter.add(block)
        rows += _widen(kinds, block, names, options, bad_rows)
        bad = bad or bad_rows.take()[:1]
        bad_rows.take()
    spans = tuple(cutter.spans()) if streams.is_plain(path, options.encoding) else (below,)
    return Scan(path, names, kinds, rows, spans, bad)


def check_headers(headers: Sequence[tuple[str, tuple[str, ...]]], options: CsvOptions) -> tuple[str, ...]:
    """Return the column names. Raises InfeedError if headers differ, or a column with a given type is missing."""
    first, names = headers[0]
    for path, others in headers[1:]:
        if others != names:
            what = f"columns {_first_names(others)} differ from {_first_names(names)} in {first}"
            raise InfeedError(what, where=f"{path}, line 1", do="give all files the same header")
    types = options.given_types
    unknown = sorted(set(types) - set(names))
    if unknown:
        where = "types" if unknown[0] in options.types else "numbers"
        raise InfeedError(f"there is no column {unknown[0]!r}", where=where, do=f"use one of {_first_names(names)}")
    return names


def _schema(kinds: Mapping[str, CellKind], names: Sequence[str], options: CsvOptions) -> pa.Schema:
    types = options.given_types
    return pa.schema([(name, GIVEN[types[name]] if name in types else kinds[name].arrow) for name in names])


def read_span(
    span: Span, schema: pa.Schema, options: CsvOptions, ingest: IngestOptions, *, bad_rows: BadRows
) -> Batches:
    """Yield the rows of a span in order, with the types of `schema`, and report rows that do not fit."""
    for block in _read(span, options, ingest.block_bytes, ingest.max_row_mb):
        yield _convert(parse_rows(block, schema.names, options, bad_rows), schema, options, bad_rows)


def read_text(
    path: str, options: CsvOptions, ingest: IngestOptions
) -> Iterator[tuple[pa.RecordBatch, dict[int, BadRow]]]:
    """Yield blocks of rows with all cells as text, and the bad rows by their positions among all rows of the block.

    Raises InfeedError as `read_header` does, or if a quote is never closed.
    """
    names, below = read_header(path, options)
    for block in _read(below, options, ingest.block_bytes, ingest.max_row_mb):
        if block.final:
            check_closed(block, options)
        bad_rows = BadRows("reject", sys.maxsize)
        rows = parse_rows(block, names, options, bad_rows)
        bad = bad_rows.take()
        # Line numbers determine the positions of the bad rows among the good ones.
        good = [line for line, _ in locate(rows.block, rows.numbers, options)] if bad else []
        lines = sorted([*((line, None) for line in good), *((row.line or 0, row) for row in bad)], key=itemgetter(0))
        yield rows.columns, {place: row for place, (_, row) in enumerate(lines) if row is not None}


def read_header(path: str, options: CsvOptions) -> tuple[tuple[str, ...], Span]:
    """Return the column names, as given or from the first non-blank line, and the span of the rows below.

    Raises:
      InfeedError: the file is empty, a name is empty or repeated, the first line consists of numbers, or the delimiter
        seems wrong. Otherwise, a wrong header would be reported as a bad first row.
    """
    if not options.header and options.names:
        _check_names(options.names, "names")
        return options.names, Span(path)
    first = next(_read(Span(path), options, _HEADER_BYTES), TextBlock(path, b"", 0, 1, final=True))
    bounds = row_starts(first.data, options) if first.data else np.zeros(1, np.int64)
    if len(bounds) < 2:
        raise InfeedError("the CSV file is empty: no header line", where=f"{path}, line 1", do=_HEADER)
    if not options.names:
        file_kinds.check_table(path, first.data[: file_kinds.HEAD_BYTES])
    found = _cells(first.data[bounds[0] : bounds[1]], options, path)
    if not found[0] and len(found) > 1 and _INDEX not in found:  # pandas writes its index without a name
        found[0] = _INDEX
    if not options.names:
        _check_header(found, options, f"{path}, line 1")
    elif len(found) != len(options.names):
        what = f"{len(options.names)} names for {len(found)} columns"
        raise InfeedError(what, where=f"{path}, line 1", do="name all columns")
    line = first.line + streams.count_lines(first.data[: bounds[1]])
    return options.names or tuple(found), Span(path, first.start + int(bounds[1]), None, line)


def _read(span: Span, options: CsvOptions, block_bytes: int, max_row_mb: int = MAX_ROW_MB) -> Iterator[TextBlock]:
    return streams.read_blocks(span, options.encoding, block_bytes, partial(whole_rows, options=options), max_row_mb)


def _widen(
    kinds: dict[str, CellKind], block: TextBlock, names: Sequence[str], options: CsvOptions, bad_rows: BadRows
) -> int:
    """Widen each column's kind to hold the cells of a block, and return the number of rows."""
    undecided = [name for name, kind in kinds.items() if kind < CellKind.TEXT] or names[:1]
    text = parse_rows(block, names, options, bad_rows, undecided)
    for name, column in zip(undecided, text.columns.columns, strict=True):
        if kinds.get(name, CellKind.TEXT) < CellKind.TEXT:
            kinds[name] = max(kinds[name], infer_kind(options.plain(name, column)))
    return int(text.columns.num_rows)


def open_sampled_csv(
    root: str,
    patterns: Patterns,
    options: IngestOptions,
    csv_options: CsvOptions,
    known: Mapping[str, int] | None = None,
) -> OpenedSource:
    """Open like `open_csv`, but infer the types of a large input from a sample or from known kinds."""
    found = inputs.find(root, patterns)
    if is_small(found):
        return open_csv(root, patterns, options, csv_options)
    headers = inputs.look(found, lambda path: read_header(path, csv_options))
    names = check_headers(sorted((file.path, names) for _, file, (names, _) in headers), csv_options)
    parts = [
        (split, file, parts_of(file, below, csv_options.encoding, options.block_bytes))
        for split, file, (_, below) in headers
    ]
    rules = rules_of(csv_options, len(names))
    reader = PartReader(rules, csv_options.encoding, options.block_bytes, options.max_row_mb)
    if known is None:
        # Bad rows of the sample are not counted here: the pass over all rows meets them again.
        sampled = {name: CellKind.EMPTY for name in names if name not in csv_options.given_types}
        for block in reader.sample([part for _, _, some in parts for part in some]):
            _widen(sampled, block, names, csv_options, BadRows("reject", sys.maxsize))
        known = sampled
    kinds = {name: CellKind(kind) for name, kind in known.items()}
    schema = _schema(kinds, names, csv_options)
    read = partial(read_part, schema=schema, kinds=kinds, options=csv_options, reader=reader)
    opened = inputs.of_parts("csv", root, schema, parts, read, decimals=True)

    # A row outside of the sample may need a wider type. Ingest then starts again, with the kinds that it has found.
    def reopen(kinds: Mapping[str, int] | None) -> OpenedSource:
        if kinds is None:
            return open_csv(root, patterns, options, csv_options)
        return open_sampled_csv(root, patterns, options, csv_options, kinds)

    return replace(opened, sample=Sample(dict(known), partial(_merge_kinds, names=tuple(known))), reopen=reopen)


def _merge_kinds(found: Sequence[Findings], names: Sequence[str]) -> dict[str, int]:
    merged = np.max([np.zeros(len(names), np.int64), *(one.kinds for one in found)], axis=0)
    return dict(zip(names, merged.tolist(), strict=True))


def read_part(
    part: Part,
    schema: pa.Schema,
    kinds: dict[str, CellKind],
    options: CsvOptions,
    reader: PartReader,
    *,
    bad_rows: BadRows,
) -> Batches:
    """Yield rows like `read_span` while `kinds` match. `bad_rows.found` gets the narrowest kinds of all cells."""
    found = dict.fromkeys(kinds, CellKind.EMPTY)
    fits = True
    for block in reader.blocks(part, bad_rows):
        if block.final and part.stop is None:  # the end of the file
            check_closed(block, options, bad_rows.lines_before)
        if not fits:
            # The input is read again, with the kinds of all cells. So only the kinds of the rest are needed.
            _widen(found, block, schema.names, options, bad_rows)
            continue
        rows = parse_rows(block, schema.names, options, bad_rows)
        values = dict[str, pa.Array]()
        for name, column in zip(schema.names, rows.columns.columns, strict=True):
            if name in kinds and kinds[name] == found[name] == CellKind.TEXT:
                values[name] = column
            elif name in kinds:
                converted, found[name] = convert_found(options.plain(name, column), kinds[name], found[name])
                values[name] = column if kinds[name] == CellKind.TEXT else converted
        fits = all(found[name] <= kinds[name] for name in kinds)
        if fits:
            yield _convert(rows, schema, options, bad_rows, values)
    streams.with_kinds(bad_rows, [int(kind) for kind in found.values()])


def _convert(
    rows: TextRows, schema: pa.Schema, options: CsvOptions, bad_rows: BadRows, ready: dict[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Convert cells, and drop rows with invalid cells. `ready` holds columns that are already converted."""
    arrays: list[pa.Array] = []
    unfit: dict[int, tuple[str, str]] = {}
    for column, field in zip(rows.columns.columns, schema, strict=True):
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        if ready and field.name in ready:
            values, places = ready[field.name], list[int]()
        else:
            values, places = convert(options.plain(field.name, column) if is_number else column, field.type)
        arrays.append(values)
        # A given type is the user's word that the cells are numbers, so only inferred types get a note.
        if is_number and field.name not in options.given_types:
            bad_rows.count_codes(field.name, find_codes(column))
        example = options.numbers.get(field.name)
        for place in places:
            cell = column[place].as_py()
            reason = not_a_number(cell, example) if example else f"{cell!r} is not of type {_WORDS[field.type]}"
            unfit.setdefault(place, (field.name, reason))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if not unfit:
        return batch
    dropped = sorted(unfit)
    for place, (line, text) in zip(dropped, locate(rows.block, rows.numbers[dropped], options), strict=True):
        name, reason = unfit[place]
        bad_rows.report(rows.block.bad_row(line, reason, text, name))
    return inputs.without(batch, dropped)


_ENCODING = "set the encoding of the file, such as --set encoding=latin-1"
_STARTS = {  # first bytes of files that are often taken for UTF-8 text
    b"\xff\xfe": "set the encoding of the file: --set encoding=utf-16",
    b"\xfe\xff": "set the encoding of the file: --set encoding=utf-16",
}


def _cells(row: bytes, options: CsvOptions, path: str) -> list[str]:
    if not streams.is_utf8(row):
        do = next((do for start, do in _STARTS.items() if row.startswith(start)), _ENCODING)
        raise InfeedError(f"not {options.encoding} text: {row[:40]!r}", where=f"{path}, line 1", do=do)
    quoting: dict[str, Any] = {"quotechar": options.quote} if options.quote else {"quoting": csv.QUOTE_NONE}
    how = {"delimiter": options.delimiter, "escapechar": options.escape, "strict": True, **quoting}
    reader = csv.reader(io.StringIO(row.decode(), newline=""), **how)
    try:
        return next(reader)
    except csv.Error as error:
        raise InfeedError(f"no header line: {error}", where=f"{path}, line 1", do=_HEADER) from error


def _check_header(header: list[str], options: CsvOptions, where: str) -> None:
    if all(kind_of_cell(name.encode()) < CellKind.TEXT for name in header):
        do = f"{_HEADER}, or use CsvOptions(header=False, names=...): {without_header(len(header))}"
        raise InfeedError(f"no header line: {_first_names(header)} are numbers", where=where, do=do)
    _check_names(header, where)
    for sign in _OTHER_DELIMITERS if len(header) == 1 else "":
        if sign != options.delimiter and sign in header[0]:
            shown = "tab" if sign == "\t" else sign
            name = shlex.quote(f"names={json.dumps(header, ensure_ascii=False)}")
            do = f"use --delimiter {shown!r} (delimiter={shown!r}), or confirm the name: --set {name}"
            raise InfeedError(f"the only column is named {header[0]!r}", where=where, do=do)


def without_header(columns: int) -> str:
    """Return the flags that read the first line as data and name the columns."""
    names = [f"c{number}" for number in range(1, columns + 1)]
    return f"--set header=false --set {shlex.quote(f'names={json.dumps(names)}')}"


def _check_names(names: Sequence[str], where: str) -> None:
    if not all(names):
        raise InfeedError(f"column {names.index('') + 1} has no name", where=where, do="give every column a name")
    odd = next((number for number, name in enumerate(names, start=1) if "\0" in name), None)
    if odd is not None:  # the csv module of Python 3.10 rejects it, that of 3.11 does not
        raise InfeedError(f"the name of column {odd} contains a NUL", where=where, do=_HEADER)
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InfeedError(f"column {twice[0]!r} occurs twice", where=where, do="give each column its own name")


def _first_names(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:5])
