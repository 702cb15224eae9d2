"""Readers of text files and of binary files. The class of a file is the name of its folder.

    */*          one folder per class            train/*/*    the same, for one split
    *            a flat folder, without classes

The label of a class is its index among the sorted class names of all splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.checks import check_fields
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.read_errors import failed_reads
from infeed.components.dataset.records import from_lengths
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRow, BadRows, Batches, OpenedSource, Patterns, Read
from infeed.components.example_gen.sources import streams
from infeed.components.example_gen.sources.file_kinds import NotTextError
from infeed.components.example_gen.sources.streams import Span, TextBlock

Unit = Literal["line", "file"]
CLASS_FOLDERS, FLAT = "*/*", "*"


@dataclass(frozen=True)
class TextOptions:
    """Options of the text reader. Compression (gzip, zstd) is detected from the content.

    Attributes:
      unit: "line" makes a row of each line, including blank lines; "file" makes a row of each file.
      encoding: any text encoding of Python.
    """

    unit: Unit = "line"
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        check_fields(self)
        streams.check_encoding(self)


@dataclass(frozen=True)
class FileRef:
    """A file: its name relative to `root`, as written to the data, its size in bytes, and its class or None."""

    root: str
    filename: str
    size: int
    text: str | None

    @property
    def path(self) -> str:
        return files.join(self.root, self.filename)


@dataclass(frozen=True)
class FileBlock:
    """A group of files, stored by column, which is several times faster to pickle than objects."""

    columns: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, refs: Sequence[FileRef]) -> FileBlock:
        return cls(tuple(zip(*((ref.root, ref.filename, ref.size, ref.text) for ref in refs), strict=True)))

    def __iter__(self) -> Iterator[FileRef]:
        return (FileRef(*values) for values in zip(*self.columns, strict=True))


@dataclass(frozen=True)
class Classes:
    """The sorted class names. Empty if files have no classes."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, refs: Iterable[FileRef]) -> Classes:
        return cls(tuple(sorted({ref.text for ref in refs if ref.text is not None})))

    @property
    def fields(self) -> list[pa.Field]:
        """The label columns of the schema."""
        return [pa.field("label", pa.int64()), pa.field("label/text", pa.string())] if self.names else []

    def columns(self, texts: Sequence[str | None]) -> dict[str, list[Any]]:
        """Return the values of the label columns, given the class of each row."""
        if not self.names:
            return {}
        numbers = {name: number for number, name in enumerate(self.names)}
        return {"label": [None if text is None else numbers[text] for text in texts], "label/text": list(texts)}


def default_pattern(root: str) -> str:
    """Return `*/*` if a folder inside `root` holds files or `root` is empty, and `*` otherwise."""
    if not files.glob(root, FLAT):
        return CLASS_FOLDERS
    inside = (files.join(root, folder) for folder in files.list_folders(root) if not files.is_hidden(folder))
    return CLASS_FOLDERS if any(files.glob(folder, FLAT) for folder in inside) else FLAT


def refs_of(root: str, pattern: str, found: Iterable[files.FileStat]) -> list[FileRef]:
    """Return the files, with their classes if the pattern has a wildcard in the folder of the files."""
    *_, folder, _ = ["", *pattern.split("/")]
    classes = any(sign in folder for sign in "*?[")
    return [
        FileRef(root, files.relative(file.path, root), file.size, file.path.rsplit("/", 2)[-2] if classes else None)
        for file in found
    ]


def read_whole(path: str) -> bytes:
    """Read a file. Raises InfeedError if the file has vanished."""
    with reading(path):
        return files.read_bytes(path)


def bounded(refs: Iterable[FileRef], most_mb: int, bad_rows: BadRows) -> Iterator[FileRef]:
    """Yield the files of at most `most_mb` megabytes, and report the others as bad rows."""
    for ref in refs:
        if ref.size > most_mb << 20:
            size = -(-ref.size >> 20)
            bad_rows.report(BadRow(ref.path, None, None, f"the file has {size:,} MB, {inputs.too_large(most_mb)}", ""))
        else:
            yield ref


def as_column(contents: Sequence[bytes | bytearray]) -> pa.LargeBinaryArray:
    """Return a column with one value for each row. A single value, which may be large, is not copied."""
    data = contents[0] if len(contents) == 1 else b"".join(contents)
    return from_lengths(data, np.array([len(content) for content in contents], np.int64))


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Convert an OSError while reading a file to an InfeedError."""
    try:
        with failed_reads(path):
            yield
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        what = "the file was removed during the run" if gone else f"cannot read the file: {error}"
        raise InfeedError(what, where=path, do="keep the input unchanged, and run again") from error


def plan_blocks(refs: Sequence[FileRef], block_bytes: int) -> Iterator[FileBlock]:
    """Group files in order into blocks of about `block_bytes`."""
    return map(FileBlock.of, streams.grouped(refs, lambda ref: ref.size, block_bytes))


@dataclass(frozen=True)
class _Listed:
    root: str
    found: Mapping[str | None, list[files.FileStat]]
    refs: Mapping[str | None, list[FileRef]]
    classes: Classes

    @classmethod
    def of(cls, root: str, patterns: Patterns) -> _Listed:
        found = inputs.find(root, patterns)
        refs = {split: refs_of(root, patterns[split], matched) for split, matched in found.items()}
        return cls(root, found, refs, Classes.of(ref for some in refs.values() for ref in some))

    def open(self, kind: str, schema: pa.Schema, read: Read, block_bytes: int) -> OpenedSource:
        """Return a source that reads whole files, in tasks of about `block_bytes`."""
        tasks = inputs.as_tasks(
            (split, block) for split, some in self.refs.items() for block in plan_blocks(some, block_bytes)
        )
        return OpenedSource(Source.of(kind, self.root, inputs.all_files(self.found)), schema, tasks, read)


def open_binary(root: str, patterns: Patterns, options: IngestOptions) -> OpenedSource:
    """Open whole files. Columns: data, filename; label and label/text if the pattern covers class folders."""
    listed = _Listed.of(root, patterns)
    schema = pa.schema([("data", pa.large_binary()), ("filename", pa.string()), *listed.classes.fields])
    read = partial(_read_binary, schema=schema, classes=listed.classes, most_mb=options.max_row_mb)
    return listed.open("binary", schema, read, options.block_bytes)


def open_text(root: str, patterns: Patterns, options: IngestOptions, text_options: TextOptions) -> OpenedSource:
    """Open text files. Columns: text, filename; label and label/text if the pattern covers class folders."""
    listed = _Listed.of(root, patterns)
    schema = pa.schema([("text", pa.large_string()), ("filename", pa.string()), *listed.classes.fields])
    form = _TextReading(schema, listed.classes, text_options.encoding, options.block_bytes, options.max_row_mb)
    if text_options.unit == "file":
        return listed.open("text", schema, partial(_read_texts, form=form), options.block_bytes)
    by_path = {ref.path: ref for some in listed.refs.values() for ref in some}

    def look(path: str) -> list[tuple[Span, FileRef]]:
        spans = streams.find_line_spans(path, form.encoding, form.block_bytes, form.max_row_mb)
        return [(span, by_path[path]) for span in spans]

    parts = inputs.look(listed.found, look)
    return inputs.of_parts("text", root, schema, parts, partial(_read_lines, form=form))


def _read_binary(block: FileBlock, schema: pa.Schema, classes: Classes, most_mb: int, *, bad_rows: BadRows) -> Batches:
    refs = list(bounded(block, most_mb, bad_rows))
    columns = {
        "data": as_column([read_whole(ref.path) for ref in refs]),
        "filename": [ref.filename for ref in refs],
        **classes.columns([ref.text for ref in refs]),
    }
    yield pa.RecordBatch.from_pydict(columns, schema=schema)


@dataclass(frozen=True)
class _TextReading:
    schema: pa.Schema
    classes: Classes
    encoding: str
    block_bytes: int
    max_row_mb: int

    def batch(self, texts: pa.LargeStringArray, refs: Sequence[FileRef]) -> pa.RecordBatch:
        columns = {"filename": [ref.filename for ref in refs], **self.classes.columns([ref.text for ref in refs])}
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema if field.name != "text"]
        return pa.RecordBatch.from_arrays([texts, *arrays], schema=self.schema)


def _read_lines(part: tuple[Span, FileRef], form: _TextReading, *, bad_rows: BadRows) -> Batches:
    span, file = part
    for block in streams.read_blocks(span, form.encoding, form.block_bytes, streams.whole_lines, form.max_row_mb):
        # Validate whole blocks first, because a check of each line is slow.
        if streams.is_utf8(block.data):
            texts = split_lines(block.data)
        else:
            good = list[str]()
            for number, line in streams.numbered_lines(replace(block, data=block.data.replace(b"\r\n", b"\n"))):
                if streams.is_utf8(line):
                    good.append(line.decode())
                else:
                    bad_rows.report(block.bad_row(number, f"not {form.encoding} text", line))
            texts = pa.array(good, pa.large_string())
        yield form.batch(texts, [file] * len(texts))


def _read_texts(refs: FileBlock, form: _TextReading, *, bad_rows: BadRows) -> Batches:
    """Yield one row for each file, in batches of about `block_bytes`, and report bad files."""
    texts, kept, size = list[str](), list[FileRef](), 0
    for ref in bounded(refs, form.max_row_mb, bad_rows):
        try:
            data = _decompressed(ref.path, form)
            reason = "" if streams.is_utf8(data) else f"not {form.encoding} text"
        except NotTextError as error:
            data, reason = b"", error.what
        # `bounded` knows the sizes on the disk, but a compressed text may be of any size.
        if len(data) > form.max_row_mb << 20:
            reason = f"the text takes {inputs.too_large(form.max_row_mb)}"
        if reason:
            bad_rows.report(TextBlock(ref.path, b"", 0, 1, final=True).bad_row(None, reason, data))
            continue
        texts.append(data.decode())
        kept.append(ref)
        size += len(data)
        if size >= form.block_bytes:
            yield form.batch(pa.array(texts, pa.large_string()), kept)
            texts, kept, size = [], [], 0
    if kept:
        yield form.batch(pa.array(texts, pa.large_string()), kept)


def _decompressed(path: str, form: _TextReading) -> bytes:
    """Return the text of a file as UTF-8. Reading stops once the text is too large."""
    pieces, size = list[bytes](), 0
    with reading(path):
        for block in streams.read_blocks(Span(path), form.encoding, form.block_bytes, len, form.max_row_mb):
            pieces.append(block.data)
            size += len(block.data)
            if size > form.max_row_mb << 20:
                break
    return b"".join(pieces)


def split_lines(data: bytes) -> pa.LargeStringArray:
    """Split text into lines without line ends."""
    data = data.replace(b"\r\n", b"\n").removesuffix(b"\n")
    return pc.split_pattern(pa.array([data], pa.large_string()), "\n").values
