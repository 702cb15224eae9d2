"""Reader of Parquet files. Each task reads some row groups, block by block.

A child process reads the files; see `reader_process`. Blocks are bounded by their decoded size: a few kilobytes of
dictionary or run-length encoding may decode to gigabytes, so texts stay dictionary-encoded until a block is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

from infeed.components.dataset import files, schemas
from infeed.components.dataset.options import IngestOptions, Part
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import Batches, OpenedSource, Patterns
from infeed.components.example_gen.sources import columnar
from infeed.components.example_gen.sources.columnar import ColumnOptions, FileLayout, Reader, RowGroups, is_under_any
from infeed.components.example_gen.sources.file_kinds import check_no_table
from infeed.components.example_gen.sources.reader_process import Limits

_ROWS_PER_BLOCK = 1 << 16  # upper limit, because a file's sizes do not cover repeated values
_READ_AHEAD = 1 << 20  # bytes of each column. Without a limit, Arrow loads whole row groups
_READ_AHEAD_OF_ALL = 64 << 20  # bytes of all columns
_STORE_READ_AHEAD = 8 << 20  # limits on an object store, where each read is a request
_STORE_READ_AHEAD_OF_ALL = 128 << 20
# A key of the footer. Newer writers put string views there, which Arrow 10 does not support.
_ARROW_TYPES = b"ARROW:schema"
_FOOTER_END = 8  # bytes: length of the footer, and PAR1
_SECTOR = 4 << 10  # smallest useful read


@dataclass(frozen=True)
class ParquetOptions(ColumnOptions):
    """Options of the Parquet reader: those of `ColumnOptions`."""


def open_parquet(root: str, patterns: Patterns, options: IngestOptions, parquet: ParquetOptions) -> OpenedSource:
    """Open Parquet files with compatible columns; see `open_columnar`."""
    if "*" in patterns.values():
        check_no_table(root)
    found = inputs.find(root, patterns, companions=False)
    return columnar.open_columnar(READER, root, found, options, parquet)


def read_layout(path: str, block_bytes: int) -> FileLayout:
    """Read the footer. Raises InfeedError if the file is not Parquet or is truncated."""
    with _open(path) as file:
        sizes = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        parts = [Part(group.num_rows, group.total_byte_size) for group in sizes]
        groups = columnar.plan_groups(path, parts, block_bytes)
        return FileLayout(columnar.file_schema(path, file.schema_arrow), tuple(groups))


def decode_groups(what: RowGroups, wanted: Sequence[str], limits: Limits) -> Batches:
    """Yield some row groups in flat batches of about `limits.block` bytes, with the file's types; see `cut`."""
    path = what.path
    with _open(path) as file:
        metadata, names = file.metadata, set(wanted).intersection(schemas.flatten_schema(file.schema_arrow).names)
        of_groups = [metadata.row_group(group) for group in what.groups]
        chunks = [group.column(number) for group in of_groups for number in range(group.num_columns)]
        chunks = [chunk for chunk in chunks if is_under_any(chunk.path_in_schema, names)]
        # The sizes do not cover repeated values, so the number of values counts if it is larger.
        size = sum(group.total_byte_size for group in of_groups)
        size = max(size, columnar.NUMBER * sum(chunk.num_values for chunk in chunks), 1)
        rows = min(max(1, limits.block * sum(group.num_rows for group in of_groups) // size), _ROWS_PER_BLOCK)
        packed = _dictionary_columns(file, what, names)
        stored = sum(chunk.total_compressed_size for chunk in chunks)
        whole = not files.is_local(path) and stored <= _STORE_READ_AHEAD_OF_ALL
    where = f"{path}, row groups {what.groups[0]} to {what.groups[-1]}"
    with (
        _open(path, packed, max(1, len(names)), metadata, whole=whole) as file,
        columnar.reading_errors("Parquet", where),
    ):
        first_row = what.first_row
        # Arrow cannot build a nested column from the dictionaries of several row groups, so each is read by itself.
        is_nested = not set(packed).issubset(file.schema_arrow.names)
        for groups in [[group] for group in what.groups] if is_nested else [list(what.groups)]:
            for batch in file.iter_batches(rows, groups, sorted(names), use_threads=False):
                yield from columnar.cut(schemas.flatten_batch(batch), limits, path, first_row)
                first_row += batch.num_rows


def _dictionary_columns(file: pq.ParquetFile, what: RowGroups, names: set[str]) -> list[str]:
    """Return the paths of dictionary-encoded text columns, which Arrow can leave encoded."""
    found = list[str]()
    for number in range(file.metadata.num_columns):
        column = file.schema.column(number)
        chunks = [file.metadata.row_group(group).column(number) for group in what.groups]
        is_text = column.physical_type == "BYTE_ARRAY" and column.logical_type.type in ("STRING", "NONE")
        repeats = any("DICTIONARY" in encoding for chunk in chunks for encoding in chunk.encodings)
        if is_text and repeats and is_under_any(column.path, names):
            found.append(column.path)
    return found


@contextmanager
def _open(
    path: str,
    read_dictionary: Sequence[str] = (),
    columns: int = 1,
    metadata: pq.FileMetaData | None = None,
    *,
    whole: bool = False,
) -> Iterator[pq.ParquetFile]:
    """Open a file to read `columns` columns. Known metadata save a request.

    If `whole`, neighboring columns are read together, in ranges of up to 32 MB, which all stay in memory.
    """
    of_column, of_all = _READ_AHEAD, _READ_AHEAD_OF_ALL
    if not files.is_local(path):
        of_column, of_all = _STORE_READ_AHEAD, _STORE_READ_AHEAD_OF_ALL
    with files.open_input(path) as raw:
        with columnar.opening_errors("Parquet", path):
            file = _parquet_file(
                raw,
                metadata,
                buffer_size=max(_SECTOR, min(of_column, of_all // columns)),
                pre_buffer=whole,
                coerce_int96_timestamp_unit="us",  # nanoseconds, Arrow's default, cannot hold years after 2262
                read_dictionary=list(read_dictionary),
            )
        yield file


def _parquet_file(raw: pa.NativeFile, metadata: pq.FileMetaData | None, **how: Any) -> pq.ParquetFile:
    """Open a file. If this Arrow does not know Arrow types that the footer adds to Parquet's types, ignore them."""
    try:
        return pq.ParquetFile(raw, metadata=metadata, **how)
    except pa.ArrowInvalid:
        size = raw.size()
        footer = raw.read_at(min(size, _FOOTER_END), max(size - _FOOTER_END, 0))
        footer = raw.read_at(size, max(size - _FOOTER_END - int.from_bytes(footer[:4], "little"), 0))
        if _ARROW_TYPES not in footer:
            raise
        plain = pa.BufferReader(b"PAR1" + footer.replace(_ARROW_TYPES, _ARROW_TYPES.lower()))
        return pq.ParquetFile(raw, metadata=pq.ParquetFile(plain).metadata, **how)


READER = Reader("parquet", read_layout, decode_groups)
