"""Parquet files -> record batches: row groups are the tasks, and a big one is read block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyarrow import parquet as pq

from infeed.components.checks import as_tuples, require
from infeed.components.dataset import files, schemas
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import Part
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, OpenedSource, conform

_ROWS_PER_BLOCK = 1 << 16  # at most: a file's own sizes say little about values that it repeats
_READ_AHEAD = 1 << 20  # bytes of each column; without it Arrow loads whole row groups


@dataclass(frozen=True)
class ParquetOptions:
    """What to read. `columns` keeps these alone, nested ones by their dotted names; None keeps all."""

    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "columns")
        are_names = self.columns is None or (self.columns and not isinstance(self.columns, str))
        require(are_names, self, "columns", "name the columns to keep, or give None")


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
) -> OpenedSource:
    """Parquet files whose columns go together."""
    footers = inputs.look(inputs.find(root, patterns), lambda path: read_footer(path, options.block_bytes))
    found, kept = [footer.schema for _, _, footer in footers], parquet.columns if parquet else None
    _check_kept(kept, found)
    schema = schemas.unify(found, lambda column: kept is None or any(_is_under(column, name) for name in kept))
    read = partial(read_groups, schema=schema, block_bytes=options.block_bytes)
    parts = [(split, file, footer.groups) for split, file, footer in footers]
    return inputs.of_parts("parquet", root, schema, parts, read)


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
    wanted = set(schema.names)
    with _open(what.path) as file:
        size = sum(file.metadata.row_group(group).total_byte_size for group in what.groups)
        rows = sum(file.metadata.row_group(group).num_rows for group in what.groups)
        batches = file.iter_batches(
            batch_size=min(max(1, rows * block_bytes // max(size, 1)), _ROWS_PER_BLOCK),
            row_groups=list(what.groups),
            columns=[name for name in schemas.flatten_schema(file.schema_arrow).names if name in wanted],
        )
        try:
            yield from conform(batches, schema, what.path, bad_rows, first_row=what.first_row)
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
        except Exception as error:  # of Python: a type of the file's own is read by whoever registered it
            raise InfeedError(
                f"a column is of a type that Python made, and cannot be read safely: {_first_line(error)}",
                where=path,
                do="write the file again with Arrow's own types, by casting such columns to their storage type",
            ) from error
        yield file


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(":")


def _check_kept(kept: Sequence[str] | None, found: Sequence[schemas.FileSchema]) -> None:
    there = list(dict.fromkeys(name for one in found for name in schemas.flatten_schema(one.schema).names))
    for name in kept or ():
        if not any(_is_under(column, name) for column in there):
            raise InfeedError(f"no column {name!r}", where="columns", do=f"choose from {', '.join(there[:20])}")


def _is_under(column: str, name: str) -> bool:
    return column == name or column.startswith(f"{name}.")
