"""Shared parts of the readers of columnar files: options, tasks, and blocks cut by their decoded size.

A child process reads the files; see `reader_process`. A few kilobytes of a dictionary may decode to gigabytes, so
texts stay dictionary-encoded until a block is cut.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.checks import about, as_tuples, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types, files, schemas
from infeed.components.dataset.options import IngestOptions, Part
from infeed.components.dataset.records import Ints
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, Batches, OpenedSource, conform
from infeed.components.example_gen.sources.file_kinds import not_a
from infeed.components.example_gen.sources.kinds import Numbers, formats_of, read_numbers, with_numbers
from infeed.components.example_gen.sources.reader_process import Limits, batches_apart, call_apart

NUMBER = 8  # bytes of a number
_ROWS_PER_SLICE = 1 << 16  # rows whose sizes are computed at once


@dataclass(frozen=True)
class ColumnOptions:
    """Options of the readers of columnar files.

    Attributes:
      columns: columns to read, nested fields by their dotted names. None reads all.
      numbers: number format of text columns by example, such as {"price": "$1,234.5"}. A row with a cell of another
        format is a bad row.
    """

    columns: Sequence[str] | None = None
    numbers: Numbers = field(default_factory=dict)

    def __post_init__(self) -> None:
        as_tuples(self, "columns")
        are_names = self.columns is None or (self.columns and not isinstance(self.columns, str))
        require(are_names, self, "columns", "list the columns to keep, or use None")
        with about(self, "numbers"):
            formats_of(self.numbers)


@dataclass(frozen=True)
class RowGroups:
    """Neighboring row groups (Parquet), record batches (Arrow) or blocks (Avro) of a file. Rows count from 1.

    `groups` are their numbers, or what else the format finds them by.
    """

    path: str
    groups: tuple[Any, ...]
    first_row: int


@dataclass(frozen=True)
class FileLayout:
    """The columns of a file, and its row groups as tasks."""

    schema: schemas.FileSchema
    groups: tuple[RowGroups, ...]


@dataclass(frozen=True)
class Reader:
    """The reader of a format, as module-level functions that run in the child process."""

    format: str  # name in `formats.FORMATS`
    read_layout: Callable[[str, int], FileLayout]  # given the path of a file and the bytes of a task
    decode: Callable[[RowGroups, Sequence[str], Limits], Batches]  # flat batches of some columns
    mapped: bool = False  # the child maps local files, whose address space then counts against its memory

    def memory(self, path: str, limits: Limits) -> int:
        """Return the memory limit of the child in bytes."""
        return limits.memory + (files.stat(path).size if self.mapped and files.is_local(path) else 0)


def open_columnar(
    reader: Reader, root: str, found: inputs.Found, options: IngestOptions, columns: ColumnOptions | None = None
) -> OpenedSource:
    """Open columnar files. Raises InfeedError if a column is missing, conflicts, or is unfit for a tf.Example.

    `columns` is None for a format without these options.
    """
    limits = Limits.of(options)

    def look(path: str) -> FileLayout:
        memory = reader.memory(path, limits)
        layout: FileLayout = call_apart(reader.read_layout, path, limits.block, where=path, memory=memory)
        return layout

    def has_values(path: str, column: str) -> bool:
        what, memory = (reader, groups[path], column, limits), reader.memory(path, limits)
        return bool(call_apart(_has_values, *what, where=path, memory=memory))

    layouts = inputs.look(found, look)
    groups = {file.path: layout.groups for _, file, layout in layouts}
    in_files, numbers = [layout.schema for _, _, layout in layouts], columns.numbers if columns else {}
    if columns is None:  # the error of `unified` would name an option that the format does not have
        schema = schemas.unify(in_files, has_values=has_values)
    else:
        schema = with_numbers(unified(in_files, columns.columns, has_values), numbers)
    read = partial(read_groups, reader=reader, schema=schema, limits=limits, numbers=numbers)
    parts = [(split, file, layout.groups) for split, file, layout in layouts]
    return inputs.of_parts(reader.format, root, schema, parts, read)


def _has_values(reader: Reader, groups: Sequence[RowGroups], column: str, limits: Limits) -> bool:
    return schemas.has_value((batch for some in groups for batch in reader.decode(some, [column], limits)), column)


def unified(
    found: Sequence[schemas.FileSchema],
    kept: Sequence[str] | None,
    has_values: Callable[[str, str], bool] = lambda path, column: True,
) -> pa.Schema:
    """Return the schema of the columns to keep. The error for an unsupported column names the option to skip it."""
    there = list(dict.fromkeys(name for one in found for name in schemas.flatten_schema(one.schema).names))
    known, names = {top for column in there for top in nesting(column)}, set(kept or ())
    for name in kept or ():
        if name not in known:
            do = f"use some of {', '.join(there[:20])}"
            raise InfeedError(f"there is no column {name!r}", where="columns", do=do)
    try:
        return schemas.unify(found, lambda column: kept is None or is_under_any(column, names), has_values)
    except InfeedError as error:
        # Offer the columns that fit. If all of them fit, the error has another cause.
        columns, fitting = {field.name: field.type for one in found for field in one.schema}, list[str]()
        for name, kind in columns.items():
            with suppress(InfeedError):
                example_types.kind_of(kind)
                fitting.append(name)
        if len(fitting) == len(columns) or not fitting:
            raise
        flag = f"--set {shlex.quote(f'columns={json.dumps(fitting, ensure_ascii=False)}')}"
        do = f"{error.do}: {flag}, columns=[...] of the format's options"
        raise InfeedError(error.what, where=error.where, do=do) from error


@contextmanager
def opening_errors(form: str, path: str) -> Iterator[None]:
    """Convert the errors of Arrow's readers about a header or footer to an InfeedError."""
    try:
        yield
    except (InfeedError, MemoryError):
        raise
    except (OSError, pa.ArrowException) as error:
        raise not_a(form, path, str(error)) from error
    except Exception as error:  # a Python extension type runs the code that registered it
        reason = str(error).partition("\n")[0].rstrip(":")
        what = f"a column has a Python extension type, which is unsafe to read: {reason}"
        do = "cast such columns to their storage type, and write the file again"
        raise InfeedError(what, where=path, do=do) from error


@contextmanager
def reading_errors(form: str, where: str) -> Iterator[None]:
    """Convert the errors of Arrow's readers about values to an InfeedError."""
    try:
        yield
    except MemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise InfeedError(f"cannot read the {form} file: {error}", where=where, do="write the file again") from error


def file_schema(path: str, schema: pa.Schema) -> schemas.FileSchema:
    """Return the flat columns of a file, with the types that `cut` gives them."""
    flat = schemas.flatten_schema(schema)
    return schemas.FileSchema(path, pa.schema([(one.name, decoded_type(one.type)) for one in flat]))


def decoded_type(column: pa.DataType) -> pa.DataType:
    """Return the type of a column once dictionaries are decoded."""
    if pa.types.is_dictionary(column):
        return column.value_type
    if example_types.is_list(column) and pa.types.is_dictionary(column.value_type):
        is_fixed = pa.types.is_fixed_size_list(column)
        return pa.list_(column.value_type.value_type, column.list_size if is_fixed else -1)
    return column


def plan_groups(path: str, sizes: Sequence[Part], block_bytes: int) -> Iterator[RowGroups]:
    """Group row groups in order into tasks of about `block_bytes`."""
    first_row, rows, size, groups = 1, 0, 0, list[int]()
    for number, group in enumerate(sizes):
        if groups and size + group.bytes > block_bytes:
            yield RowGroups(path, tuple(groups), first_row)
            first_row, rows, size, groups = first_row + rows, 0, 0, []
        groups.append(number)
        rows, size = rows + group.records, size + group.bytes
    if rows:
        yield RowGroups(path, tuple(groups), first_row)


def read_groups(
    what: RowGroups, reader: Reader, schema: pa.Schema, limits: Limits, numbers: Numbers, *, bad_rows: BadRows
) -> Batches:
    """Yield the rows of some row groups in order, converted to `schema`."""
    memory = reader.memory(what.path, limits)
    batches = batches_apart(reader.decode, what, schema.names, limits, where=what.path, memory=memory)
    convert = partial(read_numbers, numbers=numbers) if numbers else None
    yield from conform(batches, schema, what.path, bad_rows, first_row=what.first_row, convert=convert)


def chosen(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return some flat columns of a batch, in order. Missing names are skipped, unless all are missing."""
    flat = schemas.flatten_batch(batch)
    there = [name for name in names if name in flat.schema.names]
    columns = [flat.column(name) for name in there] or [pa.nulls(flat.num_rows)]  # keeps the number of rows
    return pa.RecordBatch.from_arrays(columns, names=there or [names[0]])


def slices(batch: pa.RecordBatch, names: Sequence[str], row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (number of the first row, some flat columns) of parts of a batch whose first row has the number `row`."""
    for start in range(0, batch.num_rows, _ROWS_PER_SLICE):
        yield row + start, chosen(batch.slice(start, _ROWS_PER_SLICE), names)


def cut(batch: pa.RecordBatch, limits: Limits, path: str, first_row: int) -> Batches:
    """Cut a batch into blocks, and decode dictionaries. Raises InfeedError if a decoded row exceeds `limits.row`."""
    sizes = sum((_bytes_of_rows(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))
    if batch.num_rows and sizes.max() > limits.row:
        row = int(sizes.argmax())
        do = "skip its column (--set columns=...), or raise max_row_mb (--max-row-mb)"
        raise InfeedError(f"a row takes {int(sizes[row]) >> 20:,} MB", where=f"{path}, row {first_row + row}", do=do)
    # A block begins where the start of a row passes a multiple of the block size.
    ends = np.cumsum(sizes)
    starts = np.flatnonzero(np.diff((ends - sizes) // limits.block, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        piece = batch.slice(start, stop - start)
        columns = [_without_dictionary(column) for column in piece.columns]
        yield pa.RecordBatch.from_arrays(columns, names=piece.schema.names) if columns else piece


def _bytes_of_rows(column: pa.Array) -> Ints:
    """Return the decoded size of each row of a column: int64 [rows]."""
    items = example_types.items_of(column)
    if pa.types.is_dictionary(items.type):
        lengths = pa.array(_byte_lengths(items.dictionary)).take(items.indices)  # take also checks the indices
        sizes: Ints = pc.fill_null(lengths, 0).to_numpy()
    elif example_types.kind_of(items.type) == "bytes" and not pa.types.is_fixed_size_binary(items.type):
        sizes = _byte_lengths(items)
    else:
        sizes = np.full(len(items), NUMBER)
    if not example_types.is_list(column.type):
        return sizes
    # Differences of running sums, because `np.add.reduceat` does not give 0 for empty lists.
    ends = np.cumsum(example_types.item_counts(column))
    return np.diff(np.append(0, np.append(0, np.cumsum(sizes))[ends]))


def _byte_lengths(items: pa.Array) -> Ints:
    return np.asarray(pc.fill_null(pc.binary_length(items), 0), np.int64)


def _without_dictionary(column: pa.Array) -> pa.Array:
    items = example_types.items_of(column)
    if not pa.types.is_dictionary(items.type):
        return column
    if not example_types.is_list(column.type):
        return column.dictionary_decode()
    return example_types.with_items(column, pa.DictionaryArray.dictionary_decode, decoded_type(column.type))


def nesting(column: str) -> list[str]:
    """Return the names of a column and of the structs that hold it: `a`, `a.b`, `a.b.c`."""
    parts = column.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def is_under_any(column: str, names: Set[str]) -> bool:
    """Return whether a column is one of the names or nested in one. Fast for tens of thousands of names."""
    return not names.isdisjoint(nesting(column))
