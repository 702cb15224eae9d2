"""Which split a row belongs to: TFX's own rule, by hash buckets, or one of four others.

`Buckets` names the splits and their shares. Without more, TFX's rule applies to the record or to one feature. A
`SplitBy` says otherwise:

    ByColumns    hash of some columns and a salt: rows that agree in them stay together
    ByLabel      stratified: each label is divided by the shares, not in the mean but each time
    ByTime       the splits in order, cut at given times
    ByName       a column holds the name of the split
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.checks import as_tuples, refused
from infeed.components.dataset import example_types
from infeed.components.dataset.encode import encode_examples, encode_feature
from infeed.components.dataset.records import values_of
from infeed.components.errors import InfeedError

_WORD_BITS = 32  # a word of the hash; remainder * 2^32 stays within 64 bits
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Buckets:
    """Splits by name with their shares: `{"train": 2, "eval": 1}` sends two records of three to train.

    Attributes:
      shares: (name, number of buckets) of each split, in order.
      feature: hash this feature's value, not the whole record, so that equal values stay together.
    """

    shares: tuple[tuple[str, int], ...]
    feature: str | None = None

    def __post_init__(self) -> None:
        names = [name for name, _ in self.shares]
        if not names or len(set(names)) < len(names) or not all(names):
            raise InfeedError(f"splits named {names}", where="splits", do="give each split a name of its own")
        if any("/" in name for name in names):
            raise InfeedError(
                f"splits named {names}", where="splits", do="leave / out of their names: each is a folder"
            )
        for name, share in self.shares:
            if share < 1:
                raise InfeedError(f"{share} buckets for split {name!r}", where="splits", do="give 1 or more")
        if (total := sum(share for _, share in self.shares)) > 1 << _WORD_BITS:
            raise InfeedError(f"{total} buckets in all", where="splits", do=f"give at most {1 << _WORD_BITS}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.shares)


@dataclass(frozen=True)
class ByColumns:
    """Splits by the hash of some columns' values: groups that must not be torn apart. A null is a value like others.

    Attributes:
      columns: rows that agree in all of these are in one split.
      salt: another salt gives another division.
    """

    columns: tuple[str, ...]
    salt: str = ""
    how: Literal["columns"] = field(default="columns", kw_only=True)

    def __post_init__(self) -> None:
        as_tuples(self, "columns")
        if not self.columns:
            raise refused(self, "columns", "name one or more", "no columns to split by")


@dataclass(frozen=True)
class ByLabel:
    """Stratified: the rows of each value of `column` are divided by the shares; an odd one goes to an earlier split."""

    column: str
    how: Literal["label"] = field(default="label", kw_only=True)


@dataclass(frozen=True)
class ByTime:
    """The first split takes what is before the first cut, the next what is before the second, the last the rest.

    Attributes:
      column: dates, timestamps, numbers, or text that sorts by time, such as ISO dates; without nulls.
      cuts: one fewer than there are splits, ascending, written as the column's values are.
    """

    column: str
    cuts: tuple[str, ...]
    how: Literal["time"] = field(default="time", kw_only=True)


@dataclass(frozen=True)
class ByName:
    """A column of text holds the name of each row's split."""

    column: str
    how: Literal["name"] = field(default="name", kw_only=True)


SplitBy = ByColumns | ByLabel | ByTime | ByName


def check_splits(buckets: Buckets, split_by: SplitBy | None) -> None:
    """Raises InfeedError where the rule and the splits do not fit together."""
    if split_by is not None and buckets.feature is not None:
        raise InfeedError(
            f"split by feature {buckets.feature!r} and by {split_by.how}", where="splits", do="choose one of the two"
        )
    if isinstance(split_by, ByTime) and len(split_by.cuts) != len(buckets.names) - 1:
        raise InfeedError(
            f"{len(split_by.cuts)} cuts for the splits {', '.join(buckets.names)}",
            where=f"split by column {split_by.column!r}",
            do="give one cut fewer than there are splits",
        )


def assign_rows(batch: pa.RecordBatch, buckets: Buckets, split_by: ByColumns | ByTime | ByName) -> Numbers:
    """The index into `buckets.names` of each row.

    Raises:
      InfeedError: no such column, one of the wrong type, or a value that belongs to no split.
    """
    if isinstance(split_by, ByColumns):
        return assign_splits(values_of(_group_keys(batch, split_by)), buckets)
    where = f"split by column {split_by.column!r}"
    values = column_of(batch, split_by.column, where)
    if values.is_null(nan_is_null=True).true_count:
        raise InfeedError("an empty value", where=where, do="filter such rows out, or choose another column")
    if isinstance(split_by, ByTime):
        return _by_time(values, split_by.cuts, where)
    return _by_name(values, buckets.names, where)


def assign_by_record(
    batch: pa.RecordBatch, examples: pa.LargeBinaryArray, buckets: Buckets, *, empty_lists: bool
) -> Numbers:
    """The index into `buckets.names` of each row, as TFX's CsvExampleGen has it.

    TFX hashes its own bytes, with an empty list for a null; splits go by these even where others are written.

    Args:
      examples: what `encode_examples(batch, empty_lists=empty_lists)` gave.
    """
    keys = list(values_of(examples))
    missing = [column.is_null().to_numpy(zero_copy_only=False) for column in batch.columns if column.null_count]
    if missing and not empty_lists:
        rows = np.flatnonzero(np.any(missing, axis=0))
        with_lists = encode_examples(batch.take(pa.array(rows)), empty_lists=True)
        for row, key in zip(rows.tolist(), values_of(with_lists), strict=True):
            keys[row] = key
    return assign_splits(keys, buckets)


def assign_by_feature(batch: pa.RecordBatch, feature: str, buckets: Buckets) -> Numbers:
    """The index into `buckets.names` of each row, as TFX has it where it splits by a feature.

    Raises:
      InfeedError: no such column, one of the wrong type, or a null, where TFX would fail as well.
    """
    where = f"split by feature {feature!r}"
    column = column_of(batch, feature, where)
    if example_types.kind_of(column.type) not in ("int", "bytes"):
        raise InfeedError(f"a column of type {column.type}", where=where, do="choose a column of integers or text")
    if column.null_count:
        raise InfeedError("an empty value", where=where, do="choose a column without empty values")
    return assign_splits(values_of(encode_feature(column, feature)), buckets)


def assign_splits(keys: Iterable[bytes], buckets: Buckets) -> npt.NDArray[np.int64]:
    """The index into `buckets.names` of each key.

    sha256 of the key as one big-endian integer, modulo the total of buckets, then the split whose range it falls into:
    with deterministic tf.Example bytes as keys, exactly the split that TFX's ExampleGen gives.
    """
    limits = np.cumsum([share for _, share in buckets.shares])
    return np.searchsorted(limits, _remainders(_digests(keys), int(limits[-1])), side="right")


def _digests(keys: Iterable[bytes]) -> npt.NDArray[np.uint64]:
    """sha256 of each key as eight 32-bit words, the most significant first: [n, 8]."""
    sha256 = hashlib.sha256
    digests = b"".join([sha256(key).digest() for key in keys])
    return np.frombuffer(digests, ">u4").reshape(-1, 256 // _WORD_BITS).astype(np.uint64)


def _remainders(words: npt.NDArray[np.uint64], divisor: int) -> npt.NDArray[np.int64]:
    """Long division of each row of words, all rows at once: [n]."""
    remainders = np.zeros(len(words), np.uint64)
    for word in words.T:
        remainders = ((remainders << np.uint64(_WORD_BITS)) + word) % np.uint64(divisor)
    return remainders.astype(np.int64)


def column_of(batch: pa.RecordBatch, name: str, where: str) -> pa.Array:
    """Raises InfeedError where there is no such column."""
    if name not in batch.schema.names:
        names = ", ".join(batch.schema.names[:10])
        raise InfeedError(f"no such column: {name!r}", where=where, do=f"choose one of {names}")
    return batch.column(batch.schema.get_field_index(name))


def _group_keys(batch: pa.RecordBatch, split_by: ByColumns) -> pa.LargeBinaryArray:
    """Salt and values end to end; each value brings its own length, so that no two groups run into each other."""
    where = f"split by columns {', '.join(split_by.columns)}"
    features = [encode_feature(column_of(batch, name, where), name) for name in split_by.columns]
    salt, nothing = (pa.scalar(text, pa.large_binary()) for text in (split_by.salt.encode(), b""))
    return pc.binary_join_element_wise(salt, *features, nothing)


def _by_time(values: pa.Array, cuts: tuple[str, ...], where: str) -> Numbers:
    values = _comparable(values)
    limits = [_cut(cut, values.type, where) for cut in cuts]
    if any(pc.less(after, before).as_py() for before, after in itertools.pairwise(limits)):
        raise InfeedError(f"cuts {', '.join(cuts)} are not in order", where=where, do="give the earliest first")
    passed = np.zeros(len(values), np.int64)
    for limit in limits:
        passed += pc.greater_equal(values, limit).to_numpy(zero_copy_only=False)
    return passed


def _comparable(values: pa.Array) -> pa.Array:
    """The same values in a type that Arrow reads from text."""
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp("us"))
    return values.cast(pa.float64()) if pa.types.is_decimal(values.type) else values


def _cut(text: str, to: pa.DataType, where: str) -> pa.Scalar:
    try:
        return pc.cast(pa.scalar(text), to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InfeedError(f"cut {text!r} does not read as {to}", where=where, do="write it as the column has it") from (
            error
        )


def _by_name(values: pa.Array, names: tuple[str, ...], where: str) -> Numbers:
    numbers = pc.index_in(_texts(values, where), value_set=pa.array(names, pa.string()))
    if numbers.null_count:
        stranger = values.filter(numbers.is_null())[0].as_py()
        raise InfeedError(
            f"no split named {stranger!r}",
            where=where,
            do=f"name it beside {', '.join(names)}, or filter such rows out",
        )
    return np.asarray(numbers, np.int64)


def _texts(values: pa.Array, where: str) -> pa.Array:
    try:
        return values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InfeedError(f"a column of type {values.type}", where=where, do="choose a column of text") from error
