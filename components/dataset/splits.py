"""Assign rows to splits, by TFX's hash buckets or by one of five other rules.

`Buckets` names the splits and their shares. By default, TFX's rule hashes the record or one feature. A `SplitBy`
selects another rule:

    ByRecord     TFX's hash of the record after a salt
    ByColumns    hash of some columns and a salt: rows with equal values stay together
    ByLabel      stratified: each label is divided exactly by the shares
    ByTime       the splits in order, divided at given times, as instants
    ByName       a column names the split
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.checks import as_tuples, refused
from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import nearest
from infeed.components.dataset import example_types
from infeed.components.dataset.encode import encode_examples, encode_feature
from infeed.components.dataset.records import values_of
from infeed.components.dataset.time_formats import ISO, check_format
from infeed.components.dataset.times import Limit, format_advice, holds_times, is_text, read_column, read_limit, shown

_WORD_BITS = 32  # bits of a word of the hash, so that remainder * 2^32 fits into 64 bits
Numbers = npt.NDArray[np.int64]
DEFAULT_SHARES = {"train": 2, "eval": 1}  # TFX's default


@dataclass(frozen=True)
class Buckets:
    """The splits and their shares: `{"train": 2, "eval": 1}` assigns two thirds of the records to train.

    Attributes:
      shares: (name, number of buckets) of each split, in order.
      feature: feature to hash instead of the whole record, so that equal values stay together.
    """

    shares: tuple[tuple[str, int], ...]
    feature: str | None = None

    def __post_init__(self) -> None:
        names = [name for name, _ in self.shares]
        if not names or len(set(names)) < len(names) or not all(names):
            raise InfeedError(f"the splits are named {names}", where="splits", do="give each split its own name")
        if any("/" in name for name in names):
            do = "remove / from the names, which are folder names"
            raise InfeedError(f"the splits are named {names}", where="splits", do=do)
        for name, share in self.shares:
            if share < 1:
                raise InfeedError(f"split {name!r} has {share} buckets", where="splits", do="use 1 or more")
        if (total := sum(share for _, share in self.shares)) > 1 << _WORD_BITS:
            raise InfeedError(f"there are {total} buckets", where="splits", do=f"use at most {1 << _WORD_BITS}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.shares)


@dataclass(frozen=True)
class ByRecord:
    """Split by the hash of a salt and the record. An empty salt gives the splits of TFX.

    Attributes:
      salt: text added to the hash.
      exact: give each split its exact share, for tables of up to a few thousand rows. The rows are sorted by hash and
          then divided, so most rows stay in the split of their hash. Equal records are in one split.
    """

    salt: str
    exact: bool = False
    how: Literal["record"] = field(default="record", kw_only=True)


@dataclass(frozen=True)
class ByColumns:
    """Split by the hash of some columns, so that groups stay together. A null counts as a value.

    Attributes:
      columns: columns that identify a group.
      salt: text added to the hash. Another salt divides differently.
    """

    columns: tuple[str, ...]
    salt: str = ""
    how: Literal["columns"] = field(default="columns", kw_only=True)

    def __post_init__(self) -> None:
        as_tuples(self, "columns")
        if not self.columns:
            raise refused(self, "columns", "use one or more columns", "columns is empty")


@dataclass(frozen=True)
class ByLabel:
    """Stratified split: the shares divide the rows of each value of `column`, and all rows.

    The first split has at least one row of each value. Remainders go to earlier splits.
    """

    column: str
    how: Literal["label"] = field(default="label", kw_only=True)


@dataclass(frozen=True)
class ByTime:
    """Split by time. The first split has the values before the first cut; the last split starts at the last cut.

    Attributes:
      column: dates, timestamps, numbers, or text, without nulls.
      cuts: ascending limits, one fewer than splits: ISO 8601, the column's format, or numbers for a column of numbers.
      format: format of text: "iso" is ISO 8601, others are of `strptime`, such as "%m/%d/%Y". "epoch_s", "epoch_ms",
        "epoch_us" and "epoch_ns" are numbers since 1970. Formats are those of `DatePart`.
    """

    column: str
    cuts: tuple[str, ...]
    format: str = ISO
    how: Literal["time"] = field(default="time", kw_only=True)

    def __post_init__(self) -> None:
        check_format(self)


@dataclass(frozen=True)
class ByName:
    """Split by a text column that contains the split of each row."""

    column: str
    how: Literal["name"] = field(default="name", kw_only=True)


SplitBy = ByRecord | ByColumns | ByLabel | ByTime | ByName


def columns_of(rule: SplitBy | None) -> tuple[str, ...]:
    """Return the columns that a rule reads. TFX's rule, None, and `ByRecord` read the whole record."""
    if rule is None or isinstance(rule, ByRecord):
        return ()
    return rule.columns if isinstance(rule, ByColumns) else (rule.column,)


def check_splits(buckets: Buckets, split_by: SplitBy | None) -> None:
    """Raise InfeedError if the rule does not fit the splits."""
    if split_by is not None and buckets.feature is not None:
        do = "use only one of the two"
        raise InfeedError(f"split by feature {buckets.feature!r} and by {split_by.how}", where="splits", do=do)
    if isinstance(split_by, ByTime) and len(split_by.cuts) != len(buckets.names) - 1:
        what = f"{len(split_by.cuts)} cuts for the splits {', '.join(buckets.names)}"
        raise InfeedError(what, where=f"split by column {split_by.column!r}", do="use one cut fewer than splits")


def assign_rows(batch: pa.RecordBatch, buckets: Buckets, split_by: ByColumns | ByTime | ByName) -> Numbers:
    """Return the index into `buckets.names` of each row.

    Raises InfeedError if the column does not exist or has the wrong type, or a value matches no split.
    """
    if isinstance(split_by, ByColumns):
        where = f"split by columns {', '.join(split_by.columns)}"
        # Each value has a length prefix, so that distinct groups have distinct keys.
        features = [encode_feature(column_of(batch, name, where), name) for name in split_by.columns]
        salt, nothing = (pa.scalar(text, pa.large_binary()) for text in (split_by.salt.encode(), b""))
        return assign_splits(values_of(pc.binary_join_element_wise(salt, *features, nothing)), buckets)
    if isinstance(split_by, ByTime):
        return _by_time(batch, split_by)
    return _by_name(batch, split_by, buckets.names)


def check_rows(batch: pa.RecordBatch, split_by: SplitBy | None) -> Numbers:
    """Raise InfeedError if the rule does not fit the rows, whatever the splits are.

    Returns int64 [splits], the rows between the cuts of `ByTime`. Empty for other rules.
    """
    if isinstance(split_by, ByTime):
        return np.bincount(_by_time(batch, split_by), minlength=len(split_by.cuts) + 1)
    if isinstance(split_by, ByName):
        _names_in(batch, split_by)
    return np.zeros(0, np.int64)


def check_filled(rows: Sequence[int], split_by: ByTime) -> None:
    """Raise InfeedError if a cut leaves a split without rows. `rows` are those between the cuts."""
    for number, count in enumerate(rows):
        if not count:
            after, before = split_by.cuts[number - 1 : number], split_by.cuts[number : number + 1]
            where = f"split by column {split_by.column!r}"
            what = " and ".join([*(f"from {cut} on" for cut in after), *(f"before {cut}" for cut in before)])
            raise InfeedError(f"no row is {what}", where=where, do="choose cuts with rows on both sides")


def _values_of(batch: pa.RecordBatch, rule: ByTime | ByName) -> tuple[pa.Array, str]:
    """Return the column of a rule, and its name for errors."""
    where = f"split by column {rule.column!r}"
    values = column_of(batch, rule.column, where)
    if values.is_null(nan_is_null=True).true_count:
        raise InfeedError("a value is empty", where=where, do="filter out such rows, or use another column")
    return values, where


def assign_by_record(
    batch: pa.RecordBatch, examples: pa.LargeBinaryArray, buckets: Buckets, *, empty_lists: bool, salt: str = ""
) -> Numbers:
    """Return the index into `buckets.names` of each row, by the rule of TFX's CsvExampleGen if `salt` is empty.

    TFX hashes records with an empty list for each null. The split depends on these bytes, even if other bytes are
    written. `examples` is the result of `encode_examples(batch, empty_lists=empty_lists)`.
    """
    return assign_splits(_record_keys(batch, examples, empty_lists=empty_lists, salt=salt), buckets)


def record_ranks(
    batch: pa.RecordBatch, examples: pa.LargeBinaryArray, buckets: Buckets, *, empty_lists: bool, salt: str = ""
) -> list[bytes]:
    """Return 40 bytes for each row: its bucket, which `assign_by_record` maps to a split, then its hash."""
    keys = list(_record_keys(batch, examples, empty_lists=empty_lists, salt=salt))
    numbers = _bucket_numbers(keys, buckets).astype(">u8")
    return [number.tobytes() + hashlib.sha256(key).digest() for number, key in zip(numbers, keys, strict=True)]


def _record_keys(
    batch: pa.RecordBatch, examples: pa.LargeBinaryArray, *, empty_lists: bool, salt: str
) -> Iterator[bytes]:
    keys = values_of(examples)
    before = salt.encode()
    missing = [column.is_null().to_numpy(zero_copy_only=False) for column in batch.columns if column.null_count]
    if missing and not empty_lists:
        has_null = np.any(missing, axis=0)
        rows = pa.array(np.flatnonzero(has_null))
        others = values_of(encode_examples(batch.take(rows), empty_lists=True))
        keys = (next(others) if instead else key for instead, key in zip(has_null.tolist(), keys, strict=True))
    return (before + bytes(key) for key in keys) if before else iter(keys)


def assign_by_feature(batch: pa.RecordBatch, feature: str, buckets: Buckets) -> Numbers:
    """Return the index into `buckets.names` of each row, by TFX's rule for a partition feature.

    Raises InfeedError if the column does not exist, has the wrong type, or has a null. TFX fails there, too.
    """
    where = f"split by feature {feature!r}"
    column = column_of(batch, feature, where)
    if example_types.kind_of(column.type) not in ("int", "bytes"):
        raise InfeedError(f"the type is {column.type}", where=where, do="use a column of integers or text")
    if column.null_count:
        raise InfeedError("a value is empty", where=where, do="use a column without empty values")
    return assign_splits(values_of(encode_feature(column, feature)), buckets)


def assign_splits(keys: Iterable[bytes], buckets: Buckets) -> npt.NDArray[np.int64]:
    """Return the index into `buckets.names` of each key.

    The sha256 of the key as a big-endian integer, modulo the number of buckets, selects the split. For deterministic
    tf.Example bytes, the result equals that of TFX's ExampleGen.
    """
    limits = np.cumsum([share for _, share in buckets.shares])
    return np.searchsorted(limits, _bucket_numbers(keys, buckets), side="right")


def _bucket_numbers(keys: Iterable[bytes], buckets: Buckets) -> Numbers:
    sha256 = hashlib.sha256
    digests = b"".join([sha256(key).digest() for key in keys])
    words = np.frombuffer(digests, ">u4").reshape(-1, 256 // _WORD_BITS).astype(np.uint64)  # most significant first
    total = np.uint64(sum(share for _, share in buckets.shares))
    remainders = np.zeros(len(words), np.uint64)
    for word in words.T:  # long division, all keys at once
        remainders = ((remainders << np.uint64(_WORD_BITS)) + word) % total
    return remainders.astype(np.int64)


def column_of(batch: pa.RecordBatch, name: str, where: str) -> pa.Array:
    """Return a column. Raises InfeedError if it does not exist."""
    if name not in batch.schema.names:
        what = f"there is no column {name!r}{nearest(name, batch.schema.names)}"
        raise InfeedError(what, where=where, do=f"use one of {', '.join(batch.schema.names[:10])}")
    return batch.column(batch.schema.get_field_index(name))


def _by_time(batch: pa.RecordBatch, rule: ByTime) -> Numbers:
    values, where = _values_of(batch, rule)
    values = example_types.without_dictionary(values)
    if pa.types.is_decimal(values.type):  # Arrow does not parse decimals
        values = values.cast(pa.float64())
    if not holds_times(values.type, rule.format):
        return _passed(values, [_parse_cut(cut, values, where) for cut in rule.cuts], rule, where)
    limits = [_read_cut(cut, rule, values, where) for cut in rule.cuts]
    times = read_column(values, rule.format, limits, where, "--time-format {}")
    return _passed(pa.array(times.micros), [pa.scalar(limit.micros) for limit in limits], rule, where)


def _passed(values: pa.Array, limits: list[pa.Scalar], rule: ByTime, where: str) -> Numbers:
    """Return the number of limits that each value has reached."""
    if any(pc.less(after, before).as_py() for before, after in itertools.pairwise(limits)):
        raise InfeedError(f"the cuts {', '.join(rule.cuts)} are not ascending", where=where, do="sort them")
    passed = np.zeros(len(values), np.int64)
    for limit in limits:
        passed += pc.greater_equal(values, limit).to_numpy(zero_copy_only=False)
    return passed


def _read_cut(text: str, rule: ByTime, values: pa.Array, where: str) -> Limit:
    """Read a cut of times. An InfeedError also shows a value of the column."""
    if limit := read_limit(text, rule.format, where):
        return limit
    examples = [shown(values, row) for row in range(min(len(values), 100))]
    known = "an ISO 8601 time" if rule.format == ISO else f"a time of format {rule.format!r} or ISO 8601"
    beside = f", for a column of type {values.type}{''.join(f' with values such as {one!r}' for one in examples[:1])}"
    what = f"cut {text!r} is not {known}{beside}"
    if rule.format == ISO and is_text(values.type) and not (examples and read_limit(examples[0], ISO, where)):
        raise InfeedError(what, where=where, do=format_advice(examples or [text], "--time-format {}"))
    raise InfeedError(what, where=where, do="write the cut such as 2020-06-01 or 2020-06-01T12:00:00Z")


# Times in this century as integers of so many digits.
_FORM_OF_DIGITS = {8: "%Y%m%d", 10: "epoch_s", 13: "epoch_ms", 16: "epoch_us", 19: "epoch_ns"}


def _parse_cut(text: str, values: pa.Array, where: str) -> pa.Scalar:
    """Parse a cut for a column that does not hold times."""
    try:
        return pc.cast(pa.scalar(text), values.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = f"cut {text!r} is not of type {values.type}"
        if not len(values) or pa.types.is_nested(values.type):
            raise InfeedError(what, where=where, do="use a column of times, numbers or text") from error
        example = shown(values, 0)
        do = f"write the cut like the values of the column, such as {example}"
        if (form := _FORM_OF_DIGITS.get(len(example))) and pa.types.is_integer(values.type):
            do += f", or give the format of the column, such as --time-format {form}"
        raise InfeedError(what, where=where, do=do) from error


def _names_in(batch: pa.RecordBatch, rule: ByName) -> tuple[pa.Array, str]:
    values, where = _values_of(batch, rule)
    try:
        return values.cast(pa.string()), where
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InfeedError(f"the type is {values.type}", where=where, do="use a column of text") from error


def _by_name(batch: pa.RecordBatch, rule: ByName, names: tuple[str, ...]) -> Numbers:
    texts, where = _names_in(batch, rule)
    numbers = pc.index_in(texts, value_set=pa.array(names, pa.string()))
    if numbers.null_count:
        raise no_such_split(str(texts.filter(numbers.is_null())[0].as_py()), names, where)
    return np.asarray(numbers, np.int64)


def no_such_split(name: str, names: Iterable[str], where: str) -> InfeedError:
    """Return the error for a value of a `ByName` column that names no split."""
    do = f"add the split to {', '.join(names)}, or filter out such rows"
    return InfeedError(f"there is no split {name!r}", where=where, do=do)
