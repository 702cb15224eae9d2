"""Options of the CSV reader, the boundaries of rows and quotes, and the parsing of rows to text columns."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv as arrow_csv

from infeed.components.base.checks import about, as_tuples, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted
from infeed.components.dataset.manifest import ColumnType
from infeed.components.example_gen.inputs import AFTER_QUOTE, BadRows
from infeed.components.example_gen.sources import streams
from infeed.components.example_gen.sources.kinds import DECIMALS, GIVEN, THOUSANDS, NumberFormat, formats_of
from infeed.components.example_gen.sources.streams import RowRules, TextBlock

_NO_SIGN = '"\r\n'
_NO_CELL = b"\x80"  # placeholder for a byte that neither starts nor ends a cell: no option can be this byte
_SHOWN = 20  # bytes of the text after a quote
_TAB = ("\\t", "tab", "$'\\t'", "$\\t")  # spellings of a tab in shells and files
Ints = npt.NDArray[np.int64]
_LF, _CR = ord("\n"), ord("\r")
_EXCESS_OVERFLOWS = int(pa.__version__.partition(".")[0]) < 20  # see `_without_excess`


@dataclass(frozen=True)
class CsvOptions:
    """Options of the CSV reader. Compression (gzip, zstd) is detected from the content.

    Attributes:
      delimiter: field delimiter, one ASCII character, for example ';' or 'tab'.
      quote: quote character, doubled inside quoted cells. None treats quotes as text.
      escape: character before a quote, delimiter or line break that is text, such as '\\' in files of Spark and MySQL.
        The reader drops it and keeps the next character, so MySQL's null, `\\N`, becomes the text N.
      header: whether the first line holds column names.
      names: column names in order. Required without a header line, and replaces an existing one.
      nulls: cells that mean null.
      types: types of columns, "int", "float" or "bytes". Types of other columns are inferred over the whole input.
      thousands: thousands separator in all number columns, such as ",". None for none.
      decimal: decimal separator in all columns of numbers.
      numbers: number format of columns by example, such as {"price": "$1,234.5"}. The unit is dropped. A row with a
        cell of another format is a bad row. None leaves a column unchanged.
      encoding: any text encoding of Python. One worker reads a file that is not UTF-8.
    """

    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True
    names: tuple[str, ...] | None = None
    nulls: tuple[str, ...] = ("",)
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    encoding: str = "utf-8"
    thousands: str | None = None
    decimal: str = "."
    numbers: Mapping[str, str | None] = field(default_factory=dict)
    escape: str | None = None

    def __post_init__(self) -> None:
        for name in ("names", "nulls"):
            is_text = isinstance(getattr(self, name), str)  # a string would be split into letters
            require(not is_text, self, name, f'use a list, such as {name}=("NA", "-")')
        as_tuples(self, "names", "nulls")
        if self.delimiter in _TAB:
            object.__setattr__(self, "delimiter", "\t")
        is_delimiter = _is_sign(self.delimiter) and self.delimiter not in _NO_SIGN
        require(is_delimiter, self, "delimiter", "use one character, such as ';'")
        if self.quote is not None:
            is_quote = _is_sign(self.quote) and self.quote not in f"{self.delimiter}\r\n"
            require(is_quote, self, "quote", "use one character other than the delimiter, or None")
        if self.escape is not None:
            is_escape = _is_sign(self.escape) and self.escape not in f"{self.delimiter}{self.quote or ''}\r\n"
            require(is_escape, self, "escape", "use one character other than the delimiter and the quote, or None")
        if not self.header and not self.names:
            raise refused(self, "names", "set names", "there is no header line and names is not set")
        for name, kind in sorted(self.types.items()):
            if kind not in GIVEN:
                raise refused(self, "types", 'use "int", "float" or "bytes"', f"types[{name!r}] is {kind!r}")
        streams.check_encoding(self)
        for name, choices in (("thousands", THOUSANDS), ("decimal", DECIMALS)):
            is_sign = getattr(self, name) in (None, *choices)
            require(is_sign, self, name, f"use one of {', '.join(map(repr, choices))}")
        do = "use two different separators, such as thousands='.' and decimal=','"
        require(self.thousands != self.decimal, self, "thousands", do)
        with about(self, "numbers"):
            formats_of(self.numbers)

    @property
    def given_types(self) -> dict[str, ColumnType]:
        """The types of columns whose type is not inferred."""
        return {**dict.fromkeys(formats_of(self.numbers), "float"), **self.types}

    def plain(self, column: str, cells: pa.StringArray) -> pa.StringArray:
        """Rewrite the cells of a numeric column as Python number literals."""
        if (example := self.numbers.get(column)) is not None:
            return NumberFormat.of(example).plain(cells, exact=True)
        if self.thousands or self.decimal != ".":
            return NumberFormat(self.thousands or "", self.decimal).plain(cells)
        return cells


@dataclass(frozen=True)
class TextRows:
    """The rows of a block as text columns, and their indices in the block."""

    block: TextBlock
    columns: pa.RecordBatch
    numbers: Ints


def whole_rows(data: bytes, options: CsvOptions) -> int:
    """Return the number of bytes of whole rows in `data`, which starts with a row."""
    data = _visible(data, options)
    end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1  # the last CR may be half of a CR LF
    if options.quote is None or options.quote.encode() not in data:
        return end
    toggles = find_toggles(data, options)
    # An even number of toggles before a line end means that it is outside quotes, and ends a row.
    if np.searchsorted(toggles, end) % 2 == 0:
        return end
    ends = _line_ends(data)
    ends = ends[ends <= end]
    outside = ends[np.searchsorted(toggles, ends) % 2 == 0]
    return int(outside[-1]) if len(outside) else 0


def row_ends(data: bytes, options: CsvOptions) -> Ints:
    """Return the offsets after each line end outside quotes. `data` starts with a row."""
    data = _visible(data, options)
    ends = _line_ends(data)
    if options.quote is not None and options.quote.encode() in data:
        ends = ends[np.searchsorted(find_toggles(data, options), ends) % 2 == 0]
    return ends


def row_starts(data: bytes, options: CsvOptions) -> Ints:
    """Return the start of each row, without blank lines, and the end of the last row."""
    data = _visible(data, options)
    ends = row_ends(data, options)
    starts: Ints = np.concatenate([[0], ends[ends < len(data)]]).astype(np.int64)
    text = np.frombuffer(data, np.uint8)
    kept = starts[(text[starts] != _LF) & (text[starts] != _CR)]
    return np.append(kept, len(data))


def _visible(data: bytes, options: CsvOptions) -> bytes:
    """Replace each escape and the byte after it, so that they neither quote nor separate cells. Keeps the length."""
    if options.escape is None or options.escape.encode() not in data:
        return data
    text = np.frombuffer(data, np.uint8).copy()
    places = np.flatnonzero(text == ord(options.escape))
    numbers = np.arange(len(places))
    first_of_run = np.where(np.diff(places, prepend=-2) > 1, numbers, 0)
    active = places[(numbers - np.maximum.accumulate(first_of_run)) % 2 == 0]  # `\\\\` is an escaped backslash
    text[active] = text[np.minimum(active + 1, len(text) - 1)] = ord(_NO_CELL)
    return text.tobytes()


def check_closed(block: TextBlock, options: CsvOptions, lines_before: Callable[[], int] | None = None) -> None:
    """Raise InfeedError if a quote is never closed, or an escape ends the file: a cell is incomplete."""
    toggles, what, place = find_toggles(block.data, options), "", 0
    if len(toggles) % 2:
        what, place = "a quote is never closed", int(toggles[-1])
        do = "close it, double it, or set the escape character (--set 'escape=\\')"
    elif options.escape and (len(block.data) - len(block.data.rstrip(options.escape.encode()))) % 2:
        what, place, do = "an escape character ends the file", len(block.data), "complete the last row"
    if what:
        line = block.line + streams.count_lines(block.data[:place]) + (lines_before() if lines_before else 0)
        raise InfeedError(what, where=f"{block.path}, line {line}", do=do)


def parse_rows(
    block: TextBlock, names: Sequence[str], options: CsvOptions, bad_rows: BadRows, columns: Sequence[str] | None = None
) -> TextRows:
    """Parse `columns`, or all, as text with nulls.

    Reports rows that are not UTF-8, have text after a closing quote, or have a wrong number of cells.
    """
    block = _without_broken(block, options, bad_rows)
    wanted = list(names if columns is None else columns)
    ragged: list[tuple[int, int]] = []
    cells = parse_cells(block.data, names, wanted, options, ragged)
    dropped = np.array([number for number, _ in ragged], np.int64)
    starts = row_starts(block.data, options)[dropped] if ragged else dropped
    located = locate(block, dropped, options) if ragged else ()
    for (_, found), start, (line, text) in zip(ragged, starts.tolist(), located, strict=True):
        hint = f"Is {options.delimiter!r} the delimiter?"
        if b"\n" in block.data and (text.endswith(b"\r") or block.data[max(start - 1, 0) : start] == b"\r"):
            hint = "A carriage return without a line feed ends a row: quote the cell that contains it"
        bad_rows.report(block.bad_row(line, f"{counted(found, 'cell')}, but the header has {len(names)}. {hint}", text))
    return TextRows(block, cells, np.delete(np.arange(cells.num_rows + len(ragged)), dropped))


def _without_broken(block: TextBlock, options: CsvOptions, bad_rows: BadRows) -> TextBlock:
    """Report rows that are not UTF-8 or have text after a closing quote, and make them blank lines."""
    places = _texts_after_quotes(block.data, options)
    if not len(places) and streams.is_utf8(block.data):
        return block
    bounds = row_starts(block.data, options)
    rows, firsts = np.unique(np.searchsorted(bounds, places, side="right") - 1, return_index=True)
    after_quote = dict(zip(rows.tolist(), places[firsts].tolist(), strict=True))
    pieces = [block.data[: bounds[0]]]
    for row, (line, text) in enumerate(locate(block, np.arange(len(bounds) - 1), options)):
        reason = "" if streams.is_utf8(text) else f"not {options.encoding} text"
        if not reason and row in after_quote:
            rest = text[after_quote[row] - bounds[row] :].rstrip(b"\r\n")
            reason = f"{AFTER_QUOTE}: {rest[:_SHOWN].decode(errors='ignore')!r}"
        if reason:  # blank lines, so that other rows keep their line numbers
            bad_rows.report(block.bad_row(line, reason, text))
        pieces.append(b"\n" * streams.count_lines(text) if reason else text)
    return replace(block, data=b"".join(pieces))


def _texts_after_quotes(data: bytes, options: CsvOptions) -> Ints:
    """Return the offsets of text between a closing quote and the next delimiter, which no reader preserves."""
    if options.quote is None or options.quote.encode() not in data:
        return np.empty(0, np.int64)
    toggles, is_regular = _find_toggles(_visible(data, options), options.quote, options.delimiter)
    after = toggles[1::2] + 1
    if is_regular:
        return after[:0]
    after = after[after < len(data)]
    signs = f"\n\r{options.delimiter}{options.quote}".encode()
    return after[~np.isin(np.frombuffer(_visible(data, options), np.uint8)[after], list(signs))]


def locate(block: TextBlock, numbers: Ints, options: CsvOptions) -> Iterator[tuple[int, bytes]]:
    """Yield (line, text) of the rows with these indices."""
    bounds, ends = row_starts(block.data, options), _line_ends(block.data)
    starts, stops = bounds[numbers], bounds[numbers + 1]
    lines = block.line + np.searchsorted(ends, starts, side="right")
    for line, start, stop in zip(lines.tolist(), starts, stops, strict=True):
        yield line, block.data[start:stop]


def find_toggles(data: bytes, options: CsvOptions) -> Ints:
    """Return the offsets of quotes at which quoted text starts or ends. `data` starts with a row.

    A quote opens a cell only at the start of the cell: `5" pipe` is text. If each quote is next to a delimiter, a line
    end or another quote, all quotes count, doubled quotes twice. Otherwise they are examined one by one.
    """
    if options.quote is None or options.quote.encode() not in data:
        return np.empty(0, np.int64)
    return _find_toggles(_visible(data, options), options.quote, options.delimiter)[0]


def _find_toggles(data: bytes, quote: str, delimiter: str) -> tuple[Ints, bool]:
    """Return the toggles, and whether all quotes count, so that each closing quote ends its cell."""
    text = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(text == ord(quote)).astype(np.int64)
    ends_cell = np.zeros(256, np.bool_)
    ends_cell[[_LF, _CR, ord(delimiter)]] = True
    beside = ends_cell.copy()
    beside[ord(quote)] = True
    opens, closes = quotes[0::2], quotes[1::2]
    # The usual case needs no loop: quotes alternate between opening and closing.
    if beside[text[opens[opens > 0] - 1]].all() and beside[text[closes[closes + 1 < len(text)] + 1]].all():
        return quotes, True
    toggles: list[int] = []
    inside, doubled = False, -1
    for place in quotes.tolist():
        if place == doubled:
            continue
        if not inside and place and not ends_cell[text[place - 1]]:
            continue
        if inside and place + 1 < len(text) and text[place + 1] == text[place]:
            doubled = place + 1
            continue
        toggles.append(place)
        inside = not inside
    return np.array(toggles, np.int64), False


def _is_sign(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text != "\0"


def parse_cells(
    data: bytes, names: Sequence[str], wanted: list[str], options: CsvOptions, ragged: list[tuple[int, int]]
) -> pa.RecordBatch:
    """Parse the cells of `data`, and add (row, number of cells) of rows with a wrong number to `ragged`."""
    schema = pa.schema([(name, pa.string()) for name in wanted])
    data, excessive = _without_excess(data, len(names), options)
    if not data.strip(b"\r\n"):  # Arrow rejects blank lines alone. Other white space may be cells
        return pa.RecordBatch.from_pylist([], schema=schema)
    if data.startswith(codecs.BOM_UTF8):  # Arrow would drop it, but the file's own mark is already removed
        data = b"\n" + data
    convert_options = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=wanted,
        check_utf8=False,
        null_values=list(options.nulls),
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    with streams.lending() as lend:
        # Not read_csv: Arrow 10 scans all objects of the process at each call, which takes 0.1 s with TFX loaded.
        table = arrow_csv.open_csv(
            pa.BufferReader(lend(np.frombuffer(data, np.uint8))),
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names)),
            parse_options=arrow_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                escape_char=options.escape or False,
                newlines_in_values=True,
                invalid_row_handler=lend(partial(_skip_ragged, ragged, excessive)),
            ),
            convert_options=convert_options,
        ).read_all()
    return streams.one_batch(table)


def _skip_ragged(ragged: list[tuple[int, int]], excessive: Mapping[int, int], row: arrow_csv.InvalidRow) -> str:
    number = row.number - 1
    ragged.append((number, excessive.get(number, row.actual_columns)))
    return "skip"


def _without_excess(data: bytes, columns: int, options: CsvOptions) -> tuple[bytes, dict[int, int]]:
    """Shorten rows with more than `columns` cells to one cell too many. Return their numbers of cells, by row.

    Arrow before 20 writes cells in excess past the end of a buffer: https://github.com/apache/arrow/issues/45497.
    """
    if not _EXCESS_OVERFLOWS or not data:
        return data, {}
    bounds = row_starts(data, options)
    cells = _count_cells(data, bounds, options)
    rows = np.flatnonzero(cells > columns)
    if not len(rows):
        return data, {}
    pieces, done = list[bytes](), 0
    for start, stop in zip(bounds[rows].tolist(), bounds[rows + 1].tolist(), strict=True):
        pieces += [data[done:start], options.delimiter.encode() * columns, b"\n"]
        done = stop
    return b"".join([*pieces, data[done:]]), dict(zip(rows.tolist(), cells[rows].tolist(), strict=True))


def _count_cells(data: bytes, bounds: Ints, options: CsvOptions) -> Ints:
    """Return the number of cells of each row: one more than its delimiters outside quotes."""
    delimiters = np.flatnonzero(np.frombuffer(_visible(data, options), np.uint8) == ord(options.delimiter))
    toggles = find_toggles(data, options)
    opens, closes = toggles[0::2], np.append(toggles, len(data))[1::2][: len(toggles[0::2])]
    within = np.searchsorted(delimiters, closes) - np.searchsorted(delimiters, opens)
    quoted = np.append(0, np.cumsum(within))  # delimiters in the first n pairs of quotes
    outside = np.searchsorted(delimiters, bounds) - quoted[np.searchsorted(opens, bounds)]
    return np.diff(outside) + 1


def _line_ends(data: bytes) -> Ints:
    """Return the offsets after each LF, CR LF, or CR."""
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _LF)
    if b"\r" in data:
        returns = np.flatnonzero(text == _CR)
        followed = np.append(text, np.uint8(0))[returns + 1] == _LF
        ends = np.sort(np.concatenate([ends, returns[~followed]]))
    return (ends + 1).astype(np.int64)


def rules_of(options: CsvOptions, columns: int) -> RowRules:
    """Return the row rules of a CSV file with this number of columns.

    A file is cut without reading it. A few kilobytes after any byte show the next start of a row. Only earlier bytes
    determine whether a line end is inside quotes. So both states are tried, and the one whose rows have the header's
    number of cells is chosen. Each task ends where the next begins. If it ends inside quotes, the guess was wrong. The
    first task starts after the header, so without errors, all guesses are right.
    """
    return RowRules(
        whole=partial(whole_rows, options=options),
        ends=partial(row_ends, options=options),
        guess=partial(_guess, options=options, columns=columns),
        is_closed=partial(is_closed, options=options),
    )


def is_closed(data: bytes, options: CsvOptions) -> bool:
    """Return whether `data`, which starts with a row, ends with a row."""
    return _visible(data, options).endswith((b"\n", b"\r")) and len(find_toggles(data, options)) % 2 == 0


def _guess(data: bytes, ended: bool, options: CsvOptions, columns: int) -> tuple[int, bool] | None:
    before, text = data[:1], data[1:]
    begins_cell = before in (b"\n", b"\r", options.delimiter.encode())
    tried = [(before if begins_cell else _NO_CELL) + text]
    if options.escape is not None and before == options.escape.encode():
        text = _NO_CELL + text[1:]
        tried.append(_NO_CELL + text)
    if options.quote is not None and (quote := options.quote.encode()) in text:
        tried.append(quote + text)
        if before == quote == text[:1]:  # the halves of a doubled quote
            tried.append(quote + _NO_CELL + text[1:])
    # Choose the reading with the fewest odd rows. If equal, the one outside quotes wins, which sorts first.
    readings = [_read(one, ended, options, columns, number > 0) for number, one in enumerate(tried)]
    best = min((one for one in readings if one is not None), default=None)
    if best is None:
        return None
    odd, _, end = best
    return end, options.quote is None or odd == 0.0


def _read(data: bytes, ended: bool, options: CsvOptions, columns: int, inside: bool) -> tuple[float, bool, int] | None:
    """Return (share of odd rows, `inside`, end of the first row), or None. The first byte of `data` precedes it."""
    ends = row_ends(data, options)
    ends = ends[(ends > 1) & (ends < len(data) if not ended else True)]  # a CR at the very end may be half of a CR LF
    if not len(ends):
        return None
    first, last = int(ends[0]), int(ends[-1])
    ragged = list[tuple[int, int]]()
    cells = parse_cells(data[first:last], [str(number) for number in range(columns)], ["0"], options, ragged)
    rows, odd = cells.num_rows + len(ragged), len(ragged)
    odd += 1 if len(_texts_after_quotes(data, options)) else 0
    return odd / rows if rows else 1.0, inside, first
