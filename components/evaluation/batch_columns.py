"""Columns of a batch of tf.Examples as arrays: labels and weights for metrics, and values to cut slices by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions.batches import Batch, InputShard, batches_of
from infeed.components.evaluation.slices import Values

ROWS = 4_096


def read_batches(folders: Iterable[str]) -> Iterator[Batch]:
    """The records of some folders of splits, file by file, at most `ROWS` and 4 MiB at a time.

    Raises:
      InfeedError: a file is truncated or corrupt.
    """
    for folder in folders:
        for file in sorted(file.path for file in files.list_files(folder) if not files.is_hidden(file.path)):
            yield from batches_of(InputShard(files.name(folder), file), ROWS)


def known_columns(root: str) -> set[str]:
    """The columns that the manifest of a dataset names; none where there is no manifest, or it does not know them."""
    if not files.exists(files.join(root, names.MANIFEST)):
        return set()
    return {column.name for column in Manifest.read(root).schema}


def values_of(batch: Batch, name: str) -> Values | None:
    """The values of a column; None where no record has it."""
    if name not in batch.columns:
        return None
    lists = batch.columns[name]
    return Values(np.repeat(np.arange(len(batch.records)), _lengths(lists)), _numpy(lists.flatten()))


def dense(batch: Batch, name: str) -> npt.NDArray[Any] | None:
    """A column as [rows, n]; None where no record has it.

    Raises:
      InfeedError: the rows have different numbers of values.
    """
    if name not in batch.columns:
        return None
    lists = batch.columns[name]
    counts = _lengths(lists)
    if (counts != counts[0]).any() or not counts[0]:
        row = int(np.argmin(counts))
        raise InfeedError(
            f"column {name!r} has {counts[row]} values here, and up to {counts.max()} elsewhere",
            where=batch.where(row),
            do="fill in what is missing, or name another column in eval_config.model_specs",
        )
    return _numpy(lists.flatten()).reshape(len(counts), counts[0])


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _numpy(values: pa.Array) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found
