"""Reader of data in memory and of results of user functions: data with an Arrow interface, or rows as dicts.

    infeed.ingest(polars_frame, OUTPUT)              # data of this process: one task
    def trips(part: int, parts: int) -> Any: ...     # named `module:trips`: a task for each part

Arrow batches are unchanged. For dicts, the first rows determine the columns and types. To determine the columns, the
source calls the function once more.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from infeed.components.base import user_code
from infeed.components.base.annotations import Positive
from infeed.components.base.checks import check_fields
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.read_errors import is_transient
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRow, BadRows, Batches, FilePart, OpenedSource, Patterns, conform
from infeed.components.example_gen.sources import columnar
from infeed.components.example_gen.sources.columnar import ColumnOptions
from infeed.components.example_gen.sources.kinds import read_numbers, with_numbers
from infeed.components.example_gen.sources.python_rows import infer_field, to_batch
from infeed.components.example_gen.sources.reader_process import Limits
from infeed.components.seams import pyarrow as seam

SAMPLE = 1_000  # dicts that determine the columns and types
_FIRST_ROWS, _MOST_ROWS = 16, 10_000  # dicts of a batch
_SHOWN = 300  # characters of a bad row
_DO = "convert the values before reading"
SOURCES = "an Arrow table or stream, a data frame, or an iterator of dicts or record batches"
Numbered = Iterator[tuple[int, pa.RecordBatch]]  # the number of the first row, from 1, and a flat batch
_OPTION = "reader"


@dataclass(frozen=True)
class ArrowStream:
    """Record batches of one schema."""

    first: pa.Schema
    stream: Iterable[pa.RecordBatch]

    def schema(self, kept: Sequence[str] | None, where: str) -> pa.Schema:
        """Return the flat columns to keep. Raise InfeedError if one is missing, or a tf.Example does not support it."""
        return columnar.unified([columnar.file_schema(where, self.first)], kept)

    def batches(self, columns: pa.Schema, kept: Sequence[str] | None, where: str) -> Numbered:
        """Yield flat batches of `columns`. Raise InfeedError if a batch has other columns or types."""
        row, known = 1, None
        for batch in self.stream:
            if batch.schema != known:
                _check_same(batch.schema, columns, kept, f"{where}, row {row}")
                known = batch.schema
            yield from columnar.slices(batch, columns.names, row)
            row += batch.num_rows


@dataclass(frozen=True)
class DictRows:
    """Rows as dicts. The first ones have already been read."""

    first: Sequence[Mapping[str, Any]]
    rest: Iterator[Mapping[str, Any]]

    def schema(self, kept: Sequence[str] | None, where: str) -> pa.Schema:
        """Infer the columns to keep.

        Raise InfeedError if one is missing, or a tf.Example does not support its values.
        """
        names = list(dict.fromkeys(name for row in self.first for name in row))  # in the order of first occurrence
        if unknown := sorted({*(kept or ())} - {*names}):
            do = f"use some of {', '.join(names[:20])}"
            raise InfeedError(f"there is no column {unknown[0]!r}", where="columns", do=do)
        wanted = [name for name in names if kept is None or name in kept]
        return pa.schema([infer_field(name, [row.get(name) for row in self.first], where, _DO) for name in wanted])

    def batches(
        self, columns: pa.Schema, kept: Sequence[str] | None, where: str, block_bytes: int, bad_rows: BadRows
    ) -> Numbered:
        """Yield batches of `columns`, of about `block_bytes`.

        A row with another column, or with a value of another type, is a bad row.
        """
        rows, first_row, step, names = chain(self.first, self.rest), 1, _FIRST_ROWS, set(columns.names)
        while some := list(islice(rows, step)):
            cells = []
            for number, row in enumerate(some, first_row):
                new = sorted(name for name in row if name not in names) if kept is None else ()
                if new:
                    reason = f"the first {SAMPLE:,} rows have no column {new[0]!r}"
                    bad_rows.report(BadRow(where, number, new[0], reason, repr(row)[:_SHOWN]))
                else:
                    cells.append(tuple(map(row.get, columns.names)))
            batch = to_batch(cells, columns, where, bad_rows, first_row)
            yield first_row, batch
            first_row += len(some)
            step = min(max(1, block_bytes * len(some) // max(batch.nbytes, 1)), _MOST_ROWS)


def data_of(data: Any, where: str) -> ArrowStream | DictRows:
    """Return data as a table or as rows. Raise InfeedError with the type of other data."""
    if table := _table_of(data):
        return table
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _of_items(iter(data), where)
    raise InfeedError(f"data of type {type_of(data)} is not a supported source", where=where, do=f"use {SOURCES}")


def type_of(data: Any) -> str:
    """Return the name of a type with its package, such as polars.DataFrame. Messages do not contain values."""
    package = type(data).__module__.partition(".")[0]
    return type(data).__qualname__ if package == "builtins" else f"{package}.{type(data).__qualname__}"


def _table_of(data: Any) -> ArrowStream | None:
    if _is_a(data, "pandas", "DataFrame"):
        data = pa.Table.from_pandas(data)
    elif hasattr(type(data), "to_arrow"):  # the stream of polars holds views of text, which no Arrow decodes everywhere
        data = data.to_arrow()
    if isinstance(data, pa.Table):
        data = data.to_reader()
    elif _is_a(data, "pyarrow.dataset", "Dataset"):
        data = data.scanner().to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return ArrowStream(data.schema, data)
    if isinstance(data, pa.RecordBatch):
        return ArrowStream(data.schema, [data])
    if hasattr(type(data), "__arrow_c_stream__"):
        stream = seam.read_stream(data)
        return ArrowStream(stream.schema, stream)
    if hasattr(type(data), "__arrow_c_array__"):
        batch = seam.read_array(data)
        return ArrowStream(batch.schema, [batch])
    return None


def _is_a(data: Any, module: str, name: str) -> bool:
    """Return whether data is of a class. It cannot be if the class's module has not been imported."""
    return module in sys.modules and isinstance(data, getattr(sys.modules[module], name))


def _of_items(items: Iterator[Any], where: str) -> ArrowStream | DictRows:
    first = next(items, None)
    if first is None or isinstance(first, Mapping):
        rows = _rows(chain([first], items) if first is not None else iter(()), where)
        return DictRows(list(islice(rows, SAMPLE)), rows)

    def table_of(item: Any) -> ArrowStream:
        if table := _table_of(item):
            return table
        do = "yield dicts of columns and values, or record batches"
        raise InfeedError(f"a row has the type {type_of(item)}", where=where, do=do)

    tables = map(table_of, chain([first], items))
    one = next(tables)
    return ArrowStream(one.first, chain.from_iterable(table.stream for table in chain([one], tables)))


def _rows(rows: Iterator[Any], where: str) -> Iterator[Mapping[str, Any]]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            do = "yield dicts of columns and values"
            raise InfeedError(f"a row has the type {type_of(row)}", where=f"{where}, row {number}", do=do)
        yield row


def _check_same(found: pa.Schema, columns: pa.Schema, kept: Sequence[str] | None, where: str) -> None:
    """Raise InfeedError if a batch has columns or types that do not fit `columns`, those of the first batch."""
    both = columnar.unified([schemas.FileSchema("the first batch", columns), columnar.file_schema(where, found)], kept)
    for one in both:
        if one.name not in columns.names or columns.field(one.name).type != one.type:
            before = columns.field(one.name).type if one.name in columns.names else "missing"
            what = f"column {one.name!r} is {one.type}, but {before} in the first batch"
            raise InfeedError(what, where=where, do="cast the column, so that all batches have one type")


@dataclass(frozen=True)
class ReaderOptions(ColumnOptions):
    """Options of data in memory and of a function that returns data.

    Attributes:
      parts: number of calls that workers share, if the function has parameters `part` and `parts`.
      version: version of the data, recorded in the manifest. Passed to a function with a parameter `version`. None
          uses `function.version()` if it exists.
    """

    parts: Positive = 16
    version: str | int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self)


@dataclass(frozen=True)
class _ReaderCall:
    """A call of a user's function, or `given` data of this process, which may be readable only once."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    given: ArrowStream | DictRows | None = None

    @property
    def where(self) -> str:
        if "part" not in self.arguments:
            return self.name
        return f"{self.name}, part {self.arguments['part']} of {self.arguments['parts']}"

    def open(self) -> ArrowStream | DictRows:
        if self.given is not None:
            return self.given
        return data_of(user_code.load(self.name, _OPTION)(**self.arguments), self.where)


def open_given(data: Any, options: IngestOptions, asked: ReaderOptions) -> OpenedSource:
    """Open data of this process. Raise InfeedError with the type of unsupported data."""
    name = f"source ({type_of(data)})"
    with _errors(name, again=False):
        given = _ReaderCall(name, given=data_of(data, name))
    return _opened([(None, given)], _digest([name], asked), asked.version, options, asked)


def open_reader(functions: Patterns, options: IngestOptions, asked: ReaderOptions) -> OpenedSource:
    """Open the results of functions, one for each input split.

    Raise InfeedError if a function is missing or its data is invalid.
    """
    versions = {function: _version(function, asked) for function in functions.values()}
    calls = [(split, call) for split, one in functions.items() for call in _calls(one, versions[one], asked)]
    known = dict.fromkeys(str(one) for one in versions.values() if one is not None)
    return _opened(calls, _fingerprint(versions, asked), ", ".join(known) or None, options, asked)


def fingerprint(functions: Patterns, asked: ReaderOptions) -> str:
    """Return a digest of the sources of the functions and of the versions of their data."""
    return _fingerprint({function: _version(function, asked) for function in functions.values()}, asked)


def _fingerprint(versions: Mapping[str, Any], asked: ReaderOptions) -> str:
    return _digest([f"{user_code.digest(one, _OPTION)} {version}" for one, version in versions.items()], asked)


def _digest(lines: Sequence[str], asked: ReaderOptions) -> str:
    return hashlib.sha256(f"{lines} {asked.parts} {asked.version}".encode()).hexdigest()[:32]


def _version(function: str, asked: ReaderOptions) -> str | int | None:
    """Return the version to read. Raise InfeedError if one is requested but the function does not take it."""
    loaded = user_code.load(function, _OPTION)
    if asked.version is not None:
        if "version" not in _parameters(loaded):
            do = "add the parameter version to the function, or leave out the option"
            raise InfeedError(
                f"version is {asked.version!r}, but the function has no such parameter", where=function, do=do
            )
        return asked.version
    newest = getattr(loaded, "version", None)
    with user_code.translate_errors(_OPTION):
        return newest() if callable(newest) else newest


def _calls(function: str, version: str | int | None, asked: ReaderOptions) -> list[_ReaderCall]:
    takes = _parameters(user_code.load(function, _OPTION))
    always = {"version": version} if "version" in takes else {}
    if not {"part", "parts"} <= takes:
        return [_ReaderCall(function, always)]
    return [_ReaderCall(function, {**always, "part": part, "parts": asked.parts}) for part in range(asked.parts)]


def _parameters(function: Any) -> set[str]:
    try:
        return {*inspect.signature(function).parameters}
    except ValueError:  # a function in C
        return set()


def _opened(
    calls: Sequence[tuple[str | None, _ReaderCall]],
    digest: str,
    version: str | int | None,
    options: IngestOptions,
    asked: ReaderOptions,
) -> OpenedSource:
    columns = _columns([call for _, call in calls], asked)
    schema = with_numbers(columns, asked.numbers)
    tasks = inputs.as_tasks((split, FilePart(files.FileStat(call.name, 0, 0), call)) for split, call in calls)
    read = partial(_read, columns=columns, schema=schema, asked=asked, limits=Limits.of(options))
    source = Source("reader", digest, 0, 0, None if version is None else str(version))
    return OpenedSource(source, schema, tasks, read, place=calls[0][1].name)


def _columns(calls: Sequence[_ReaderCall], asked: ReaderOptions) -> pa.Schema:
    """Return the columns to keep: those of the first table, or of the first rows of all calls."""
    rows = list[Mapping[str, Any]]()
    for call in calls:
        with _errors(call.where, again=False):
            data = call.open()
            if isinstance(data, ArrowStream):
                return data.schema(asked.columns, call.where)
            rows += data.first
        if len(rows) >= SAMPLE:
            break
    if not rows:
        raise InfeedError("no rows in the input", where=calls[0].name, do="check the origin of the rows")
    return DictRows(rows[:SAMPLE], iter(())).schema(asked.columns, calls[0].name)


def _read(
    part: FilePart, columns: pa.Schema, schema: pa.Schema, asked: ReaderOptions, limits: Limits, *, bad_rows: BadRows
) -> Batches:
    call: _ReaderCall = part.piece
    convert = partial(read_numbers, numbers=asked.numbers) if asked.numbers else None
    with _errors(call.where, again=call.given is None):
        data = call.open()
        how = (columns, asked.columns, call.where)
        found = data.batches(*how) if isinstance(data, ArrowStream) else data.batches(*how, limits.block, bad_rows)
        for first_row, batch in found:
            row = first_row
            for block in columnar.cut(batch, limits, call.where, first_row):
                yield from conform([block], schema, call.where, bad_rows, first_row=row, convert=convert)
                row += block.num_rows


@contextmanager
def _errors(where: str, *, again: bool) -> Iterator[None]:
    """Add the location to errors in a user's code or in Arrow. If `again`, transient errors stay retryable."""
    try:
        with user_code.translate_errors():
            yield
    except InfeedError as error:
        if error.where:
            raise
        raise InfeedError(error.what, where=where, do=error.do) from error
    except (OSError, pa.ArrowException) as error:
        if again and is_transient(error):
            raise
        do = "correct the data, and run again"
        raise InfeedError(f"cannot read the data: {error}", where=where, do=do) from error
