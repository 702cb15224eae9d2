"""Spilling of feature values from TFRecord files to flat files, before their shapes are known.

FOLDER/0.values     concatenated values of feature 0 in all records: float32, int64, or bytes
FOLDER/0.counts     number of values in each record, int64
FOLDER/0.sizes      length of each bytes value, int64
FOLDER/1.counts     for a feature list: number of steps in each record, int64. The files of its steps begin 1.steps.

All cores decode records, and the output keeps their order. NumPy and Arrow release the GIL while they work on a block,
so threads suffice and share memory.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types
from infeed.components.dataset.arrow_numbers import to_numbers
from infeed.components.dataset.column_files import mapped
from infeed.components.dataset.decode import decode_example, is_example
from infeed.components.dataset.decode_columns import LISTS, clash, decode_columns
from infeed.components.dataset.encode import varint
from infeed.components.dataset.record_blocks import PADDING, RecordBlock, read_blocks
from infeed.components.dataset.records import data_of
from infeed.components.feed.capacity import Machine
from infeed.components.load.ahead import in_order
from infeed.components.load.shapes import sequence_name

Kind = Literal["bytes", "float32", "int64", "uint8"]  # uint8: decoded pictures only
_KINDS: dict[pa.DataType, Kind] = {pa.float32(): "float32", pa.int64(): "int64", pa.large_binary(): "bytes"}
REMEDY = "write tf.Examples or SequenceExamples, with one type for each feature"
_MOST_THREADS = 8  # a single thread reads and writes, so more decoders would wait for it
_WORD = 8  # bytes compared at once; no head of a tf.Example is longer
_ONES = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)


C = TypeVar("C", bound="FeatureCounts")


@dataclass
class FeatureCounts:
    """Type of a feature, minimum and maximum number of values, and number of records without a value (`nulls`).

    The values of a feature list are its steps. `steps` then counts the values of each step. Its `kind` is None if no
    step has one.
    """

    kind: Kind | None
    rows: int = 0
    values: int = 0
    least: int = np.iinfo(np.int64).max
    most: int = 0
    nulls: int = 0
    largest: int = 0  # of integers
    steps: FeatureCounts | None = None

    @property
    def type(self) -> Kind:
        """Kind of the values, bytes if it is unknown."""
        return self.kind or "bytes"

    @property
    def items(self) -> int:
        """Number of values, for a feature list in all steps."""
        return self.values if self.steps is None else self.steps.values

    def set_kind(self, kind: Kind | None) -> None:
        self.kind = kind
        if self.steps is not None:
            self.steps.kind = kind

    def add(self, column: pa.Array) -> None:
        """Count a column of lists, [records], or of lists of lists."""
        counts = example_types.item_counts(column)
        self.rows, self.values = self.rows + len(counts), self.values + int(counts.sum())
        self.least = min(self.least, int(counts.min(initial=self.least)))
        self.most, self.nulls = max(self.most, int(counts.max(initial=0))), self.nulls + int((counts == 0).sum())
        if self.steps is not None:
            self.steps.add(column.flatten())
        elif self.kind == "int64" and counts.any():
            self.largest = max(self.largest, int(to_numbers(column.flatten()).max()))

    def add_missing(self, rows: int) -> None:
        """Count records without the feature."""
        if rows:
            self.rows, self.nulls, self.least = self.rows + rows, self.nulls + rows, 0

    def merge(self, other: FeatureCounts) -> None:
        """Count the records of another split. Values of another type count as missing."""
        is_alike = (self.steps is None) == (other.steps is None)
        if is_alike and (self.kind is None or (other.items and not self.items)):  # an empty list does not decide
            self.set_kind(other.kind)
        if not is_alike or (other.kind != self.kind and other.items):
            self.add_missing(other.rows)
            return
        if self.steps is not None and other.steps is not None:
            self.steps.merge(other.steps)
        self.rows, self.values = self.rows + other.rows, self.values + other.values
        self.nulls, self.largest = self.nulls + other.nulls, max(self.largest, other.largest)
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def with_steps(self: C, values: C) -> C:
        """Return a feature of the values in steps, if this feature holds the length of each step."""
        steps = replace(values, rows=self.values, least=0, most=self.largest, nulls=0)
        return replace(self, kind=values.kind, steps=steps)


@dataclass
class SpilledFeature(FeatureCounts):
    """Feature whose values are in files with the path prefix `stem`."""

    stem: str = ""
    steps: SpilledFeature | None = None

    def add(self, column: pa.Array) -> None:
        """Append a column of lists, [records], or of lists of lists."""
        super().add(column)
        items = column.flatten()
        self._append("counts", example_types.item_counts(column))
        if self.steps is not None or not len(items):
            return
        if self.type == "bytes":
            self._append("sizes", to_numbers(pc.binary_length(items)).astype(np.int64))
            self._append("values", data_of(items))
        else:
            self._append("values", to_numbers(items))

    def add_missing(self, rows: int) -> None:
        super().add_missing(rows)
        self._append("counts", np.zeros(rows, np.int64))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of values in each record, int64 [rows]."""
        return mapped(f"{self.stem}.counts", "int64", self.rows)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Length of each bytes value, int64 [values]."""
        if self.steps is not None:
            return self.steps.sizes
        return mapped(f"{self.stem}.sizes", "int64", self.values)

    @property
    def data(self) -> npt.NDArray[Any]:
        """Concatenated values. For bytes, uint8."""
        if self.steps is not None:
            return self.steps.data
        if self.type != "bytes":
            return mapped(f"{self.stem}.values", self.type, self.values)
        size = Path(f"{self.stem}.values").stat().st_size if self.values else 0
        return mapped(f"{self.stem}.values", "uint8", size)

    def with_steps(self, values: SpilledFeature) -> SpilledFeature:
        if self.values:
            os.replace(f"{self.stem}.values", f"{values.stem}.counts")
        return super().with_steps(values)

    def _append(self, name: str, values: Any) -> None:
        # The file is not kept open, because there may be more features than file descriptors.
        with open(f"{self.stem}.{name}", "ab") as file:
            file.write(np.ascontiguousarray(values).data if isinstance(values, np.ndarray) else values)


def spill_records(
    paths: Sequence[str], folder: Path, wanted: Sequence[str] | None, threads: int | None = None
) -> tuple[dict[str, SpilledFeature], list[int]]:
    """Read all records once, and return the features sorted by name and the number of records in each file.

    `wanted` are the names of the features, or None for all. For `threads`, see `decoded_blocks`. Raises InfeedError if
    a file is corrupt, a record is neither a tf.Example nor a SequenceExample, or a feature changes its type.

    The name of a feature list begins with `LISTS`; `wanted` may omit it.
    """
    return _read_features(paths, functools.partial(new_feature, folder), wanted, threads)


def new_feature(folder: Path, number: int, kind: Kind | None, is_list: bool) -> SpilledFeature:
    """Return a feature without records. `is_list` is True for feature lists."""
    stem = f"{folder}/{number}"
    return SpilledFeature(kind, stem=stem, steps=SpilledFeature(kind, stem=f"{stem}.steps") if is_list else None)


def count_features(
    paths: Sequence[str], wanted: Sequence[str] | None = None
) -> tuple[dict[str, FeatureCounts], list[int]]:
    """Count the values of each feature like `spill_records`, without writing them."""

    def new(_: int, kind: Kind | None, is_list: bool) -> FeatureCounts:
        return FeatureCounts(kind, steps=FeatureCounts(kind) if is_list else None)

    return _read_features(paths, new, wanted)


F = TypeVar("F", bound=FeatureCounts)


def _read_features(
    paths: Sequence[str],
    new: Callable[[int, Kind | None, bool], F],
    wanted: Sequence[str] | None,
    threads: int | None = None,
) -> tuple[dict[str, F], list[int]]:
    features: dict[str, F] = {}
    held = [0] * len(paths)
    for block in decoded_blocks(paths, threads):
        for name, column in block.columns.items():
            # Short names and the two parts of a TFDS sequence are joined after the last record, so all are kept.
            if wanted is not None and not {name, name.removeprefix(LISTS), sequence_name(name)} & set(wanted):
                continue
            item, is_list = column.type.value_type, is_feature_list(column)
            item = item.value_type if is_list else item
            kind = None if item == pa.null() else _KINDS[item]  # None if no step of a feature list has a kind
            if name not in features:  # earlier records lack it, also those of earlier files
                features[name] = new(len(features), kind, is_list)
                features[name].add_missing(sum(held))
            before = features[name]
            if is_list != (before.steps is not None):
                raise _misfit(clash(name), block, column.is_valid(), paths)
            if kind and before.kind not in (None, kind):
                what = f"feature {name!r} is {kind}, but {before.kind} in earlier records"
                raise _misfit(what, block, _has_kind(column), paths)
            before.set_kind(kind or before.kind)
            before.add(column)
        for name in features.keys() - block.columns.keys():
            features[name].add_missing(block.records)
        held[block.file] += block.records
    return dict(sorted(features.items())), held


def is_feature_list(column: pa.Array) -> bool:
    """Return whether a decoded column is a feature list of SequenceExamples."""
    return example_types.is_list(column.type.value_type)


def _has_kind(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return whether each record gives the feature a kind: for a feature list, in any step."""
    if not is_feature_list(column):
        return np.asarray(column.is_valid())
    rows = example_types.rows_of(column, np.flatnonzero(column.flatten().is_valid()))
    return np.isin(np.arange(len(column)), rows)


def _misfit(what: str, block: DecodedBlock, is_wrong: npt.ArrayLike, paths: Sequence[str]) -> InfeedError:
    """Return the error of the first of the block's records that are wrong."""
    number = block.first + int(np.flatnonzero(is_wrong)[0])
    return InfeedError(what, where=f"{paths[block.file]}, record {number}", do=REMEDY)


class DecodedBlock(NamedTuple):
    """Adjacent records of a file, starting at number `first`. `columns` are lists, [records], by feature name."""

    file: int
    first: int
    records: int
    columns: dict[str, pa.Array]


def decoded_blocks(paths: Sequence[str], threads: int | None = None) -> Iterator[DecodedBlock]:
    """Decode all records of the files in order. One block per thread, plus one, is in memory.

    `threads` is the number of threads. None uses one per core, up to a limit. Raises InfeedError if a file is corrupt,
    a record is neither a tf.Example nor a SequenceExample, or a feature has two types.
    """

    def blocks() -> Iterator[tuple[int, int, RecordBlock]]:
        for file, path in enumerate(paths):
            first = 0
            for block in read_blocks(path):
                yield file, first, block
                first += len(block)

    def decode(located: tuple[int, int, RecordBlock]) -> DecodedBlock:
        file, first, block = located
        try:
            _check_examples(block)
            return DecodedBlock(file, first, len(block), decode_columns(block, sequence=True))
        except ValueError as error:
            # Columns are decoded for all records at once, which does not say where it failed.
            found = _first_bad_record(block.payloads(np.arange(len(block))))
            number, what = found or (None, str(error))
            which = f"records {first} to {first + len(block) - 1}" if number is None else f"record {first + number}"
            raise InfeedError(what, where=f"{paths[file]}, {which}", do=REMEDY) from error

    threads = threads or min(Machine.here().cpus, _MOST_THREADS)
    return in_order(blocks(), decode, threads, ahead=threads)


def _check_examples(block: RecordBlock) -> None:
    """Raise ValueError for a record that is neither a tf.Example nor a SequenceExample."""
    # Fast path: one field that spans the record. Other valid encodings are rare.
    lengths, which = np.unique(block.stops - block.starts, return_inverse=True)
    heads = [_head(length) for length in lengths.tolist()]
    wanted = np.array([int.from_bytes(head, "little") for head in heads], np.uint64)
    masks = _ONES[[len(head) for head in heads]]
    words: npt.NDArray[np.uint64] = np.ndarray((len(block.data) - len(PADDING) + 1,), "<u8", block.data, strides=(1,))
    which = which.reshape(-1)
    others = np.flatnonzero((words[block.starts] & masks[which]) != wanted[which])
    if not all(is_example(record, sequence=True) for record in block.payloads(others)):
        raise ValueError("not a serialized tf.Example")


@functools.lru_cache(maxsize=1 << 16)
def _head(length: int) -> bytes:
    """Return the first bytes of a tf.Example of this length: the tag of its only field, and the field's length."""
    heads = (b"\n" + varint(length - size) for size in range(2, min(length, 7) + 1))
    return next((head for size, head in enumerate(heads, 2) if len(head) == size), b"")


def _first_bad_record(block: list[bytes]) -> tuple[int, str] | None:
    """Return the number of the first bad record and its error, or None if each record fits those before it."""
    kinds: dict[str, tuple[Any, int]] = {}  # kind of each feature, and its first record
    context, lists = set[str](), set[str]()
    for number, record in enumerate(block):
        try:
            found = decode_example(record)
        except ValueError as error:
            return number, str(error)
        if not is_example(record, sequence=True):
            return number, "not a serialized tf.Example: the record has no features, but other fields"
        lists.update(LISTS + name for name in found.steps)
        context.update(name for name, feature in found.features.items() if feature.type)
        if doubled := lists & context:
            return number, clash(min(doubled))
        steps = ((LISTS + name, step) for name, list_ in found.steps.items() for step in list_)
        for name, feature in (*found.features.items(), *steps):
            kind, first = kinds.setdefault(name, (feature.type, number)) if feature.type else (None, 0)
            if kind != feature.type:
                before = "an earlier step of the record" if first == number else "earlier records"
                return number, f"feature {name!r} is {feature.type}, but {kind} in {before}"
    return None
