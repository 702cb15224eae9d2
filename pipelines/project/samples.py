"""Random sample of the rows of a table, drawn in bounded memory while reading the files.

Each row draws a random key, and the sample keeps the rows with the smallest keys. Samples of several files, including
cached samples, therefore merge into a sample of all files.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.statistics.cells import MAX_BYTES, MISSING, Cells, concat

ROWS = 32_768
_KEY, _FILE = "\0key", "\0file"  # column names that no file has

Keys = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of a table, in the order of the files."""

    keys: Keys  # float64 [n], random key of each row, below `threshold`
    cells: Mapping[str, Cells]  # cells by column, n rows each
    files: Ints  # int64 [n], file number of each row
    threshold: float = 1.0  # the sample contains all rows of the table with a smaller key

    def __len__(self) -> int:
        return len(self.keys)

    def of_file(self, number: int) -> Sample:
        """Return the sample with this file number for all rows."""
        return replace(self, files=np.full(len(self), number, np.int64))

    def different(self, column: str, most: int) -> list[bytes]:
        """Return up to `most` distinct values of a text column, from all parts of the table."""
        cells = self.cells.get(column)
        if cells is None or cells.kind != "bytes":
            return []
        values = cells.values.filter(pa.array(cells.byte_lengths <= MAX_BYTES)).unique()  # type: ignore[union-attr]
        places = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(np.int64))
        return values.take(pa.array(places)).to_pylist()  # type: ignore[no-any-return]

    def below(self, threshold: float) -> Sample:
        """Return the rows with keys below the threshold."""
        rows = np.flatnonzero(self.keys < threshold)
        return Sample(
            self.keys[rows],
            {name: cells.take(rows) for name, cells in self.cells.items()},
            self.files[rows],
            min(threshold, self.threshold),
        )

    def cut(self, rows: int, most_cells: int = 1 << 23, most_bytes: int = 64 << 20, least_rows: int = 256) -> Sample:
        """Return a sample of at most `rows` rows, or fewer with many columns or long texts."""
        size = sum(cells.nbytes for cells in self.cells.values())
        fit = min(most_cells // max(len(self.cells), 1), len(self) * most_bytes // max(size, 1))
        limit = min(rows, max(fit, least_rows))
        return self if len(self) <= limit else self.below(float(np.partition(self.keys, limit)[limit]))


class Sampler:
    """Sampler of at most `rows` rows of a file's blocks. The file name determines the selection."""

    def __init__(self, name: str, rows: int = ROWS) -> None:
        self._random = np.random.default_rng(zlib.crc32(name.encode("utf-8", "surrogateescape")))
        self._rows = rows
        self._parts: list[Sample] = []
        self._threshold = 1.0

    def add(self, rows: int, cells: Mapping[str, Cells]) -> None:
        block = Sample(self._random.random(rows), cells, np.zeros(rows, np.int64))
        self._parts.append(block.below(self._threshold))
        # Not before twice the rows are there, so that rows are seldom copied.
        if sum(map(len, self._parts)) > 2 * self._rows:
            self._parts = [self.sample()]
            self._threshold = self._parts[0].threshold

    def sample(self) -> Sample:
        """Return the sample of all rows so far."""
        return merge(self._parts, self._rows)


def merge(parts: Sequence[Sample], rows: int = ROWS) -> Sample:
    """Merge samples into one of at most `rows` rows. Parts with rows must have the same columns."""
    threshold = min((part.threshold for part in parts), default=1.0)
    thinned = [part.below(threshold) for part in [part for part in parts if len(part)] or parts[:1]]
    if not thinned:
        return Sample(np.empty(0), {}, np.empty(0, np.int64))
    names = [name for name in thinned[0].cells if all(name in part.cells for part in thinned)]
    cells = {name: concat([part.cells[name] for part in thinned]) for name in names}
    keys = np.concatenate([part.keys for part in thinned])
    numbers = np.concatenate([part.files for part in thinned])
    return Sample(keys, cells, numbers, threshold).cut(rows)


def to_bytes(sample: Sample) -> bytes:
    """Serialize the sample as an Arrow file."""
    columns = {
        _KEY: pa.array(sample.keys),
        _FILE: pa.array(sample.files),
        **{name: _as_lists(cells) for name, cells in sample.cells.items()},
    }
    fields = [(name, column.type) for name, column in columns.items()]
    schema = pa.schema(fields, metadata={"threshold": repr(sample.threshold)})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))
    return sink.getvalue()


def from_bytes(data: bytes) -> Sample:
    """Parse the output of `to_bytes`. Raises ValueError if the data is not an output of `to_bytes`."""
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        batch, threshold = reader.get_batch(0), (reader.schema.metadata or {}).get(b"threshold", b"")
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if not {_KEY, _FILE} <= columns.keys():
        raise ValueError("a file without keys")
    keys, numbers = (columns.pop(name).to_numpy(zero_copy_only=False) for name in (_KEY, _FILE))
    cells = {name: found for name, column in columns.items() if (found := Cells.of(column)) is not None}
    return Sample(keys, cells, numbers, float(threshold))


def _as_lists(cells: Cells) -> pa.LargeListArray:
    """Return a list per row, or null for rows without the feature."""
    offsets = np.concatenate([[0], np.cumsum(np.maximum(cells.lengths, 0))])
    missing = np.append(cells.lengths == MISSING, False)
    values = pa.array(cells.values) if isinstance(cells.values, np.ndarray) else cells.values
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64(), mask=missing), values)
