"""One record batch -> its rows encoded, each with its split and stratum; counted and spilled.

A spill is framed records of one block and split, in an Arrow file beside the splits until the shards are written.
Arrow, so that a shard takes its share of a spill without reading the rest. Where rows are shuffled, each spill is, and
each window of a shard once more; between the two every spill is dealt out over all shards. Together that is a shuffle
over the whole split that never holds more than a block or a window.

Column statistics are counted on the way by each task, and each split's file is the sum over the tasks. A split is the
least that they are kept of, since rows are shuffled over all its shards. A split whose rows are chosen only after all
are read, by label, has none; nor have records that are imported unread. Theirs are read from the shards when somebody
asks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files, names, splits
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.manifest import Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.records import data_of
from infeed.components.dataset.shards import Slice
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.table_statistics import Gatherer, TableStatistics, add, key_of
from infeed.components.errors import InfeedError
from infeed.components.example_gen.chosen import choose_columns

_MOST_LABELS = 10_000  # in one block; each takes a segment of its own
_CHUNK_BYTES = 1 << 18  # what is read of a spill, at least; on an object store a request each
_ROWS = b"rows of a chunk"
Seed = tuple[int, ...] | None  # None keeps the order
RowsBySplit = Mapping[str | None, npt.NDArray[np.int64]]  # None where labels are divided once all are counted
_MAX_COLUMNS = 20_000  # of a wider table, statistics take more memory than its rows
_FOLDER = "statistics"
_KEY = "task"  # of a file that nobody else sees


@dataclass(frozen=True)
class Strata:
    """The stratum of each row, as a number from 0, and the labels that each number stands for."""

    numbers: npt.NDArray[np.int64]
    labels: Sequence[tuple[Hashable, Hashable]]

    @classmethod
    def none(cls, rows: int) -> Strata:
        """One stratum of all rows."""
        return cls(np.zeros(rows, np.int64), [(None, None)])


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
            where=f"column {' and '.join(repr(name) for name in by if name)}",
            do="stratify or balance by a column of few values",
        )
    labels = [(first_labels[pair // len(second_labels)], second_labels[pair % len(second_labels)]) for pair in pairs]
    return Strata(numbers.reshape(-1), labels)


def _numbered(batch: pa.RecordBatch, name: str | None) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
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
    """Where some records of one block and split lie: a whole spill file, or the run of one stratum in it.

    Attributes:
      split: None until the labels of all blocks are counted, where splits are stratified.
      start: the first record's number in the file.
      bytes: of the records, not the file.
      strata: the labels that these records share: of the stratified split, and of the balance.
    """

    split: str | None
    path: str
    start: int
    records: int
    bytes: int
    strata: tuple[Hashable, Hashable] = (None, None)


def write_spill(
    path: str, split: str | None, framed: pa.LargeBinaryArray, rows: npt.NDArray[np.int64], seed: Seed, strata: Strata
) -> list[Spill]:
    """Writes some rows of the framed records, shuffled by `seed`, those of a stratum together: one spill for each."""
    places = spill_order(rows, seed, strata)
    records = framed.take(pa.array(places))  # the one copy: each more costs a tenth of all encoding
    chunk = max(1, len(records) * _CHUNK_BYTES // max(len(data_of(records)), 1))
    schema = pa.schema([("record", pa.large_binary())], metadata={_ROWS: str(chunk)})
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


def list_spills(path: str, spills: Sequence[Spill]) -> None:
    """Writes down which spills there are, for whoever reads slices of them; without their labels."""
    files.write_bytes(
        path, json.dumps([(one.split, one.path, one.start, one.records, one.bytes) for one in spills]).encode()
    )


def listed_spills(path: str) -> list[Spill]:
    return [Spill(*fields) for fields in json.loads(files.read_bytes(path))]


def read_slices(spills: Sequence[Spill], slices: Sequence[Slice], seed: Seed) -> pa.LargeBinaryArray:
    """The records of some slices, one slice after the other, then shuffled by `seed`."""
    read = [chunk for one in slices for chunk in _read_spill(spills[one.part], one)]
    return _shuffle(pa.concat_arrays(read) if read else pa.array([], pa.large_binary()), seed)


def permutation(size: int, seed: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """A permutation of `size` rows that stays the same for ever: NumPy promises that of raw streams only."""
    raw = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(size)
    return np.argsort(raw, kind="stable")


def _shuffle(records: pa.LargeBinaryArray, seed: Seed) -> pa.LargeBinaryArray:
    return records if seed is None else records.take(pa.array(permutation(len(records), seed)))


def _read_spill(spill: Spill, one: Slice) -> Iterator[pa.LargeBinaryArray]:
    start, stop = spill.start + one.start, spill.start + one.stop
    with files.open_input(spill.path, mapped=True) as file:
        reader = pa.ipc.open_file(file)
        rows = int(reader.schema.metadata[_ROWS])
        for chunk in range(start // rows, -(-stop // rows)):
            first = chunk * rows
            records = reader.get_batch(chunk).column(0)
            yield records[max(start - first, 0) : min(stop - first, rows)]


def analysed_splits(splits: Sequence[str], schema: pa.Schema, options: IngestOptions, serialized: bool) -> list[str]:
    """The splits that statistics are gathered of."""
    if serialized or not options.statistics or isinstance(options.split_by, ByLabel) or len(schema) > _MAX_COLUMNS:
        return []
    balanced = options.balance.splits if options.balance else ()
    return [split for split in splits if split not in balanced]


class TaskAnalysis:
    """Statistics of the rows of one task, split by split.

    Args:
      splits: to be analysed
      empty_lists: a null is written as an empty list
    """

    def __init__(self, splits: Iterable[str], *, empty_lists: bool) -> None:
        self._splits = frozenset(splits)
        self._empty_lists = empty_lists
        self._gatherers: dict[str, Gatherer] = defaultdict(Gatherer)

    def add(self, batch: pa.RecordBatch, by_split: RowsBySplit) -> None:
        """Takes a block as it is written."""
        wanted = {split: rows for split, rows in by_split.items() if split in self._splits and len(rows)}
        if not wanted:
            return
        found = zip(batch.schema.names, batch.columns, strict=True)
        cells = {name: Cells.of(column, empty_lists=self._empty_lists) for name, column in found}
        for split, rows in wanted.items():
            taken = {name: column and column.take(rows) for name, column in cells.items()}
            self._gatherers[str(split)].add(len(rows), taken)

    def leave(self, temporary: str, order: int) -> None:
        """Writes down what was found in the task of this number."""
        for split, gatherer in self._gatherers.items():
            gatherer.statistics().write(files.join(temporary, _FOLDER, split, f"{order:06d}.json"), _KEY)


def publish_statistics(temporary: str, root: str, splits: Iterable[tuple[str, Split]]) -> None:
    """Adds up what all tasks left, in their order, and writes it beside the splits."""
    for name, split in splits:
        left = (
            TableStatistics.read(file.path, _KEY) for file in files.glob(files.join(temporary, _FOLDER, name), "*.json")
        )
        found = add(part for part in left if part is not None)
        found.collapse().write(names.statistics_file(root, name), key_of(split))
