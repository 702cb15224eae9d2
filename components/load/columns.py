"""A split as memory-mapped columns, packed by type, from which rows are taken by their numbers.

Features of which every record has as many numbers lie side by side, those of one type in one array, so that a batch of
all of them is one `np.take`. The files are those of the feed's tier `disk`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components import schema
from infeed.components.annotations import Count
from infeed.components.dataset.column_files import CachedColumn, ColumnFile, ColumnIndex, FileWriter, mapped
from infeed.components.dataset.manifest import Column
from infeed.components.load.spill import Kind, SpilledFeature

Ints = npt.NDArray[np.int64]
_ROWS = 1 << 16  # packed at a time
_ITEMS = 1 << 20  # copied at a time
_ROWS_A_CALL, _BYTES_A_CALL = 4096, 8 << 20  # taken at a time: below, a call costs more than its rows


class Ragged(NamedTuple):
    """Values of rows that have different numbers of them, end to end: row i has those from split i to split i + 1.

    A NamedTuple, so that JAX and PyTorch take it as the two arrays that it holds.
    """

    values: Any
    row_splits: Any

    def row(self, number: int) -> Any:
        """The values of one row."""
        return self.values[self.row_splits[number] : self.row_splits[number + 1]]


@dataclass(frozen=True)
class FeatureSpec:
    """What a feature is.

    Attributes:
      type: of its values: `float32`, `int64` or `bytes`.
      shape: of a row; `()` is one value, `(n,)` n values, None a number that varies: such a feature comes as `Ragged`.
      nulls: rows without a value.
    """

    type: Kind
    shape: tuple[Count, ...] | None
    nulls: Count = 0

    @property
    def width(self) -> int:
        """Values of a row, where that is fixed."""
        return self.shape[0] if self.shape else 1


@dataclass(frozen=True)
class PlacedFeature:
    """Where a feature lies: the number of its column, and in a packed one the first of its places.

    Attributes:
      is_optional: whether a row has one value or none. Missing numbers of type float32 are NaN; others lie in lists.
    """

    spec: FeatureSpec
    column: Count
    place: Count
    is_optional: bool = False

    @property
    def pick(self) -> tuple[Any, ...]:
        """Where it lies in what its column gives, [batch, width]; empty where that is all it gives."""
        shape = self.spec.shape
        if shape is None:
            return ()
        return (slice(None), self.place if shape == () else slice(self.place, self.place + shape[0]))


class RowTaker(Protocol):
    """One column of a split."""

    def take(self, rows: Ints, batches: int) -> Any:
        """The values of row numbers, int64 [batches * batch]: as many in turn, [batch, ...] each."""


@dataclass(frozen=True)
class _Packed:
    """Features of one type side by side: [rows, width]."""

    values: npt.NDArray[Any]

    def take(self, rows: Ints, batches: int) -> npt.NDArray[Any]:
        # Not fancy indexing, which takes several times as long for rows of a few bytes.
        taken: npt.NDArray[Any] = np.take(self.values, rows, axis=0)
        return taken.reshape(batches, -1, self.values.shape[1])


@dataclass(frozen=True)
class _Strings:
    """Bytes, `width` values a row: an Arrow array [rows * width]."""

    values: pa.Array
    width: int

    def take(self, rows: Ints, batches: int) -> npt.NDArray[Any]:
        places = (rows[:, np.newaxis] * self.width + np.arange(self.width)).reshape(-1)
        taken = self.values.take(pa.array(places)).to_numpy(zero_copy_only=False)
        return np.asarray(taken, object).reshape(batches, -1, self.width)


@dataclass(frozen=True)
class _Lists:
    """Values of which each row has its own number: an Arrow array of lists, [rows]."""

    lists: pa.Array

    def take(self, rows: Ints, batches: int) -> list[Ragged]:
        taken = self.lists.take(pa.array(rows))
        values = taken.flatten().to_numpy(zero_copy_only=False)
        splits = taken.offsets.to_numpy()
        size = len(rows) // batches
        cuts = [splits[number * size : (number + 1) * size + 1] for number in range(batches)]
        return [Ragged(values[cut[0] : cut[-1]], cut - cut[0]) for cut in cuts]


class Features:
    """All rows of a split, by the names of their features; another process opens the same files again.

    Args:
      entry: folder of the files.
      index: what lies there.
    """

    def __init__(self, entry: str, index: ColumnIndex) -> None:
        self.entry, self._index = entry, index
        self._about = schema.read_json(_About, json.dumps(index.about).encode())
        self.placed = dict(zip(self._about.names, self._about.features, strict=True))
        self._columns = [_opened(stem, column) for stem, column in self.files]

    def __reduce__(self) -> tuple[Any, ...]:
        return Features, (self.entry, self._index)

    @property
    def rows(self) -> int:
        """Records of the split."""
        return self._index.rows

    @property
    def files(self) -> list[tuple[str, CachedColumn]]:
        """Of each column how the paths of its files begin, and what they hold."""
        return [(f"{self.entry}/{number}", column) for number, column in enumerate(self._index.columns)]

    @property
    def records(self) -> tuple[int, ...]:
        """Records of each file."""
        return self._about.records

    @property
    def bytes(self) -> int:
        """Of all columns."""
        return sum(file.bytes for column in self._index.columns for file in column.files)

    def batches_a_call(self, batch: int) -> int:
        """How many batches of so many rows are best taken at a time."""
        rows = min(_ROWS_A_CALL, _BYTES_A_CALL * self.rows // max(1, self.bytes))
        return max(1, rows // batch)

    def take(self, rows: Ints, batches: int = 1) -> Iterator[tuple[Any, ...]]:
        """The rows of the given numbers, int64 [batches * batch], as so many batches, [batch, ...] each column.

        Raises:
          IndexError: there is no such row.
        """
        return zip(*(column.take(rows, batches) for column in self._columns), strict=True)


@dataclass(frozen=True)
class _About:
    """What is written of an entry beside its columns: the features by `names`, and the records of each file."""

    names: tuple[str, ...]
    features: tuple[PlacedFeature, ...]
    records: tuple[Count, ...]


def _opened(stem: str, column: CachedColumn) -> RowTaker:
    is_text = column.type == "string"
    splits = [mapped(f"{stem}.splits.{level}", "int64", ends) for level, ends in enumerate(column.levels)]
    values = mapped(f"{stem}.values", "uint8" if is_text else column.type, column.values, column.shape * (not is_text))
    if not is_text and not column.ragged:
        return _Packed(values)
    items = _binary(values, splits.pop()) if is_text else pa.array(values)
    if not column.ragged:
        return _Strings(items, column.shape[0])
    buffers = [None, pa.py_buffer(splits[0])]
    return _Lists(pa.Array.from_buffers(pa.large_list(items.type), column.levels[0] - 1, buffers, children=[items]))


def _binary(values: npt.NDArray[Any], splits: Ints) -> pa.Array:
    buffers = [None, pa.py_buffer(splits), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.large_binary(), len(splits) - 1, buffers)


def pack_columns(
    features: Mapping[str, SpilledFeature], records: Sequence[int], declared: Mapping[str, Column], folder: Path
) -> ColumnIndex:
    """Writes the columns of an entry from what is known of the features now.

    Args:
      features: by name.
      records: of each file.
      declared: what the dataset's manifest says of them, which holds for its other splits too.
      folder: where the files go.
    """
    specs = {name: _spec_of(features[name], declared.get(name)) for name in sorted(features)}
    optional = {name for name in specs if _is_optional(features[name], declared.get(name))}
    placed, columns = dict[str, PlacedFeature](), list[CachedColumn]()
    for kind in ("float32", "int64"):
        packed = {name: one for name, one in specs.items() if one.type == kind and one.shape is not None}
        place = 0
        for name, spec in packed.items():
            placed[name] = PlacedFeature(spec, len(columns), place, name in optional)
            place += spec.width
        if packed:
            widths = {name: spec.width for name, spec in packed.items()}
            columns.append(_write_packed(features, widths, f"{folder}/{len(columns)}"))
    for name in sorted(specs.keys() - placed.keys()):
        placed[name] = PlacedFeature(specs[name], len(columns), 0, name in optional)
        columns.append(_write_alone(features[name], specs[name], f"{folder}/{len(columns)}"))
    about = _About(tuple(sorted(placed)), tuple(placed[name] for name in sorted(placed)), tuple(records))
    return ColumnIndex.of(columns, asdict(about))


def _spec_of(feature: SpilledFeature, declared: Column | None) -> FeatureSpec:
    """What a feature is by its values, and by what is declared, which holds for other splits too."""
    if _is_optional(feature, declared):
        return FeatureSpec(feature.kind, () if feature.kind == "float32" else None, feature.nulls)
    if _may_vary(feature, declared):
        return FeatureSpec(feature.kind, None, feature.nulls)
    return FeatureSpec(feature.kind, () if feature.most == 1 else (feature.most,), feature.nulls)


def _may_vary(feature: SpilledFeature, declared: Column | None) -> bool:
    """Whether rows may have different numbers of values."""
    may_by_name = declared is not None and (declared.shape is None or declared.nulls > 0)
    return feature.least < feature.most or not feature.most or may_by_name


def _is_optional(feature: SpilledFeature, declared: Column | None) -> bool:
    """Whether a row has one value or none."""
    is_single = feature.most <= 1 if declared is None else declared.shape == (1,)
    return is_single and _may_vary(feature, declared)


def _write_packed(features: Mapping[str, SpilledFeature], widths: Mapping[str, int], stem: str) -> CachedColumn:
    """Numbers of one type, side by side: those of each feature, so many a row."""
    parts = [_rows_of(features[name], width) for name, width in widths.items()]
    writer = FileWriter(f"{stem}.values")
    for some in zip(*parts, strict=True):
        writer.add(np.concatenate(some, axis=1))
    kind = features[next(iter(widths))].kind
    return CachedColumn(kind, False, (sum(widths.values()),), writer.items, (), (writer.written(),))


def _rows_of(feature: SpilledFeature, width: int) -> Iterator[npt.NDArray[Any]]:
    """[rows, width], some rows at a time; NaN where there is no value."""
    counts, data, done = feature.counts, feature.data, 0
    for begin in range(0, feature.rows, _ROWS):
        some = counts[begin : begin + _ROWS]
        values, done = data[done : done + some.sum()], done + int(some.sum())
        if len(values) == len(some) * width:
            yield values.reshape(-1, width)
        else:
            filled = np.full((len(some), 1), np.nan, np.float32)
            filled[some > 0, 0] = values
            yield filled


def _write_alone(feature: SpilledFeature, spec: FeatureSpec, stem: str) -> CachedColumn:
    """A feature that has a column of its own: lists, or bytes."""
    is_text = feature.kind == "bytes"
    values = FileWriter(f"{stem}.values")
    for begin in range(0, len(feature.data), _ITEMS):
        values.add(feature.data[begin : begin + _ITEMS])
    ends = [_write_splits(lengths, f"{stem}.splits.{level}") for level, lengths in enumerate(_lengths(feature))]
    files = (values.written(), *(file for _, file in ends))
    shape = (spec.width,) if is_text and spec.shape is not None else ()
    levels = tuple(count for count, _ in ends)
    return CachedColumn("string" if is_text else feature.kind, spec.shape is None, shape, values.items, levels, files)


def _lengths(feature: SpilledFeature) -> list[Ints]:
    return [feature.counts, feature.sizes] if feature.kind == "bytes" else [feature.counts]


def _write_splits(lengths: Ints, path: str) -> tuple[int, ColumnFile]:
    """Where each of some lists begins, and where the last ends: how many numbers, and the file."""
    writer, end = FileWriter(path), 0
    writer.add(np.zeros(1, np.int64))
    for begin in range(0, len(lengths), _ITEMS):
        ends = end + np.cumsum(lengths[begin : begin + _ITEMS])
        writer.add(ends)
        end = int(ends[-1])
    return writer.items, writer.written()
