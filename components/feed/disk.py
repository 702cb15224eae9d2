"""Columns in files, as tensors: write batches to `dataset.column_files`, and gather rows from the mapped files.

Tensors share the memory of the mapped files. A gather runs no Python. The memory belongs to the page cache, so the
kernel can reclaim it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.components.dataset import column_files
from infeed.components.dataset.column_files import CachedColumn, ColumnIndex, FileWriter
from infeed.components.feed.columns import Columns, Layout, mapped

FORMAT = 4


def cache_columns(batches: tf.data.Dataset, folder: str, key: str, expected_bytes: float) -> Columns:
    """Return the columns in FOLDER/KEY. If the entry is missing, first read all `batches` and write it.

    The last batch may be short. The local folder is created if missing, and old entries are deleted if space is needed.
    `key` identifies the data and its processing. Raises InfeedError if the entry cannot be written.
    """
    layout = Layout.of(batches.element_spec)

    def write(entry: Path) -> ColumnIndex:
        writers: dict[int, _Writer] = {}
        for columns in mapped(batches, layout.columns_of):
            for number, column in enumerate(columns):
                if number not in writers:
                    writers[number] = _Writer(f"{entry}/{number}", column)
                writers[number].add(column)
        return ColumnIndex.of([writer.kept() for writer in writers.values()])

    def opened(entry: Path, index: ColumnIndex) -> Columns:
        for column in index.columns:
            if tf.as_dtype(column.type).name != column.type:
                raise ValueError(f"{entry}: {column.type!r} is not a type of tensors")
        columns = tuple(MappedColumn(f"{entry}/{number}", kept) for number, kept in enumerate(index.columns))
        return Columns(index.rows, layout, columns)

    do = "free some space, set FeedOptions.cache_dir to another folder, or use tier='stream'"
    return column_files.kept(folder, key, write, opened, expected_bytes, do)


class _Writer:
    """Writer that appends batches to the files of one column."""

    def __init__(self, stem: str, like: Any) -> None:
        self._like, levels = like, len(_flattened(like)[0])
        self._splits = [FileWriter(f"{stem}.splits.{level}") for level in range(levels)]
        self._values, self._ends = FileWriter(f"{stem}.values"), [0] * levels
        for splits in self._splits:
            splits.add(np.zeros(1, np.int64))  # the first row begins at 0

    def add(self, column: Any) -> None:
        """Append a dense [batch, width] or a ragged tensor."""
        lengths, values = _flattened(column)
        for level, counts in enumerate(lengths):
            self._splits[level].add(self._ends[level] + np.cumsum(counts, dtype=np.int64))
            self._ends[level] += int(counts.sum())
        self._values.add(values)

    def kept(self) -> CachedColumn:
        ragged = isinstance(self._like, tf.RaggedTensor)
        values = self._like.flat_values if ragged else self._like
        files = tuple(writer.written() for writer in (*self._splits, self._values))
        levels = tuple(splits.items for splits in self._splits)
        return CachedColumn(values.dtype.name, ragged, tuple(values.shape[1:]), self._values.items, levels, files)


def _flattened(column: Any) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[Any]]:
    """Return the lengths of each level and the concatenated values. Strings count as rows of bytes."""
    ragged = isinstance(column, tf.RaggedTensor)
    lengths = [counts.numpy() for counts in column.nested_row_lengths()] if ragged else []
    values = (column.flat_values if ragged else column).numpy()
    if values.dtype != object:
        return lengths, values
    if not ragged:
        lengths = [np.full(len(values), values.shape[1])]
    strings = values.ravel().tolist()
    counts = np.fromiter(map(len, strings), np.int64, len(strings))
    return [*lengths, counts], np.frombuffer(b"".join(strings), np.uint8)


class MappedColumn:
    """Column in memory-mapped files."""

    def __init__(self, stem: str, kept: CachedColumn) -> None:
        kind = "uint8" if kept.type in ("string", "bool") else kept.type
        column = _map(f"{stem}.values", kind, kept.values, () if kept.type == "string" else kept.shape)
        for level in reversed(range(len(kept.levels))):
            splits = _map(f"{stem}.splits.{level}", "int64", kept.levels[level], ())
            column = tf.RaggedTensor.from_row_splits(column, splits, validate=False)
        self._column, self._kept = column, kept

    def __call__(self, rows: tf.Tensor) -> Any:
        taken = tf.gather(self._column, rows)
        if self._kept.type != "string":
            return tf.cast(taken, tf.bool) if self._kept.type == "bool" else taken
        # TensorFlow cannot cut bytes into strings, but a serialized uint8 tensor ends with its bytes.
        splits, serialized = taken.nested_row_splits[-1], tf.io.serialize_tensor(taken.flat_values)
        begin = tf.cast(tf.strings.length(serialized) - tf.size(taken.flat_values), tf.int64)
        strings = tf.strings.substr(serialized, begin + splits[:-1], splits[1:] - splits[:-1])
        if not self._kept.ragged:
            batch = -1 if rows.shape[0] is None else rows.shape[0]
            return tf.reshape(strings, [batch, *self._kept.shape])
        return tf.RaggedTensor.from_nested_row_splits(strings, taken.nested_row_splits[:-1], validate=False)


def _map(path: str, kind: str, values: int, shape: Sequence[int]) -> tf.Tensor:
    """Map a file as a tensor [values, *shape] without a copy."""
    if not values:
        return tf.zeros([0, *shape], kind)
    with tf.device("cpu:0"):
        return tf.experimental.dlpack.from_dlpack(column_files.mapped(path, kind, values, shape).__dlpack__())
