"""Whole files as rows, whose class is the folder that they lie in.

    */*          one folder per class            train/*/*    the same, for one split
    *            a flat folder, without classes

A class's number is its place among all class names, sorted, over all splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from infeed.components.dataset import files

CLASS_FOLDERS, FLAT = "*/*", "*"
_FIELDS = pa.schema([("label", pa.int64()), ("label/text", pa.string())])


@dataclass(frozen=True)
class FileRef:
    """One file: its name, seen from `root`, as it goes into the data; its size in bytes; its class or None."""

    root: str
    filename: str
    size: int
    text: str | None

    @property
    def path(self) -> str:
        return files.join(self.root, self.filename)


@dataclass(frozen=True)
class FileBlock:
    """Some files, column by column: thousands of them travel to a worker several times faster than as objects."""

    columns: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, refs: Sequence[FileRef]) -> FileBlock:
        return cls(tuple(zip(*((ref.root, ref.filename, ref.size, ref.text) for ref in refs), strict=True)))

    def __iter__(self) -> Iterator[FileRef]:
        return (FileRef(*values) for values in zip(*self.columns, strict=True))


@dataclass(frozen=True)
class Classes:
    """All class names, sorted; none where files have no class."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, refs: Iterable[FileRef]) -> Classes:
        return cls(tuple(sorted({ref.text for ref in refs if ref.text is not None})))

    @property
    def fields(self) -> list[pa.Field]:
        """The columns that a class adds to a schema."""
        return list(_FIELDS) if self.names else []

    def columns(self, texts: Sequence[str | None]) -> dict[str, list[Any]]:
        """The values of those columns, given the class of each row."""
        if not self.names:
            return {}
        numbers = {name: number for number, name in enumerate(self.names)}
        return {"label": [None if text is None else numbers[text] for text in texts], "label/text": list(texts)}


def default_pattern(root: str) -> str:
    """`*/*` where a folder inside `root` holds files, or nothing is there yet; else `*`."""
    if not files.glob(root, FLAT):
        return CLASS_FOLDERS
    inside = (files.join(root, folder) for folder in files.list_folders(root) if not files.is_hidden(folder))
    return CLASS_FOLDERS if any(files.glob(folder, FLAT) for folder in inside) else FLAT


def has_classes(pattern: str) -> bool:
    """Whether the pattern leaves open in which folder a file lies."""
    *_, folder, _ = ["", *pattern.split("/")]
    return any(sign in folder for sign in "*?[")


def refs_of(root: str, pattern: str, found: Iterable[files.FileStat]) -> list[FileRef]:
    """The files with their classes, if they have any."""
    classes = has_classes(pattern)
    return [
        FileRef(root, files.relative(file.path, root), file.size, file.path.rsplit("/", 2)[-2] if classes else None)
        for file in found
    ]


def plan_blocks(refs: Sequence[FileRef], block_bytes: int) -> Iterator[FileBlock]:
    """Files in order, in groups of about `block_bytes`."""
    block: list[FileRef] = []
    size = 0
    for ref in refs:
        if block and size + ref.size > block_bytes:
            yield FileBlock.of(block)
            block, size = [], 0
        block.append(ref)
        size += ref.size
    if block:
        yield FileBlock.of(block)


def all_refs(by_split: Mapping[Any, Sequence[FileRef]]) -> list[FileRef]:
    return [ref for refs in by_split.values() for ref in refs]
