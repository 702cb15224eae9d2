"""Records on their way through a Beam runner, in chunks of at most one megabyte.

A runner delivers the chunks of a shard in any order and may limit their size: Flink rejects elements of more than
about ten megabytes. The writer of a shard spools the chunks to local disk and reads them window by window, in order.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa

from infeed.components.example_gen.planning import ShardTask, SplitPlan
from infeed.components.example_gen.shuffle import SCHEMA, Parts, PlacedSpill, deal_spill, joined

_CHUNK_BYTES = 1 << 20
Place = tuple[int, int, tuple[int, ...]]  # start and size of a part on disk, and its number of records in each window


@dataclass(frozen=True)
class Chunk:
    """A piece of the records that one spill contributes to one shard."""

    spill: int  # index of the spill among those of its split, in input order
    piece: int
    counts: tuple[int, ...]  # number of records in each window of the shard
    data: bytes  # this piece of the records' Arrow IPC stream


def chunks_of(plan: SplitPlan, number: int, spill: PlacedSpill) -> Iterator[tuple[int, Chunk]]:
    """Yield (shard index, chunk) for all records of a spill. `number` is its index in the split."""
    for shard, counts, records in deal_spill(plan, spill):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([records], schema=SCHEMA))
        data = memoryview(sink.getvalue())
        for piece, start in enumerate(range(0, len(data), _CHUNK_BYTES)):
            yield shard, Chunk(number, piece, tuple(counts.tolist()), bytes(data[start : start + _CHUNK_BYTES]))


def windows_of(task: ShardTask, chunks: Iterable[Chunk]) -> Iterator[pa.LargeBinaryArray]:
    """Yield the records of each window of a shard, in input order. Retries of a worker may repeat some chunks."""
    with tempfile.NamedTemporaryFile(suffix=".chunks") as disk:
        places = _spool(chunks, disk)
        disk.flush()
        yield from joined(_read_parts(disk.name, places), task.plan.windows_of_shard)


def _spool(chunks: Iterable[Chunk], disk: IO[bytes]) -> list[Place]:
    """Write the chunks to disk, contiguous for each part, and return the parts in input order."""
    pieces: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    counts: dict[int, tuple[int, ...]] = {}
    for chunk in chunks:
        pieces[chunk.spill][chunk.piece] = (disk.tell(), len(chunk.data))
        counts[chunk.spill] = chunk.counts
        disk.write(chunk.data)
    found = []
    for spill in sorted(pieces):
        places = [place for _, place in sorted(pieces[spill].items())]
        found.append((_contiguous(places, disk), sum(size for _, size in places), counts[spill]))
    return found


def _contiguous(places: Sequence[tuple[int, int]], disk: IO[bytes]) -> int:
    """Return the offset of the pieces, and append a copy of them first if they lie apart."""
    if all(start + size == next_start for (start, size), (next_start, _) in itertools.pairwise(places)):
        return places[0][0]
    copied = disk.seek(0, os.SEEK_END)
    at = copied
    for start, size in places:
        disk.seek(start)
        piece = disk.read(size)
        disk.seek(at)
        at += disk.write(piece)
    return copied


def _read_parts(path: str, places: Sequence[Place]) -> Parts:
    if not places:
        return  # an empty file cannot be mapped
    with pa.memory_map(path) as disk:
        content = disk.read_buffer()
        for start, size, counts in places:
            stream = pa.ipc.open_stream(content.slice(start, size))
            yield [stream.read_next_batch().column(0)], np.array(counts, np.int64)
