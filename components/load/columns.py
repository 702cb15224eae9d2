"""Memory-mapped columns of a split, packed by type, with access to rows by number.

Numeric features of one type and with a fixed number of values share an array, so one `np.take` gathers a batch of all
of them. The file format is that of the feed's tier `disk`. All splits have the same columns.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import addressof, c_char
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.base import schema
from infeed.components.base.annotations import Count
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.arrow_numbers import from_numbers, to_numbers
from infeed.components.dataset.column_files import CachedColumn, ColumnIndex, FileWriter, mapped
from infeed.components.dataset.manifest import Column, ColumnType
from infeed.components.dataset.records import from_offsets
from infeed.components.feed.user_maps import Ragged
from infeed.components.load.find import SplitFiles
from infeed.components.load.shapes import ANY_SIZE, joined
from infeed.components.load.spill import FeatureCounts, Kind, SpilledFeature, count_features, new_feature

Ints = npt.NDArray[np.int64]
_TYPES: dict[Kind, ColumnType] = {"bytes": "bytes", "float32": "float", "int64": "int"}
_KINDS: dict[ColumnType, Kind] = {column: kind for kind, column in _TYPES.items()}
_log = logging.getLogger(__name__)
_ROWS = 1 << 16  # rows packed at once
_ITEMS = 1 << 20  # items copied at once
_ALIGNED = 64  # bytes
_ROWS_A_CALL, _BYTES_A_CALL = 8192, 8 << 20  # limits of one take. Smaller calls have too much overhead


@dataclass(frozen=True)
class FeatureSpec:
    """Type and shape of a feature."""

    type: Kind
    # Shape of a row: `()` for one value, `(n,)` for n values, None for a varying number, returned as `Ragged`. Tensors
    # that TFDS declares have two dimensions or more.
    shape: tuple[Count, ...] | None
    nulls: Count = 0  # number of rows without a value, or whose only value is NaN
    # Shape of a step of a varying number, each a row of values: `()` for one value, `(k,)` for k values. If
    # `ragged_steps`, a step has up to k values, and `values` of a Ragged is a Ragged.
    step: tuple[Count, ...] = ()
    ragged_steps: bool = False

    def __repr__(self) -> str:
        """Return the fields, those of steps only if they are set."""
        steps = f", step={self.step}, ragged_steps={self.ragged_steps}" if self.step else ""
        return f"FeatureSpec(type={self.type!r}, shape={self.shape}, nulls={self.nulls}{steps})"

    @property
    def width(self) -> int:
        return math.prod(self.shape or ())


Declared = Column | FeatureSpec


@dataclass(frozen=True)
class PlacedFeature:
    """Location of a feature: the number of its column, and its first position in a packed column.

    If `is_optional`, a row has one value or none. Missing float32 values are NaN; other types are stored as lists.
    """

    spec: FeatureSpec
    column: Count
    place: Count
    is_optional: bool = False

    @property
    def pick(self) -> tuple[Any, ...]:
        """Index of the feature in its column's values, [batch, width]. Empty for the whole column."""
        shape = self.spec.shape
        if shape is None:
            return ()
        return (slice(None), self.place if shape == () else slice(self.place, self.place + self.spec.width))


class Features:
    """Features of all rows of a split, by name. After unpickling, another process opens the same files."""

    def __init__(self, entry: str, index: ColumnIndex) -> None:
        self.entry, self._index = entry, index
        self._about = schema.read_json(_About, json.dumps(index.about).encode())
        self.placed = dict(zip(self._about.names, self._about.features, strict=True))
        self._takers = [_opened(stem, column) for stem, column in self.files]

    def __reduce__(self) -> tuple[Any, ...]:
        return Features, (self.entry, self._index)

    @property
    def rows(self) -> int:
        return self._index.rows

    @property
    def files(self) -> list[tuple[str, CachedColumn]]:
        """Common path prefix of each column's files, and the column."""
        return [(f"{self.entry}/{number}", column) for number, column in enumerate(self._index.columns)]

    @property
    def records(self) -> tuple[int, ...]:
        """Number of records in each file."""
        return self._about.records

    @property
    def lists(self) -> int:
        """Number of features that are feature lists of SequenceExamples."""
        return self._about.lists

    @property
    def bytes(self) -> int:
        return sum(file.bytes for column in self._index.columns for file in column.files)

    def batches_a_call(self, batch: int) -> int:
        """Return the number of batches of `batch` rows to take in one call."""
        rows = min(_ROWS_A_CALL, _BYTES_A_CALL * self.rows // max(1, self.bytes))
        return max(1, rows // batch)

    def take(self, rows: Ints, batches: int = 1) -> Iterator[tuple[Any, ...]]:
        """Take existing rows by number, int64 [batches * batch], as `batches` batches, [batch, ...] per column."""
        return zip(*(take(rows, batches) for take in self._takers), strict=True)


@dataclass(frozen=True)
class _About:
    """Metadata of an entry: its features by name, and the numbers of records in each file and of feature lists."""

    names: tuple[str, ...]
    features: tuple[PlacedFeature, ...]
    records: tuple[Count, ...]
    lists: Count


def _opened(stem: str, column: CachedColumn) -> Callable[[Ints, int], Any]:
    """Return a function that takes rows by number, int64 [batches * batch], as `batches` batches [batch, ...]."""
    is_text = column.type == "string"
    splits = [mapped(f"{stem}.splits.{level}", "int64", ends) for level, ends in enumerate(column.levels)]
    values = mapped(f"{stem}.values", "uint8" if is_text else column.type, column.values, column.shape * (not is_text))
    width, row_bytes, dtype = values.shape[-1], values.strides[0], values.dtype

    def packed(rows: Ints, batches: int) -> npt.NDArray[Any]:
        memory = np.empty(len(rows) * row_bytes + _ALIGNED, np.uint8)
        # From an aligned address, JAX reads without a copy. NumPy's attributes of the address cost ten times as much.
        place = -addressof(c_char.from_buffer(memory.data)) % _ALIGNED
        taken: npt.NDArray[Any] = np.ndarray((len(rows), width), dtype, memory, place)
        # For rows of a few bytes, fancy indexing takes several times as long, and the default mode, "raise", twice.
        values.take(rows, 0, taken, "clip")
        return taken.reshape(batches, -1, width)

    if not is_text and not column.ragged:
        return packed
    items = from_offsets(values, splits.pop()) if is_text else from_numbers(values)

    def strings(rows: Ints, batches: int) -> npt.NDArray[Any]:
        [width] = column.shape
        places = (rows[:, np.newaxis] * width + np.arange(width)).reshape(-1)
        taken = items.take(from_numbers(places)).to_numpy(zero_copy_only=False)
        return np.asarray(taken, object).reshape(batches, -1, width)

    if not column.ragged:
        return strings
    lists = items
    for ends in reversed(splits):
        buffers = [None, pa.py_buffer(ends)]
        lists = pa.Array.from_buffers(pa.large_list(lists.type), len(ends) - 1, buffers, children=[lists])

    def ragged(rows: Ints, batches: int) -> list[Ragged]:
        taken, levels = lists.take(from_numbers(rows)), list[Ints]()
        for _ in splits:
            levels.append(to_numbers(taken.offsets))
            taken = taken.flatten()
        flat = taken.to_numpy(zero_copy_only=False) if is_text else to_numbers(taken)
        size = len(rows) // batches
        return [_ragged_rows(flat, levels, number * size, (number + 1) * size) for number in range(batches)]

    return ragged


def _ragged_rows(flat: npt.NDArray[Any], levels: Sequence[Ints], start: int, stop: int) -> Any:
    """Return rows of nested lists as Ragged. Without levels, the rows are values."""
    if not levels:
        return flat[start:stop]
    ends = levels[0][start : stop + 1]
    return Ragged(_ragged_rows(flat, levels[1:], int(ends[0]), int(ends[-1])), ends - ends[0])


def dataset_columns(
    found: SplitFiles, own: Mapping[str, FeatureCounts], records: int, wanted: Sequence[str] | None
) -> dict[str, Declared]:
    """Return the columns of the whole dataset by name, so that all splits have the same columns, types and shapes.

    A manifest lists the columns. Datasets of TFX and TFDS have no manifest, so the first load of a split also counts
    the values of the other splits. Feature lists have a FeatureSpec.
    """
    if found.schema:
        return {column.name: column for column in found.schema if wanted is None or column.name in wanted}
    # A feature may be missing in a split, or have more values in another: all splits get the shape that fits all.
    counted: dict[str, FeatureCounts] = {}
    before = 0
    for features, rows in ((own, records), *_other_splits(found, wanted)):
        for name, feature in features.items():
            if name not in counted:
                steps = None if feature.steps is None else FeatureCounts(feature.kind)
                counted[name] = FeatureCounts(feature.kind, steps=steps)
                counted[name].add_missing(before)
            counted[name].merge(feature)
        for name in counted.keys() - features.keys():
            counted[name].add_missing(rows)
        before += rows
    columns = dict[str, Declared]()
    for name, feature in counted.items():  # as in ingest, a missing value does not change the shape of single values
        if feature.steps is not None:
            columns[name] = _list_spec(feature, feature.steps)
            continue
        is_list = found.shapes.get(name, ())[:1] == (ANY_SIZE,)
        fixed = feature.most and (feature.least == feature.most or (feature.most == 1 and not is_list))
        columns[name] = Column(name, _TYPES[feature.type], (feature.most,) if fixed else None, feature.nulls)
    return columns


def _list_spec(lists: FeatureCounts, steps: FeatureCounts) -> FeatureSpec:
    """Return the spec of a feature list: dense only if all records have as many steps, and all steps as many values."""
    is_ragged = bool(steps.rows) and (steps.least < steps.most or not steps.most)
    step = (steps.most,) if is_ragged or steps.most > 1 else ()
    if is_ragged or lists.least < lists.most or not lists.most:
        return FeatureSpec(lists.type, None, lists.nulls, step, is_ragged)
    return FeatureSpec(lists.type, (lists.most, *step), lists.nulls)


def _other_splits(found: SplitFiles, wanted: Sequence[str] | None) -> Iterator[tuple[Mapping[str, FeatureCounts], int]]:
    for split, others in found.others.items():
        try:
            features, held = count_features([file.path for file in others], wanted)
        except InfeedError as error:
            _log.warning("cannot read split %r, so columns that only this split has are omitted: %s", split, error)
            continue
        yield joined(features, found.shapes), sum(held)


def _kind(declared: Declared) -> Kind:
    return declared.type if isinstance(declared, FeatureSpec) else _KINDS[declared.type]


def add_missing_features(
    features: dict[str, SpilledFeature], columns: Mapping[str, Declared], records: int, folder: Path
) -> None:
    """Add the columns that no record of the split holds, without values in its `records` rows.

    `folder` is for their files alone. The files of the other features have the numbers of features that may be joined.
    """
    for name in sorted(columns.keys() - features.keys()):
        declared = columns[name]
        features[name] = new_feature(folder, len(features), _kind(declared), isinstance(declared, FeatureSpec))
        features[name].add_missing(records)


def pack_columns(
    features: Mapping[str, SpilledFeature],
    records: Sequence[int],
    declared: Mapping[str, Declared],
    folder: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    lists: int = 0,
) -> ColumnIndex:
    """Write the columns of an entry.

    `records` is the number of records in each file. `declared` are the columns of the whole dataset, which all splits
    have. `shapes` are those of TFDS, and `lists` is the number of feature lists.
    """
    shapes = shapes or {}
    found = {name: _spec_of(features[name], declared.get(name), shapes.get(name, ())) for name in sorted(features)}
    specs = {name: spec for name, (spec, _) in found.items()}
    optional = {name for name, (_, is_optional) in found.items() if is_optional}
    placed, columns = dict[str, PlacedFeature](), list[CachedColumn]()
    # Text has no fixed width and cannot be packed, so it follows below with the lists.
    # Blocks of all features of a type are written together, as rows of one array: a batch is then a single take.
    for kind in ("float32", "int64"):
        packed = {name: one for name, one in specs.items() if one.type == kind and one.shape is not None}
        place = 0
        for name, spec in packed.items():
            placed[name] = PlacedFeature(spec, len(columns), place, name in optional)
            place += spec.width
        if packed:
            parts = [_rows_of(features[name], spec) for name, spec in packed.items()]
            writer = FileWriter(f"{folder}/{len(columns)}.values")
            for some in zip(*parts, strict=True):
                writer.add(np.concatenate(some, axis=1))
            columns.append(CachedColumn(kind, False, (place,), writer.items, (), (writer.written(),)))
    for name in sorted(specs.keys() - placed.keys()):
        placed[name] = PlacedFeature(specs[name], len(columns), 0, name in optional)
        columns.append(_write_alone(features[name], specs[name], f"{folder}/{len(columns)}"))
    names = sorted(placed)
    about = _About(tuple(names), tuple(placed[name] for name in names), tuple(records), lists)
    return ColumnIndex.of(columns, asdict(about))


def _spec_of(
    feature: SpilledFeature, declared: Declared | None, tensor: tuple[int, ...] = ()
) -> tuple[FeatureSpec, bool]:
    """Return the spec of a feature, which the dataset declares, and whether a row has one value or none.

    A single value that is NaN is missing. `tensor` is the shape that TFDS declares. It is ignored if the number of
    values in a row contradicts it.
    """
    if feature.steps is not None:
        spec = declared if isinstance(declared, FeatureSpec) else _list_spec(feature, feature.steps)
        return replace(spec, nulls=feature.nulls), False
    assert not isinstance(declared, FeatureSpec), "only feature lists have one"
    # Records say what this split has; what is declared holds for all splits, and can only be wider.
    varies = feature.least < feature.most or not feature.most
    is_single, kind = feature.most <= 1, feature.type
    if declared is not None:
        kind = kind if feature.items else _kind(declared)
        varies = varies or declared.shape is None or declared.nulls > 0
        is_single = declared.shape == (1,)
    shape: tuple[int, ...] | None
    if varies:
        shape = () if is_single and kind == "float32" else None
    else:
        shape = () if feature.most == 1 else (feature.most,)
    is_stack = shape is None and not is_single and tensor[:1] == (ANY_SIZE,)
    step = tensor[1:] if is_stack and not (feature.counts % math.prod(tensor[1:])).any() else ()
    is_number = shape == () and kind == "float32"
    missing = feature.nulls
    if is_number:
        values = feature.data  # maps a file
        for begin in range(0, len(values), _ITEMS):
            missing += int(np.count_nonzero(np.isnan(values[begin : begin + _ITEMS])))
    return FeatureSpec(kind, shape, missing, step), (is_single and varies) or (is_number and missing > 0)


def _levels(feature: SpilledFeature, spec: FeatureSpec) -> list[Ints]:
    """Return the number of items in each list, at each level of nested lists. Steps of one size are no level."""
    if feature.steps is None:
        return [feature.counts]
    if spec.ragged_steps:
        return [feature.counts, feature.steps.counts]
    return [feature.counts * math.prod(spec.step if spec.shape is None else spec.shape[1:])]


def _rows_of(feature: SpilledFeature, spec: FeatureSpec) -> Iterator[npt.NDArray[Any]]:
    """Yield blocks of rows, [rows, width], with NaN for missing values."""
    [counts], data, done, width = _levels(feature, spec), feature.data, 0, spec.width
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
    """Write a feature as a separate column: lists or bytes."""
    is_text = spec.type == "bytes"
    values = FileWriter(f"{stem}.values")
    for begin in range(0, len(feature.data), _ITEMS):
        values.add(feature.data[begin : begin + _ITEMS])
    splits = []
    for level, lengths in enumerate([*_levels(feature, spec), *([feature.sizes] if is_text else [])]):
        splits.append(FileWriter(f"{stem}.splits.{level}"))
        ends = np.zeros(1, np.int64)
        splits[-1].add(ends)
        for begin in range(0, len(lengths), _ITEMS):
            ends = ends[-1] + np.cumsum(lengths[begin : begin + _ITEMS])
            splits[-1].add(ends)
    files = tuple(writer.written() for writer in (values, *splits))
    shape = (spec.width,) if is_text and spec.shape is not None else ()
    levels = tuple(writer.items for writer in splits)
    return CachedColumn("string" if is_text else spec.type, spec.shape is None, shape, values.items, levels, files)
