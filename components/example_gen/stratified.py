"""The rows of a split that `ByLabel` makes, found without writing anything, as ingest finds them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen.chosen import choose_rows, place_of
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.planning import divide_by_label
from infeed.components.example_gen.spills import Spill, spill_order, strata_of_rows

Rows = npt.NDArray[np.int64]
Block = tuple[int, int]  # number of the task, and of the batch in it from 1


def stratified_rows(
    source: OpenedSource, splits: int, buckets: Buckets, options: IngestOptions, split: str
) -> dict[Block, Rows]:
    """Reads the labels of all rows.

    Args:
      source: the input.
      splits: number of all splits that are written.
      buckets: the shares of those that are divided by label.
      options: the label, the filter and the seed.
      split: one of the buckets.

    Returns:
      Block -> the numbers of the split's rows among those that are chosen of the block, ascending.
    """
    orders: dict[str, Rows] = {}
    spills: list[Spill] = []
    bad_rows = BadRows(options.on_bad_row, options.bad_row_limit)
    for task in (task for task in source.tasks if task.split is None):
        for number, batch in enumerate(source.read(task.payload, bad_rows=bad_rows), start=1):
            chosen = choose_rows(batch, options, place_of(task.payload), bad_rows)
            strata = strata_of_rows(chosen, options.strata)
            seed = None if options.shuffle_seed is None else (options.shuffle_seed, splits, task.order, number)
            path = f"{task.order}-{number}"
            orders[path] = spill_order(np.arange(chosen.num_rows), seed, strata)
            start = 0
            for stratum, count in enumerate(np.bincount(strata.numbers, minlength=len(strata.labels)).tolist()):
                if count:
                    spills.append(Spill(None, path, start, count, 0, strata.labels[stratum]))
                start += count
    found: dict[str, list[Rows]] = defaultdict(list)
    for one in divide_by_label(spills, buckets):
        if one.split == split:
            found[one.path].append(orders[one.path][one.start : one.start + one.records])
    return {_block(path): np.sort(np.concatenate(rows)) for path, rows in found.items()}


def _block(path: str) -> Block:
    task, number = path.split("-")
    return int(task), int(number)
