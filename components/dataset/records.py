"""TFRecord files: framed with masked crc32c, written whole or not at all, and read by a reader that names a bad record.

A record on disk: length (8 bytes, little endian), masked crc32c of those, the payload, masked crc32c of the payload.
Many records are framed at once, as arrays: what depends on a length alone is made once for each length that occurs.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip, isal_zlib

from infeed.components.dataset import files, names
from infeed.components.errors import InfeedError

Ints = npt.NDArray[np.int64]
_COUNTABLE = 1 << 16  # a range of lengths up to here is counted, at a tenth of what sorting them costs
FRAMING_BYTES = 16
_HEADER_BYTES = 12
_CRC_BYTES = 4
_MASK_DELTA = 0xA282EAD8
_GZIP_WINDOW = 31  # 15 bits of window, plus 16 for a gzip header
_FIRST_ZLIB_LEVEL = 4  # isal has levels 0 to 3
_CHUNK = 1 << 20
_SMALL_CHUNK = 1 << 10
_BAD_GZIP: tuple[Any, ...] = (OSError, EOFError, zlib.error, isal_zlib.error)
_REMEDY = "write the dataset again, or remove the file"


@dataclass(frozen=True)
class Written:
    """A finished file: its size in bytes and the crc32c of its bytes, in hex."""

    bytes: int
    crc32c: str


def frame_records(payloads: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Payloads -> the same payloads as they stand in a TFRecord file, one value a record."""
    headers = by_length(pc.binary_length(payloads).to_numpy(zero_copy_only=False), _header)
    return pc.binary_join_element_wise(headers, payloads, _footers(payloads), pa.scalar(b"", pa.large_binary()))


def write_records(path: str, framed: Iterable[pa.LargeBinaryArray], *, gzip_level: int | None) -> Written:
    """Writes framed records, array after array, and renames the file to `path` once it is whole.

    Args:
      gzip_level: 0 to 3 are isal's (1 is its fast default), 4 to 9 zlib's; None writes without compression.
    """
    size, checksum = 0, google_crc32c.Checksum()
    with files.open_output(path) as file:
        for chunk in _compress(framed, gzip_level):
            file.write(chunk)
            size += len(chunk)
            checksum.update(chunk)
    return Written(size, checksum.digest().hex())


def read_records(path: str, most_bytes: int | None = None, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """The payloads of one file, both checksums verified; `.gz` in the name means gzip, as it does to TensorFlow.

    Args:
      most_bytes: a longer record is an error, found before memory is taken for it.
      start: number of the first record, from 0; those before it are skipped, not verified.
      stop: number behind the last record; None for the end of the file.

    Raises:
      InfeedError: a truncated or corrupt file, with its name and the record's number, from 0.
    """
    for number, payload in enumerate(scan_records(path, most_bytes, start, stop), start):
        if payload is None:
            raise InfeedError("corrupt record: wrong checksum", where=f"{path}, record {number}", do=_REMEDY)
        yield payload


def scan_records(
    path: str, most_bytes: int | None = None, start: int = 0, stop: int | None = None
) -> Iterator[bytes | None]:
    """As `read_records`, but goes on after a record whose payload is corrupt; None stands in its place.

    Raises:
      InfeedError: what follows cannot be read at all: a truncated file, or a corrupt length.
    """
    with open_framing(path) as file:
        for number, payload, crc in _framed(file, path, most_bytes):
            if number >= start:
                yield payload if crc == _masked_bytes(google_crc32c.value(payload)) else None
            if number + 1 == stop:
                return


def _framed(file: BinaryIO, path: str, most_bytes: int | None) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, payload, checksum) of each record."""
    for number, length in _lengths(file, path):
        if most_bytes is not None and length > most_bytes:
            raise InfeedError(
                f"a record of {length >> 20:,} MB",
                where=f"{path}, record {number}",
                do="write smaller records, or raise max_row_mb (--max-row-mb)",
            )
        payload, crc = read_from(file, length, path), read_from(file, _CRC_BYTES, path)
        if len(crc) < _CRC_BYTES:
            raise InfeedError("truncated record", where=f"{path}, record {number}", do=_REMEDY)
        yield number, payload, crc


def read_range(path: str, start: int, stop: int | None, most_bytes: int | None = None) -> Iterator[bytes]:
    """The payloads between two bytes of a file that is not compressed, at both of which a record begins.

    Args:
      stop: None for the end of the file.

    Raises:
      InfeedError: as `read_records`, but records are counted from `start`; or no record begins at `stop`.
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
        raise InfeedError(f"no record begins at byte {stop}", where=path, do=_REMEDY)


def find_record(path: str, offset: int) -> int:
    """Where the first whole record begins at a byte of a file that is not compressed, or behind it.

    Both its checksums are right: within a record that is so by chance once in 2^64 bytes, unless its payload holds
    TFRecords itself.
    """
    with files.open_input(path) as file:
        size = file.size()
        for start in range(offset, size, _CHUNK):
            file.seek(start)
            data = file.read(_CHUNK + _HEADER_BYTES - 1)  # to the end of a header that begins at the last byte
            for place in _possible_lengths(data, size - start):
                if _is_header(data[place : place + _HEADER_BYTES]) and _is_record(file, start + place):
                    return int(start + place)
        return int(size)


def _is_header(data: bytes) -> bool:
    return data[8:] == _masked_bytes(google_crc32c.value(data[:8]))


def _is_record(file: pa.NativeFile, place: int) -> bool:
    file.seek(place)
    length = int.from_bytes(file.read(_HEADER_BYTES)[:8], "little")
    payload = file.read(length)
    return bool(file.read(_CRC_BYTES) == _masked_bytes(google_crc32c.value(payload)))


def _possible_lengths(data: bytes, left: int) -> list[int]:
    """The places in `data` where a length stands that is no more than is left of the file."""
    count = len(data) - _HEADER_BYTES + 1
    if count <= 0:
        return []
    lengths: npt.NDArray[np.uint64] = np.ndarray((count,), "<u8", data, strides=(1,))
    return [int(place) for place in np.flatnonzero(lengths <= left)]


def count_records(path: str) -> int:
    """Number of records, by walking the framing; payloads are skipped, not verified.

    Raises:
      InfeedError: a truncated or corrupt file, with its name and the record's number, from 0.
    """
    count = 0
    with open_framing(path) as file:
        for number, length in _lengths(file, path):
            if len(read_from(file, length + _CRC_BYTES, path)) < length + _CRC_BYTES:
                raise InfeedError("truncated record", where=f"{path}, record {number}", do=_REMEDY)
            count += 1
    return count


def file_crc32c(path: str) -> str:
    """crc32c of a file's bytes as they lie on disk, in hex."""
    checksum = google_crc32c.Checksum()
    with files.open_input(path, ahead=True) as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return str(checksum.digest().hex())


def data_of(array: pa.LargeBinaryArray) -> memoryview:
    """The values of an array without nulls, end to end, without a copy."""
    if not len(array):
        return memoryview(b"")
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    return memoryview(array.buffers()[2] or b"")[offsets[0] : offsets[-1]]


def values_of(array: pa.LargeBinaryArray) -> Iterator[bytes]:
    """The values of an array without nulls, one by one, at a third of what Arrow's scalars cost."""
    data, lengths = bytes(data_of(array)), pc.binary_length(array).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    return (data[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True))


def by_length(lengths: Ints, make: Callable[[int], bytes]) -> pa.LargeBinaryArray:
    """`make(length)` for each row: [n], without nulls."""
    distinct, which = _distinct(lengths)
    made = pa.array([make(int(length)) for length in distinct], pa.large_binary())
    return made.take(pa.array(which))


def fixed_width(data: bytes, width: int, count: int) -> pa.LargeBinaryArray:
    """`count` values of `width` bytes each, end to end in `data`."""
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def from_lengths(data: bytes | bytearray | memoryview, lengths: Ints) -> pa.LargeBinaryArray:
    """Values of these lengths, end to end in `data`, without a copy."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _distinct(lengths: Ints) -> tuple[Ints, Ints]:
    """The lengths that occur, and which of them each row has."""
    low = int(lengths.min(initial=0))
    size = int(lengths.max(initial=0)) - low + 1
    if size > _COUNTABLE:
        distinct, which = np.unique(lengths, return_inverse=True)
        return distinct, which.reshape(-1)
    places = lengths - low
    found = np.flatnonzero(np.bincount(places, minlength=size))
    numbers = np.zeros(size, np.int64)
    numbers[found] = np.arange(len(found))
    return found + low, numbers[places]


def _header(length: int) -> bytes:
    size = length.to_bytes(8, "little")
    return size + _masked_bytes(google_crc32c.value(size))


def _footers(payloads: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    checksum = google_crc32c.value
    crcs = [checksum(payload) for payload in values_of(payloads)]
    masked = mask_checksums(np.array(crcs, np.uint32)).astype("<u4")
    return fixed_width(masked.tobytes(), _CRC_BYTES, len(payloads))


def mask_checksums(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Checksums as TFRecords hold them."""
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
    yield from (compressor.compress(chunk) for chunk in _chunks(framed))
    yield compressor.flush()


def _chunks(arrays: Iterable[pa.LargeBinaryArray]) -> Iterator[bytes]:
    for array in arrays:
        data = data_of(array)
        for start in range(0, len(data), _CHUNK):
            yield bytes(data[start : start + _CHUNK])  # the checksum's C code takes nothing but bytes
        del array, data  # before the next one is read


@contextmanager
def open_framing(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed where its name ends in `.gz`."""
    with files.open_input(path, ahead=True) as file:
        raw = igzip.IGzipFile(fileobj=file, mode="rb") if path.endswith(names.GZIP_SUFFIX) else file
        yield cast(BinaryIO, io.BufferedReader(raw, _CHUNK))


def _lengths(file: BinaryIO, path: str) -> Iterator[tuple[int, int]]:
    """(number, payload length) of each record; the caller reads the payload and its checksum before the next."""
    number = 0
    while header := read_from(file, _HEADER_BYTES, path):
        length, crc = header[:8], header[8:]
        if len(header) < _HEADER_BYTES:
            raise InfeedError("truncated record", where=f"{path}, record {number}", do=_REMEDY)
        if crc != _masked_bytes(google_crc32c.value(length)):
            raise InfeedError(
                "not a TFRecord, or corrupt: wrong checksum of a length", where=f"{path}, record {number}", do=_REMEDY
            )
        yield number, int.from_bytes(length, "little")
        number += 1


def read_from(file: BinaryIO, size: int, path: str) -> bytes:
    """So many bytes, or what is left.

    Raises:
      InfeedError: they cannot be decompressed.
    """
    try:
        return file.read(size) if size <= _CHUNK else b"".join(_read_in_steps(file, size))
    except _BAD_GZIP as error:
        where = f"{path}, record {_count_readable(path)}"
        raise InfeedError(f"cannot decompress: {error}", where=where, do=_REMEDY) from error


def _read_in_steps(file: BinaryIO, size: int) -> Iterator[bytes]:
    """As much as there is: a forged length may be more than fits into memory."""
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk


def _count_readable(path: str) -> int:
    """Records in front of the place where decompression fails."""
    count, pending = 0, bytearray()
    for data in _decompress_what_can_be(path):
        pending += data
        while len(pending) >= (size := FRAMING_BYTES + int.from_bytes(pending[:8], "little")):
            count, pending = count + 1, pending[size:]
    return count


def _decompress_what_can_be(path: str) -> Iterator[bytes]:
    """In small steps: of a step that fails, nothing comes out."""
    decompressor: Any = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    with files.open_input(path, ahead=True) as file, suppress(*_BAD_GZIP):
        while chunk := file.read(_SMALL_CHUNK):
            while chunk:
                yield decompressor.decompress(chunk)
                chunk = decompressor.unused_data
                if decompressor.eof:  # one gzip file behind another is a gzip file
                    decompressor = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
