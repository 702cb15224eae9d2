"""Bytes a bounded piece at a time: decompressed, and text as blocks of whole rows, recoded to UTF-8.

A plain UTF-8 file can be read from any row on: a big one becomes several spans, for as many workers. A compressed or
recoded file is one span. A file's first bytes tell its compression; its name does not.
"""

from __future__ import annotations

import codecs
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from isal import igzip, isal_zlib

from infeed.components.checks import refused
from infeed.components.dataset import files
from infeed.components.dataset.options import MAX_ROW_MB
from infeed.components.errors import InfeedError
from infeed.components.example_gen.inputs import BadRow

A = TypeVar("A")
_BLOCKS_PER_SPAN = 8  # what one worker reads at a time: small enough to share out, large enough to be worth a task
_SHOWN_BYTES = 200  # of a bad row
_PATIENCE = 1.0  # seconds; some millionths are enough
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BAD_COMPRESSION: tuple[Any, ...] = (EOFError, OSError, zlib.error, isal_zlib.error)


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `stop` (not included; None is the end) of a decoded file; `line` is the first's, from 1."""

    path: str
    start: int = 0
    stop: int | None = None
    line: int = 1


@dataclass(frozen=True)
class TextBlock:
    """Whole rows of a file, as UTF-8; the last block of a span is `final`."""

    path: str
    data: bytes
    start: int
    line: int
    final: bool

    def bad_row(self, line: int | None, reason: str, row: bytes, column: str | None = None) -> BadRow:
        text = row[:_SHOWN_BYTES].decode(errors="backslashreplace").rstrip("\r\n")
        return BadRow(self.path, line, column, reason, text)


def check_encoding(options: Any) -> None:
    """Raises OptionError where Python knows no such `encoding` of text, or cannot read files in it piece by piece."""
    try:
        "".encode(options.encoding)  # a codec of something else, such as base64, refuses
        _decoder(options.encoding).decode(b"", final=True)
    except (LookupError, ValueError):
        raise refused(options, "encoding", "give one such as utf-8 or latin-1") from None


def read_blocks(
    span: Span, encoding: str, block_bytes: int, whole_rows: Callable[[bytes], int], most_mb: int = MAX_ROW_MB
) -> Iterator[TextBlock]:
    """The rows of a span in order, in blocks of about `block_bytes`; a byte order mark is left out.

    Args:
      whole_rows: how many bytes of a piece that begins with a row are whole rows.
      most_mb: a row of more megabytes is an error; most often it is a quote that never closes.

    Raises:
      InfeedError: a file that cannot be decompressed or decoded, a row of more than `most_mb` megabytes.
    """
    block_bytes = min(block_bytes, most_mb << 20)
    pending, start, line = b"", span.start, span.line
    for piece in _pieces(span, encoding, block_bytes):
        pending += piece
        if not start and pending.startswith(codecs.BOM_UTF8):
            start, pending = len(codecs.BOM_UTF8), pending.removeprefix(codecs.BOM_UTF8)
        whole = whole_rows(pending) if len(pending) >= block_bytes else 0
        if whole:
            yield TextBlock(span.path, pending[:whole], start, line, final=False)
            line += count_lines(pending[:whole])
            start, pending = start + whole, pending[whole:]
        elif len(pending) > most_mb << 20:
            raise InfeedError(
                f"a row of more than {most_mb} MB",
                where=f"{span.path}, line {line}",
                do="close the quote that opens there, give the file line ends, or raise max_row_mb (--max-row-mb)",
            )
    if pending:
        yield TextBlock(span.path, pending, start, line, final=True)


def whole_lines(data: bytes) -> int:
    """`whole_rows` of formats in which a row is a line."""
    return data.rfind(b"\n") + 1


def numbered_lines(block: TextBlock) -> Iterator[tuple[int, bytes]]:
    """(number, content without its end) of each line; slow, for a block in which something is wrong."""
    return enumerate(block.data.removesuffix(b"\n").split(b"\n"), start=block.line)


def find_line_spans(path: str, encoding: str, block_bytes: int, most_mb: int = MAX_ROW_MB) -> list[Span]:
    """The spans of a file in which a row is a line."""
    if not is_plain(path, encoding):
        return [Span(path)]
    return split_spans(path, read_blocks(Span(path), encoding, block_bytes, whole_lines, most_mb), block_bytes)


def split_spans(path: str, blocks: Iterable[TextBlock], block_bytes: int) -> list[Span]:
    """Spans of some blocks each, that together are all blocks of a plain file."""
    starts: list[tuple[int, int]] = []
    for block in blocks:
        if not starts or block.start - starts[-1][0] >= _BLOCKS_PER_SPAN * block_bytes:
            starts.append((block.start, block.line))
    stops = [*(start for start, _ in starts[1:]), None]
    return [Span(path, start, stop, line) for (start, line), stop in zip(starts, stops, strict=False)]


@contextmanager
def lending() -> Iterator[Callable[[A], A]]:
    """Yields a function that passes an object on to a reader of Arrow's; waits in the end until Arrow is done with all.

    Arrow lets go of what it reads on a thread of its own, some time after it has answered. A thread that frees an
    object of Python's while the interpreter ends aborts the process.
    """
    watched: list[tuple[weakref.ref[Any], threading.Event]] = []

    def lend(thing: A) -> A:
        returned = threading.Event()
        watched.append((weakref.ref(thing, lambda _: returned.set()), returned))
        return thing

    try:
        yield lend
    finally:
        for _, returned in watched:
            returned.wait(_PATIENCE)


def is_plain(path: str, encoding: str) -> bool:
    """Whether the bytes of a file are its text, so that reading may begin at any row."""
    with files.open_input(path, ahead=True) as file:
        return not _is_recoded(encoding) and not file.read(len(_ZSTD)).startswith((_GZIP, _ZSTD))


def count_lines(data: bytes) -> int:
    """Line ends: CR LF, LF, or CR alone in files that have no LF."""
    return data.count(b"\n") or data.count(b"\r")


def is_utf8(data: bytes) -> bool:
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())  # Arrow checks without a copy
    except pa.ArrowInvalid:
        return False
    return True


def _pieces(span: Span, encoding: str, block_bytes: int) -> Iterator[bytes]:
    with files.open_input(span.path, ahead=True) as file:
        reader = _open_decompressed(file)
        reader = _Recoder(reader, encoding) if _is_recoded(encoding) else reader
        try:
            _skip(reader, span.start, block_bytes)
            left = float("inf") if span.stop is None else span.stop - span.start
            while left > 0 and (piece := reader.read(int(min(left, block_bytes)))):
                left -= len(piece)
                yield piece
        except UnicodeError as error:
            raise InfeedError(f"not {encoding}: {_reason(error)}", where=span.path, do="name its encoding") from error
        except _BAD_COMPRESSION as error:
            if reader is file:
                raise
            raise InfeedError(
                f"cannot decompress: {error}", where=span.path, do="copy or compress the file again"
            ) from error


def _open_decompressed(file: pa.NativeFile) -> Any:
    magic = file.read(len(_ZSTD))
    file.seek(0)
    if magic.startswith(_GZIP):
        return igzip.IGzipFile(fileobj=file, mode="rb")
    return pa.CompressedInputStream(file, "zstd") if magic == _ZSTD else file


def _is_recoded(encoding: str) -> bool:
    return codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig")


def _skip(reader: Any, size: int, block_bytes: int) -> None:
    if isinstance(reader, pa.NativeFile) and reader.seekable():
        reader.seek(size)
        return
    while size:
        size -= len(reader.read(min(size, block_bytes)))


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(encoding)("surrogateescape")


def _reason(error: UnicodeError) -> str:
    return error.reason if isinstance(error, (UnicodeDecodeError, UnicodeEncodeError)) else str(error)


class _Recoder:
    """Reads text of another encoding as UTF-8; bytes that are no text in it stay, for whoever checks rows to find."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file, self._decoder = file, _decoder(encoding)
        self._recoded, self._ended = b"", False

    def read(self, size: int) -> bytes:
        """At most `size` bytes, fewer only at the end, although as UTF-8 a text may be longer than it was."""
        while len(self._recoded) < size and not self._ended:
            piece = self._file.read(size)
            self._ended = not piece
            self._recoded += self._decoder.decode(piece, final=self._ended).encode(errors="surrogateescape")
        piece, self._recoded = self._recoded[:size], self._recoded[size:]
        return piece
