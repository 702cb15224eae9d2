"""Spills: framed records of one block and split, in an Arrow file beside the splits until the shards are written.

Arrow, so that a shard takes its share of a spill without reading the rest. Where rows are shuffled, each spill is, and
each window of a shard once more; between the two every spill is dealt out over all shards. Together that is a shuffle
over the whole split that never holds more than a block or a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.records import data_of
from infeed.components.dataset.shards import Slice

Seed = tuple[int, ...] | None  # None keeps the order


@dataclass(frozen=True)
class Spill:
    """Where the records of one block and split lie; `bytes` counts the records, not the file."""

    split: str
    path: str
    records: int
    bytes: int


def write_spill(path: str, split: str, framed: pa.LargeBinaryArray, seed: Seed) -> Spill:
    """Writes framed records, shuffled by `seed`."""
    records = _shuffle(framed, seed)
    batch = pa.RecordBatch.from_arrays([records], ["record"])
    with files.open_output(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return Spill(split, path, len(records), len(data_of(records)))


def read_slices(spills: Sequence[Spill], slices: Sequence[Slice], seed: Seed) -> pa.LargeBinaryArray:
    """The records of some slices, one slice after the other, then shuffled by `seed`."""
    read = [_read_spill(spills[one.part].path).slice(one.start, one.stop - one.start) for one in slices]
    return _shuffle(pa.concat_arrays(read) if read else pa.array([], pa.large_binary()), seed)


def permutation(size: int, seed: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """A permutation of `size` rows that stays the same for ever: NumPy promises that of raw streams only."""
    raw = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(size)
    return np.argsort(raw, kind="stable")


def _shuffle(records: pa.LargeBinaryArray, seed: Seed) -> pa.LargeBinaryArray:
    return records if seed is None else records.take(pa.array(permutation(len(records), seed)))


def _read_spill(path: str) -> pa.LargeBinaryArray:
    with files.open_input(path, mapped=True) as file:
        return pa.ipc.open_file(file).get_batch(0).column(0)
