"""Spills: framed records of one block and split, in an Arrow file beside the splits until the shards are written.

Arrow, so that a shard takes its share of a spill without reading the rest. Where rows are shuffled, each spill is, and
each window of a shard once more; between the two every spill is dealt out over all shards. Together that is a shuffle
over the whole split that never holds more than a block or a window.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.records import data_of
from infeed.components.dataset.shards import Slice

_CHUNK_BYTES = 1 << 18  # what is read of a spill, at least; on an object store a request each
_ROWS = b"rows of a chunk"
Seed = tuple[int, ...] | None  # None keeps the order


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
class Spill:
    """Where some records of one block and split lie: a whole spill file, or the run of one stratum in it.

    Args:
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
    order = rows if seed is None else rows[permutation(len(rows), seed)]
    numbers = strata.numbers[order]
    grouped = np.argsort(numbers, kind="stable")
    records = framed.take(pa.array(order[grouped]))  # the one copy: each more costs a tenth of all encoding
    chunk = max(1, len(records) * _CHUNK_BYTES // max(len(data_of(records)), 1))
    schema = pa.schema([("record", pa.large_binary())], metadata={_ROWS: str(chunk)})
    with files.open_output(path) as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(pa.Table.from_arrays([records], schema=schema), max_chunksize=chunk)
    return list(_spills_of(path, split, records, Strata(numbers, strata.labels)))


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
