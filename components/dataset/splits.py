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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.components.errors import InfeedError

_WORD_BITS = 32  # a word of the hash; remainder * 2^32 stays within 64 bits


@dataclass(frozen=True)
class Buckets:
    """Splits by name with their shares: `{"train": 2, "eval": 1}` sends two records of three to train.

    Args:
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

    Args:
      columns: rows that agree in all of these are in one split.
      salt: another salt gives another division.
    """

    columns: tuple[str, ...]
    salt: str = ""
    how: str = field(default="columns", init=False)

    def __post_init__(self) -> None:
        if not self.columns:
            raise InfeedError("no columns to split by", where="ByColumns", do="name one or more")


@dataclass(frozen=True)
class ByLabel:
    """Stratified: the rows of each value of `column` are divided by the shares; an odd one goes to an earlier split."""

    column: str
    how: str = field(default="label", init=False)


@dataclass(frozen=True)
class ByTime:
    """The first split takes what is before the first cut, the next what is before the second, the last the rest.

    Args:
      column: dates, timestamps, numbers, or text that sorts by time, such as ISO dates; without nulls.
      cuts: one fewer than there are splits, ascending, written as the column's values are.
    """

    column: str
    cuts: tuple[str, ...]
    how: str = field(default="time", init=False)


@dataclass(frozen=True)
class ByName:
    """A column of text holds the name of each row's split."""

    column: str
    how: str = field(default="name", init=False)


SplitBy = ByColumns | ByLabel | ByTime | ByName
_RULES = {rule.how: rule for rule in (ByColumns, ByLabel, ByTime, ByName)}


def split_by_from_dict(fields: Mapping[str, Any]) -> SplitBy:
    """What `dataclasses.asdict` gave, or JSON of it."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    rule: Any = _RULES[fields["how"]]
    del given["how"]
    split_by: SplitBy = rule(**given)
    return split_by


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
