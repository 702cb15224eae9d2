"""Strata, the rows that share labels; then dividing, repeating and dropping by label on the sizes of segments alone.

A segment (a `Spill`) holds the records of one block, split and pair of labels, in shuffled order, so any run of it is a
random sample. Shares are rounded over all segments of a label together, not in each.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.assign import column_of
from infeed.components.dataset.manifest import Balanced
from infeed.components.dataset.options import Balance
from infeed.components.dataset.splits import Buckets
from infeed.components.errors import InfeedError
from infeed.components.example_gen.spills import Spill, Strata

_MOST_LABELS = 10_000  # in one block; each takes a segment of its own


def of_rows(batch: pa.RecordBatch, by: tuple[str | None, str | None]) -> Strata:
    """The stratum of each row by the labels in up to two columns.

    Raises:
      InfeedError: no such column, a list, or nearly as many labels as rows.
    """
    if not any(by):
        return Strata.none(batch.num_rows)
    (first, first_labels), (second, second_labels) = (_numbered(batch, name) for name in by)
    pairs, numbers = np.unique(first * len(second_labels) + second, return_inverse=True)
    if len(pairs) > _MOST_LABELS:
        raise InfeedError(
            f"more than {_MOST_LABELS} different labels in one block",
            where=f"column {' and '.join(repr(name) for name in by if name)}",
            do="stratify or balance by a column of few values",
        )
    labels = [(first_labels[pair // len(second_labels)], second_labels[pair % len(second_labels)]) for pair in pairs]
    return Strata(numbers.reshape(-1), labels)


def _numbered(batch: pa.RecordBatch, name: str | None) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    """Each row's label as a number, and the labels."""
    if name is None:
        return np.zeros(batch.num_rows, np.int64), [None]
    column = column_of(batch, name, "label")
    if pa.types.is_nested(column.type):
        raise InfeedError(f"a column of type {column.type}", where=f"label {name!r}", do="choose one of single values")
    if pa.types.is_null(column.type):
        return np.zeros(batch.num_rows, np.int64), [None]
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    # NaN is no label: no two of them are equal, so each block would have a label of its own.
    labels = [None if label != label else label for label in encoded.dictionary.to_pylist()] + [None]
    numbers = encoded.indices.cast(pa.int64()).fill_null(len(labels) - 1)
    return np.asarray(numbers, np.int64), labels


def divide(spills: Sequence[Spill], buckets: Buckets) -> list[Spill]:
    """Segments of no split yet -> runs of them, each in a split, every label divided by the shares.

    The first split takes its share, rounded up, of each label; the second its share of the rest, and so on.
    """
    divided: list[Spill] = []
    for spill, before in _counted(spills, [spill.strata[0] for spill in spills]):
        start, left = 0, sum(share for _, share in buckets.shares)
        for split, share in buckets.shares:
            taken = _rounded(before, spill.records - start, Fraction(share, left))
            divided += _run(dataclasses.replace(spill, split=split), start, start + taken)
            before -= math.ceil(before * Fraction(share, left))
            start, left = start + taken, left - share
    return divided


def balance(spills: Sequence[Spill], options: Balance) -> tuple[list[Spill], Balanced]:
    """The segments of one split with every label as often as any other, and how many records that adds or drops."""
    labels = [spill.strata[1] for spill in spills]
    records: dict[Hashable, int] = defaultdict(int)
    for spill, label in zip(spills, labels, strict=True):
        if label is not None:
            records[label] += spill.records
    if not records:
        return list(spills), Balanced()
    wanted = max(records.values()) if options.sampling == "over" else min(records.values())
    sampled: list[Spill] = []
    for (spill, before), label in zip(_counted(spills, labels), labels, strict=True):
        times, rest = divmod(wanted, records[label]) if label is not None else (1, 0)
        more = _rounded(before, spill.records, Fraction(rest, records[label])) if rest else 0
        sampled += [spill] * times + list(_run(spill, 0, more))
    repeated = sum(max(wanted - found, 0) for found in records.values())
    dropped = sum(max(found - wanted, 0) for found in records.values())
    return sampled, Balanced(repeated, dropped)


def _counted(spills: Sequence[Spill], labels: Iterable[Hashable]) -> Iterator[tuple[Spill, int]]:
    """Each segment, and how many records of its label came before it."""
    before: dict[Hashable, int] = defaultdict(int)
    for spill, label in zip(spills, labels, strict=True):
        yield spill, before[label]
        before[label] += spill.records


def _rounded(before: int, records: int, share: Fraction) -> int:
    """How many of a segment's records belong to a share of all of its label, rounded up over the whole."""
    return math.ceil((before + records) * share) - math.ceil(before * share)


def _run(spill: Spill, start: int, stop: int) -> Iterator[Spill]:
    """Records `start` to `stop` of a segment; their bytes are its average."""
    if start < stop:
        size = spill.bytes * (stop - start) // spill.records
        yield dataclasses.replace(spill, start=spill.start + start, records=stop - start, bytes=size)
