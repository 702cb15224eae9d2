"""Parquet files -> record batches: row groups are the tasks, and a big one is read block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyarrow import parquet as pq

from infeed.components.dataset import files, schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import Part
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.fitting import fit_batches
from infeed.components.example_gen.ingest import Input

_ROWS_PER_BLOCK = 1 << 16  # at most: a file's own sizes say little about values that it repeats
_READ_AHEAD = 1 << 20  # bytes of each column; without it Arrow loads whole row groups


@dataclass(frozen=True)
class ParquetOptions:
    """What to read. `columns` keeps these alone, nested ones by their dotted names; None keeps all."""

    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or (self.columns is not None and not self.columns):
            raise InfeedError(
                f"columns={self.columns!r}", where="ParquetOptions", do="name the columns to keep, or give None"
            )


@dataclass(frozen=True)
class RowGroups:
    """Neighbouring row groups of one file; `first_row` counts over the file, from 1."""

    path: str
    groups: tuple[int, ...]
    first_row: int


@dataclass(frozen=True)
class Footer:
    """What a file says about itself: its columns, and its row groups as tasks."""

    schema: schemas.FileSchema
    groups: tuple[RowGroups, ...]


def open_parquet(
    root: str, patterns: inputs.Patterns, options: IngestOptions, parquet: ParquetOptions | None = None
) -> Input:
    """Parquet files whose columns go together."""
    found = inputs.find(root, patterns)
    footers = {split: [read_footer(file.path, options.block_bytes) for file in some] for split, some in found.items()}
    schema = schemas.unify([footer.schema for some in footers.values() for footer in some])
    schema = _project(schema, parquet.columns if parquet else None)
    tasks = inputs.as_tasks(
        (split, groups) for split, some in footers.items() for footer in some for groups in footer.groups
    )
    read = partial(read_groups, schema=schema, block_bytes=options.block_bytes)
    return Input(Source.of("parquet", root, inputs.all_files(found)), schema, tasks, read)


def read_footer(path: str, block_bytes: int) -> Footer:
    """Raises InfeedError where the file is not Parquet, or cut short."""
    with _open(path) as file:
        sizes = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        groups = plan_groups(path, [Part(group.num_rows, group.total_byte_size) for group in sizes], block_bytes)
        return Footer(schemas.FileSchema(path, file.schema_arrow), tuple(groups))


def plan_groups(path: str, sizes: Sequence[Part], block_bytes: int) -> Iterator[RowGroups]:
    """Row groups in order, small ones together up to about `block_bytes`."""
    first_row, rows, size, groups = 1, 0, 0, list[int]()
    for number, group in enumerate(sizes):
        if groups and size + group.bytes > block_bytes:
            yield RowGroups(path, tuple(groups), first_row)
            first_row, rows, size, groups = first_row + rows, 0, 0, []
        groups.append(number)
        rows, size = rows + group.records, size + group.bytes
    if rows:
        yield RowGroups(path, tuple(groups), first_row)


def read_groups(what: RowGroups, schema: pa.Schema, block_bytes: int, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups in order, with the columns of `schema` and no others."""
    with _open(what.path) as file:
        size = sum(file.metadata.row_group(group).total_byte_size for group in what.groups)
        rows = sum(file.metadata.row_group(group).num_rows for group in what.groups)
        batches = file.iter_batches(
            batch_size=min(max(1, rows * block_bytes // max(size, 1)), _ROWS_PER_BLOCK),
            row_groups=list(what.groups),
            columns=[name for name in schemas.flatten_schema(file.schema_arrow).names if name in schema.names],
        )
        try:
            yield from fit_batches(batches, schema, what.path, bad_rows, first_row=what.first_row)
        except (OSError, pa.ArrowException) as error:
            groups = f"{what.path}, row groups {what.groups[0]} to {what.groups[-1]}"
            raise InfeedError(f"unreadable Parquet: {error}", where=groups, do="write the file again") from error


@contextmanager
def _open(path: str) -> Iterator[pq.ParquetFile]:
    with files.open_input(path) as raw:
        try:
            file = pq.ParquetFile(raw, buffer_size=_READ_AHEAD, coerce_int96_timestamp_unit="us")
        except (OSError, pa.ArrowException) as error:
            raise InfeedError(
                f"not Parquet, or cut short: {error}", where=path, do="write the file again, or leave it out"
            ) from error
        yield file


def _project(schema: pa.Schema, kept: Sequence[str] | None) -> pa.Schema:
    if kept is None:
        return schema
    for name in kept:
        if not any(_is_under(column, name) for column in schema.names):
            raise InfeedError(f"no column {name!r}", where="columns", do=f"choose from {', '.join(schema.names[:20])}")
    return pa.schema([field for field in schema if any(_is_under(field.name, name) for name in kept)])


def _is_under(column: str, name: str) -> bool:
    return column == name or column.startswith(f"{name}.")
