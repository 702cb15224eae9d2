"""Reader of Parquet files. Each task reads some row groups, block by block.

A child process reads the files; see `reader_process`. Blocks are bounded by their decoded size: a few kilobytes of
dictionary or run-length encoding may decode to gigabytes, so texts stay dictionary-encoded until a block is cut.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from infeed.components.checks import about, as_tuples, require
from infeed.components.dataset import example_types, files, schemas
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import Ints
from infeed.components.dataset.shards import Part
from infeed.components.errors import InfeedError, ReadFailedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, OpenedSource, conform
from infeed.components.example_gen.sources.numbers import Numbers, formats_of, read_numbers, with_numbers
from infeed.components.example_gen.sources.reader_process import Limits, batches_apart, call_apart

_ROWS_PER_BLOCK = 1 << 16  # upper limit, because a file's sizes do not cover repeated values
_READ_AHEAD = 1 << 20  # bytes of each column. Without a limit, Arrow loads whole row groups
_READ_AHEAD_OF_ALL = 64 << 20  # bytes of all columns
_STORE_READ_AHEAD = 8 << 20  # limits on an object store, where each read is a request
_STORE_READ_AHEAD_OF_ALL = 128 << 20
_SECTOR = 4 << 10  # smallest useful read
_NUMBER = 8  # bytes of a number


@dataclass(frozen=True)
class ParquetOptions:
    """Options of the Parquet reader.

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
        require(are_names, self, "columns", "name the columns to keep, or use None")
        with about(self, "numbers"):
            formats_of(self.numbers)


@dataclass(frozen=True)
class RowGroups:
    """Neighboring row groups of a file. `first_row` is the row number in the file, from 1."""

    path: str
    groups: tuple[int, ...]
    first_row: int


@dataclass(frozen=True)
class Footer:
    """The columns of a file, and its row groups as tasks."""

    schema: schemas.FileSchema
    groups: tuple[RowGroups, ...]


def open_parquet(
    root: str, patterns: inputs.Patterns, options: IngestOptions, parquet: ParquetOptions | None = None
) -> OpenedSource:
    """Open Parquet files with compatible columns."""
    parquet = parquet or ParquetOptions()
    limits = Limits.of(options)

    def look(path: str) -> Footer:
        footer: Footer = call_apart(read_footer, path, limits.block, where=path, memory=limits.memory)
        return footer

    footers = inputs.look(inputs.find(root, patterns), look)
    found, kept = [footer.schema for _, _, footer in footers], parquet.columns
    _check_kept(kept, found)
    schema = with_numbers(_unified(found, kept), parquet.numbers)
    read = partial(read_groups, schema=schema, limits=limits, numbers=parquet.numbers)
    parts = [(split, file, footer.groups) for split, file, footer in footers]
    return inputs.of_parts("parquet", root, schema, parts, read)


def _unified(found: Sequence[schemas.FileSchema], kept: Sequence[str] | None) -> pa.Schema:
    """Return the schema of the columns to keep. The error for an unsupported column names the option to skip it."""
    try:
        return schemas.unify(found, lambda column: kept is None or any(_is_under(column, name) for name in kept))
    except InfeedError as error:
        columns = {field.name: field.type for one in found for field in one.schema}
        fitting = [name for name, kind in columns.items() if _is_supported(kind)]
        if len(fitting) == len(columns) or not fitting:
            raise
        flag = f"--set {shlex.quote(f'columns={json.dumps(fitting, ensure_ascii=False)}')}"
        raise InfeedError(
            error.what, where=error.where, do=f"{error.do}: {flag}, ParquetOptions(columns=...)"
        ) from error


def _is_supported(column: pa.DataType) -> bool:
    try:
        example_types.kind_of(column)
    except InfeedError:
        return False
    return True


def read_footer(path: str, block_bytes: int) -> Footer:
    """Read the footer. Raises InfeedError if the file is not Parquet or is truncated."""
    with _open(path) as file:
        sizes = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        groups = plan_groups(path, [Part(group.num_rows, group.total_byte_size) for group in sizes], block_bytes)
        columns = pa.schema(
            [(field.name, _decoded_type(field.type)) for field in schemas.flatten_schema(file.schema_arrow)]
        )
        return Footer(schemas.FileSchema(path, columns), tuple(groups))


def _decoded_type(column: pa.DataType) -> pa.DataType:
    """Return the type of a column once dictionaries are decoded."""
    if pa.types.is_dictionary(column):
        return column.value_type
    return (
        pa.list_(column.value_type.value_type)
        if example_types.is_list(column) and pa.types.is_dictionary(column.value_type)
        else column
    )


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
    what: RowGroups,
    schema: pa.Schema,
    limits: Limits,
    *,
    bad_rows: BadRows,
    numbers: Numbers = MappingProxyType({}),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups in order, converted to `schema`."""
    batches = batches_apart(decode_groups, what.path, what, schema.names, limits, where=what.path, memory=limits.memory)
    convert = partial(read_numbers, numbers=numbers) if numbers else None
    yield from conform(batches, schema, what.path, bad_rows, first_row=what.first_row, convert=convert)


def decode_groups(path: str, what: RowGroups, wanted: Sequence[str], limits: Limits) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups in flat batches of about `limits.block` bytes, with the types of the file.

    Raises:
      InfeedError: a row group cannot be decoded, or a decoded row exceeds `limits.row`.
    """
    with _open(path) as file:
        names = set(wanted).intersection(schemas.flatten_schema(file.schema_arrow).names)
        rows = _rows_of_a_batch(file, what, names, limits.block)
        packed = _dictionary_columns(file, what, names)
        columns, metadata = sorted(names), file.metadata
        whole = not files.is_local(path) and _stored_bytes(file, what, names) <= _STORE_READ_AHEAD_OF_ALL
    with _open(path, packed, max(1, len(names)), metadata, whole=whole) as file:
        batches = file.iter_batches(rows, list(what.groups), columns, use_threads=False)
        first_row = what.first_row
        try:
            for batch in batches:
                yield from _cut(schemas.flatten_batch(batch), limits, path, first_row)
                first_row += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, MemoryError):
                raise
            groups = f"{path}, row groups {what.groups[0]} to {what.groups[-1]}"
            raise InfeedError(
                f"cannot read the Parquet file: {error}", where=groups, do="write the file again"
            ) from error


def _stored_bytes(file: pq.ParquetFile, what: RowGroups, names: set[str]) -> int:
    """Return the size of the columns in the file."""
    groups = [file.metadata.row_group(group) for group in what.groups]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    return sum(chunk.total_compressed_size for chunk in chunks if _is_under_any(chunk.path_in_schema, names))


def _rows_of_a_batch(file: pq.ParquetFile, what: RowGroups, names: set[str], block_bytes: int) -> int:
    """Estimate the rows of a block from the file's sizes, or from the number of values if that is larger."""
    groups = [file.metadata.row_group(group) for group in what.groups]
    rows = sum(group.num_rows for group in groups)
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    values = sum(chunk.num_values for chunk in chunks if _is_under_any(chunk.path_in_schema, names))
    size = max(sum(group.total_byte_size for group in groups), values * _NUMBER, 1)
    return min(max(1, int(rows * block_bytes // size)), _ROWS_PER_BLOCK)


def _dictionary_columns(file: pq.ParquetFile, what: RowGroups, names: set[str]) -> list[str]:
    """Return the paths of dictionary-encoded text columns, which Arrow can leave encoded."""
    found = list[str]()
    for number in range(file.metadata.num_columns):
        column = file.schema.column(number)
        chunks = [file.metadata.row_group(group).column(number) for group in what.groups]
        is_text = column.physical_type == "BYTE_ARRAY" and column.logical_type.type in ("STRING", "NONE")
        repeats = any("DICTIONARY" in encoding for chunk in chunks for encoding in chunk.encodings)
        if is_text and repeats and _is_under_any(column.path, names):
            found.append(column.path)
    return found


def _cut(batch: pa.RecordBatch, limits: Limits, path: str, first_row: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into blocks, and decode dictionaries."""
    sizes = sum((_bytes_of_rows(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))
    if batch.num_rows and sizes.max() > limits.row:
        row = int(sizes.argmax())
        raise InfeedError(
            f"a row takes {int(sizes[row]) >> 20:,} MB",
            where=f"{path}, row {first_row + row}",
            do="skip its column (--set columns=...), or raise max_row_mb (--max-row-mb)",
        )
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
        sizes = np.full(len(items), _NUMBER)
    if not example_types.is_list(column.type):
        return sizes
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
    counts = example_types.item_counts(column)
    offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, items.dictionary_decode())
    return pc.if_else(column.is_valid(), lists, pa.scalar(None, lists.type)) if column.null_count else lists


@contextmanager
def _open(
    path: str,
    read_dictionary: Sequence[str] = (),
    columns: int = 1,
    metadata: pq.FileMetaData | None = None,
    *,
    whole: bool = False,
) -> Iterator[pq.ParquetFile]:
    """Open a file to read `columns` columns.

    Args:
      metadata: metadata of the file, if known, which saves a request.
      whole: read neighboring columns together, in ranges of up to 32 MB, which all stay in memory.
    """
    of_column, of_all = _READ_AHEAD, _READ_AHEAD_OF_ALL
    if not files.is_local(path):
        of_column, of_all = _STORE_READ_AHEAD, _STORE_READ_AHEAD_OF_ALL
    with files.open_input(path) as raw:
        try:
            file = pq.ParquetFile(
                raw,
                buffer_size=max(_SECTOR, min(of_column, of_all // columns)),
                pre_buffer=whole,
                metadata=metadata,
                coerce_int96_timestamp_unit="us",
                read_dictionary=list(read_dictionary),
            )
        except ReadFailedError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise InfeedError(
                f"not Parquet, or truncated: {error}", where=path, do="write the file again, or remove it"
            ) from error
        except Exception as error:  # a Python extension type runs the code that registered it
            reason = str(error).partition("\n")[0].rstrip(":")
            raise InfeedError(
                f"a column has a Python extension type, which is unsafe to read: {reason}",
                where=path,
                do="cast such columns to their storage type, and write the file again",
            ) from error
        yield file


def _check_kept(kept: Sequence[str] | None, found: Sequence[schemas.FileSchema]) -> None:
    there = list(dict.fromkeys(name for one in found for name in schemas.flatten_schema(one.schema).names))
    for name in kept or ():
        if not any(_is_under(column, name) for column in there):
            raise InfeedError(
                f"there is no column {name!r}", where="columns", do=f"use some of {', '.join(there[:20])}"
            )


def _is_under_any(column: str, names: Set[str]) -> bool:
    """Return whether a column is one of the names or nested in one. Fast for tens of thousands of names."""
    parts = column.split(".")
    return any(".".join(parts[:end]) in names for end in range(1, len(parts) + 1))


def _is_under(column: str, name: str) -> bool:
    return column == name or column.startswith(f"{name}.")
