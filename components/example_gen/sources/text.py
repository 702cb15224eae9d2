"""Text files: a row for each line, or each file, with the file's name, and class where it lies in a class folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import folders, streams
from infeed.components.example_gen.sources.folders import Classes, FileBlock, FileRef
from infeed.components.example_gen.sources.folders import default_pattern as default_pattern
from infeed.components.example_gen.sources.streams import Block, Span

Unit = Literal["line", "file"]
_FIELDS = [pa.field("text", pa.large_string()), pa.field("filename", pa.string())]


@dataclass(frozen=True)
class TextOptions:
    """How the files are written; compression (gzip, zstd) is told from their content.

    Args:
      unit: a row for each "line", blank ones too, or for each "file".
      encoding: any that Python knows.
    """

    unit: Unit = "line"
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise InfeedError(f"unit={self.unit!r}", where="TextOptions", do='give "line" or "file"')
        streams.check_encoding(self.encoding, "TextOptions")


@dataclass(frozen=True)
class _Lines:
    """A part of one file."""

    span: Span
    file: FileRef


@dataclass(frozen=True)
class _Format:
    """What reading needs to know."""

    schema: pa.Schema
    classes: Classes
    encoding: str
    block_bytes: int

    def batch(self, texts: pa.LargeStringArray, refs: Sequence[FileRef]) -> pa.RecordBatch:
        columns = {"filename": [ref.filename for ref in refs], **self.classes.columns([ref.text for ref in refs])}
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema if field.name != "text"]
        return pa.RecordBatch.from_arrays([texts, *arrays], schema=self.schema)


def open_text(
    root: str, patterns: inputs.Patterns, options: IngestOptions, text_options: TextOptions | None = None
) -> Input:
    """Text files. Columns: text, filename; label and label/text where the pattern ranges over folders."""
    text_options = text_options or TextOptions()
    found = inputs.find(root, patterns)
    refs = {split: folders.refs_of(root, patterns[split], matched) for split, matched in found.items()}
    classes = Classes.of(folders.all_refs(refs))
    schema = pa.schema([*_FIELDS, *classes.fields])
    form = _Format(schema, classes, text_options.encoding, options.block_bytes)
    plan, read = (_plan_lines, read_lines) if text_options.unit == "line" else (_plan_files, read_files)
    tasks = inputs.as_tasks((split, what) for split, some in refs.items() for what in plan(some, form))
    return Input(Source.of("text", root, inputs.all_files(found)), schema, tasks, partial(read, form=form))


def read_lines(part: _Lines, form: _Format, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """One row a line; a line that is no text is reported."""
    for block in streams.read_blocks(part.span, form.encoding, form.block_bytes, streams.whole_lines):
        if streams.is_utf8(block.data):
            texts = split_lines(block.data)
        else:
            texts = pa.array(_decodable_lines(block, form.encoding, bad_rows), pa.large_string())
        yield form.batch(texts, [part.file] * len(texts))


def read_files(refs: FileBlock, form: _Format, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """One row a file; a file that is no text is reported."""
    texts, kept = [], []
    for ref in refs:
        data = b"".join(
            block.data for block in streams.read_blocks(Span(ref.path), form.encoding, form.block_bytes, len)
        )
        if streams.is_utf8(data):
            texts.append(data.decode())
            kept.append(ref)
        else:
            bad_rows.report(Block(ref.path, b"", 0, 1, final=True).bad_row(None, f"not {form.encoding} text", data))
    yield form.batch(pa.array(texts, pa.large_string()), kept)


def _plan_lines(refs: Sequence[FileRef], form: _Format) -> Iterator[_Lines]:
    for ref in refs:
        for span in streams.find_line_spans(ref.path, form.encoding, form.block_bytes):
            yield _Lines(span, ref)


def _plan_files(refs: Sequence[FileRef], form: _Format) -> Iterator[FileBlock]:
    return folders.plan_blocks(refs, form.block_bytes)


def split_lines(data: bytes) -> pa.LargeStringArray:
    """All lines at once, without their ends."""
    data = data.replace(b"\r\n", b"\n").removesuffix(b"\n")
    return pc.split_pattern(pa.array([data], pa.large_string()), "\n").values


def _decodable_lines(block: Block, encoding: str, bad_rows: BadRows) -> list[str]:
    texts = []
    block = replace(block, data=block.data.replace(b"\r\n", b"\n"))
    for number, line in streams.numbered_lines(block):
        if streams.is_utf8(line):
            texts.append(line.decode())
        else:
            bad_rows.report(block.bad_row(number, f"not {encoding} text", line))
    return texts
