"""Opens a source: pattern -> files, schema and tasks, checked before anything long starts. One function a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.ingest import Input, Task
from infeed.components.example_gen.sources import csv, images

Patterns = Mapping[str | None, str]  # split -> pattern under the root; the split is None where rows are split by hash


def open_csv(root: str, patterns: Patterns, options: IngestOptions, csv_options: csv.CsvOptions) -> Input:
    """CSV files; the types of their columns are found over all of them."""
    found = _find(root, patterns)
    schema = csv.infer_schema([file.path for file in _all(found)], csv_options)
    read = partial(csv.read_blocks, schema=schema, options=csv_options, block_bytes=options.block_bytes)
    tasks = _tasks((split, file.path) for split, matched in found.items() for file in matched)
    return Input(Source.of("csv", root, _all(found)), schema, tasks, read)


def open_images(root: str, patterns: Patterns, options: IngestOptions) -> Input:
    """Images in class folders, or named by a CSV; classes are numbered over all splits."""
    found = _find(root, patterns)
    indexes = {split: images.index_images(root, matched) for split, matched in found.items()}
    classes = tuple(sorted({text for index in indexes.values() for text in index.classes}))
    tasks = _tasks(
        (split, block)
        for split, index in indexes.items()
        for block in images.plan_blocks(index.images, options.block_bytes)
    )
    read = partial(_read_images, classes=classes)
    return Input(Source.of("image", root, _all(found)), images.SCHEMA, tasks, read)


def _read_images(refs: Sequence[images.ImageRef], classes: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield images.read_block(refs, classes)


def _find(root: str, patterns: Patterns) -> dict[str | None, list[files.FileStat]]:
    found = {split: files.glob(root, pattern) for split, pattern in patterns.items()}
    for split, matched in found.items():
        if not matched:
            where = f"{files.join(root, patterns[split])}" + (f", split {split!r}" if split else "")
            raise InfeedError("no files found", where=where, do="check the folder and the pattern of input_config")
    return found


def _all(found: Mapping[str | None, list[files.FileStat]]) -> list[files.FileStat]:
    return [file for matched in found.values() for file in matched]


def _tasks(work: Iterator[tuple[str | None, Any]]) -> tuple[Task, ...]:
    return tuple(Task(order, what, split) for order, (split, what) in enumerate(work))
