"""Tables whose log names their Parquet files, as Delta Lake and Iceberg have them.

The table's own library reads the log, and the Parquet reader reads the files, in the same tasks as without a log.
Values of partition columns come from the log. Rows that the log marks as deleted are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, schemas
from infeed.components.dataset.bounds import FolderBounds
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import Ints
from infeed.components.example_gen.inputs import BadRows, Batches, FilePart, OpenedSource, Patterns, Read
from infeed.components.example_gen.sources.columnar import ColumnOptions, is_under_any, open_columnar
from infeed.components.example_gen.sources.parquet import READER


@dataclass(frozen=True)
class TableFile:
    """A Parquet file of a table."""

    path: str
    values: Mapping[str, Any]  # of each column that only the log holds
    deleted: Ints | None = None  # int64, numbers of the deleted rows, from 1


def open_table(
    kind: str,
    root: str,
    patterns: Patterns,
    table: Sequence[TableFile],
    names: Sequence[str],
    options: IngestOptions,
    columns: ColumnOptions,
) -> OpenedSource:
    """Open the files of a table. `names` are its columns, in order. A column that no file has is null.

    Raises InfeedError if there are no rows, a file is outside of the folder, or files do not fit; see `open_columnar`.
    """
    if len(patterns) > 1:
        what = f"a table is one input split, not {', '.join(map(str, patterns))}"
        raise InfeedError(what, where=root, do="leave out input_config, and divide the rows by output_config")
    if not table:
        raise InfeedError("the table has no rows", where=root, do="check the table, or choose another version")
    bounds = FolderBounds(root, allow=options.allow_outside)
    for one in table:
        bounds.check(one.path)
    of_log = pa.schema([(name, pa.array([one.values[name] for one in table]).type) for name in table[0].values])
    in_files = [name for name in columns.columns or () if name not in of_log.names] or None
    (split,) = patterns
    found = {split: [files.stat(one.path) for one in table]}
    opened = open_columnar(READER, root, found, options, replace(columns, columns=in_files))
    schema = _ordered(pa.schema([*opened.schema, *of_log]), names, columns.columns)
    tasks, by_path = opened.tasks, {one.path: one for one in table}
    return replace(
        opened,
        provenance=replace(opened.provenance, kind=kind),
        schema=schema,
        tasks=tuple(replace(task, payload=_piece_of(task.payload, by_path)) for task in tasks),
        read=partial(_read, read=opened.read, schema=schema),
    )


def _ordered(there: pa.Schema, names: Sequence[str], kept: Sequence[str] | None) -> pa.Schema:
    """Return the columns in the order of the table. Fields of a struct stay together."""
    tops = {name: name if name in names else name.partition(".")[0] for name in there.names}
    known = [pa.field(name, pa.null()) for name in names if name not in tops.values()]
    of_table = [one for one in (*there, *known) if tops.get(one.name, one.name) in names]
    ordered = sorted(of_table, key=lambda one: names.index(tops.get(one.name, one.name)))
    return pa.schema([one for one in ordered if kept is None or is_under_any(one.name, set(kept))])


def _piece_of(part: FilePart, table: Mapping[str, TableFile]) -> FilePart:
    one = table[part.file.path]
    return replace(part, piece=(replace(part.piece, deleted=one.deleted), one.values))


def _read(part: FilePart, read: Read, schema: pa.Schema, *, bad_rows: BadRows) -> Batches:
    groups, values = part.piece
    of_log = {name: pa.scalar(one, schema.field(name).type) for name, one in values.items() if name in schema.names}
    for batch in read(replace(part, piece=groups), bad_rows=bad_rows):
        columns = [*batch.columns, *(pa.repeat(one, batch.num_rows) for one in of_log.values())]
        yield schemas.fill(pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *of_log]), schema)
