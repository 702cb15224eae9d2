"""Batches of serialized records that fit into memory, shard by shard, and the rows of each slice of a batch.

Slices follow TFMA's rules: by values of columns, combinations, or given values. Their keys are TFMA's: ((column,
value), ...), sorted by column; () is all rows. A row with several values in a column is in all of their slices. A row
without a value is in none.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import check_known
from infeed.components.dataset import names
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.reading import MapFn, ShardRange, check_listed, listed_files, record_ranges, split_names
from infeed.components.dataset.records import read_records
from infeed.components.dataset.statistics.table_statistics import tables_of

Ints = npt.NDArray[np.int64]
SliceKey = tuple[tuple[str, Any], ...]
BYTES = 4 << 20  # maximum bytes of the records of a batch. With images, the model's tensors are many times larger


@dataclass(frozen=True)
class Batch:
    """Adjacent records of a shard. `start` is the index of the first."""

    path: str
    start: int
    records: Sequence[bytes]

    @cached_property
    def columns(self) -> Mapping[str, pa.Array]:
        """Return a list for each record and feature. A record without the feature is null.

        Raise InfeedError if a record is not a tf.Example, or a feature has two types.
        """
        try:
            return decode_columns(self.records)
        except ValueError as error:
            do = "use tf.Examples with one type per feature, or leave out keys and columns"
            raise InfeedError(str(error), where=self.where(), do=do) from error

    def where(self, row: int | None = None) -> str:
        last = self.start + len(self.records) - 1
        return f"{self.path}, {f'records {self.start} to {last}' if row is None else f'record {self.start + row}'}"

    def part(self, start: int, stop: int) -> Batch:
        return Batch(self.path, self.start + start, self.records[start:stop])


def input_shards(roots: Sequence[str], splits: Sequence[str] | None, map_fn: MapFn = map) -> list[ShardRange]:
    """Return the shards of some or all splits in a stable order. Large shards are divided into ranges.

    Args:
      map_fn: counts large files of datasets without a manifest, such as `Engine.map`.

    Raises:
      InfeedError: a dataset or split does not exist, is not complete, or has files that its manifest does not list.
    """
    by_root = {root: split_names(root) for root in roots}
    there = sorted({split for found in by_root.values() for split in found})
    check_known(splits or (), there, ", ".join(roots), "split")
    chosen = there if splits is None else dict.fromkeys(splits)
    folders = [names.split_dir(root, split) for split in chosen for root in by_root if split in by_root[root]]
    for folder in folders:
        if listed := listed_files(folder):
            check_listed(folder, listed)
    return record_ranges(folders, map_fn)


def root_of(shard: ShardRange) -> str:
    return shard.path.rsplit("/", 2)[0]


def batches_of(shard: ShardRange, rows: int, most_bytes: int = BYTES) -> Iterator[Batch]:
    """Yield the records of a range, at most `rows` and `most_bytes` at a time, but at least one.

    Raise InfeedError, with the record, if the file is truncated or corrupt.
    """
    start, records, size = shard.start, list[bytes](), 0
    for record in read_records(shard.path, None, shard.start, shard.stop):
        if len(records) == rows or (records and size + len(record) > most_bytes):
            yield Batch(shard.path, start, records)
            start, records, size = start + len(records), [], 0
        records.append(record)
        size += len(record)
    if records:
        yield Batch(shard.path, start, records)


def flat_values(lists: pa.Array) -> npt.NDArray[Any]:
    """Return all values of a column of lists, one after another. Bytes are objects."""
    return np.asarray(lists.flatten().to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class KnownColumn:
    """Properties of a column over all selected splits."""

    type: ColumnType
    is_list: bool  # whether a row has more than one value
    is_text: bool  # whether all values are UTF-8. False for numbers
    some_missing: bool  # whether a row has no value

    def __add__(self, other: KnownColumn) -> KnownColumn:
        """Merge the properties of two splits. Raise ValueError if the types differ."""
        if self.type != other.type:
            raise ValueError(f"{self.type} and {other.type}")
        return KnownColumn(
            self.type,
            self.is_list or other.is_list,
            self.is_text and other.is_text,
            self.some_missing or other.some_missing,
        )


def known_columns(shards: Sequence[ShardRange], map_fn: MapFn | None = None) -> dict[str, KnownColumn]:
    """Return the properties of every column, from statistics. A dataset without statistics is read once.

    Raise InfeedError if records are not tf.Examples, or a column has two types.
    """
    places = dict.fromkeys((root_of(shard), shard.split) for shard in shards)
    parts = [
        {
            name: KnownColumn(
                column.type,
                is_list=column.lengths.maximum > 1,
                is_text=column.type == "bytes" and not column.invalid_utf8,
                some_missing=bool(column.missing) or not column.lengths.minimum,
            )
            for name, column in table.columns.items()
        }
        for table in tables_of(list(places), map_fn=map_fn)
    ]
    known: dict[str, KnownColumn] = {}
    for name in sorted({name for part in parts for name in part}):
        found = [part[name] for part in parts if name in part]
        # In a split without the column, every row lacks it.
        lacking = [replace(found[0], some_missing=True)] * (len(found) < len(parts))
        try:
            known[name] = functools.reduce(operator.add, [*found, *lacking])
        except ValueError as error:
            where = ", ".join(names.split_dir(*place) for place in places)
            do = "write all examples with one type for each feature"
            raise InfeedError(f"column {name!r} is {error}", where=where, do=do) from error
    return known


@dataclass(frozen=True)
class Values:
    """Values of a column, [n] of any dtype, concatenated, and the row of each value, int64 [n]."""

    rows: Ints
    values: npt.NDArray[Any]

    @classmethod
    def of(cls, column: npt.NDArray[Any]) -> Values:
        """Return the values of an array [rows, ...]."""
        flat = column.reshape(len(column), -1)
        return cls(np.repeat(np.arange(len(flat)), flat.shape[1]), flat.reshape(-1))

    def joined(self, other: Values) -> Values:
        return Values(np.concatenate([self.rows, other.rows]), np.concatenate([self.values, other.values]))


Lookup = Callable[[str], Values | None]  # column name -> values. None if the batch does not have the column


@dataclass(frozen=True)
class SliceSpec:
    """One of the slicing_specs of an eval config."""

    columns: tuple[str, ...]  # a slice for each value, or combination of values, of these columns
    values: tuple[tuple[str, Any], ...]  # column -> required value

    @classmethod
    def of(cls, spec: Any) -> SliceSpec:
        given = ((name, _typed(value)) for name, value in spec.feature_values.items())
        return cls(tuple(sorted(set(spec.feature_keys))), tuple(sorted(given)))

    def __str__(self) -> str:
        values = [f"{name} = {value!r}" for name, value in self.values]
        return " and ".join([*values, *(f"each value of {name}" for name in self.columns)]) or "all rows"

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.columns, *(name for name, _ in self.values))


def slice_rows(specs: Sequence[SliceSpec], rows: int, lookup: Lookup) -> list[dict[SliceKey, Ints]]:
    """Return, for each spec, the row numbers of each non-empty slice, ascending."""
    coded: dict[str, _Coded | None] = {}
    for name in {name for spec in specs for name in spec.names}:
        values = lookup(name)
        coded[name] = None if values is None else _Coded.of(values, name)
    return [dict(_of_spec(spec, rows, coded)) for spec in specs]


@dataclass(frozen=True)
class _Coded:
    """Distinct pairs of row and index of a value, sorted by row."""

    rows: Ints
    places: Ints
    values: list[Any]

    @classmethod
    def of(cls, column: Values, name: str) -> _Coded:
        found, places = np.unique(column.values, return_inverse=True)
        # A row that has a value several times is in its slice once.
        pairs = np.unique(column.rows * max(len(found), 1) + places.reshape(-1))
        rows, places = np.divmod(pairs, max(len(found), 1))
        try:
            return cls(rows, places, [one.decode() if isinstance(one, bytes) else one for one in found.tolist()])
        except UnicodeDecodeError as error:
            what = f"a value of column {name!r} is not UTF-8: {error.object[:40]!r}"
            do = "slice by a column of text or numbers"
            raise InfeedError(what, where="eval_config.slicing_specs", do=do) from error

    def rows_with(self, value: Any) -> Ints:
        """Return the rows with a value. As in TFMA, 5 is the number and not the text."""
        same = [place for place, one in enumerate(self.values) if one == value]
        return self.rows[np.isin(self.places, same)]


def _of_spec(spec: SliceSpec, rows: int, coded: dict[str, _Coded | None]) -> list[tuple[SliceKey, Ints]]:
    chosen = np.arange(rows)
    for name, value in spec.values:
        column = coded[name]
        chosen = np.intersect1d(chosen, column.rows_with(value)) if column else chosen[:0]
    crossed: list[tuple[SliceKey, Ints]] = [(spec.values, chosen)]
    for name in spec.columns:
        column = coded[name]
        crossed = _crossed(crossed, name, column) if column else []
    return [(tuple(sorted(key)), inside) for key, inside in crossed if len(inside)]


def _crossed(slices: list[tuple[SliceKey, Ints]], name: str, column: _Coded) -> list[tuple[SliceKey, Ints]]:
    cut: list[tuple[SliceKey, Ints]] = []
    for key, inside in slices:
        there = np.isin(column.rows, inside)
        order = np.argsort(column.places[there], kind="stable")
        places, rows = column.places[there][order], column.rows[there][order]
        found, starts = np.unique(places, return_index=True)
        parts = np.split(rows, starts[1:]) if len(found) else []
        cut.extend(
            ((*key, (name, column.values[place])), part) for place, part in zip(found.tolist(), parts, strict=True)
        )
    return cut


def _typed(value: str) -> Any:
    """Parse a value of an eval config as TFMA does: as a number if it looks like one."""
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value
