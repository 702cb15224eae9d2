"""Reader of HDF5 files. The datasets of one group are the columns, and their first axis is the rows.

A dataset of a compound type has a column for each field. Further axes become one list for each row, in C order. A child
process reads the files; see `reader_process`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files, schemas
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import Batches, OpenedSource, Patterns
from infeed.components.example_gen.sources import columnar
from infeed.components.example_gen.sources.columnar import ColumnOptions, FileLayout, RowGroups
from infeed.components.example_gen.sources.numpy_arrays import check_lengths, columns_of
from infeed.components.example_gen.sources.reader_process import Limits

_VARYING = 256  # assumed bytes of a value of varying length
_CACHE = 32 << 20  # bytes of decompressed chunks of each dataset. HDF5's own limit is often less than one chunk
_DO = "write the file again, or remove it"


@dataclass(frozen=True)
class Hdf5Options(ColumnOptions):
    """Options of the HDF5 reader: those of `ColumnOptions`, and the group. `columns` are names of datasets.

    Attributes:
      group: group that holds the datasets, such as `train` or `a/b`.
    """

    group: str = "/"


def open_hdf5(root: str, patterns: Patterns, options: IngestOptions, hdf5: Hdf5Options) -> OpenedSource:
    """Open HDF5 files with compatible columns; see `open_columnar`."""
    required("h5py")
    layout = partial(read_layout, group=hdf5.group, wanted=hdf5.columns)
    reader = columnar.Reader("hdf5", layout, partial(decode_rows, group=hdf5.group))
    return columnar.open_columnar(reader, root, inputs.find(root, patterns, companions=False), options, hdf5)


def read_layout(path: str, block_bytes: int, group: str, wanted: Sequence[str] | None) -> FileLayout:
    """Read types and lengths, and plan tasks that end between chunks. Raises InfeedError if a dataset is missing."""
    with _datasets(path, group, wanted) as found:
        for name, one in found.items():
            where = f"{path}, dataset {name!r}"
            if one.external or one.is_virtual:
                do = "copy the dataset into one file: h5repack"
                raise InfeedError("the values are in other files", where=where, do=do)
            if not one.shape:
                do = "leave it out of columns"
                raise InfeedError("the dataset is a single value, without rows", where=where, do=do)
        lengths = {name: len(one) for name, one in found.items()}
        check_lengths(lengths, path, "columns")
        columns = [pair for name, one in found.items() for pair in _columns(path, name, one, 0, 0)]
        schema = pa.schema([(name, column.type) for name, column in columns])
        rows, step = max(lengths.values()), max(1, block_bytes // _row_bytes(found.values()))
        chunk = max(one.chunks[0] if one.chunks else 1 for one in found.values())
        step = -(-step // chunk) * chunk
        groups = (RowGroups(path, (start, min(start + step, rows)), start + 1) for start in range(0, rows, step))
        return FileLayout(schemas.FileSchema(path, schema), tuple(groups))


def decode_rows(what: RowGroups, wanted: Sequence[str], limits: Limits, group: str) -> Batches:
    """Yield some rows in batches of about `limits.block` bytes. `what.groups` are the first row and the end, from 0."""
    start, stop = what.groups
    tops = {name for one in wanted for name in (one, one.rpartition(".")[0])}
    with _datasets(what.path, group, None) as all_of_group:
        found = {name: one for name, one in all_of_group.items() if name in tops or one.dtype.names}
        step = max(1, limits.block // _row_bytes(found.values()))
        for at in range(start, stop, step):
            end = min(at + step, stop)
            columns = [pair for name, one in found.items() for pair in _columns(what.path, name, one, at, end)]
            batch = pa.RecordBatch.from_pydict({name: column for name, column in columns if name in wanted})
            yield from columnar.cut(batch, limits, what.path, at + 1)


def _row_bytes(found: Any) -> int:
    sizes = [
        (_VARYING if one.dtype.hasobject else one.dtype.itemsize) * int(np.prod(one.shape[1:], dtype=np.int64))
        for one in found
    ]
    return max(sum(sizes), 1)


def _columns(path: str, name: str, dataset: Any, start: int, stop: int) -> list[tuple[str, pa.Array]]:
    h5py = required("h5py")
    where = f"{path}, dataset {dataset.name!r}"
    text, varying = h5py.check_string_dtype(dataset.dtype), h5py.check_vlen_dtype(dataset.dtype)
    with _errors(where):
        values = dataset[start:stop]
        if text is None and varying is not None and dataset.ndim == 1:
            return [(name, pa.array(list(values), pa.list_(pa.from_numpy_dtype(varying))))]
        if text is None or dataset.dtype.kind == "S":
            return columns_of(name, values)
        items = pa.array(values.reshape(-1).tolist(), pa.binary())
        items = items.cast(pa.string()) if text.encoding == "utf-8" else items
        size = int(np.prod(dataset.shape[1:], dtype=np.int64))
        return [(name, items if dataset.ndim == 1 else pa.FixedSizeListArray.from_arrays(items, size))]


@contextmanager
def _datasets(path: str, group: str, wanted: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
    h5py = required("h5py")
    with files.open_input(path) as raw:
        with _errors(path):
            file = h5py.File(raw, "r", rdcc_nbytes=_CACHE)
        with file:
            with _errors(path):
                found = {
                    name: one for name, one in _members(file, group, path).items() if isinstance(one, h5py.Dataset)
                }
                for name in wanted or ():
                    if name not in found:
                        do = f"use some of {', '.join(list(found)[:20])}"
                        raise InfeedError(f"there is no dataset {name!r} in group {group!r}", where=path, do=do)
                found = {name: one for name, one in found.items() if wanted is None or name in wanted}
            yield found


def _members(file: Any, group: str, path: str) -> dict[str, Any]:
    """Return the datasets and groups of a group. Links are not followed, because they may lead to other files."""
    h5py, at = required("h5py"), file
    for part in filter(None, group.split("/")):
        inside = _hard_linked(at)
        if not isinstance(inside.get(part), h5py.Group):
            groups = [name for name, one in inside.items() if isinstance(one, h5py.Group)]
            do = f"use one of {', '.join(groups)}" if groups else "leave out the group"
            raise InfeedError(f"there is no group {part!r} in {at.name!r}", where=path, do=do)
        at = inside[part]
    inside = _hard_linked(at)
    if not any(isinstance(one, h5py.Dataset) for one in inside.values()):
        do = f"name a group by --set group=NAME, such as {', '.join(inside) or 'train'}"
        raise InfeedError(f"group {at.name!r} has no datasets", where=path, do=do)
    return inside


def _hard_linked(group: Any) -> dict[str, Any]:
    hard = required("h5py").HardLink
    return {name: group[name] for name in group if isinstance(group.get(name, getlink=True), hard)}


@contextmanager
def _errors(where: str) -> Iterator[None]:
    try:
        yield
    except (InfeedError, MemoryError):
        raise
    except Exception as error:  # for a damaged file h5py raises whatever its values lead to, such as OverflowError
        reason = f"not HDF5, damaged, or of an unsupported type: {error}"
        raise InfeedError(reason, where=where, do=_DO) from error
