"""Permutation importance: rise of the loss if the values of one column are shuffled among the rows.

Breiman (2001), Random Forests, Machine Learning 45, 5-32; for any model: Fisher, Rudin, Dominici (2019), JMLR 20(177).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples
from infeed.components.evaluation.pairs import Array

REPEATS = 3
_MOST_ROWS, _LEAST_ROWS, _PREDICTIONS = 1_000, 200, 60_000
_MOST_BYTES = 64 << 20  # of records in a call of the model
MOST_COLUMNS = 100


@dataclass(frozen=True)
class Importance:
    """Rise of the loss: mean and standard deviation over the repeats."""

    column: str
    mean: float
    deviation: float


def rows_for(columns: int) -> int:
    """Return how many rows to shuffle, which limits the number of predictions."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _PREDICTIONS // (REPEATS * max(1, columns))))


def importances(
    records: Sequence[bytes], columns: Sequence[str], losses: Callable[[Sequence[bytes]], Array]
) -> list[Importance]:
    """Return the importance of each column of serialized tf.Examples, largest first.

    `losses` returns the loss of each record, float64 [records]. It gets the records once or several times in a row,
    because a call of a model of thousands of columns takes seconds for a single row.
    """
    before = losses(records).mean()
    at_once = max(1, min(_MOST_ROWS // len(records), _MOST_BYTES // sum(map(len, records))))
    shuffles, rises = _shuffles(records, columns), list[float]()
    while some := list(itertools.islice(shuffles, at_once)):
        of_shuffles = losses([record for one in some for record in one]).reshape(len(some), -1)
        rises += (of_shuffles.mean(axis=1) - before).tolist()
    by_column = zip(columns, np.reshape(rises, (-1, REPEATS)), strict=True)
    found = [Importance(column, float(of.mean()), float(of.std(ddof=1))) for column, of in by_column]
    return sorted(found, key=lambda one: -one.mean)


def _shuffles(records: Sequence[bytes], columns: Sequence[str]) -> Iterator[list[bytes]]:
    """Yield the records with the values of one column shuffled, `REPEATS` times for each column.

    A record is two tf.Examples in a row, which a reader merges: one of the columns that stay, encoded once, and one of
    `columns`.
    """
    found = decode_columns(records)
    stay = {name: column for name, column in found.items() if name not in columns}
    first = encode_examples(pa.RecordBatch.from_pydict(stay)).to_pylist() if stay else [b""] * len(records)
    change, random = {name: found[name] for name in columns}, np.random.default_rng(0)
    for name in (name for name in columns for _ in range(REPEATS)):
        shuffled = change[name].take(pa.array(random.permutation(len(records))))
        second = encode_examples(pa.RecordBatch.from_pydict({**change, name: shuffled})).to_pylist()
        yield [one + other for one, other in zip(first, second, strict=True)]
