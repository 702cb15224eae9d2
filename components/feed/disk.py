"""Columns in files: written once, mapped into memory, kept for the next training on the same data.

FOLDER/KEY/columns.json    of each column its type, shape and number of values
FOLDER/KEY/0.values        the values of column 0, end to end; of strings their bytes
FOLDER/KEY/0.splits.0      of a ragged column, where each row begins and ends; strings have one level more

An entry appears under its key only once it is whole. Tensors are made of the mapped files without a copy, so no Python
runs while batches are gathered, and what is in memory is the page cache's, given back when others need it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.columns import Columns, Layout, mapped

FORMAT = 1
_INDEX = "columns.json"
# An entry that no training has used for so long is removed when another is written.
_MAX_AGE_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True)
class Kept:
    """One column on disk: so many values of a type, each of a shape, cut into rows by so many levels of splits.

    Strings have one level more, of their bytes; where `ragged` is False theirs are two, and a row's shape is `shape`.
    """

    type: str
    ragged: bool
    shape: tuple[int, ...]
    values: int
    levels: tuple[int, ...]


def keep(batches: tf.data.Dataset, folder: str, key: str, expected_bytes: float) -> Columns:
    """Columns from FOLDER/KEY; where there is no such entry, `batches` are read to their end and written there first.

    Args:
      batches: nested tensors, [batch, ...] each; the last batch may be short.
      folder: a local folder, made where it is missing. Old entries are removed where room is needed.
      key: names the data and all that was done to it.
      expected_bytes: about what the entry takes.

    Raises:
      InfeedError: the entry cannot be written.
    """
    home = Path(folder).expanduser()
    entry, layout = home / key, Layout.of(batches.element_spec)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / f".{key}.lock"):  # of several workers on one host, one writes
            if not entry.exists():
                _make_room(home, expected_bytes)
                _write(batches, layout, entry)
        os.utime(entry)  # says when it was last used
        return _open(entry, layout)
    except OSError as error:
        raise InfeedError(
            f"the columns cannot be kept on disk: {error.strerror}",
            where=str(home),
            do="Free some space, name another folder in FeedOptions.cache_dir, or use tier='stream'.",
        ) from error


def _write(batches: tf.data.Dataset, layout: Layout, entry: Path) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=".", suffix=f".{entry.name}", dir=entry.parent))
    try:
        writers: dict[int, _Writer] = {}
        for columns in mapped(batches, layout.columns_of):
            for number, column in enumerate(columns):
                if number not in writers:
                    writers[number] = _Writer(f"{unfinished}/{number}", column)
                writers[number].add(column)
        (unfinished / _INDEX).write_text(json.dumps([asdict(writer.kept()) for writer in writers.values()]))
        unfinished.rename(entry)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


class _Writer:
    """Appends to the files of one column, batch after batch."""

    def __init__(self, stem: str, like: Any) -> None:
        self._stem, self._like = stem, like
        levels = len(_flattened(like)[0])
        self._written, self._ends, self._rows = 0, [0] * levels, [1] * levels
        for level in range(levels):
            self._append(f"splits.{level}", np.zeros(1, np.int64))  # the first row begins at 0

    def add(self, column: Any) -> None:
        """A dense [batch, width] or a ragged tensor."""
        lengths, values = _flattened(column)
        for level, counts in enumerate(lengths):
            self._append(f"splits.{level}", self._ends[level] + np.cumsum(counts, dtype=np.int64))
            self._ends[level] += int(counts.sum())
            self._rows[level] += len(counts)
        self._append("values", values)
        self._written += len(values)

    def kept(self) -> Kept:
        ragged = isinstance(self._like, tf.RaggedTensor)
        values = self._like.flat_values if ragged else self._like
        return Kept(values.dtype.name, ragged, tuple(values.shape[1:]), self._written, tuple(self._rows))

    def _append(self, name: str, values: npt.NDArray[Any]) -> None:
        with open(f"{self._stem}.{name}", "ab") as file:
            file.write(values.tobytes())


def _flattened(column: Any) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[Any]]:
    """Lengths, level by level, and the values end to end; strings are rows of bytes."""
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


def _open(entry: Path, layout: Layout) -> Columns:
    index = [Kept(**fields) for fields in json.loads((entry / _INDEX).read_text())]
    columns = tuple(_Mapped(f"{entry}/{number}", kept) for number, kept in enumerate(index))
    return Columns(columns[0].rows, layout, columns)


class _Mapped:
    """One column, taken from its mapped files."""

    def __init__(self, stem: str, kept: Kept) -> None:
        kind = "uint8" if kept.type in ("string", "bool") else kept.type
        column = _map(f"{stem}.values", kind, kept.values, () if kept.type == "string" else kept.shape)
        for level in reversed(range(len(kept.levels))):
            splits = _map(f"{stem}.splits.{level}", "int64", kept.levels[level], ())
            column = tf.RaggedTensor.from_row_splits(column, splits, validate=False)
        self.rows = kept.levels[0] - 1 if kept.levels else kept.values
        self._column, self._kept = column, kept

    def __call__(self, rows: tf.Tensor) -> Any:
        taken = tf.gather(self._column, rows)
        if self._kept.type != "string":
            return tf.cast(taken, tf.bool) if self._kept.type == "bool" else taken
        strings = _strings(taken.flat_values, taken.nested_row_splits[-1])
        if not self._kept.ragged:
            return tf.reshape(strings, [-1, *self._kept.shape])
        return tf.RaggedTensor.from_nested_row_splits(strings, taken.nested_row_splits[:-1], validate=False)


def _map(path: str, kind: str, values: int, shape: Sequence[int]) -> tf.Tensor:
    """A tensor [values, *shape] whose memory is the file's."""
    if not values:
        return tf.zeros([0, *shape], kind)  # nothing cannot be mapped
    # Nobody writes to it, but what is read-only cannot be handed over; a page that is not written to stays the file's.
    mapped = np.memmap(path, kind, mode="c", shape=(values, *shape))
    with tf.device("cpu:0"):
        return tf.experimental.dlpack.from_dlpack(mapped.__dlpack__())


def _strings(values: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """uint8 [bytes], int64 [strings + 1] -> string [strings].

    TensorFlow has no operation for this, but a serialized tensor of bytes ends in just those bytes.
    """
    serialized = tf.io.serialize_tensor(values)
    begin = tf.cast(tf.strings.length(serialized) - tf.size(values), tf.int64)
    return tf.strings.substr(serialized, begin + splits[:-1], splits[1:] - splits[:-1])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_room(home: Path, wanted: float) -> None:
    """Removes what has not been used for long, and what was used longest ago until there is room."""
    used = {entry: entry.stat().st_mtime for entry in home.iterdir() if entry.is_dir()}
    for entry in sorted(used, key=used.__getitem__):
        is_old = time.time() - used[entry] > _MAX_AGE_SECONDS
        is_being_written = entry.name.startswith(".")
        if is_old or (shutil.disk_usage(home).free < wanted and not is_being_written):
            shutil.rmtree(entry)
