"""Reader of NumPy files. The first axis of an array is the rows, and each array of an `.npz` is a column.

A structured array has a column for each field. Further axes become one list for each row, in C order. A task reads some
rows of an `.npy`. One task reads an `.npz`, block by block from all of its arrays at once: they may be compressed.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib import format as untyped_format

from infeed.components.base.checks import as_tuples, require
from infeed.components.base.errors import InfeedError, ReadFailedError
from infeed.components.dataset import files, schemas
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, Batches, OpenedSource, Patterns, conform

npy: Any = untyped_format  # NumPy 1 declares no types for it
_VALUE = "value"  # column of an .npy
_READ_HEADER = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_DO = "write the file again, or remove it"


@dataclass(frozen=True)
class NumpyOptions:
    """Options of the NumPy reader.

    Attributes:
      arrays: arrays of an .npz to read. None reads all, which must have the same length.
    """

    arrays: Sequence[str] | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "arrays")
        are_names = self.arrays is None or (self.arrays and not isinstance(self.arrays, str))
        require(are_names, self, "arrays", "name the arrays to read, or use None")


@dataclass(frozen=True)
class Header:
    """The header of an array: shape, dtype, and the offset of the first value in its file or member."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    offset: int

    @property
    def row_bytes(self) -> int:
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape[1:], dtype=np.int64))


@dataclass(frozen=True)
class Rows:
    """Rows `start` to `stop` of a file, and the headers of its arrays by column."""

    path: str
    arrays: Mapping[str, Header]
    start: int
    stop: int


def open_numpy(root: str, patterns: Patterns, options: IngestOptions, numpy: NumpyOptions) -> OpenedSource:
    """Open NumPy files with compatible columns."""
    look = partial(read_headers, wanted=numpy.arrays)
    found, parts = list[schemas.FileSchema](), list[tuple[str | None, files.FileStat, list[Rows]]]()
    for split, file, arrays in inputs.look(inputs.find(root, patterns), look):
        none = {name: np.empty((0, *header.shape[1:]), header.dtype) for name, header in arrays.items()}
        columns = [pair for name, array in none.items() for pair in columns_of(name, array)]
        found.append(schemas.FileSchema(file.path, pa.schema([(name, column.type) for name, column in columns])))
        (count,) = {header.shape[0] for header in arrays.values()}
        of_row = max(sum(header.row_bytes for header in arrays.values()), 1)
        step = max(1, options.block_bytes // of_row) if file.path.endswith(".npy") else max(count, 1)
        rows = [Rows(file.path, arrays, start, min(start + step, count)) for start in range(0, count, step)]
        parts.append((split, file, rows))
    schema = schemas.unify(found)
    return inputs.of_parts("numpy", root, schema, parts, partial(read_rows, schema=schema, options=options))


def read_headers(path: str, wanted: Sequence[str] | None = None) -> dict[str, Header]:
    """Return the header of each array. Raises InfeedError if one is damaged or holds objects, or lengths differ."""
    with _open(path, wanted) as arrays:
        headers = {name: _read_header(file, f"{path}, array {name!r}") for name, file in arrays.items()}
    check_lengths({name: header.shape[0] for name, header in headers.items()}, path, "arrays")
    return headers


def check_lengths(lengths: Mapping[str, int], path: str, option: str) -> None:
    """Raise InfeedError if columns of a file have different lengths. `option` is the option that names columns."""
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        [(commonest, _)] = Counter(lengths.values()).most_common(1)
        alike = json.dumps([name for name, length in lengths.items() if length == commonest])
        do = f"name those of one length: --set '{option}={alike}', or {option}={alike} of the format's options"
        raise InfeedError(f"the columns have different lengths: {shown}", where=path, do=do)


def read_rows(what: Rows, schema: pa.Schema, options: IngestOptions, *, bad_rows: BadRows) -> Batches:
    """Yield rows in order, in batches of about `options.block_bytes`."""
    yield from conform(_batches(what, options), schema, what.path, bad_rows, first_row=what.start + 1)


def _batches(what: Rows, options: IngestOptions) -> Batches:
    of_row = sum(header.row_bytes for header in what.arrays.values())
    if of_row > options.max_row_mb << 20:
        raise InfeedError(f"a row takes {of_row >> 20:,} MB", where=what.path, do="raise max_row_mb (--max-row-mb)")
    step = max(1, options.block_bytes // max(of_row, 1))
    with _open(what.path, list(what.arrays)) as arrays:
        for name, header in what.arrays.items():
            if what.path.endswith(".npy"):
                arrays[name].seek(header.offset + what.start * header.row_bytes)
            else:
                arrays[name].read(header.offset)  # after a seek, Python 3.13 no longer checks the checksum
        for start in range(what.start, what.stop, step):
            rows = min(step, what.stop - start)
            columns = [columns_of(name, _read(what, name, arrays[name], rows)) for name in what.arrays]
            yield pa.RecordBatch.from_pydict(dict(pair for pairs in columns for pair in pairs))


def _read(what: Rows, name: str, file: BinaryIO, rows: int) -> npt.NDArray[Any]:
    header = what.arrays[name]
    where = f"{what.path}, array {name!r}"
    with _reading_errors(where):
        data = file.read(rows * header.row_bytes)
    if len(data) < rows * header.row_bytes:
        raise InfeedError("the array is truncated", where=where, do=_DO)
    return np.frombuffer(data, header.dtype).reshape(rows, *header.shape[1:])


def columns_of(name: str, array: npt.NDArray[Any]) -> list[tuple[str, pa.Array]]:
    """Return (name, column) of an array, or of each field. Further axes become lists. Raises InfeedError if unfit."""
    if array.dtype.names:
        prefix = "" if name == _VALUE else f"{name}."
        return [pair for field in array.dtype.names for pair in columns_of(f"{prefix}{field}", array[field])]
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("="))
    try:
        items = pa.array(flat.tolist(), pa.binary()) if flat.dtype.kind == "S" else pa.array(flat)
        if array.ndim > 1:
            items = pa.FixedSizeListArray.from_arrays(items, int(np.prod(array.shape[1:], dtype=np.int64)))
    except pa.ArrowException as error:
        do = "cast the array to numbers, text, or bytes, or leave it out: NumpyOptions(arrays=...)"
        raise InfeedError(f"a tf.Example cannot hold an array of {array.dtype}", where=name, do=do) from error
    return [(name, items)]


@contextmanager
def _open(path: str, wanted: Sequence[str] | None = None) -> Iterator[dict[str, BinaryIO]]:
    """Open a file, and yield its arrays by name. An .npy has the single array `value`."""
    with files.open_input(path) as raw, ExitStack() as stack:
        file = cast(BinaryIO, raw)
        if path.endswith(".npy"):
            yield {_VALUE: file}
            return
        with _reading_errors(path):
            archive = stack.enter_context(zipfile.ZipFile(file))
            names = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            for name in wanted or ():
                if name not in names:
                    raise InfeedError(f"there is no array {name!r}", where=path, do=f"use some of {', '.join(names)}")
            arrays = {name: cast(BinaryIO, archive.open(names[name])) for name in wanted or names}
        if not arrays:
            raise InfeedError("the file has no arrays", where=path, do=_DO)
        for array in arrays.values():
            stack.enter_context(array)
        yield arrays


def _read_header(file: BinaryIO, where: str) -> Header:
    with _reading_errors(where):
        version = npy.read_magic(file)
        if version not in _READ_HEADER:
            raise ValueError(f"version {version[0]}.{version[1]} of the format is unknown")
        shape, is_fortran, dtype = _READ_HEADER[version](file)
    if dtype.hasobject:
        what = "the array holds pickled objects, which are unsafe to read"
        raise InfeedError(what, where=where, do="cast it to numbers or text: array.astype(...)")
    if not shape:
        raise InfeedError("the array is a single value, without rows", where=where, do="write it with one axis or more")
    if is_fortran and len(shape) > 1:
        raise InfeedError("the array is in Fortran order", where=where, do="write it by np.ascontiguousarray")
    return Header(shape, dtype, file.tell())


@contextmanager
def _reading_errors(where: str) -> Iterator[None]:
    try:
        yield
    except (InfeedError, ReadFailedError):
        raise
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InfeedError(f"not a NumPy file, or truncated: {error}", where=where, do=_DO) from error
