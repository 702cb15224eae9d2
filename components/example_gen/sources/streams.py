"""Reading of files in bounded pieces: decompression, recoding to UTF-8, and cutting into blocks of whole rows.

A plain UTF-8 file can be read from any row, so a large file becomes several spans, one per worker. A compressed or
recoded file is one span. Compression is detected from the first bytes, not from the name.

A file is cut after the first row that ends beyond each multiple of the span size. `SpanCutter` finds these rows while
reading the whole file. A `Stretch` has only byte offsets, and its task finds the rows (`find_span`). Both cut files at
the same rows.

A large input is opened from a bounded sample. Each task records the kinds of its columns (`PartReader`). If they differ
from those of the sample, `planning.settled` reads the input again.
"""

from __future__ import annotations

import codecs
import functools
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import methodcaller
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import igzip, isal_zlib

from infeed.components.base.checks import refused
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.options import MAX_ROW_MB
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import AstrayError, BadRow, BadRows, Findings
from infeed.components.example_gen.sources import file_kinds

A = TypeVar("A")
_BLOCKS_PER_SPAN = 8  # blocks per task: small enough to balance workers, large enough to amortize a task
_SHOWN_BYTES = 200  # bytes of a bad row to show in the report
_WINDOW_BYTES = 1 << 16  # first search window for the end of a row. Each further window is eight times larger
_LAST_WINDOW_BYTES = 4 << 20  # size after which the best guess is accepted
_PATIENCE = 1.0  # maximum seconds to wait for Arrow. Microseconds are usually enough
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MAGIC_BYTES = 32  # enough for `file_kinds.check_text`
_BAD_COMPRESSION: tuple[Any, ...] = (EOFError, OSError, zlib.error, isal_zlib.error)
SAMPLE_BYTES = 32 << 20  # smaller inputs are read whole. Half of the sample is the first rows
_PIECES = 64  # pieces of the sample


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `stop` (None: end) of a decoded file. `line` is the number of the first line, from 1."""

    path: str
    start: int = 0
    stop: int | None = None
    line: int = 1


@dataclass(frozen=True)
class Stretch:
    """The rows of a plain file that end beyond byte `start`, up to the first row that ends beyond byte `stop`."""

    first: Span  # all rows of the file
    start: int
    stop: int | None

    @property
    def is_first(self) -> bool:
        return self.start == 0


@dataclass(frozen=True)
class RowRules:
    """Rules by which a format separates rows, given bytes that start with a row."""

    whole: Callable[[bytes], int]  # returns the number of bytes of whole rows
    ends: Callable[[bytes], npt.NDArray[np.int64]]  # returns the offset after each row
    # Given bytes that start anywhere, after one that precedes them, and whether they end the file: returns the offset
    # after the first row end, and whether that is certain. None if no row ends there.
    guess: Callable[[bytes, bool], tuple[int, bool] | None]
    is_closed: Callable[[bytes], bool]  # whether the last row is whole


@dataclass(frozen=True)
class TextBlock:
    """Whole rows of a file as UTF-8. `final` marks the last block of a span. A row may take `most_mb` megabytes."""

    path: str
    data: bytes
    start: int
    line: int
    final: bool
    most_mb: int = MAX_ROW_MB

    def bad_row(self, line: int | None, reason: str, row: bytes, column: str | None = None) -> BadRow:
        text = row[:_SHOWN_BYTES].decode(errors="backslashreplace").rstrip("\r\n")
        return BadRow(self.path, line, column, reason, text)


def grouped(items: Iterable[A], size_of: Callable[[A], int], limit: int) -> Iterator[list[A]]:
    """Group items in order. Only a group of one item may be larger than `limit`."""
    group, size = list[A](), 0
    for item in items:
        more = size_of(item)
        if group and size + more > limit:
            yield group
            group, size = [], 0
        group.append(item)
        size += more
    if group:
        yield group


def check_encoding(options: Any) -> None:
    """Raise OptionError if Python does not know the encoding, or cannot decode it incrementally."""
    try:
        "".encode(options.encoding)  # codecs that are no text encodings, such as base64, raise an error
        _decoder(options.encoding).decode(b"", final=True)
    except (LookupError, ValueError):
        raise refused(options, "encoding", "use an encoding such as utf-8 or latin-1") from None


def read_blocks(
    span: Span,
    encoding: str,
    block_bytes: int,
    whole_rows: Callable[[bytes], int],
    most_mb: int = MAX_ROW_MB,
    lines_before: Callable[[], int] | None = None,
) -> Iterator[TextBlock]:
    """Yield the rows of a span in order, in blocks of about `block_bytes`, without a byte order mark.

    Args:
      whole_rows: see `RowRules.whole`.
      most_mb: maximum size of a row. Larger rows usually come from a quote that is never closed.
      lines_before: offset of line numbers in errors.

    Raises:
      InfeedError: the file cannot be decompressed or decoded, or a row exceeds `most_mb` megabytes.
    """
    block_bytes = min(block_bytes, most_mb << 20)
    pending, start, line = b"", span.start, span.line
    for piece in _pieces(span, encoding, block_bytes):
        pending += piece
        if not start and pending.startswith(codecs.BOM_UTF8):
            start, pending = len(codecs.BOM_UTF8), pending.removeprefix(codecs.BOM_UTF8)
        # Search only full blocks, because a search reads all pending bytes again.
        whole = whole_rows(pending) if len(pending) >= block_bytes else 0
        if whole:
            yield TextBlock(span.path, pending[:whole], start, line, False, most_mb)
            line += count_lines(pending[:whole])
            start, pending = start + whole, pending[whole:]
        elif len(pending) > most_mb << 20:
            # Count earlier lines only for an error, because this reads the file up to here.
            line += lines_before() if lines_before else 0
            do = "close the quote that opens there, add line ends, or raise max_row_mb (--max-row-mb)"
            raise InfeedError(f"a row takes more than {most_mb} MB", where=f"{span.path}, line {line}", do=do)
    if pending:
        yield TextBlock(span.path, pending, start, line, True, most_mb)


def whole_lines(data: bytes) -> int:
    """Implement `whole_rows` for formats with one row per line."""
    return data.rfind(b"\n") + 1


def numbered_lines(block: TextBlock) -> Iterator[tuple[int, bytes]]:
    """Yield (number, content without line feed) of each line. Slow; used for blocks with a bad row."""
    number = block.line
    for line in block.data.removesuffix(b"\n").split(b"\n"):
        yield number, line
        number += count_lines(line + b"\n")


def _line_ends(data: bytes) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1


def _first_line_end(data: bytes, ended: bool) -> tuple[int, bool] | None:
    return (end, True) if (end := data.find(b"\n", 1) + 1) else None


# Not lambdas, because tasks are pickled.
LINES = RowRules(whole_lines, _line_ends, _first_line_end, methodcaller("endswith", b"\n"))


def find_line_spans(path: str, encoding: str, block_bytes: int, most_mb: int = MAX_ROW_MB) -> list[Span]:
    """Return the spans of a file with one row per line."""
    if not is_plain(path, encoding):
        return [Span(path)]
    cutter = SpanCutter(Span(path), block_bytes, LINES)
    for block in read_blocks(Span(path), encoding, block_bytes, whole_lines, most_mb):
        cutter.add(block)
    return cutter.spans()


def span_bytes(block_bytes: int) -> int:
    """Return the approximate size of a task in bytes."""
    return _BLOCKS_PER_SPAN * block_bytes


class SpanCutter:
    """Finder of cuts between the rows of a plain file, while its blocks are read."""

    def __init__(self, rows: Span, block_bytes: int, rules: RowRules) -> None:
        self._size, self._rules = span_bytes(block_bytes), rules
        self._next = self._size
        self._path, self._starts = rows.path, [(rows.start, rows.line)]

    def add(self, block: TextBlock) -> None:
        stop = block.start + len(block.data)
        if self._next >= stop:
            return
        ends = self._rules.ends(block.data)
        # One block may hold several cuts, because a row may be longer than a span.
        while self._next < stop:
            place = int(np.searchsorted(ends, self._next - block.start, side="right"))
            cut = int(ends[place]) if place < len(ends) else len(block.data)
            cut = 0 if self._next < block.start else cut  # inside the header
            self._starts.append((block.start + cut, block.line + count_lines(block.data[:cut])))
            self._next += self._size

    def spans(self) -> list[Span]:
        """Return spans that cover all rows of the file."""
        stops = [*(start for start, _ in self._starts[1:]), None]
        return [Span(self._path, start, stop, line) for (start, line), stop in zip(self._starts, stops, strict=True)]


def stretches(rows: Span, size: int, block_bytes: int) -> list[Stretch]:
    """Cut a plain file of `size` bytes without reading it."""
    step = span_bytes(block_bytes)
    bounds = [0, *range(step, size, step), None]
    return [Stretch(rows, start or 0, stop) for start, stop in pairwise(bounds)]


def find_span(stretch: Stretch, rules: RowRules, most_mb: int) -> Span:
    """Return the rows of a stretch, with lines from 1 except in the first. Raise AstrayError if guesses conflict."""
    first = stretch.first

    def find(offset: int) -> int:
        """Return the offset of the first row after a byte. Adjacent stretches get the same result."""
        with files.open_input(first.path) as file:
            size, file_bytes, best = _WINDOW_BYTES, file.size(), None
            while True:
                # Start one byte early: if this byte ends a row, the offset itself starts a row.
                file.seek(offset - 1)
                data = file.read(size)
                ended = offset - 1 + len(data) >= file_bytes
                found = rules.guess(data, ended)
                best = found or best
                if ended or (found and (found[1] or size >= _LAST_WINDOW_BYTES)) or size > most_mb << 20:
                    return max(offset - 1 + (best[0] if best else len(data)), first.start)
                size *= 8

    start = first.start if stretch.is_first else find(stretch.start)
    stop = None if stretch.stop is None else find(stretch.stop)
    if stop is not None and stop < start:
        raise AstrayError
    return Span(first.path, start, stop, first.line if stretch.is_first else 1)


def lines_before(span: Span, rules: RowRules, block_bytes: int) -> Callable[[], int]:
    """Return a cached function that counts the lines before a span by reading the file up to there.

    The function raises AstrayError if the span starts within a row.
    """

    @functools.cache
    def count() -> int:
        lines, closed = 0, True
        for block in read_blocks(Span(span.path, 0, span.start), "utf-8", block_bytes, rules.whole):
            lines += count_lines(block.data)
            closed = not block.final or rules.is_closed(block.data)
        if not closed:
            raise AstrayError
        return lines

    return count


@contextmanager
def lending() -> Iterator[Callable[[A], A]]:
    """Yield a function that lends an object to an Arrow reader.

    At the end, wait until Arrow has released all objects.
    Arrow releases its input later, on another thread. A thread that frees a Python object during interpreter exit
    aborts the process.
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
    """Return whether the bytes of a file are its text, so that reading may start at any row."""
    with files.open_input(path, ahead=True) as file:
        return not _is_recoded(encoding) and not file.read(len(_ZSTD)).startswith((_GZIP, _ZSTD))


def count_lines(data: bytes) -> int:
    """Count line ends: CR LF, LF, and CR."""
    returns = data.count(b"\r")
    return data.count(b"\n") + (returns - data.count(b"\r\n") if returns else 0)


def read_head(path: str, encoding: str) -> bytes:
    """Return the first bytes of a file as UTF-8, up to `file_kinds.HEAD_BYTES`, for the checks of its content."""
    pieces = _pieces(Span(path), encoding, file_kinds.HEAD_BYTES)
    return next(pieces, b"").removeprefix(codecs.BOM_UTF8)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def is_utf8(data: bytes) -> bool:
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())  # Arrow validates without a copy
    except pa.ArrowInvalid:
        return False
    return True


def _pieces(span: Span, encoding: str, block_bytes: int) -> Iterator[bytes]:
    with files.open_input(span.path, ahead=True, stop=span.stop) as file:
        magic, reader = file.read(_MAGIC_BYTES), cast(Any, file)
        file.seek(0)
        if not span.start:
            file_kinds.check_text(span.path, magic)
        if magic.startswith(_GZIP):
            reader = igzip.IGzipFile(fileobj=file, mode="rb")
        elif magic.startswith(_ZSTD):
            reader = pa.CompressedInputStream(file, "zstd")
        reader = _Recoder(reader, encoding) if _is_recoded(encoding) else reader
        try:
            if isinstance(reader, pa.NativeFile) and reader.seekable():
                reader.seek(span.start)
            else:
                skipped = 0
                while skipped < span.start:
                    skipped += len(reader.read(min(span.start - skipped, block_bytes)))
            left = float("inf") if span.stop is None else span.stop - span.start
            # Check decoded content as well, because the first bytes of the file are not its text.
            first = reader is not file and not span.start
            while left > 0 and (piece := reader.read(int(min(left, block_bytes)))):
                if first:
                    file_kinds.check_text(span.path, piece, is_compressed=True)
                left, first = left - len(piece), False
                yield piece
        except UnicodeError as error:
            what = f"not {encoding} text: {getattr(error, 'reason', error)}"
            raise InfeedError(what, where=span.path, do="set encoding") from error
        except _BAD_COMPRESSION as error:
            # An OSError of a plain file is a failed read, not bad compression.
            if reader is file:
                raise
            what = f"cannot decompress: {error}"
            raise InfeedError(what, where=span.path, do="copy or compress the file again") from error


def _is_recoded(encoding: str) -> bool:
    return codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig")


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(encoding)("surrogateescape")


class _Recoder:
    """Recoder of text to UTF-8. Undecodable bytes are kept, so that the check of rows finds them."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file, self._decoder = file, _decoder(encoding)
        self._recoded, self._ended = b"", False

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end. UTF-8 may be longer than the original."""
        while len(self._recoded) < size and not self._ended:
            piece = self._file.read(size)
            self._ended = not piece
            self._recoded += self._decoder.decode(piece, final=self._ended).encode(errors="surrogateescape")
        piece, self._recoded = self._recoded[:size], self._recoded[size:]
        return piece


Part = Span | Stretch


def is_small(found: Mapping[str | None, list[FileStat]]) -> bool:
    """Return whether the sample covers the whole input."""
    return sum(file.size for file in inputs.all_files(found)) <= SAMPLE_BYTES


def parts_of(file: FileStat, rows: Span, encoding: str, block_bytes: int) -> list[Part]:
    """Return the parts of a file with these rows, one for each task. A compressed or recoded file is one part."""
    return [*stretches(rows, file.size, block_bytes)] if is_plain(file.path, encoding) else [rows]


@dataclass(frozen=True)
class PartReader:
    """Reads parts of files, block by block."""

    rules: RowRules
    encoding: str
    block_bytes: int
    max_row_mb: int

    def blocks(self, part: Part, bad_rows: BadRows) -> Iterator[TextBlock]:
        """Yield the blocks of a part, then set `bad_rows.found`. Raise AstrayError if a row crosses its bounds."""
        span, before = self._span(part), None
        if isinstance(part, Stretch) and not part.is_first:
            before = lines_before(span, self.rules, self.block_bytes)
        bad_rows.lines_before, bad_rows.found, lines = before, None, 0
        rules, limit = self.rules, self.max_row_mb
        for block in read_blocks(span, self.encoding, self.block_bytes, rules.whole, limit, before):
            if block.final and span.stop is not None and not rules.is_closed(block.data):
                raise AstrayError
            lines += count_lines(block.data)
            yield block
        bad_rows.found = Findings(lines=lines, line=None if before else span.line)

    def sample(self, parts: Sequence[Part]) -> Iterator[TextBlock]:
        """Yield the first rows of evenly spaced parts."""
        chosen = sorted({*np.linspace(0, len(parts) - 1, _PIECES).astype(int).tolist()})
        some = replace(self, block_bytes=max(SAMPLE_BYTES // 2 // len(chosen), 1))
        for number in chosen:
            with suppress(InfeedError, AstrayError):  # the task reports the error later, with its place in the file
                block = next(some._first_blocks(parts[number]), None)
                if block is not None and self.rules.is_closed(block.data):
                    yield block

    def prefix(self, parts: Sequence[Part]) -> Iterator[TextBlock]:
        """Yield the first rows of the input."""
        left = SAMPLE_BYTES // 2
        for part in parts:
            for block in self._first_blocks(part):
                yield block
                left -= len(block.data)
                if left <= 0:
                    return

    def _first_blocks(self, part: Part) -> Iterator[TextBlock]:
        return read_blocks(self._span(part), self.encoding, self.block_bytes, self.rules.whole, self.max_row_mb)

    def _span(self, part: Part) -> Span:
        return part if isinstance(part, Span) else find_span(part, self.rules, self.max_row_mb)


def with_kinds(bad_rows: BadRows, kinds: Any, *, astray: bool = False) -> None:
    """Add column kinds to the findings of a part, once it is read."""
    if bad_rows.found is not None:
        bad_rows.found = replace(bad_rows.found, kinds=kinds, astray=astray)
