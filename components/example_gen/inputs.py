"""What opening any source of files begins with: patterns -> files, and work -> tasks; and a source in one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from infeed.components.dataset import files, schemas
from infeed.components.dataset.manifest import Source
from infeed.components.errors import InfeedError
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.fitting import fit_batches
from infeed.components.example_gen.ingest import Input, Task

Patterns = Mapping[str | None, str]  # split -> pattern under the root; the split is None where rows are split by hash


def find(root: str, patterns: Patterns) -> dict[str | None, list[files.FileStat]]:
    found = {split: files.glob(root, pattern) for split, pattern in patterns.items()}
    for split, matched in found.items():
        if not matched:
            where = f"{files.join(root, patterns[split])}" + (f", split {split!r}" if split else "")
            raise InfeedError("no files found", where=where, do="check the folder and the pattern of input_config")
    return found


def all_files(found: Mapping[str | None, list[files.FileStat]]) -> list[files.FileStat]:
    return [file for matched in found.values() for file in matched]


def open_files(kind: str, root: str, patterns: Patterns, read: Callable[[str], Iterable[pa.RecordBatch]]) -> Input:
    """Files of any format, given a function that reads one; its first batch tells the columns.

    Raises:
      InfeedError: a type without a place in a tf.Example, files whose columns do not go together, no rows.
    """
    found = find(root, patterns)
    firsts = {file.path: next(iter(read(file.path)), None) for file in all_files(found)}
    seen = [schemas.FileSchema(path, first.schema) for path, first in firsts.items() if first is not None]
    if not seen:
        raise InfeedError("no rows in the input", where=root, do="check the files, and the function that reads them")
    schema = schemas.unify(seen)
    tasks = as_tasks((split, file.path) for split, matched in found.items() for file in matched)
    return Input(Source.of(kind, root, all_files(found)), schema, tasks, partial(_read_file, schema=schema, read=read))


def _read_file(
    path: str, schema: pa.Schema, read: Callable[[str], Iterable[pa.RecordBatch]], *, bad_rows: BadRows
) -> Iterator[pa.RecordBatch]:
    yield from fit_batches(read(path), schema, path, bad_rows)


def as_tasks(work: Iterator[tuple[str | None, Any]]) -> tuple[Task, ...]:
    return tuple(Task(order, what, split) for order, (split, what) in enumerate(work))
