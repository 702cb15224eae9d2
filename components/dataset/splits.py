"""Which split a record belongs to: TFX's own rule, by hash buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset.records import values_of
from infeed.components.errors import InfeedError

_WORD_BITS = 16  # a word of the hash; small enough for remainder * 2^16 to stay within 64 bits


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
        for name, share in self.shares:
            if share < 1:
                raise InfeedError(f"{share} buckets for split {name!r}", where="splits", do="give 1 or more")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.shares)


def assign_splits(keys: pa.LargeBinaryArray, buckets: Buckets) -> npt.NDArray[np.int64]:
    """The index into `buckets.names` of each key.

    sha256 of the key as one big-endian integer, modulo the total of buckets, then the split whose range it falls into:
    with deterministic tf.Example bytes as keys, exactly the split that TFX's ExampleGen gives.
    """
    limits = np.cumsum([share for _, share in buckets.shares])
    return np.searchsorted(limits, _remainders(_digests(keys), int(limits[-1])), side="right")


def _digests(keys: pa.LargeBinaryArray) -> npt.NDArray[np.uint64]:
    """sha256 of each key as sixteen 16-bit words, the most significant first: [n, 16]."""
    sha256 = hashlib.sha256
    digests = b"".join([sha256(key).digest() for key in values_of(keys)])
    return np.frombuffer(digests, ">u2").reshape(-1, 256 // _WORD_BITS).astype(np.uint64)


def _remainders(words: npt.NDArray[np.uint64], divisor: int) -> npt.NDArray[np.int64]:
    """Long division of each row of words, all rows at once: [n]."""
    remainders = np.zeros(len(words), np.uint64)
    for word in words.T:
        remainders = ((remainders << np.uint64(_WORD_BITS)) + word) % np.uint64(divisor)
    return remainders.astype(np.int64)


def rows_by_split(assigned: npt.NDArray[np.int64], names: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """Split name -> its row numbers, in order; a split without rows is there too."""
    return {name: np.flatnonzero(assigned == index) for index, name in enumerate(names)}
