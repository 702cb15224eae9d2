"""Any files, as they are: one row each, with the file's bytes, name, and class where it lies in a class folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.ingest import Input
from infeed.components.example_gen.sources import folders
from infeed.components.example_gen.sources.folders import Classes, FileBlock
from infeed.components.example_gen.sources.folders import default_pattern as default_pattern

_FIELDS = [pa.field("data", pa.large_binary()), pa.field("filename", pa.string())]


def open_binary(root: str, patterns: inputs.Patterns, options: IngestOptions) -> Input:
    """Whole files. Columns: data, filename; label and label/text where the pattern ranges over folders."""
    found = inputs.find(root, patterns)
    refs = {split: folders.refs_of(root, patterns[split], matched) for split, matched in found.items()}
    classes = Classes.of(folders.all_refs(refs))
    tasks = inputs.as_tasks(
        (split, block) for split, some in refs.items() for block in folders.plan_blocks(some, options.block_bytes)
    )
    schema = pa.schema([*_FIELDS, *classes.fields])
    read = partial(read_files, schema=schema, classes=classes)
    return Input(Source.of("binary", root, inputs.all_files(found)), schema, tasks, read)


def read_files(block: FileBlock, schema: pa.Schema, classes: Classes, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    """One row a file; there are no bad ones."""
    refs = list(block)
    columns = {
        "data": [files.read_bytes(ref.path) for ref in refs],
        "filename": [ref.filename for ref in refs],
        **classes.columns([ref.text for ref in refs]),
    }
    yield pa.RecordBatch.from_pydict(columns, schema=schema)
