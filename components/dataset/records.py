"""Read and write TFRecord files. Files are written atomically, and errors name the bad record.

A record on disk is its length (8 bytes, little endian), the masked crc32c of the length, the payload, and the masked
crc32c of the payload. Many records are framed at once, as arrays. Bytes that depend only on the length are computed
once per distinct length.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, cast

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip, isal_zlib

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.arrow_numbers import from_numbers

Ints = npt.NDArray[np.int64]
_COUNTABLE = 1 << 16  # up to this range, counting lengths is ten times faster than sorting
FRAMING_BYTES = 16
HEADER_BYTES = 12
CRC_BYTES = 4
_MASK_DELTA = 0xA282EAD8
_GZIP_MAGIC = b"\x1f\x8b"
_ZLIB_MAGIC, _ZLIB_CHECK = 0x78, 31  # first byte, and divisor of the first two
_GZIP_WINDOW = 31  # 15 bits of window, plus 16 for a gzip header
_FIRST_ZLIB_LEVEL = 4  # isal has levels 0 to 3
_CHUNK = 1 << 20
_VALUES = 1_024  # values copied at a time
_SMALL_CHUNK = 1 << 10
_BAD_GZIP: tuple[Any, ...] = (OSError, EOFError, zlib.error, isal_zlib.error)
_REMEDY = "write the dataset again, or remove the file"


@dataclass(frozen=True)
class Written:
    """A finished file: its size in bytes and the crc32c of its bytes, in hex."""

    bytes: int
    crc32c: str


def frame_records(payloads: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Add the TFRecord framing to payloads, one value for each record."""
    headers = by_length(pc.binary_length(payloads).to_numpy(zero_copy_only=False), _header)
    checksum = google_crc32c.value
    crcs = [checksum(payload) for payload in values_of(payloads)]
    masked = mask_checksums(np.array(crcs, np.uint32)).astype("<u4")
    footers = fixed_width(masked.tobytes(), CRC_BYTES, len(payloads))
    return pc.binary_join_element_wise(headers, payloads, footers, pa.scalar(b"", pa.large_binary()))


def write_records(path: str, framed: Iterable[pa.LargeBinaryArray], *, gzip_level: int | None) -> Written:
    """Write framed records to a file atomically.

    `gzip_level` 0 to 3 use isal (1 is its fast default), 4 to 9 zlib. None writes without compression.
    """
    size, checksum = 0, google_crc32c.Checksum()
    with files.open_output(path) as file:
        for chunk in _compress(framed, gzip_level):
            file.write(chunk)
            size += len(chunk)
            checksum.update(chunk)
    return Written(size, checksum.digest().hex())


def read_records(path: str, most_bytes: int | None = None, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the payloads of a file, decompressed if `is_gzip`, with both checksums verified.

    Records from `start` to `stop - 1` are read. Earlier records are skipped without verification. A record of more
    than `most_bytes` is an error, raised before memory is allocated. Raises InfeedError if the file is truncated or
    corrupt. The
    error names the file and the index of the record.
    """
    for number, payload in enumerate(scan_records(path, most_bytes, start, stop), start):
        if payload is None:
            raise InfeedError("corrupt record: wrong checksum", where=f"{path}, record {number}", do=_REMEDY)
        yield payload


def scan_records(
    path: str, most_bytes: int | None = None, start: int = 0, stop: int | None = None
) -> Iterator[bytes | None]:
    """Yield payloads like `read_records`, but None for a record with a corrupt payload.

    Raises InfeedError if the rest cannot be read: the file is truncated, or a length is corrupt.
    """
    with open_framing(path) as file:
        for number, payload, crc in _framed(file, path, most_bytes):
            if number >= start:
                yield payload if crc == _masked_bytes(google_crc32c.value(payload)) else None
            if number + 1 == stop:
                return


def _framed(file: BinaryIO, path: str, most_bytes: int | None) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (index, payload, checksum) of each record."""
    for number, length in _lengths(file, path):
        if most_bytes is not None and length > most_bytes:
            do = "write smaller records, or raise max_row_mb (--max-row-mb)"
            raise InfeedError(f"the record takes {length >> 20:,} MB", where=f"{path}, record {number}", do=do)
        payload, crc = read_from(file, length, path), read_from(file, CRC_BYTES, path)
        if len(crc) < CRC_BYTES:
            raise InfeedError("truncated record", where=f"{path}, record {number}", do=_REMEDY)
        yield number, payload, crc


def read_range(path: str, start: int, stop: int | None, most_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the payloads between two offsets of an uncompressed file. Both are starts of records; None is the end.

    Raises InfeedError as `read_records` does, with records counted from `start`, and if no record starts at `stop`.
    """
    place = start
    with files.open_input(path, ahead=True) as raw:
        raw.seek(start)
        file = cast(BinaryIO, io.BufferedReader(raw, _CHUNK))
        records = _framed(file, path, most_bytes)
        while (stop is None or place < stop) and (record := next(records, None)):
            number, payload, crc = record
            if crc != _masked_bytes(google_crc32c.value(payload)):
                raise InfeedError("corrupt record: wrong checksum", where=f"{path}, record {number}", do=_REMEDY)
            yield payload
            place += FRAMING_BYTES + len(payload)
    if stop is not None and place != stop:
        raise InfeedError(f"no record starts at byte {stop}", where=path, do=_REMEDY)


def find_record(path: str, offset: int) -> int:
    """Return the offset of the first complete record of an uncompressed file at or after an offset.

    Both checksums of the record match. A false match inside a payload has a chance of 2^-64 per byte, unless the
    payload contains TFRecords.
    """
    with files.open_input(path) as file:
        size = file.size()
        for start in range(offset, size, _CHUNK):
            file.seek(start)
            data = file.read(_CHUNK + HEADER_BYTES - 1)  # up to the end of a header that starts at the last byte
            count = max(0, len(data) - HEADER_BYTES + 1)
            lengths: npt.NDArray[np.uint64] = np.ndarray((count,), "<u8", data, strides=(1,))
            for place in np.flatnonzero(lengths <= size - start).tolist():  # at most the rest of the file
                if is_header(data[place : place + HEADER_BYTES]):
                    file.seek(start + place + HEADER_BYTES)
                    payload = file.read(int.from_bytes(data[place : place + 8], "little"))
                    if file.read(CRC_BYTES) == _masked_bytes(google_crc32c.value(payload)):
                        return int(start + place)
        return int(size)


def is_header(data: bytes) -> bool:
    """Return whether the bytes are a length and its checksum."""
    return data[8:] == _masked_bytes(google_crc32c.value(data[:8]))


def is_gzip(path: str) -> bool:
    """Return whether a file is compressed by gzip: by its first bytes, or by its name, as in TensorFlow.

    Shards with numbered names are not opened, because there are many and their writers name them correctly. A missing
    file counts by its name, because a feed with cached records does not need it.
    """
    if names.is_numbered(path) and path.endswith(names.GZIP_SUFFIX):
        return True
    with suppress(FileNotFoundError), files.open_input(path) as file:
        return _begins_as_gzip(file, path)
    return path.endswith(names.GZIP_SUFFIX)


def misnamed_gzip(paths: Iterable[str]) -> tuple[str, ...]:
    """Return notes about gzip files without `.gz` in their names, and about others with it. Empty if there are none."""
    named: dict[bool, list[str]] = {True: [], False: []}
    for path in paths:
        if (packed := is_gzip(path)) is not path.endswith(names.GZIP_SUFFIX):
            named[packed].append(path)
    readers = "TensorFlow's and TFX's own readers"
    notes = {
        True: f"compressed by gzip{{}}: {readers} need .gz at the end of the name",
        False: f"not compressed by gzip{{}}: {readers} need a name without .gz at the end",
    }
    more = {packed: f", and {len(found) - 1:,} more" if len(found) > 1 else "" for packed, found in named.items()}
    return tuple(f"{found[0]} is {notes[packed].format(more[packed])}" for packed, found in named.items() if found)


def _begins_as_gzip(file: Any, path: str) -> bool:
    """Return whether an open file is gzip. A record length may begin like gzip, but then its checksum matches."""
    head = bytes(file.read(HEADER_BYTES))
    file.seek(0)
    if is_header(head):
        return False
    return head.startswith(_GZIP_MAGIC) or path.endswith(names.GZIP_SUFFIX)


def count_records(path: str) -> int:
    """Count records from their framing, without verifying payloads.

    Raises InfeedError if the file is truncated or corrupt. The error names the file and the index of the record.
    """
    count = 0
    with open_framing(path) as file:
        for number, length in _lengths(file, path):
            if len(read_from(file, length + CRC_BYTES, path)) < length + CRC_BYTES:
                raise InfeedError("truncated record", where=f"{path}, record {number}", do=_REMEDY)
            count += 1
    return count


def file_crc32c(path: str) -> str:
    """Return the crc32c of a file's bytes on disk, in hex."""
    checksum = google_crc32c.Checksum()
    with files.open_input(path, ahead=True) as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return str(checksum.digest().hex())


def data_of(array: pa.LargeBinaryArray) -> memoryview:
    """Return the concatenated values of an array without nulls, without a copy."""
    offsets = offsets_of(array)
    return memoryview(array.buffers()[2] or b"")[offsets[0] : offsets[-1]]


def offsets_of(array: pa.LargeBinaryArray) -> Ints:
    """Return where each value begins in the data buffer, and where the last ends: int64 [n + 1]."""
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]


def values_of(array: pa.LargeBinaryArray) -> Iterator[bytes]:
    """Yield the values of an array without nulls, three times faster than Arrow's scalars."""
    # Copying all values at once would leave the processor's cache and take longer than dividing them.
    return chain.from_iterable(_values(array.slice(start, _VALUES)) for start in range(0, len(array), _VALUES))


def _values(array: pa.LargeBinaryArray) -> list[bytes]:
    data, lengths = bytes(data_of(array)), pc.binary_length(array).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    return [data[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]


def by_length(lengths: Ints, make: Callable[[int], bytes]) -> pa.LargeBinaryArray:
    """Return [n] results of `make(length)`, one for each row, without nulls."""
    low = int(lengths.min(initial=0))
    size = int(lengths.max(initial=0)) - low + 1
    if size > _COUNTABLE:
        distinct, which = np.unique(lengths, return_inverse=True)
        which = which.reshape(-1)
    else:
        found = np.flatnonzero(np.bincount(lengths - low, minlength=size))
        numbers = np.zeros(size, np.int64)
        numbers[found] = np.arange(len(found))
        distinct, which = found + low, numbers[lengths - low]
    made = pa.array([make(int(length)) for length in distinct], pa.large_binary())
    return made.take(from_numbers(which))


def fixed_width(data: bytes, width: int, count: int) -> pa.LargeBinaryArray:
    """Return `count` values of `width` bytes each, concatenated in `data`."""
    return from_offsets(data, np.arange(count + 1, dtype=np.int64) * width)


def from_lengths(data: bytes | bytearray | memoryview, lengths: Ints) -> pa.LargeBinaryArray:
    """Return values of these lengths, concatenated in `data`, without a copy."""
    return from_offsets(data, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def from_offsets(data: Any, offsets: Ints) -> pa.LargeBinaryArray:
    """Return the values between neighbors of `offsets`, [n + 1], in `data`, without a copy."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def item_places(starts: Ints, counts: Ints, width: int = 1) -> Ints:
    """Return the place of each item of some lists, which begin at `starts` and hold `counts` items of `width` each."""
    if (counts <= 1).all():
        return starts if counts.all() else starts[counts > 0]
    before = np.cumsum(counts) - counts
    return np.asarray(np.repeat(starts - before * width, counts) + np.arange(counts.sum()) * width, np.int64)


def _header(length: int) -> bytes:
    size = length.to_bytes(8, "little")
    return size + _masked_bytes(google_crc32c.value(size))


def mask_checksums(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    rotated = (crc >> np.uint32(15)) | (crc << np.uint32(17))
    return rotated + np.uint32(_MASK_DELTA)


def _masked_bytes(crc: int) -> bytes:
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    return ((rotated + _MASK_DELTA) & 0xFFFFFFFF).to_bytes(4, "little")


def _compress(framed: Iterable[pa.LargeBinaryArray], level: int | None) -> Iterator[bytes]:
    if level is None:
        yield from _chunks(framed)
        return
    library: Any = zlib if level >= _FIRST_ZLIB_LEVEL else isal_zlib
    compressor = library.compressobj(level=level, wbits=_GZIP_WINDOW)
    yield from (compressor.compress(piece) for piece in _pieces(framed))
    yield compressor.flush()


def _pieces(arrays: Iterable[pa.LargeBinaryArray]) -> Iterator[memoryview]:
    """Yield the bytes of arrays in pieces of `_CHUNK` bytes, the last maybe shorter. Each overwrites the previous one.

    isal's output depends on the division of its input, so that division must not depend on how records arrive.
    """
    buffer, filled = memoryview(bytearray(_CHUNK)), 0
    for array in arrays:
        data = data_of(array).cast("B")
        while size := min(len(data), _CHUNK - filled):
            buffer[filled : filled + size], data = data[:size], data[size:]
            filled += size
            if filled == _CHUNK:
                yield buffer
                filled = 0
        del array, data  # free memory before the next array is made
    yield buffer[:filled]


def _chunks(arrays: Iterable[pa.LargeBinaryArray]) -> Iterator[bytes]:
    for array in arrays:
        data = data_of(array)
        for start in range(0, len(data), _CHUNK):
            yield bytes(data[start : start + _CHUNK])  # google_crc32c accepts only bytes
        del array, data  # free memory before the next array is made


@contextmanager
def open_framing(path: str) -> Iterator[BinaryIO]:
    """Open a file, decompressed if `is_gzip`."""
    with files.open_input(path, ahead=True) as file:
        raw = igzip.IGzipFile(fileobj=file, mode="rb") if _begins_as_gzip(file, path) else file
        yield cast(BinaryIO, io.BufferedReader(raw, _CHUNK))


def _lengths(file: BinaryIO, path: str) -> Iterator[tuple[int, int]]:
    """Yield (index, payload length) of each record. The caller reads the payload and its checksum in between."""
    number = 0
    while header := read_from(file, HEADER_BYTES, path):
        if len(header) < HEADER_BYTES:
            raise InfeedError("truncated record", where=f"{path}, record {number}", do=_REMEDY)
        if not is_header(header):
            what, do = "not a TFRecord, or corrupt: wrong checksum of a length", _REMEDY
            if not number and _is_zlib(header):
                what, do = "the file is compressed by zlib", "compress it by gzip, or not at all"
            raise InfeedError(what, where=f"{path}, record {number}", do=do)
        yield number, int.from_bytes(header[:8], "little")
        number += 1


def _is_zlib(head: bytes) -> bool:
    return head[0] == _ZLIB_MAGIC and int.from_bytes(head[:2], "big") % _ZLIB_CHECK == 0


def read_from(file: BinaryIO, size: int, path: str) -> bytes:
    """Return `size` bytes, or the rest of the file. Raises InfeedError if the file cannot be decompressed."""
    try:
        return file.read(size) if size <= _CHUNK else b"".join(_read_in_steps(file, size))
    except _BAD_GZIP as error:
        where = f"{path}, record {_count_readable(path)}"
        raise InfeedError(f"cannot decompress: {error}", where=where, do=_REMEDY) from error


def _read_in_steps(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Read in chunks, because a forged length may exceed memory."""
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk


def _count_readable(path: str) -> int:
    """Count the records before the point where decompression fails."""
    count, pending = 0, bytearray()
    decompressor: Any = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    with files.open_input(path, ahead=True) as file, suppress(*_BAD_GZIP):
        while chunk := file.read(_SMALL_CHUNK):  # small, because a failing step yields nothing
            while chunk:
                pending += decompressor.decompress(chunk)
                while len(pending) >= (size := FRAMING_BYTES + int.from_bytes(pending[:8], "little")):
                    count, pending = count + 1, pending[size:]
                chunk = decompressor.unused_data
                if decompressor.eof:  # a gzip file may have several members
                    decompressor = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    return count
