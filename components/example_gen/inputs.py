"""An opened source, and how one is made of files: patterns -> files -> what is seen in them -> tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from infeed.components.dataset import files, schemas
from infeed.components.dataset.manifest import Source
from infeed.components.errors import InfeedError
from infeed.components.example_gen.bad_rows import BadRows, conform

A = TypeVar("A")
Patterns = Mapping[str | None, str]  # split -> pattern under the root; the split is None where rows are split by hash


@dataclass(frozen=True)
class Task:
    """A unit of reading: its place in the input, what `OpenedSource.read` takes, its split if the input has some."""

    order: int
    payload: Any
    split: str | None = None


class Read(Protocol):
    """`Task.payload` -> record batches of the source's schema, in order; picklable, since workers call it.

    A row that no typed row can be made of is reported to `bad_rows` and left out.
    """

    def __call__(self, payload: Any, /, *, bad_rows: BadRows) -> Iterable[pa.RecordBatch]: ...


@dataclass(frozen=True)
class OpenedSource:
    """An opened source: everything that is known before the first row is read.

    Attributes:
      serialized: the only column holds records that are written as they are.
      decimals: floats were written as decimals; see `example_types.count_rounded`.
    """

    provenance: Source
    schema: pa.Schema
    tasks: tuple[Task, ...]
    read: Read
    serialized: bool = False
    decimals: bool = False


def find(root: str, patterns: Patterns) -> dict[str | None, list[files.FileStat]]:
    found = {split: files.glob(root, pattern) for split, pattern in patterns.items()}
    for split, matched in found.items():
        if not matched:
            path = files.join(root, patterns[split])
            where = path + (f", split {split!r}" if split else "")
            if files.exists(path) and not files.is_folder(path):
                raise InfeedError("a pipe or a device, not a file", where=where, do="write what it gives into a file")
            raise InfeedError("no files found", where=where, do="check the folder and the pattern of input_config")
    return found


def all_files(found: Mapping[str | None, list[files.FileStat]]) -> list[files.FileStat]:
    return [file for matched in found.values() for file in matched]


@dataclass(frozen=True)
class FilePart:
    """The file as it was found, and the piece of it that a task reads, as the format knows it."""

    file: files.FileStat
    piece: Any


Seen = Sequence[tuple[str | None, files.FileStat, A]]  # of each file, with its split


def look(found: Mapping[str | None, list[files.FileStat]], at: Callable[[str], A]) -> Seen[A]:
    """What `at` makes of each file's path.

    Raises:
      InfeedError: a file that is changed meanwhile.
    """
    seen = list[tuple[str | None, files.FileStat, A]]()
    for split, matched in found.items():
        for file in matched:
            with files.unchanged(file):
                seen.append((split, file, at(file.path)))
    return seen


def of_parts(
    kind: str, root: str, schema: pa.Schema, parts: Seen[Iterable[Any]], read: Read, **flags: bool
) -> OpenedSource:
    """An input whose tasks read parts of files, and fail where a file is no longer the one that was looked at.

    Args:
      parts: what `read` takes, several for each file.
      flags: of `OpenedSource`.
    """
    tasks = as_tasks((split, FilePart(file, piece)) for split, file, pieces in parts for piece in pieces)
    source = Source.of(kind, root, [file for _, file, _ in parts])
    return OpenedSource(source, schema, tasks, partial(_read_part, read=read), **flags)


def _read_part(part: FilePart, read: Read, *, bad_rows: BadRows) -> Iterator[pa.RecordBatch]:
    with files.unchanged(part.file):
        yield from read(part.piece, bad_rows=bad_rows)


def open_files(
    kind: str, root: str, patterns: Patterns, read: Callable[[str], Iterable[pa.RecordBatch]]
) -> OpenedSource:
    """Files of any format, given a function that reads one; its first batch tells the columns.

    Raises:
      InfeedError: a type without a place in a tf.Example, files whose columns do not go together, no rows.
    """
    firsts = look(find(root, patterns), lambda path: next(iter(read(path)), None))
    seen = [schemas.FileSchema(file.path, first.schema) for _, file, first in firsts if first is not None]
    if not seen:
        raise InfeedError("no rows in the input", where=root, do="check the files, and the function that reads them")
    schema = schemas.unify(seen)
    parts = [(split, file, [file.path]) for split, file, _ in firsts]
    return of_parts(kind, root, schema, parts, partial(_read_file, schema=schema, read=read))


def _read_file(
    path: str, schema: pa.Schema, read: Callable[[str], Iterable[pa.RecordBatch]], *, bad_rows: BadRows
) -> Iterator[pa.RecordBatch]:
    yield from conform(read(path), schema, path, bad_rows)


def as_tasks(work: Iterator[tuple[str | None, Any]]) -> tuple[Task, ...]:
    return tuple(Task(order, payload, split) for order, (split, payload) in enumerate(work))
