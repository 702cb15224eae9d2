"""Tables for predictions, read with the options of the training files and without inferring types.

The readers of ingest infer types from all rows of a file. A prediction must not depend on other rows, so this module
keeps the cells of text formats as text, and `cells` converts them to the types of the model.
"""

from __future__ import annotations

import itertools
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import like, told_apart
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import default_settings, options_of
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource
from infeed.components.example_gen.sources.columnar import nesting
from infeed.components.example_gen.sources.csv_files import check_headers, read_header, read_text
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.file_kinds import check_lines
from infeed.components.example_gen.sources.jsonl import JsonlOptions, Row, as_json, read_rows
from infeed.components.example_gen.sources.streams import read_head
from infeed.pipelines.config import Source
from infeed.pipelines.predict.cells import Column
from infeed.pipelines.project.sources import files_of_table, open_table, source_of

Trained = Mapping[str, Mapping[str, Any]]  # options of the training files by format
Settings = Mapping[str, Any]
JSON = {b"cells": b"json"}  # metadata of a column of JSON texts
_OF_CELLS = ("nulls", "types", "thousands", "decimal", "numbers")  # CSV options about cells, not about the file
_REJECT = IngestOptions(on_bad_row="reject")


class RowBlock(NamedTuple):
    """Consecutive rows of a table."""

    rows: pa.RecordBatch  # all columns of the readable rows, to write beside predictions
    cells: Mapping[str, Column]  # columns of the readable rows, for the model
    bad: Mapping[int, BadRow]  # unreadable rows, by their positions among all rows


@dataclass(frozen=True)
class InputTable:
    """A table before its rows are read."""

    path: str
    names: Sequence[str]
    texts: CsvOptions  # formats of numbers in text
    blocks: Callable[[], Iterator[RowBlock]]
    may_lack: bool = False  # whether a column that no row names has missing cells, as in JSON Lines

    def check_columns(self, needed: Iterable[str]) -> None:
        """Raise InfeedError, which names the missing columns, if the table has not all `needed` columns.

        If it `may_lack` some, it must have one of them, and none of the others under a similar name.
        """
        needed = list(needed)
        others = [name for name in self.names if name not in needed]
        hints = {name: _hint(name, others) for name in needed if name not in self.names}
        may_lack = self.may_lack and len(hints) < len(needed)
        missing = [name for name, hint in hints.items() if hint or not may_lack]
        if missing:
            columns = "a column" if len(missing) == 1 else "the columns"
            what = f"the model needs {columns} {', '.join(map(repr, missing))}"
            advice = "; ".join(filter(None, (hints[name] for name in missing)))
            do = f"add {'it' if len(missing) == 1 else 'them'} to the file"
            raise InfeedError(what, where=self.path, do=f"{do}, or {advice}" if advice else do)


def _hint(name: str, names: Sequence[str]) -> str:
    for other in (one for one in names if like(one) == like(name)):
        if told_apart([other, name]) != [repr(other), repr(name)]:
            form = "composed (NFC)" if unicodedata.is_normalized("NFC", name) else "decomposed (NFD)"
            return f"write {name!r} with {form} letters: the file has it in another Unicode form"
        return f"rename {other!r} to {name!r} if it is the same"
    near = schema.nearest(name, names).removeprefix("; ").removesuffix("?")
    return near and f"{near.replace('did you mean', 'rename')} to {name!r} if it is the same"


def open_as_trained(path: str, settings: Settings, trained: Trained, needed: Iterable[str]) -> InputTable:
    """Open a table with the options of the training files, so that `$3,356.21` is parsed as in training.

    If a CSV file has another delimiter or header than the training files, only the options about cells apply.
    `settings` take precedence. Raises InfeedError if the file cannot be opened.
    """
    source = source_of(path, "csv")
    files_of_table(path, source)  # raises an error for a file of another format
    return _OPENERS.get(source, _open_typed)(path, source, settings, trained, list(needed))


def _open_csv(path: str, source: Source, settings: Settings, trained: Trained, needed: Sequence[str]) -> InputTable:
    own = {**default_settings(path, source), **settings}
    known = {**trained.get(source, {}), "numbers": _numbers(trained)}
    of_cells = {name: value for name, value in known.items() if name in _OF_CELLS}
    tried: list[CsvOptions] = [options_of(source, {**some, **own}, "--set") for some in (known, of_cells)]

    def count_missing(options: CsvOptions) -> int:
        try:
            return len(set(needed) - set(read_header(path, options)[0]))
        except InfeedError:  # the header cannot be read with these options
            return len(needed) + 1

    options = min(tried, key=count_missing)  # the first of equals
    names, _ = read_header(path, options)
    check_headers([(path, names)], CsvOptions(types=settings.get("types", {}), numbers=settings.get("numbers", {})))
    return InputTable(path, names, options, partial(_csv_blocks, path, options))


def _csv_blocks(path: str, options: CsvOptions) -> Iterator[RowBlock]:
    """Yield rows of text. In `rows` only empty cells are null, because a key may be spelled like a missing value."""
    nulls, of_rows = pa.array(options.nulls, pa.string()), tuple(one for one in options.nulls if one == "")
    for rows, bad in read_text(path, replace(options, nulls=of_rows), _REJECT):
        cells = [pc.if_else(pc.is_in(column, nulls), pa.scalar(None, pa.string()), column) for column in rows.columns]
        yield RowBlock(rows, dict(zip(rows.schema.names, cells, strict=True)), bad)


def _open_jsonl(path: str, source: Source, settings: Settings, trained: Trained, needed: Sequence[str]) -> InputTable:
    known = {**trained.get(source, {}), "numbers": _numbers(trained)}
    options: JsonlOptions = options_of(source, {**known, **settings}, "--set")
    check_lines(path, read_head(path, options.encoding))
    read = partial(_read_jsonl, path, options, needed)
    rows = (row for block in read() for row in block if not isinstance(row, BadRow))
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    blocks = partial(_jsonl_blocks, read, names, needed)
    return InputTable(path, names, CsvOptions(numbers=options.numbers), blocks, may_lack=True)


def _read_jsonl(path: str, options: JsonlOptions, needed: Sequence[str]) -> Iterator[list[Row | BadRow]]:
    nested = {name: nesting(name)[:-1] for name in needed if "." in name}
    for block in read_rows(path, options, _REJECT):
        # Add the nested columns of objects that are null. Any other value in place of an object stays, to get an error.
        for row in (one for one in block if nested and not isinstance(one, BadRow)):
            for name, objects in nested.items():
                for one in objects:
                    if one in row and name not in row:
                        row[name] = None if row[one] in (None, []) else {one: row[one]}
        yield block


def _jsonl_blocks(
    read: Callable[[], Iterator[list[Row | BadRow]]], names: Sequence[str], needed: Sequence[str]
) -> Iterator[RowBlock]:
    fields = pa.schema([pa.field(name, pa.string(), metadata=JSON) for name in names])
    for block in read():
        rows = [row for row in block if not isinstance(row, BadRow)]
        cells = {name: [row.get(name) for row in rows] for name in {*names, *needed}}
        texts = [
            pa.array([None if value is None else as_json(value) for value in cells[name]], pa.string())
            for name in names
        ]
        bad = {place: row for place, row in enumerate(block) if isinstance(row, BadRow)}
        yield RowBlock(pa.RecordBatch.from_arrays(texts, schema=fields), cells, bad)


def _open_typed(path: str, source: Source, settings: Settings, trained: Trained, needed: Sequence[str]) -> InputTable:
    del needed
    options_of(source, settings, "--set")
    own = {name: value for name, value in settings.items() if name != "numbers"}
    known = {name: value for name, value in trained.get(source, {}).items() if name not in ("columns", "numbers")}
    opened = None
    with suppress(InfeedError):  # the file may lack what the options of training name
        opened = open_table(path, source, {**known, **own}, _REJECT)
    opened = opened or open_table(path, source, own, _REJECT)
    texts = CsvOptions(numbers={**_numbers(trained), **settings.get("numbers", {})})
    return InputTable(path, opened.schema.names, texts, partial(_typed_blocks, opened))


def _typed_blocks(opened: OpenedSource) -> Iterator[RowBlock]:
    first = 1  # number of the block's first row
    for task in opened.tasks:
        bad_rows = BadRows("reject", sys.maxsize)
        last = pa.RecordBatch.from_pylist([], opened.schema)  # bad rows may follow the last batch
        for rows in itertools.chain(opened.read(task.payload, bad_rows=bad_rows), [last]):
            bad = bad_rows.take()
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            yield RowBlock(rows, columns, _placed(bad, first, rows.num_rows))
            first += rows.num_rows + len(bad)


def _placed(bad: Sequence[BadRow], first: int, good: int) -> dict[int, BadRow]:
    """Return the bad rows of a block by position, computed from the row's number in the file if it is known."""
    placed: dict[int, BadRow] = {}
    rows = good + len(bad)
    for row in bad:
        place = min(max((row.line or 0) - first, 0), rows - 1)
        while place in placed:
            place = (place + 1) % rows
        placed[place] = row
    return placed


def _numbers(trained: Trained) -> dict[str, str]:
    """Return the number formats of the training files, which apply to files of any format."""
    return {name: example for options in trained.values() for name, example in options.get("numbers", {}).items()}


_OPENERS = {"csv": _open_csv, "jsonl": _open_jsonl}
