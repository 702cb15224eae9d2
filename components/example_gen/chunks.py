"""Records on their way through a Beam runner: in chunks of a megabyte at most, each with its place.

A runner puts the chunks of a shard together in any order, and may be able to hold only small ones: Flink refuses an
element of more than some ten megabytes. The shard's writer puts them on its own disk, whatever their number, and reads
them window by window in their order.
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
import numpy.typing as npt
import pyarrow as pa

from infeed.components.example_gen.planning import ShardTask, SplitPlan
from infeed.components.example_gen.shuffle import PlacedSpill, deal_spill, joined

_CHUNK_BYTES = 1 << 20
_SCHEMA = pa.schema([("record", pa.large_binary())])


@dataclass(frozen=True)
class Chunk:
    """A piece of what one spill gives to one shard.

    Attributes:
      spill: its number among those of the split, in the order of the input.
      piece: the number of this piece.
      counts: how many of the records belong to each window of the shard.
      data: the piece of the records, as a stream of Arrow's.
    """

    spill: int
    piece: int
    counts: tuple[int, ...]
    data: bytes


def chunks_of(plan: SplitPlan, number: int, spill: PlacedSpill) -> Iterator[tuple[int, Chunk]]:
    """(index of the shard, chunk) of all records of one spill.

    Args:
      number: of the spill, among those of its split.
    """
    for shard, counts, records in deal_spill(plan, spill):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([records], schema=_SCHEMA))
        data = memoryview(sink.getvalue())
        for piece, start in enumerate(range(0, len(data), _CHUNK_BYTES)):
            yield shard, Chunk(number, piece, tuple(counts.tolist()), bytes(data[start : start + _CHUNK_BYTES]))


def windows_of(task: ShardTask, chunks: Iterable[Chunk]) -> Iterator[pa.LargeBinaryArray]:
    """The records of each window of a shard, in the order of the input.

    Args:
      chunks: all of the shard, in any order; some may come twice, from a worker that was tried again.
    """
    with tempfile.NamedTemporaryFile(suffix=".chunks") as disk:
        places = _spool(chunks, disk)
        disk.flush()
        yield from joined(_read_parts(disk.name, places), task.plan.windows_of_shard)


@dataclass(frozen=True)
class _Place:
    """Where on the disk all pieces of a part lie, and how many of its records belong to each window."""

    start: int
    size: int
    counts: tuple[int, ...]


def _spool(chunks: Iterable[Chunk], disk: IO[bytes]) -> list[_Place]:
    """Put the chunks on the disk, the pieces of a part together; return the parts in the order of the input."""
    pieces: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    counts: dict[int, tuple[int, ...]] = {}
    for chunk in chunks:
        pieces[chunk.spill][chunk.piece] = (disk.tell(), len(chunk.data))
        counts[chunk.spill] = chunk.counts
        disk.write(chunk.data)
    found = []
    for spill in sorted(pieces):
        places = [place for _, place in sorted(pieces[spill].items())]
        start = places[0][0] if _are_together(places) else _put_together(places, disk)
        found.append(_Place(start, sum(size for _, size in places), counts[spill]))
    return found


def _are_together(places: Sequence[tuple[int, int]]) -> bool:
    return all(start + size == next_start for (start, size), (next_start, _) in itertools.pairwise(places))


def _put_together(places: Sequence[tuple[int, int]], disk: IO[bytes]) -> int:
    """Append a copy of all pieces; return where it begins."""
    copied = disk.seek(0, os.SEEK_END)
    at = copied
    for start, size in places:
        disk.seek(start)
        piece = disk.read(size)
        disk.seek(at)
        at += disk.write(piece)
    return copied


def _read_parts(
    path: str, places: Sequence[_Place]
) -> Iterator[tuple[list[pa.LargeBinaryArray], npt.NDArray[np.int64]]]:
    if not places:
        return  # an empty file cannot be mapped
    with pa.memory_map(path) as disk:
        content = disk.read_buffer()
        for place in places:
            stream = pa.ipc.open_stream(content.slice(place.start, place.size))
            yield [stream.read_next_batch().column(0)], np.array(place.counts, np.int64)
