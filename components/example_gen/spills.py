"""Choose rows and columns, encode record batches, assign each row its split and stratum, and write spills.

A run is a few neighboring blocks of a task. A spill holds the framed records of one run and split, in a file beside
the splits until the shards are written. Each spill is shuffled, so any slice of it is a random sample of the run.
`shuffle` distributes the records of every spill over all shards, and each shard is shuffled again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import nearest
from infeed.components.dataset import example_types, files, splits
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.read_errors import tried_again
from infeed.components.dataset.records import data_of, offsets_of
from infeed.components.dataset.row_filter import passes
from infeed.components.dataset.splits import Buckets, ByLabel, ByRecord, column_of
from infeed.components.example_gen.inputs import BadRow, BadRows, FilePart, text_of, without

_SHOWN = 20  # columns that an error names
MISSING = "a required value is missing"
_MOST_LABELS = 10_000  # limit for one block, because each label becomes a spill
_RUN_BYTES = 32 << 20  # size of a run's rows in memory. Records take two to three times as much, in up to three copies
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Label = Hashable  # None: no label
Stratum = tuple[Label, Label]  # labels for the stratified split and for balancing
Seed = tuple[int, ...] | None  # None keeps the order
RowsBySplit = Mapping[str | None, npt.NDArray[np.int64]]  # the key is None until labels are divided


def choose_rows(batch: pa.RecordBatch, options: IngestOptions, place: str, bad_rows: BadRows) -> pa.RecordBatch:
    """Return the rows that pass the filter and have a label. Report rows without a required value as bad rows.

    Args:
      batch: all columns of the input, not only the written ones.
      place: path of the input, for errors.

    Raises:
      InfeedError: a column is missing, the filter does not fit, or a bad row is not allowed.
    """
    return complete(with_label(passing(batch, options), options), options, place, bad_rows)


def passing(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """Return the rows that pass the filter."""
    if options.filter is None:
        return batch
    kept = passes(batch, options.filter)
    return batch if kept.true_count == len(kept) else batch.filter(kept)


def with_label(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """Return the rows that have a value in each column of `options.labeled`. An empty list is a set without classes."""
    for name in options.labeled:
        column = column_of(batch, name, "label")
        is_list = example_types.is_list(column.type)
        missing = column.is_null() if is_list else _are_missing(column)
        if example_types.kind_of(column.type) == "bytes" and not is_list:
            decoded = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            missing = pc.or_(missing, pc.fill_null(pc.equal(pc.binary_length(decoded), 0), True))
        batch = batch.filter(pc.invert(missing)) if missing.true_count else batch
    return batch


def complete(batch: pa.RecordBatch, options: IngestOptions, place: str, bad_rows: BadRows) -> pa.RecordBatch:
    """Return the rows that have all required values. Report the other rows as bad rows of `place`."""
    for name in options.required:
        rows = np.flatnonzero(np.asarray(_are_missing(column_of(batch, name, "required columns")))).tolist()
        for row in rows:
            bad_rows.report(BadRow(place, None, name, MISSING, text_of(batch.slice(row, 1))))
        batch = without(batch, rows)
    return batch


def _are_missing(column: pa.Array) -> pa.BooleanArray:
    """Return whether each row has no value. Empty lists and non-finite numbers count as missing."""
    missing = column.is_null()
    if example_types.is_list(column.type):
        return pc.or_(missing, pc.fill_null(pc.equal(pc.list_value_length(column), 0), True))
    if pa.types.is_floating(column.type):
        return pc.or_(missing, pc.fill_null(pc.invert(pc.is_finite(column)), True))
    return missing


def choose_columns(batch: pa.RecordBatch, options: IngestOptions) -> pa.RecordBatch:
    """Return the columns to write, in the order of the options."""
    if options.columns is None and not options.drop:
        return batch
    kept = [column_of(batch, name, "columns to keep") for name in options.written(batch.schema.names)]
    return pa.RecordBatch.from_arrays(kept, schema=chosen_schema(batch.schema, options))


def chosen_schema(schema: pa.Schema, options: IngestOptions) -> pa.Schema:
    """Return the schema of the columns to write. Raises InfeedError if a column to drop is missing, or none is left."""
    if options.columns is None and not options.drop:
        return schema
    if unknown := sorted(set(options.drop) - set(schema.names)):
        what = f"there is no column {unknown[0]!r} to drop{nearest(unknown[0], schema.names)}"
        raise InfeedError(what, where="--drop", do=f"use one of {', '.join(schema.names[:_SHOWN])}")
    if not (names := options.written(schema.names)):
        raise InfeedError("every column is dropped", where="--drop", do="keep one or more columns")
    return pa.schema([schema.field(name) for name in names])


def place_of(payload: object) -> str:
    """Return the path of the file that a task reads, if known."""
    return payload.file.path if isinstance(payload, FilePart) else "the input"


@dataclass(frozen=True)
class Strata:
    """The stratum index of each row, and the labels of each stratum."""

    numbers: npt.NDArray[np.int64]
    labels: Sequence[Stratum]

    @classmethod
    def none(cls, rows: int) -> Strata:
        return cls(np.zeros(rows, np.int64), [(None, None)])

    @classmethod
    def joined(cls, parts: Sequence[Strata]) -> Strata:
        numbers: dict[Stratum, int] = {}
        joined = [np.empty(0, np.int64)]
        for part in parts:
            known = np.array([numbers.setdefault(label, len(numbers)) for label in part.labels], np.int64)
            joined.append(known[part.numbers])
        return cls(np.concatenate(joined), list(numbers))


@dataclass(frozen=True)
class ProcessedBatch:
    """The chosen rows as columns and as serialized examples, with their splits and strata."""

    written: pa.RecordBatch
    examples: pa.LargeBinaryArray
    rows: RowsBySplit
    strata: Strata


def process_batch(
    batch: pa.RecordBatch, split: str | None, *, buckets: Buckets | None, options: IngestOptions, serialized: bool
) -> ProcessedBatch:
    """Select columns, encode rows, and assign splits.

    Args:
      split: split of all rows, if the input is already split. Otherwise `buckets` assigns the splits.
      serialized: the first column holds serialized records, and only they are written.

    Raises:
      InfeedError: an option does not fit the batch, or a value fits neither a tf.Example nor the splits.
    """
    if serialized:
        examples = batch.column(0)
        written = pa.RecordBatch.from_arrays([examples], schema=pa.schema([batch.schema.field(0)]))
    else:
        written = choose_columns(batch, options)
        examples = encode_examples(written, empty_lists=options.compat == "tfx")
    rows: RowsBySplit = {split: np.arange(len(examples))}
    rule, ranks = options.split_by or ByRecord(""), None
    # Exact shares need the counts of all tasks, so rows only get a rank or a label here.
    if split is None and buckets is not None and options.divides_later:
        if isinstance(rule, ByRecord):
            empty_lists = options.compat == "tfx"
            ranks = splits.record_ranks(written, examples, buckets, empty_lists=empty_lists, salt=rule.salt)
    elif split is None and buckets is not None:
        if buckets.feature is not None:
            assigned = splits.assign_by_feature(batch, buckets.feature, buckets)
        elif isinstance(rule, ByRecord):
            empty_lists = options.compat == "tfx"
            assigned = splits.assign_by_record(written, examples, buckets, empty_lists=empty_lists, salt=rule.salt)
        else:
            assert not isinstance(rule, ByLabel), "labels are divided later"
            assigned = splits.assign_rows(batch, buckets, rule)
        rows = {name: np.flatnonzero(assigned == number) for number, name in enumerate(buckets.names)}
    return ProcessedBatch(written, examples, rows, strata_of_rows(batch, options.strata, ranks))


def strata_of_rows(
    batch: pa.RecordBatch, by: tuple[str | None, str | None], ranks: Sequence[bytes] | None = None
) -> Strata:
    """Return the stratum of each row by up to two columns. Raises InfeedError if one is missing or unfit.

    Args:
      ranks: labels of the rows, in place of those of the first column.
    """
    if ranks is None and not any(by):
        return Strata.none(batch.num_rows)
    if ranks is None:
        first, first_labels = _encode_labels(batch, by[0])
    else:
        numbers: dict[Label, int] = {}
        first = np.array([numbers.setdefault(rank, len(numbers)) for rank in ranks], np.int64)
        first_labels = list(numbers)
    second, second_labels = _encode_labels(batch, by[1])
    pairs, strata = np.unique(first * len(second_labels) + second, return_inverse=True)
    if len(pairs) > _MOST_LABELS:
        what = f"one block has more than {_MOST_LABELS} distinct labels"
        raise InfeedError(what, where=label_columns(by), do="stratify or balance by a column with few distinct values")
    labels = [(first_labels[pair // len(second_labels)], second_labels[pair % len(second_labels)]) for pair in pairs]
    return Strata(strata.reshape(-1), labels)


def label_columns(by: tuple[str | None, str | None]) -> str:
    """Name the label columns, for errors."""
    return f"column {' and '.join(repr(name) for name in by if name)}" if any(by) else "exact splits"


def _encode_labels(batch: pa.RecordBatch, name: str | None) -> tuple[npt.NDArray[np.int64], list[Label]]:
    if name is None:
        return np.zeros(batch.num_rows, np.int64), [None]
    column = splits.column_of(batch, name, "label")
    if pa.types.is_nested(column.type):
        raise InfeedError(f"the type is {column.type}", where=f"label {name!r}", do="choose a column of single values")
    if pa.types.is_null(column.type):
        return np.zeros(batch.num_rows, np.int64), [None]
    # Encode values once per block: labels are few, and rows are many.
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    # NaN is not a label: NaNs are never equal, so each block would get its own label.
    labels = [None if label != label else label for label in encoded.dictionary.to_pylist()] + [None]
    numbers = encoded.indices.cast(pa.int64()).fill_null(len(labels) - 1)
    return np.asarray(numbers, np.int64), labels


@dataclass(frozen=True)
class Spill:
    """A run of records that share a split and a stratum: a spill file, or a part of one."""

    split: str | None  # None until all labels are counted, if splits are stratified
    path: str
    start: int  # index of the first record in the file
    records: int
    bytes: int  # size of the records, not of the file
    strata: Stratum = (None, None)  # the labels that the records share, for the stratified split and for balancing


@dataclass(frozen=True, eq=False)
class Spills:
    """Spills in input order, stored by column: about 32 bytes for each run, split and label."""

    files: Sequence[tuple[str | None, str]]  # (split, path). The split is None until labels are divided
    strata: Sequence[Stratum]
    file: Numbers  # index of each spill's file
    stratum: Numbers  # index of each spill's stratum in `strata`
    start: Ints
    records: Ints
    bytes: Ints

    @classmethod
    def of(cls, spills: Iterable[Spill]) -> Spills:
        files, strata = dict[tuple[str | None, str], int](), dict[Stratum, int]()
        rows = [
            (
                files.setdefault((spill.split, spill.path), len(files)),
                strata.setdefault(spill.strata, len(strata)),
                spill.start,
                spill.records,
                spill.bytes,
            )
            for spill in spills
        ]
        file, stratum, *sizes = np.array(rows, np.int64).reshape(-1, 5).T
        return cls(tuple(files), tuple(strata), file.astype(np.int32), stratum.astype(np.int32), *map(np.copy, sizes))

    @classmethod
    def joined(cls, parts: Sequence[Spills]) -> Spills:
        if not parts:
            return cls.of([])
        strata = dict[Stratum, int]()
        known = [[strata.setdefault(labels, len(strata)) for labels in part.strata] for part in parts]
        first = np.cumsum([0, *(len(part.files) for part in parts)])
        return cls(
            [file for part in parts for file in part.files],
            list(strata),
            np.concatenate([part.file + np.int32(before) for part, before in zip(parts, first, strict=False)]),
            np.concatenate([np.array(new, np.int32)[part.stratum] for part, new in zip(parts, known, strict=True)]),
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "records", "bytes")),
        )

    def __len__(self) -> int:
        return len(self.file)

    def __iter__(self) -> Iterator[Spill]:
        columns = (self.file, self.stratum, self.start, self.records, self.bytes)
        for file, stratum, start, records, size in zip(*(column.tolist() for column in columns), strict=True):
            split, path = self.files[file]
            yield Spill(split, path, start, records, size, self.strata[stratum])

    def of_split(self, split: str | None) -> Spills:
        is_of_split = np.array([name == split for name, _ in self.files], bool)
        return self if is_of_split.all() else self.take(np.flatnonzero(is_of_split[self.file]))

    def take(self, numbers: Ints) -> Spills:
        """Return the spills at these indices, in this order."""
        sizes = (column[numbers] for column in (self.start, self.records, self.bytes))
        return Spills(self.files, self.strata, self.file[numbers], self.stratum[numbers], *sizes)

    def cut(self, start: Ints, stop: Ints) -> Spills:
        """Return records `start` to `stop` of each spill, without empty ones. Bytes are estimated from the average."""
        kept = np.flatnonzero(start < stop)
        found, start, records = self.take(kept), start[kept], (stop - start)[kept]
        sizes = found.bytes * records // found.records
        return replace(found, start=found.start + start, records=records, bytes=sizes)

    def labels(self, number: int) -> tuple[Numbers, list[Label]]:
        """Return the label index of each spill, and all labels. 0 is the stratified split, 1 the balance."""
        labels = dict[Label, int]()
        of_stratum = [labels.setdefault(stratum[number], len(labels)) for stratum in self.strata]
        return np.array(of_stratum, np.int32)[self.stratum], list(labels)


class RunRecords:
    """The records of neighboring blocks of one task, which are spilled together."""

    def __init__(self) -> None:
        self._records: list[pa.LargeBinaryArray] = []
        self._strata: list[Strata] = []
        self._rows: dict[str | None, list[npt.NDArray[np.int64]]] = defaultdict(list)
        self._count = self._bytes = 0

    def has_room(self, block_bytes: int) -> bool:
        """Return whether a block of rows of this size in memory fits. The first one always does."""
        return not self._bytes or self._bytes + block_bytes <= _RUN_BYTES

    def add(self, framed: pa.LargeBinaryArray, rows: RowsBySplit, strata: Strata, block_bytes: int) -> None:
        for split, of_split in rows.items():
            if len(of_split):
                self._rows[split].append(of_split + self._count)
        self._records.append(framed)
        self._strata.append(strata)
        self._count += len(framed)
        self._bytes += block_bytes

    def spill(self, path_of: Callable[[str | None], str], seed_of: Callable[[str | None], Seed]) -> Iterator[Spill]:
        strata = Strata.joined(self._strata)
        if not self._rows:
            return
        records = self._records[0] if len(self._records) == 1 else pa.concat_arrays(self._records)
        for split, rows in self._rows.items():
            yield from write_spill(path_of(split), split, records, np.concatenate(rows), seed_of(split), strata)


def write_spill(
    path: str, split: str | None, framed: pa.LargeBinaryArray, rows: npt.NDArray[np.int64], seed: Seed, strata: Strata
) -> Iterator[Spill]:
    """Write some rows of the framed records, shuffled by `seed` and grouped by stratum, and yield the spills."""
    order = rows if seed is None else rows[permutation(len(rows), seed)]
    order = order[np.argsort(strata.numbers[order], kind="stable")]
    records = framed.take(pa.array(order))  # the only copy. Each further copy would cost a tenth of the encoding time
    write_file(path, records)
    start = 0
    for number, count in enumerate(np.bincount(strata.numbers[order], minlength=len(strata.labels)).tolist()):
        if count:
            size = len(data_of(records.slice(start, count)))
            yield Spill(split, path, start, count, size, strata.labels[number])
        start += count


def write_file(path: str, records: pa.LargeBinaryArray) -> None:
    """Write the places where records begin in the file, int64 [n + 1], and the records."""
    offsets = offsets_of(records)
    with files.open_output(path) as file:
        file.write(memoryview(offsets - offsets[0] + offsets.nbytes))
        file.write(data_of(records))


def read_file(path: str, start: int, stop: int) -> pa.LargeBinaryArray:
    """Read records `start` to `stop` of a file: two ranges. Retries after a transient error of the store."""
    places, data = tried_again(partial(_read_file, path, start, stop))
    return pa.Array.from_buffers(pa.large_binary(), stop - start, [None, pa.py_buffer(places - places[0]), data])


def _read_file(path: str, start: int, stop: int) -> tuple[Ints, pa.Buffer]:
    with files.open_input(path, mapped=True) as file:
        places = np.frombuffer(_read_range(file, path, 8 * start, 8 * (stop + 1)), np.int64)
        return places, _read_range(file, path, *places[[0, -1]].tolist())


def _read_range(file: pa.NativeFile, path: str, start: int, stop: int) -> pa.Buffer:
    file.seek(start)
    found = file.read_buffer(stop - start)
    if found.size != stop - start:  # Arrow would otherwise read beyond the end of the buffer
        raise InfeedError("a temporary file is truncated", where=path, do="run again")
    return found


def permutation(size: int, seed: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return a permutation that is stable across NumPy versions. NumPy guarantees only raw streams."""
    raw = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(size)
    return np.argsort(raw, kind="stable")
