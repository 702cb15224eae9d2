"""Reader of Delta Lake tables. delta-rs reads the log, and the Parquet reader reads the files of one version.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np

from infeed.components.base.annotations import Count
from infeed.components.base.checks import refused
from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import Ints
from infeed.components.example_gen.inputs import OpenedSource, Patterns
from infeed.components.example_gen.sources.columnar import ColumnOptions
from infeed.components.example_gen.sources.table_files import TableFile, open_table

_LOG = "_delta_log/*.json"
_MAPPING = "delta.columnMapping.mode"
_COLOR = re.compile(r"\x1b\[\d+m")  # in errors of delta-rs


@dataclass(frozen=True)
class DeltaOptions(ColumnOptions):
    """Options of the Delta Lake reader: those of `ColumnOptions`, and the version.

    Attributes:
      version: number of the version to read. None reads the newest.
      timestamp: time such as 2026-01-31T12:00:00Z, whose version is read.
    """

    version: Count | None = None
    timestamp: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.version is not None and self.timestamp is not None:
            raise refused(self, "version", "use only one of the two", "version and timestamp are given")


def default_pattern(root: str) -> str:
    """Return the pattern of the log, whose files change with each version."""
    del root
    return _LOG


def open_delta(root: str, patterns: Patterns, options: IngestOptions, delta: DeltaOptions) -> OpenedSource:
    """Open one version of a table. Raises InfeedError if there is none, or its columns are mapped."""
    root = files.absolute(root)
    deltalake = required("deltalake")
    try:
        store: dict[str, str] | None = None
        if root.startswith("s3://"):  # delta-rs does not find a store of S3 as `files` does
            endpoint, (system, _) = files.endpoint_of(root), files.store_of(root)
            store = {"region": system.region, **({"endpoint": endpoint, "allow_http": "true"} if endpoint else {})}
        table = deltalake.DeltaTable(root, version=delta.version, storage_options=store)
        if delta.timestamp is not None:
            table.load_as_version(delta.timestamp)
        mapping = table.metadata().configuration.get(_MAPPING, "none")
        if mapping != "none":
            what = f"{_MAPPING} is {mapping!r}: the names of columns in the files are not those of the table"
            do = "write the table again without it, for example by CREATE TABLE ... AS SELECT"
            raise InfeedError(what, where=root, do=do)
        names = [field["name"] for field in json.loads(table.schema().to_json())["fields"]]
        listed = _files_of(table, root)
    except InfeedError:
        raise
    except (deltalake.exceptions.DeltaError, ValueError, OSError) as error:
        what = f"cannot read the Delta table: {_COLOR.sub('', str(error))}"
        raise InfeedError(what, where=root, do="check the table and the version") from error
    return open_table("delta", root, patterns, listed, names, options, delta)


def _files_of(table: Any, root: str) -> list[TableFile]:
    """Return the files in the order of their paths, which does not depend on the order of the log."""
    deleted = dict[str, Ints]()
    if "deletionVectors" in (table.protocol().reader_features or ()):
        for batch in table.deletion_vectors():
            kept = zip(batch.column("filepath").to_pylist(), batch.column("selection_vector").to_pylist(), strict=True)
            deleted |= {_path_of(uri, root): np.flatnonzero(~np.asarray(rows, bool)) + 1 for uri, rows in kept}
    added = table.get_add_actions()
    paths = [_path_of(path, root) for path in added.column("path").to_pylist()]
    values = added.column("partition").to_pylist() if "partition" in added.schema.names else [{}] * len(paths)
    found = [TableFile(path, of_log, deleted.pop(path, None)) for path, of_log in zip(paths, values, strict=True)]
    if deleted:
        raise ValueError(f"the log has deletion vectors of unknown files, such as {min(deleted)}")
    return sorted(found, key=lambda one: one.path)


def _path_of(path: str, root: str) -> str:
    """Return the path of a file, which is a URI, relative to the table or absolute."""
    path = unquote(path).removeprefix("file://")
    return path if "://" in path or path.startswith("/") else files.join(root, path)
