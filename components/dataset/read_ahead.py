"""A file of an object store, read from its beginning on in large ranges, the next ones while the last is used.

A range takes some tens of milliseconds whatever its size, and decoders ask for kilobytes at a time. So the file is cut
into blocks; while they are asked for one after the other, the next ones are on their way.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from infeed.components.dataset.read_errors import read_failed

BLOCK_BYTES = 8 << 20
HEAD_BYTES = 64 << 10  # read first and by itself: often only the beginning is looked at
_AHEAD = 3  # blocks that are asked for before they are needed
_KEPT = _AHEAD + 2
_HEAD = -1  # in place of a block's number
# Of all files of this process; a thread only waits.
_threads = ThreadPoolExecutor(16, thread_name_prefix="read-ahead")


class StoreFile(io.BufferedIOBase):
    """A seekable binary file of an object store that is read in the ranges asked for.

    Args:
      file: read by its `read_at` alone, by several threads at once.
      path: for errors.
    """

    def __init__(self, file: pa.NativeFile, path: str) -> None:
        self._file, self._path = file, path
        self._size: int = file.size()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, fewer at the end only."""
        left = max(0, self._size - self._at)
        data = self._range(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def _range(self, start: int, size: int) -> bytes:
        """Read a range.

        Raises:
          ReadFailedError: the store failed. A decoder reports broken content as OSError, so this is another class.
        """
        try:
            return bytes(self._file.read_at(size, start)) if size else b""
        except FileNotFoundError:
            raise
        except OSError as error:
            raise read_failed(error, self._path) from error


class RangeReader(StoreFile):
    """A file of an object store that is read in large ranges, and ahead.

    Args:
      stop: place that is not likely to be read, nor what follows it; None for the end.
    """

    def __init__(self, file: pa.NativeFile, path: str, stop: int | None = None) -> None:
        super().__init__(file, path)
        self._stop = self._size if stop is None else min(stop, self._size)
        self._last = _HEAD
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, fewer at the end only."""
        stop = self._size if size is None or size < 0 else min(self._at + size, self._size)
        pieces = []
        while self._at < stop:
            start, block = self._block_at(self._at, stop)
            piece = block[self._at - start : stop - start]
            pieces.append(piece)
            self._at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        for block in self._blocks.values():
            block.cancel()
        self._blocks.clear()
        super().close()

    def _block_at(self, at: int, stop: int) -> tuple[int, bytes]:
        """(where it begins, bytes) of the block that holds a place."""
        if stop <= HEAD_BYTES:
            return 0, self._ask(_HEAD).result()
        number = at // BLOCK_BYTES
        wanted = self._ask(number)
        if number == self._last + 1:
            for following in range(number + 1, min(number + 1 + _AHEAD, -(-self._stop // BLOCK_BYTES))):
                self._ask(following)
        self._last = number
        return number * BLOCK_BYTES, wanted.result()

    def _ask(self, number: int) -> Future[bytes]:
        """Keeps the block among those used last, and asks for it where it is not there."""
        if number not in self._blocks:
            start, size = (0, HEAD_BYTES) if number == _HEAD else (number * BLOCK_BYTES, BLOCK_BYTES)
            # Not behind the end: some servers take that amiss.
            self._blocks[number] = _threads.submit(self._range, start, min(size, self._size - start))
        self._blocks.move_to_end(number)
        while len(self._blocks) > _KEPT:
            self._blocks.popitem(last=False)[1].cancel()
        return self._blocks[number]
