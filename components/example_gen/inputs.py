"""The interface between a source and ingest: tasks that read typed batches, and bad rows.

A bad row has no typed representation. The first bad row is an error, unless bad rows up to a limit are rejected:
written to a file with their reasons.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted
from infeed.components.dataset import example_types, files, schemas
from infeed.components.dataset.bounds import count_leading_out
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions, OnBadRow
from infeed.components.example_gen.codes import Codes

_log = logging.getLogger(__name__)
_SHOWN = 300  # characters of a bad row
_NO_TEXT = re.compile("not .* text")  # matches the reason of a row that the encoding cannot decode
# Files beside the data of Hugging Face's `save_to_disk`, of TFDS, and of this package.
_COMPANIONS = ("dataset_info.json", "state.json", "dataset_dict.json", "features.json", ".labels.txt", "manifest.json")
_STATISTICS = re.compile(r"statistics-.*\.json")
_TOO_LARGE = "more than max_row_mb"
AFTER_QUOTE = "text after a closing quote"  # starts the reason of a CSV row with such text
A = TypeVar("A")
Batches = Iterator[pa.RecordBatch]
ReadFile = Callable[[str], Iterable[pa.RecordBatch]]  # given the path of a file
Convert = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, dict[int, tuple[str, str]]]]
Patterns = Mapping[str | None, str]  # split -> pattern below the root. The key is None if rows are split by hash
Found = Mapping[str | None, list[files.FileStat]]  # the files of each split


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be converted to the schema."""

    file: str  # path of the file, or the source's name for the place
    line: int | None  # line or row number in the file, from 1. None if unknown
    column: str | None  # column with the error. None if the whole row is bad
    reason: str
    text: str  # the raw row, possibly shortened
    do: str = ""  # how to correct it, if its reader knows. Not in the reject file

    @property
    def remedy(self) -> str:
        """Return how to correct the row, with the option that helps, if any."""
        return self.do or f"correct the row{self.option}"

    @property
    def option(self) -> str:
        """Return the option that helps, as a continuation of an error's remedy. Empty if there is none."""
        if _NO_TEXT.fullmatch(self.reason):
            return ", set its encoding, such as --set encoding=latin-1"
        if self.reason.startswith(AFTER_QUOTE):
            return ", double the quotes inside cells, or set the escape character (--set 'escape=\\')"
        return ", raise max_row_mb (--max-row-mb)" if _TOO_LARGE in self.reason else ""

    @property
    def where(self) -> str:
        places = [self.file, self.line and f"line {self.line}", self.column and f"column {self.column!r}"]
        return ", ".join(place for place in places if isinstance(place, str))


class AstrayError(Exception):
    """A task started reading in the middle of a row, so its rows and errors are meaningless."""


@dataclass(frozen=True)
class Findings:
    """Findings of a task about its part of an input whose types were inferred from a sample."""

    kinds: Any = None  # kinds of the columns as JSON types, in the form that the format's `Sample.merge` reads
    lines: int = 0  # number of line ends
    line: int | None = 1  # number of the first line. None if it depends on the tasks before; bad rows then count from 1
    astray: bool = False  # the part starts or ends within a row, or only reading in order finds bad rows


class BadRows:
    """Collects the bad rows and findings of one task.

    Args:
      relative: keep the line numbers as the task counts them. `Findings.line` gives the offset.

    Attributes:
      found: findings, set by the source once a task is read.
      codes: cells that look like codes and became numbers, by column.
      lines_before: counts the lines before a task that does not know them, and raises AstrayError if the task starts
        within a row. Set by the source.
    """

    def __init__(self, on_bad_row: OnBadRow = "fail", limit: int = 0, *, relative: bool = False) -> None:
        self._on_bad_row, self._limit, self._relative = on_bad_row, limit, relative
        self._reported = 0
        self._kept: list[BadRow] = []
        self.found: Findings | None = None
        self.codes: dict[str, Codes] = {}
        self.lines_before: Callable[[], int] | None = None

    def report(self, row: BadRow) -> None:
        """Keep a row for the reject file. Raise InfeedError if bad rows are not allowed, or exceed the limit."""
        self._reported += 1
        is_last = self._on_bad_row == "fail" or self._reported > self._limit
        if self.lines_before is not None and (is_last or not self._relative):
            before = self.lines_before()
            row = row if row.line is None else dataclasses.replace(row, line=row.line + before)
        if self._on_bad_row == "fail":
            raise InfeedError(
                row.reason,
                where=row.where,
                do=f"{row.remedy}, or reject bad rows: --on-bad-row reject, IngestOptions(on_bad_row='reject')",
            )
        check_limit(self._reported, self._limit, row.where)
        self._kept.append(row)

    def count_codes(self, column: str, codes: Codes) -> None:
        if codes.cells:
            self.codes[column] = self.codes.get(column, Codes()) + codes

    def take(self) -> tuple[BadRow, ...]:
        """Return the rows kept since the last call."""
        taken, self._kept = tuple(self._kept), []
        return taken


def too_large(most_mb: int) -> str:
    """Return the end of the reason for a row larger than `most_mb` megabytes."""
    return f"{_TOO_LARGE}, which is {most_mb}"


def check_limit(rows: int, limit: int, where: str) -> None:
    """Raise InfeedError if the number of bad rows exceeds the limit."""
    if rows > limit:
        do = f"correct the input, check the format's options, or raise bad_row_limit: --bad-row-limit {10 * rows}"
        raise InfeedError(f"more than {limit} bad rows", where=f"the last at {where}", do=do)


def check_any_good(bad: Sequence[BadRow]) -> None:
    """Raise InfeedError if there are bad rows. Call it for an input without good rows."""
    if bad:
        do = f"correct the input{bad[0].option}, or change the format's options"
        raise InfeedError(f"every row is rejected, the first because: {bad[0].reason}", where=bad[0].where, do=do)


def to_jsonl(rows: Iterable[BadRow]) -> bytes:
    """Return the lines of the reject file."""
    found = ({name: value for name, value in vars(row).items() if name != "do"} for row in rows)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode()


def conform(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    file: str,
    bad_rows: BadRows,
    *,
    first_row: int = 1,
    convert: Convert | None = None,
) -> Batches:
    """Flatten structs, add missing columns, cast to the schema, and report rows that a tf.Example cannot hold.

    Args:
      first_row: row number in `file`, from 1, of the first row of `batches`.
      convert: converts a flat batch, and returns the cells that it cannot convert: row -> (column, reason).
    """
    for batch in map(schemas.flatten_batch, batches):
        converted, not_converted = convert(batch) if convert else (batch, {})
        unfit: dict[int, tuple[str, str]] = {}  # by row: each is reported once, however many of its cells are unfit
        for name, column in zip(converted.schema.names, converted.columns, strict=True):
            items = example_types.items_of(column)
            invalid = example_types.find_invalid(items, in_list=example_types.is_list(column.type))
            for item, row in zip(invalid.tolist(), example_types.rows_of(column, invalid).tolist(), strict=True):
                unfit[row] = (name, example_types.explain_invalid(items, item).what)
        unfit |= not_converted
        for row, (column, reason) in sorted(unfit.items()):
            bad_rows.report(BadRow(file, first_row + row, column, reason, text_of(batch.slice(row, 1))))
        yield schemas.fill(without(converted, unfit), schema)
        first_row += batch.num_rows


def without(batch: pa.RecordBatch, rows: Collection[int]) -> pa.RecordBatch:
    """Return the batch without the rows with these indices."""
    return batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), list(rows)))) if rows else batch


def text_of(row: pa.RecordBatch) -> str:
    """Format the cells of a row for the reject file."""
    cells = {name: _to_python(column) for name, column in zip(row.schema.names, row.columns, strict=True)}
    return json.dumps(cells, default=str, ensure_ascii=False)[:_SHOWN]


def _to_python(cell: pa.Array) -> Any:
    """Return the value of a one-element array. Dates beyond Python's range are returned as stored integers."""
    try:
        return cell[0].as_py()
    except (OverflowError, ValueError):
        return example_types.ticks(example_types.items_of(cell)).to_pylist()


@dataclass(frozen=True)
class Task:
    """A unit of reading: its position in the input, the argument of `OpenedSource.read`, and its split if known."""

    order: int
    payload: Any
    split: str | None = None


class Read(Protocol):
    """Read the payload of a task as record batches of the source's schema, in order. Must be picklable.

    Implementations report bad rows to `bad_rows` and skip them.
    """

    def __call__(self, payload: Any, /, *, bad_rows: BadRows) -> Iterable[pa.RecordBatch]: ...


@dataclass(frozen=True)
class OpenedSource:
    """A source before the first row is read."""

    provenance: Source
    schema: pa.Schema
    tasks: tuple[Task, ...]
    read: Read
    serialized: bool = False  # the first column holds records to write unchanged, and the others serve the options
    decimals: bool = False  # floats were written as decimals; see `example_types.count_rounded`
    warnings: tuple[str, ...] = ()  # notes for people about skipped parts
    left_out: Mapping[str, str] = field(default_factory=dict)  # columns that no tf.Example holds: reason and remedy
    sample: Sample | None = None  # if types were inferred from a sample, how to check them against the findings
    place: str = ""  # the files or the query that the source reads, for errors
    reopen: Callable[[Any], OpenedSource] | None = None  # given the kinds that `sample` merged, or None to infer them


@dataclass(frozen=True)
class Sample:
    """Column kinds inferred from a sample, as JSON types, and a function that merges the findings of all tasks.

    `merge` returns None if only reading the rows in order determines the kinds.
    """

    kinds: Any
    merge: Callable[[Sequence[Findings]], Any]


def log_links(root: str, patterns: Patterns) -> None:
    """Log the number of matched files behind links that lead out of `root`."""
    paths = [file.path for pattern in patterns.values() for file in files.glob(root, pattern)]
    if outside := count_leading_out(root, paths):
        _log.info("%d of %d files of %s are behind links that lead out of it", outside, len(paths), root)


def check_irregular(root: str, patterns: Patterns, on_bad_row: OnBadRow) -> tuple[list[Task], tuple[str, ...]]:
    """Return a task for each dangling link, which reports a bad row, and warnings about pipes and devices.

    Raises InfeedError if there is a dangling link, and bad rows are not rejected.
    """
    found = [(split, one) for split, pattern in patterns.items() for one in files.find_irregular(root, pattern)]
    links = [(split, one) for split, one in found if one.is_link]
    if links and on_bad_row == "fail":
        raise InfeedError(
            links[0][1].what + (f", and so are {counted(len(links) - 1, 'other link')}" if len(links) > 1 else ""),
            where=links[0][1].path,
            do="fetch its content (git annex get, dvc pull), remove the link, or reject dangling links: "
            "--on-bad-row reject",
        )
    tasks = [
        Task(0, FilePart(files.FileStat(one.path, 0, 0), BadRow(one.path, None, None, one.what, "")), split)
        for split, one in links
    ]
    return tasks, tuple(f"{one.path} is left out: {one.what}" for _, one in found if not one.is_link)


def with_tasks(opened: OpenedSource, more: Sequence[Task], warnings: tuple[str, ...]) -> OpenedSource:
    """Add the tasks of `check_irregular`, and warnings, to a source."""
    if not more and not warnings:
        return opened
    orders = range(len(opened.tasks), len(opened.tasks) + len(more))
    added = [dataclasses.replace(task, order=order) for order, task in zip(orders, more, strict=True)]
    read = partial(_read_or_report, read=opened.read)
    return dataclasses.replace(opened, tasks=(*opened.tasks, *added), read=read, warnings=(*opened.warnings, *warnings))


def _read_or_report(payload: Any, read: Read, *, bad_rows: BadRows) -> Batches:
    if isinstance(payload, FilePart) and isinstance(payload.piece, BadRow):
        bad_rows.report(payload.piece)
    else:
        yield from read(payload, bad_rows=bad_rows)


def reopenable(opened: OpenedSource, finish: Callable[[OpenedSource], OpenedSource]) -> OpenedSource:
    """Apply `finish` to the source, now and each time that it is reopened."""
    finished, reopen = finish(opened), opened.reopen
    if reopen is None:
        return finished
    return dataclasses.replace(finished, reopen=lambda kinds: reopenable(reopen(kinds), finish))


def retyped(opened: OpenedSource, options: IngestOptions) -> OpenedSource:
    """Return the source with `options.words` as text or booleans and `options.fractions` as floats."""
    schema = pa.schema([(field.name, _retyped(field, options)) for field in opened.schema])
    if schema.equals(opened.schema, check_metadata=False):
        return opened
    return dataclasses.replace(opened, schema=schema, read=partial(_read_retyped, read=opened.read, schema=schema))


def _retyped(field: pa.Field, options: IngestOptions) -> pa.DataType:
    if field.name in options.words and pa.types.is_boolean(field.type):
        return pa.string()
    if field.name in options.fractions and pa.types.is_integer(field.type):
        return pa.float64()
    return field.type


def _read_retyped(payload: Any, read: Read, schema: pa.Schema, *, bad_rows: BadRows) -> Batches:
    for batch in read(payload, bad_rows=bad_rows):
        yield schemas.fill(batch, schema)


def is_companion(path: str) -> bool:
    """Return whether a file describes a dataset of Hugging Face, TFDS or this package, by its name."""
    return files.name(path).endswith(_COMPANIONS) or bool(_STATISTICS.fullmatch(files.name(path)))


def find(root: str, patterns: Patterns, *, companions: bool = True) -> dict[str | None, list[files.FileStat]]:
    """Return the files of each split. Raises InfeedError if there are none. `companions` describe a dataset."""
    found = {
        split: [file for file in files.glob(root, pattern) if companions or not is_companion(file.path)]
        for split, pattern in patterns.items()
    }
    for split in (split for split, matched in found.items() if not matched):
        path = files.join(root, patterns[split])
        where = path + (f", split {split!r}" if split else "")
        if files.exists(path) and not files.is_folder(path):
            raise InfeedError("this is a pipe or a device, not a file", where=where, do="write its content to a file")
        raise InfeedError("no files found", where=where, do="check the folder and the pattern of input_config")
    return found


def all_files(found: Found) -> list[files.FileStat]:
    return [file for matched in found.values() for file in matched]


@dataclass(frozen=True)
class FilePart:
    """A file, and the piece of it that a task reads. The format defines the piece.

    If the piece is a bad row, the task reports it and reads nothing.
    """

    file: files.FileStat
    piece: Any


Seen = Sequence[tuple[str | None, files.FileStat, A]]  # (split, file, result) of each file


def look(found: Found, at: Callable[[str], A]) -> Seen[A]:
    """Apply `at` to the path of each file, to read its schema. Raise InfeedError if a file changed meanwhile."""
    seen = list[tuple[str | None, files.FileStat, A]]()
    for split, matched in found.items():
        for file in matched:
            with files.unchanged(file):
                seen.append((split, file, at(file.path)))
    return seen


def of_parts(
    kind: str, root: str, schema: pa.Schema, parts: Seen[Iterable[Any]], read: Read, **facts: Any
) -> OpenedSource:
    """Return a source whose tasks read parts of files, and fail if a file has changed since it was opened.

    `parts` holds several payloads of `read` for each file. `facts` are other fields of `OpenedSource`.
    """
    tasks = as_tasks((split, FilePart(file, piece)) for split, file, pieces in parts for piece in pieces)
    source = Source.of(kind, root, [file for _, file, _ in parts])
    return OpenedSource(source, schema, tasks, partial(_read_part, read=read), place=root, **facts)


def _read_part(part: FilePart, read: Read, *, bad_rows: BadRows) -> Batches:
    with files.unchanged(part.file):
        yield from read(part.piece, bad_rows=bad_rows)


def open_files(kind: str, root: str, patterns: Patterns, read: ReadFile) -> OpenedSource:
    """Open files by a function that reads one. Raises InfeedError if the columns of their first batches conflict."""
    firsts = look(find(root, patterns), lambda path: next(iter(read(path)), None))
    seen = [schemas.FileSchema(file.path, first.schema) for _, file, first in firsts if first is not None]
    if not seen:
        raise InfeedError("no rows in the input", where=root, do="check the files, and the function that reads them")
    schema = schemas.unify(seen)
    parts = [(split, file, [file.path]) for split, file, _ in firsts]
    return of_parts(kind, root, schema, parts, partial(_read_file, schema=schema, read=read))


def _read_file(path: str, schema: pa.Schema, read: ReadFile, *, bad_rows: BadRows) -> Batches:
    yield from conform(read(path), schema, path, bad_rows)


def as_tasks(work: Iterator[tuple[str | None, Any]]) -> tuple[Task, ...]:
    return tuple(Task(order, payload, split) for order, (split, payload) in enumerate(work))
