"""Images -> record batches that keep each file's own bytes, or hold its pixels; `image_files` finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRow, BadRows
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import folders
from infeed.components.example_gen.sources.folders import Classes, FileRef
from infeed.components.example_gen.sources.image_codec import Header as Header
from infeed.components.example_gen.sources.image_codec import ImageOptions as ImageOptions
from infeed.components.example_gen.sources.image_codec import check_whole, header_of, rewrite
from infeed.components.example_gen.sources.image_codec import read_header as read_header
from infeed.components.example_gen.sources.image_files import Found, list_images
from infeed.components.example_gen.sources.image_files import default_pattern as default_pattern
from infeed.components.example_gen.sources.image_files import find_images as find_images
from infeed.components.example_gen.sources.image_files import fingerprint_of_named as fingerprint_of_named


@dataclass(frozen=True)
class _Format:
    """What reading needs to know."""

    classes: Classes
    options: ImageOptions
    block_bytes: int

    @property
    def schema(self) -> pa.Schema:
        content = [("image/raw", pa.large_binary())]
        if self.options.pixels == "encoded":
            content = [("image/encoded", pa.large_binary()), ("image/format", pa.string())]
        sizes = [(f"image/{name}", pa.int64()) for name in ("height", "width", "channels")]
        return pa.schema([*content, ("image/filename", pa.string()), *sizes, *self.classes.fields])


def open_images(
    root: str, patterns: inputs.Patterns, options: IngestOptions, image_options: ImageOptions | None = None
) -> Input:
    """Images in class folders, named by a CSV, or in a flat folder; classes are numbered over all splits."""
    matched = inputs.find(root, patterns)
    found = {
        split: list_images(root, patterns[split], some, BadRows(options.on_bad_row, options.bad_row_limit))
        for split, some in matched.items()
    }
    classes = Classes.of(ref for one in found.values() for ref in one.refs)
    form = _Format(classes, image_options or ImageOptions(), options.block_bytes)
    tasks = inputs.as_tasks((split, what) for split, one in found.items() for what in _plan(one, options.block_bytes))
    named = [file for one in found.values() for file in one.named]
    source = Source.of("image", root, inputs.all_files(matched) + named)
    return Input(source, form.schema, tasks, partial(read, form=form))


def read(what: Iterable[FileRef | BadRow], form: _Format, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """One row an image, in batches of about `block_bytes`; a file that is no whole PNG or JPEG is reported."""
    rows, size = list[tuple[FileRef, bytes, Header]](), 0
    load = _load if form.options.keeps_bytes else partial(_load_anew, options=form.options)
    for ref in what:
        if isinstance(ref, BadRow):
            bad_rows.report(ref)
            continue
        try:
            content, header = load(ref.path)
        except InfeedError as error:
            bad_rows.report(BadRow(ref.path, None, None, error.what, ""))
            continue
        if rows and size + len(content) > form.block_bytes:
            yield _batch(rows, form)
            rows, size = [], 0
        rows.append((ref, content, header))
        size += len(content)
    yield _batch(rows, form)


def _plan(found: Found, block_bytes: int) -> Iterator[Iterable[FileRef | BadRow]]:
    if found.bad_rows:
        yield found.bad_rows
    yield from folders.plan_blocks(found.refs, block_bytes)


def _load(path: str) -> tuple[bytes, Header]:
    data = files.read_bytes(path)
    header = header_of(data, path)
    check_whole(data, header, path)
    return data, header


def _load_anew(path: str, options: ImageOptions) -> tuple[bytes, Header]:
    return rewrite(files.read_bytes(path), path, options)


def _batch(rows: Sequence[tuple[FileRef, bytes, Header]], form: _Format) -> pa.RecordBatch:
    contents = [content for _, content, _ in rows]
    columns = {
        "image/encoded": contents,
        "image/raw": contents,
        "image/format": [header.format for _, _, header in rows],
        "image/filename": [ref.filename for ref, _, _ in rows],
        "image/height": [header.height for _, _, header in rows],
        "image/width": [header.width for _, _, header in rows],
        "image/channels": [header.channels for _, _, header in rows],
        **form.classes.columns([ref.text for ref, _, _ in rows]),
    }
    schema = form.schema
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
