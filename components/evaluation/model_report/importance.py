"""Permutation importance: how much the loss rises if the values of one column are shuffled among the rows.

Breiman (2001), Random Forests, Machine Learning 45, 5-32; for any model: Fisher, Rudin, Dominici (2019), JMLR 20(177).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.encode import encode_examples
from infeed.components.evaluation.pairs import Array

REPEATS = 3
_MOST_ROWS, _LEAST_ROWS, _PREDICTIONS = 1_000, 200, 60_000
MOST_COLUMNS = 100


@dataclass(frozen=True)
class Importance:
    """Rise of the loss, as mean and standard deviation over the repeats."""

    column: str
    mean: float
    deviation: float


def rows_for(columns: int) -> int:
    """Return how many rows to shuffle, so that the model predicts a bounded number of rows."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _PREDICTIONS // (REPEATS * max(1, columns))))


def importances(
    records: Sequence[bytes], columns: Sequence[str], losses: Callable[[Sequence[bytes]], Array]
) -> list[Importance]:
    """Return the importance of each column of serialized tf.Examples, the largest first.

    `losses` returns the loss of each record, float64 [records].
    """
    batch = pa.RecordBatch.from_pydict(decode_columns(records))
    before = losses(records).mean()
    random = np.random.default_rng(0)
    found = []
    for column in columns:
        place = batch.schema.get_field_index(column)
        rises = []
        for _ in range(REPEATS):
            arrays = batch.columns
            arrays[place] = arrays[place].take(pa.array(random.permutation(batch.num_rows)))
            shuffled = encode_examples(pa.RecordBatch.from_arrays(arrays, schema=batch.schema))
            rises.append(losses(shuffled.to_pylist()).mean() - before)
        found.append(Importance(column, float(np.mean(rises)), float(np.std(rises, ddof=1))))
    return sorted(found, key=lambda one: -one.mean)
