"""TFRecord files in blocks: many records as one buffer and the places in it, a tenth of the work of one by one.

A file that is not whole is an error in the words of `records.read_records`, which then reads it to say where.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import google_crc32c
import numpy as np
import numpy.typing as npt

from infeed.components.dataset import records
from infeed.components.errors import InfeedError

Ints = npt.NDArray[np.int64]
PADDING = bytes(16)  # behind the last record: whoever reads the head of a field never leaves the buffer
_BYTES = 4 << 20  # of a block, more where one record is larger
_RECORDS = 1 << 15
_HEADER_BYTES, _CRC_BYTES = 12, 4
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, eq=False)
class RecordBlock:
    """Records that lie in one buffer.

    Attributes:
      data: with PADDING at the end
      starts, stops: int64 [n], where each payload begins, and the place behind its last byte
    """

    data: bytes
    starts: Ints
    stops: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, payloads: list[bytes]) -> RecordBlock:
        """Records from anywhere."""
        stops = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
        starts = np.concatenate([[0], stops[:-1]]).astype(np.int64) if len(stops) else stops
        return cls(b"".join([*payloads, PADDING]), starts, stops)

    def payloads(self, rows: Ints) -> list[bytes]:
        """Some of the records."""
        places = zip(self.starts[rows].tolist(), self.stops[rows].tolist(), strict=True)
        return [self.data[start:stop] for start, stop in places]


def read_blocks(path: str, start: int = 0, stop: int | None = None) -> Iterator[RecordBlock]:
    """The records of one file, both checksums verified.

    Args:
      start: number of the first record, from 0; those before it are skipped, not verified.
      stop: number behind the last record; None for the end of the file.

    Raises:
      InfeedError: a truncated or corrupt file, with its name and the record's number, from 0.
    """
    with records.open_framing(path) as file:
        rest, wanted, before = b"", _BYTES, 0
        while chunk := records.read_from(file, wanted, path):
            size = len(rest) + len(chunk)
            data = b"".join([rest, chunk, PADDING])
            ends = _walk(data, size)
            inside = ends[max(0, start - before) : None if stop is None else stop - before + 1]
            if len(inside) > 1:
                yield from _blocks(data, inside, path)
            before += len(ends) - 1
            if stop is not None and before >= stop:
                return
            rest = data[ends[-1] : size]
            wanted = max(_BYTES, _missing(rest, path))
    if rest:
        _complain(path)


def _walk(data: bytes, size: int) -> list[int]:
    """Where records begin, and where the last whole one ends."""
    ends, at = [0], 0
    while at + _HEADER_BYTES <= size:
        at += records.FRAMING_BYTES + _LENGTH.unpack_from(data, at)[0]
        if at > size:
            break
        ends.append(at)
    return ends


def _blocks(data: bytes, ends: list[int], path: str) -> Iterator[RecordBlock]:
    bounds = np.array(ends, np.int64)
    starts, stops = bounds[:-1] + _HEADER_BYTES, bounds[1:] - _CRC_BYTES
    if not _is_whole(data, starts, stops):
        _complain(path)
    for first in range(0, len(starts), _RECORDS):
        some = slice(first, first + _RECORDS)
        yield RecordBlock(data, starts[some], stops[some])


def _is_whole(data: bytes, starts: Ints, stops: Ints) -> bool:
    """Whether the checksums of all lengths and payloads are theirs."""
    found: npt.NDArray[np.uint32] = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    lengths, which = np.unique(stops - starts, return_inverse=True)
    of_lengths = _checksums([_LENGTH.pack(length) for length in lengths.tolist()])[which.reshape(-1)]
    places = zip(starts.tolist(), stops.tolist(), strict=True)
    of_payloads = _checksums([data[start:stop] for start, stop in places])
    return bool((of_lengths == found[starts - _CRC_BYTES]).all() and (of_payloads == found[stops]).all())


def _checksums(parts: list[bytes]) -> npt.NDArray[np.uint32]:
    return records.mask_checksums(np.array([google_crc32c.value(part) for part in parts], np.uint32))


def _missing(rest: bytes, path: str) -> int:
    """Bytes that the record lacks which `rest` begins; a length that is forged is none to ask for."""
    if len(rest) < _HEADER_BYTES:
        return 0
    length = rest[: _LENGTH.size]
    if _checksums([length])[0] != int.from_bytes(rest[_LENGTH.size : _HEADER_BYTES], "little"):
        _complain(path)
    return records.FRAMING_BYTES + int.from_bytes(length, "little") - len(rest)


def _complain(path: str) -> NoReturn:
    """Raises what `records.read_records` has to say of a file that is not whole."""
    for _ in records.read_records(path):
        pass
    raise InfeedError("the file changes while it is read", where=path, do="wait until it is written, and try again")
