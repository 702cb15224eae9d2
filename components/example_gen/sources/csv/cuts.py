"""Guess the start of a CSV row after any byte, from some kilobytes, so that a file is cut without reading it.

A line end may lie inside quotes, which only the bytes before it determine. So both states are tried, inside and
outside quotes, and the state whose rows match the header's number of cells is chosen. Each task ends where the next
begins: if a task finds itself inside quotes there, the guess was wrong. The first task starts after the header, so if
no task finds an error, all guesses were right.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from infeed.components.example_gen.sources.csv.rows import CsvOptions, find_toggles, parse_cells, row_ends, whole_rows
from infeed.components.example_gen.sources.streams import RowRules

_NO_SIGN = b"x"  # placeholder for a byte that does not start a cell


def rules_of(options: CsvOptions, columns: int) -> RowRules:
    """Return the row rules of a CSV file with so many columns."""
    return RowRules(
        whole=partial(whole_rows, options=options),
        ends=partial(row_ends, options=options),
        guess=partial(_guess, options=options, columns=columns),
        is_closed=partial(is_closed, options=options),
    )


def is_closed(data: bytes, options: CsvOptions) -> bool:
    """Return whether `data`, which starts with a row, ends with a row."""
    return data.endswith((b"\n", b"\r")) and len(find_toggles(data, options)) % 2 == 0


def _guess(data: bytes, ended: bool, options: CsvOptions, columns: int) -> tuple[int, bool] | None:
    before, text = data[:1], data[1:]
    begins_cell = before in (b"\n", b"\r", options.delimiter.encode())
    tried = [(before if begins_cell else _NO_SIGN) + text]
    if options.quote is not None and (quote := options.quote.encode()) in text:
        tried.append(quote + text)
        if before == quote == text[:1]:  # the halves of a doubled quote
            tried.append(quote + _NO_SIGN + text[1:])
    readings = [_read(one, ended, options, columns, number > 0) for number, one in enumerate(tried)]
    best = min((one for one in readings if one is not None), default=None)
    if best is None:
        return None
    odd, _, end = best
    return end, options.quote is None or odd == 0.0


def _read(data: bytes, ended: bool, options: CsvOptions, columns: int, inside: bool) -> tuple[float, bool, int] | None:
    """Interpret `data`, whose first byte is the context. Returns None if no row ends in it.

    Otherwise returns the share of odd rows, `inside`, which prefers the state outside quotes, and the first row's end.
    """
    ends = row_ends(data, options)
    ends = ends[(ends > 1) & (ends < len(data) if not ended else True)]  # a CR at the very end may be half of a CR LF
    if not len(ends):
        return None
    first, last = int(ends[0]), int(ends[-1])
    ragged = list[tuple[int, int]]()
    cells = parse_cells(data[first:last], [str(number) for number in range(columns)], ["0"], options, ragged)
    rows, odd = cells.num_rows + len(ragged), len(ragged)
    toggles = find_toggles(data, options)
    if len(toggles):
        closes = toggles[1::2]
        after = np.frombuffer(data, np.uint8)[closes[closes + 1 < len(data)] + 1]
        ends_cell = np.isin(after, list(f"\n\r{options.delimiter}{options.quote}".encode()))
        odd += 0 if ends_cell.all() else 1  # a quote closes at the end of a cell
    return odd / rows if rows else 1.0, inside, first
