"""Reader of Arrow files: both IPC formats, Feather 2, and the folders that Hugging Face's `save_to_disk` writes.

Each task reads some record batches of a file in the IPC file format. The IPC stream format has no index, so one task
reads the whole file. Local files are memory-mapped, so that a batch need not fit into memory unless it is compressed.

Format: https://arrow.apache.org/docs/format/Columnar.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions, Part
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import Batches, OpenedSource, Patterns
from infeed.components.example_gen.sources import columnar
from infeed.components.example_gen.sources.columnar import ColumnOptions, FileLayout, Reader, RowGroups, reading_errors
from infeed.components.example_gen.sources.reader_process import Limits

_FILE_MAGIC = b"ARROW1"
_FEATHER_1_MAGIC = b"FEA1"
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
_Reader: TypeAlias = pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader


@dataclass(frozen=True)
class ArrowOptions(ColumnOptions):
    """Options of the Arrow reader: those of `ColumnOptions`."""


def open_arrow(root: str, patterns: Patterns, options: IngestOptions, arrow: ArrowOptions) -> OpenedSource:
    """Open Arrow files with compatible columns; see `open_columnar`."""
    reader = Reader("arrow", read_layout, decode_batches, mapped=True)
    found = inputs.find(root, patterns, companions=False)
    return columnar.open_columnar(reader, root, found, options, arrow)


def read_layout(path: str, block_bytes: int) -> FileLayout:
    """Read the schema and the lengths of the batches. Raises InfeedError if the file is not Arrow or is truncated."""
    head = _read_head(path)
    columns = columnar.file_schema(path, head.schema)
    if head.is_stream:
        return FileLayout(columns, (RowGroups(path, (), 1),))
    with _open(path, head.fields_to_read([0] if len(head.schema) else [])) as reader, reading_errors("Arrow", path):
        rows = [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
    of_row = files.stat(path).size / max(sum(rows), 1)
    return FileLayout(
        columns, tuple(columnar.plan_groups(path, [Part(count, int(count * of_row)) for count in rows], block_bytes))
    )


def decode_batches(what: RowGroups, wanted: Sequence[str], limits: Limits) -> Batches:
    """Yield some batches, or a whole stream, in flat batches of about `limits.block` bytes; see `columnar.cut`."""
    head = _read_head(what.path)
    tops = {top for name in wanted for top in columnar.nesting(name)}
    fields = [number for number, name in enumerate(head.schema.names) if name in tops] or [0]
    with _open(what.path, head.fields_to_read(fields)) as reader, reading_errors("Arrow", what.path):
        row = what.first_row
        for batch in _batches(reader, what.groups):
            batch.validate(full=True)
            for first_row, part in columnar.slices(batch, wanted, row):
                yield from columnar.cut(part, limits, what.path, first_row)
            row += batch.num_rows


@dataclass(frozen=True)
class _Head:
    schema: pa.Schema
    is_stream: bool  # in the stream format, without an index of its batches
    in_place: bool  # batches are read in place, from the mapped file, as they are not compressed

    def fields_to_read(self, fields: Sequence[int]) -> Sequence[int]:
        """Return the fields to read, or none for all, because Arrow copies the batch to read a selection."""
        return () if self.in_place else fields


def _read_head(path: str) -> _Head:
    with _open(path) as reader, reading_errors("Arrow", path):
        is_stream = not isinstance(reader, pa.ipc.RecordBatchFileReader)
        before = pa.total_allocated_bytes()
        first = next(_batches(reader, [0] if is_stream or reader.num_record_batches else []), None)
        # Arrow does not report whether a batch is compressed, but decompression allocates memory.
        return _Head(reader.schema, is_stream, first is None or pa.total_allocated_bytes() == before)


def _batches(reader: _Reader, numbers: Sequence[int]) -> Batches:
    """Yield the batches with the given numbers, or all batches of a stream."""
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from map(reader.get_batch, numbers)
    else:
        yield from reader


@contextmanager
def _open(path: str, fields: Sequence[int] = ()) -> Iterator[_Reader]:
    """Open a file in either IPC format. Its batches hold the top-level fields at these positions, or all."""
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=list(fields))
    with files.open_input(path, mapped=True) as file:
        with columnar.opening_errors("Arrow", path):
            magic = bytes(file.read(len(_FILE_MAGIC)))
            if magic.startswith(_FEATHER_1_MAGIC):
                what = "the file is Feather 1, which Arrow no longer writes"
                raise InfeedError(what, where=path, do="write it as Feather 2")
            file.seek(0)
            reader = (pa.ipc.open_file if magic == _FILE_MAGIC else pa.ipc.open_stream)(file, options=options)
            if magic != _FILE_MAGIC:  # a stream without an end mark is valid, but batches may be missing
                first_batch = file.tell()
                file.seek(max(0, file.size() - len(_END)))
                is_whole = bytes(file.read()).endswith(_END)
                file.seek(first_batch)
                if not is_whole:
                    what = "not Arrow, or truncated: its end is missing"
                    raise InfeedError(what, where=path, do="write the file again, or remove it")
        yield reader
