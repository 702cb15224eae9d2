"""One record batch -> its rows encoded, each with its split and stratum; the rows of a few batches -> a spill.

A spill holds framed records of one run and one split, in an Arrow file beside the splits until the shards are written;
a run is a few neighboring blocks of a task. Where rows are shuffled, each spill is, so that any part of it is a random
sample of the run. `shuffle` deals the records of every spill out over all shards, and a shard shuffles once more what
it gets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files, splits
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import data_of
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.errors import InfeedError
from infeed.components.example_gen.chosen import choose_columns

_MOST_LABELS = 10_000  # in one block; each takes a segment of its own
_CHUNK_BYTES = 1 << 18  # what is read of a spill, at least; on an object store a request each
ROWS_OF_CHUNK = b"rows of a chunk"
_RUN_BYTES = 32 << 20  # of rows in memory; records take two to three times as much, in up to three copies
Label = Hashable  # None is no label
Stratum = tuple[Label, Label]  # of the stratified split, and of the balance
Seed = tuple[int, ...] | None  # None keeps the order
RowsBySplit = Mapping[str | None, npt.NDArray[np.int64]]  # None where labels are divided once all are counted


@dataclass(frozen=True)
class Strata:
    """The stratum of each row, as a number from 0, and the labels that each number stands for."""

    numbers: npt.NDArray[np.int64]
    labels: Sequence[Stratum]

    @classmethod
    def none(cls, rows: int) -> Strata:
        """One stratum of all rows."""
        return cls(np.zeros(rows, np.int64), [(None, None)])

    @classmethod
    def joined(cls, parts: Sequence[Strata]) -> Strata:
        """Those of several blocks, one after the other."""
        numbers: dict[Stratum, int] = {}
        joined = [np.empty(0, np.int64)]
        for part in parts:
            known = np.array([numbers.setdefault(label, len(numbers)) for label in part.labels], np.int64)
            joined.append(known[part.numbers])
        return cls(np.concatenate(joined), list(numbers))


@dataclass(frozen=True)
class ProcessedBatch:
    """The rows that go on: as columns, as serialized examples, by split and by label."""

    written: pa.RecordBatch
    examples: pa.LargeBinaryArray
    rows: RowsBySplit
    strata: Strata


def process_batch(
    batch: pa.RecordBatch, split: str | None, *, buckets: Buckets | None, options: IngestOptions, serialized: bool
) -> ProcessedBatch:
    """Selects columns, encodes and splits.

    Args:
      batch: the rows to write; see `choose_rows`.
      split: of all rows, where the input is split; else `buckets` has the splits.
      serialized: the only column holds finished records.

    Raises:
      InfeedError: options that do not fit the batch, or a value that does not fit a tf.Example or the splits.
    """
    written = choose_columns(batch, options)
    examples = batch.column(0) if serialized else encode_examples(written, empty_lists=options.compat == "tfx")
    rows: RowsBySplit = {split: np.arange(len(examples))}
    if split is None and buckets is not None and not isinstance(options.split_by, ByLabel):
        assigned = _assign(batch, written, examples, buckets, options)
        rows = {name: np.flatnonzero(assigned == number) for number, name in enumerate(buckets.names)}
    return ProcessedBatch(written, examples, rows, strata_of_rows(batch, options.strata))


def _assign(
    batch: pa.RecordBatch,
    written: pa.RecordBatch,
    examples: pa.LargeBinaryArray,
    buckets: Buckets,
    options: IngestOptions,
) -> npt.NDArray[np.int64]:
    if options.split_by is not None and not isinstance(options.split_by, ByLabel):
        return splits.assign_rows(batch, buckets, options.split_by)
    if buckets.feature is not None:
        return splits.assign_by_feature(batch, buckets.feature, buckets)
    return splits.assign_by_record(written, examples, buckets, empty_lists=options.compat == "tfx")


def strata_of_rows(batch: pa.RecordBatch, by: tuple[str | None, str | None]) -> Strata:
    """The stratum of each row by the labels in up to two columns.

    Raises:
      InfeedError: no such column, a list, or nearly as many labels as rows.
    """
    if not any(by):
        return Strata.none(batch.num_rows)
    (first, first_labels), (second, second_labels) = (_numbered(batch, name) for name in by)
    pairs, numbers = np.unique(first * len(second_labels) + second, return_inverse=True)
    if len(pairs) > _MOST_LABELS:
        raise InfeedError(
            f"more than {_MOST_LABELS} different labels in one block",
            where=label_columns(by),
            do="stratify or balance by a column of few values",
        )
    labels = [(first_labels[pair // len(second_labels)], second_labels[pair % len(second_labels)]) for pair in pairs]
    return Strata(numbers.reshape(-1), labels)


def label_columns(by: tuple[str | None, str | None]) -> str:
    """Return the columns that labels come from, as errors name them."""
    return f"column {' and '.join(repr(name) for name in by if name)}"


def _numbered(batch: pa.RecordBatch, name: str | None) -> tuple[npt.NDArray[np.int64], list[Label]]:
    """Each row's label as a number, and the labels."""
    if name is None:
        return np.zeros(batch.num_rows, np.int64), [None]
    column = splits.column_of(batch, name, "label")
    if pa.types.is_nested(column.type):
        raise InfeedError(f"a column of type {column.type}", where=f"label {name!r}", do="choose one of single values")
    if pa.types.is_null(column.type):
        return np.zeros(batch.num_rows, np.int64), [None]
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    # NaN is no label: no two of them are equal, so each block would have a label of its own.
    labels = [None if label != label else label for label in encoded.dictionary.to_pylist()] + [None]
    numbers = encoded.indices.cast(pa.int64()).fill_null(len(labels) - 1)
    return np.asarray(numbers, np.int64), labels


@dataclass(frozen=True)
class Spill:
    """Where some records of one run and split lie: a whole spill file, or one stratum of it.

    Attributes:
      split: None until all labels are counted, where splits are stratified.
      start: the first record's number in the file.
      bytes: of the records, not the file.
      strata: the labels that these records share: of the stratified split, and of the balance.
    """

    split: str | None
    path: str
    start: int
    records: int
    bytes: int
    strata: Stratum = (None, None)


class RunCutter:
    """Tells where a run ends: before the block that would make it larger than `_RUN_BYTES`."""

    def __init__(self) -> None:
        self._bytes = 0

    def ends_before(self, block: pa.RecordBatch) -> bool:
        """Return whether the blocks so far are a whole run. Call it once for each block of a task, in their order."""
        ends = self._bytes > 0 and self._bytes + block.nbytes > _RUN_BYTES
        self._bytes = block.nbytes + (0 if ends else self._bytes)
        return ends


class RunRecords:
    """The records of neighboring blocks of one task, which are spilled together."""

    def __init__(self) -> None:
        self._records: list[pa.LargeBinaryArray] = []
        self._strata: list[Strata] = []
        self._rows: dict[str | None, list[npt.NDArray[np.int64]]] = defaultdict(list)
        self._count = 0

    def add(self, framed: pa.LargeBinaryArray, rows: RowsBySplit, strata: Strata) -> None:
        """Take the next block."""
        for split, of_split in rows.items():
            if len(of_split):
                self._rows[split].append(of_split + self._count)
        self._records.append(framed)
        self._strata.append(strata)
        self._count += len(framed)

    def spill(self, path_of: Callable[[str | None], str], seed_of: Callable[[str | None], Seed]) -> Iterator[Spill]:
        """Write the records of each split."""
        strata = Strata.joined(self._strata)
        if not self._rows:
            return
        records = self._records[0] if len(self._records) == 1 else pa.concat_arrays(self._records)
        for split, rows in self._rows.items():
            yield from write_spill(path_of(split), split, records, np.concatenate(rows), seed_of(split), strata)


def write_spill(
    path: str, split: str | None, framed: pa.LargeBinaryArray, rows: npt.NDArray[np.int64], seed: Seed, strata: Strata
) -> list[Spill]:
    """Writes some rows of the framed records, shuffled by `seed`, those of a stratum together: one spill for each."""
    places = spill_order(rows, seed, strata)
    records = framed.take(pa.array(places))  # the one copy: each more costs a tenth of all encoding
    chunk = max(1, len(records) * _CHUNK_BYTES // max(len(data_of(records)), 1))
    schema = pa.schema([("record", pa.large_binary())], metadata={ROWS_OF_CHUNK: str(chunk)})
    with files.open_output(path) as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(pa.Table.from_arrays([records], schema=schema), max_chunksize=chunk)
    return list(_spills_of(path, split, records, Strata(strata.numbers[places], strata.labels)))


def spill_order(rows: npt.NDArray[np.int64], seed: Seed, strata: Strata) -> npt.NDArray[np.int64]:
    """The rows in the order of their spill file: shuffled by `seed`, those of a stratum together."""
    order = rows if seed is None else rows[permutation(len(rows), seed)]
    return order[np.argsort(strata.numbers[order], kind="stable")]


def _spills_of(path: str, split: str | None, records: pa.LargeBinaryArray, strata: Strata) -> Iterator[Spill]:
    start = 0
    for number, count in enumerate(np.bincount(strata.numbers, minlength=len(strata.labels)).tolist()):
        if count:
            size = len(data_of(records.slice(start, count)))
            yield Spill(split, path, start, count, size, strata.labels[number])
        start += count


def permutation(size: int, seed: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """A permutation of `size` rows that stays the same for ever: NumPy promises that of raw streams only."""
    raw = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(size)
    return np.argsort(raw, kind="stable")
