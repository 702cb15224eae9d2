"""Reader of Iceberg tables. PyIceberg plans the files of one snapshot, and the Parquet reader reads them.

A table names its files by absolute paths. Those below its own location are read from the folder that the user names, so
that a copy of a table is a table. All are opened as files of other formats, in the same stores.

Iceberg identifies columns by number, and the Parquet reader by name. Tables where the two differ are refused.

Format: https://iceberg.apache.org/spec/
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import OpenedSource, Patterns
from infeed.components.example_gen.sources.columnar import ColumnOptions
from infeed.components.example_gen.sources.table_files import TableFile, open_table

_LOG = "metadata/*.metadata.json"
_NUMBER = re.compile(r"v?(\d+)")
_NAME_MAPPING = "schema.name-mapping.default"  # set by tools that add files without the numbers of columns
_WRITE_AGAIN = "write the table again, for example by CREATE TABLE ... AS SELECT"


@dataclass(frozen=True)
class IcebergOptions(ColumnOptions):
    """Options of the Iceberg reader: those of `ColumnOptions`, and the snapshot.

    Attributes:
      metadata: name of the metadata file. None reads the file of `version-hint.text`, or else the last number.
      snapshot: id of the snapshot to read. None reads the current one.
    """

    metadata: str | None = None
    snapshot: int | None = None


def default_pattern(root: str) -> str:
    """Return the pattern of the metadata files, which change with each snapshot."""
    del root
    return _LOG


def open_iceberg(root: str, patterns: Patterns, options: IngestOptions, iceberg: IcebergOptions) -> OpenedSource:
    """Open one snapshot of a table.

    Raises:
      InfeedError: PyIceberg is not installed, there is no such table or snapshot, or only Iceberg's own rules could
        read the files: columns were renamed, rows are deleted by delete files, or files are not Parquet.
    """
    root = files.absolute(root)
    try:
        path = _metadata_file(root, iceberg.metadata)
        metadata = required("pyiceberg.serializers").FromInputFile.table_metadata(_Input(path))
        io, catalog = _Files(metadata.location, root), required("pyiceberg.catalog.noop").NoopCatalog("none")
        table = required("pyiceberg.table").StaticTable(("table", path), metadata, path, io, catalog)
        _check_names(table, root)
        scan = table.scan(snapshot_id=iceberg.snapshot)
        listed = sorted(
            (file_of(task, io.moved(task.file.file_path)) for task in scan.plan_files()), key=lambda one: one.path
        )
        names = [field.name for field in scan.projection().fields]
    except InfeedError:
        raise
    except (ValueError, OSError, KeyError, NotImplementedError) as error:  # PyIceberg has no common class of errors
        what = f"cannot read the Iceberg table: {error}"
        raise InfeedError(what, where=root, do="check the metadata and the snapshot") from error
    return open_table("iceberg", root, patterns, listed, names, options, iceberg)


@dataclass(frozen=True)
class _Input:
    location: str

    def open(self) -> AbstractContextManager[pa.NativeFile]:
        return files.open_input(self.location)


@dataclass(frozen=True)
class _Files:
    """The files of a table whose metadata says `location`, and that lies at `root`, as PyIceberg opens them."""

    location: str
    root: str

    def moved(self, path: str) -> str:
        below = f"{self.location.rstrip('/')}/"
        return files.join(self.root, path[len(below) :]) if path.startswith(below) else path.removeprefix("file://")

    def new_input(self, path: str) -> _Input:
        return _Input(self.moved(path))


def _metadata_file(root: str, name: str | None) -> str:
    """Return the path of the metadata file. Raises InfeedError if two have the last number, after parallel commits."""
    if name is not None:
        return files.join(root, "metadata", name)
    there = [files.name(file.path) for file in files.glob(root, _LOG)]
    numbers = {one: int(found[1]) for one in there if (found := _NUMBER.match(one))}
    hint = files.join(root, "metadata/version-hint.text")
    last = int(files.read_bytes(hint)) if files.exists(hint) else max(numbers.values(), default=0)
    newest = [one for one, number in numbers.items() if number == last]
    if len(newest) == 1:
        return files.join(root, "metadata", newest[0])
    do = f"name the file that the catalog has: --set metadata={max(there, default='NAME.metadata.json')}"
    raise InfeedError(f"{len(newest)} metadata files have the number {last}", where=files.join(root, "metadata"), do=do)


def _check_names(table: Any, root: str) -> None:
    names, numbers = defaultdict[int, set[str]](set), defaultdict[str, set[int]](set)
    for schema in table.metadata.schemas:
        for number in schema.field_ids:
            name = schema.find_column_name(number)
            names[number].add(name)
            numbers[name].add(number)
    fields = [table.schema().find_field(number) for number in table.schema().field_ids]
    changed = [
        *(min(some) for some in names.values() if len(some) > 1),
        *(name for name, some in numbers.items() if len(some) > 1),
        *(field.name for field in fields if field.initial_default is not None),
    ]
    if changed:
        what = f"column {changed[0]!r} was renamed or replaced, or has a default for old files"
        raise InfeedError(what, where=root, do=_WRITE_AGAIN)
    if _NAME_MAPPING in table.metadata.properties and any(spec.fields for spec in table.metadata.partition_specs):
        what = "files were added from another partitioned table, and may lack the partition columns"
        raise InfeedError(what, where=root, do=_WRITE_AGAIN)


def file_of(task: Any, path: str) -> TableFile:
    """Return the file of a scan task, at `path`. Raises InfeedError if the file is not Parquet or has delete files."""
    form = task.file.file_format.value
    if form != "PARQUET":
        raise InfeedError(f"a data file has the format {form}", where=path, do=f"{_WRITE_AGAIN}, as Parquet")
    if task.delete_files:
        what = f"rows are deleted by {len(task.delete_files)} delete files, which are not supported"
        raise InfeedError(what, where=path, do="compact the table: rewrite_data_files with delete-file-threshold 1")
    return TableFile(path, {})
