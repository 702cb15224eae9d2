"""Find the rows of one exact split without writing, as ingest assigns them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen.chosen import choose_rows, place_of
from infeed.components.example_gen.inputs import BadRows, OpenedSource, Task
from infeed.components.example_gen.planning import divide
from infeed.components.example_gen.spills import (
    RunCutter,
    Spill,
    Spills,
    Strata,
    process_batch,
    spill_order,
    spills_of,
)

Rows = npt.NDArray[np.int64]
Block = tuple[int, int]  # index of the task, number of the batch in it from 1


def stratified_rows(
    source: OpenedSource, splits: int, buckets: Buckets, options: IngestOptions, split: str
) -> dict[Block, Rows]:
    """Return the rows of one split, by reading all rows.

    Args:
      splits: number of all splits.
      buckets: shares of the splits that are divided after all rows are counted.

    Returns:
      Block -> ascending indices of the split's rows among the chosen rows of the block.
    """
    runs: dict[str, tuple[int, Rows, Rows]] = {}  # path -> task, and block and index in it of each row of the spill
    spills: list[Spill] = []
    bad_rows = BadRows(options.on_bad_row, options.bad_row_limit)
    for task in (task for task in source.tasks if task.split is None):
        for number, blocks in enumerate(_runs_of_task(source, task, buckets, options, bad_rows), start=1):
            seed = None if options.shuffle_seed is None else (options.shuffle_seed, splits, task.order, number)
            strata = Strata.joined(list(blocks.values()))
            order = spill_order(np.arange(len(strata.numbers)), seed, strata)
            path, sizes = f"{task.order}-{number}", [len(one.numbers) for one in blocks.values()]
            indices = np.concatenate([np.arange(size) for size in sizes])
            runs[path] = task.order, np.repeat(list(blocks), sizes)[order], indices[order]
            spills += spills_of(path, None, strata)
    found: dict[Block, list[Rows]] = defaultdict(list)
    for one in divide(Spills.of(spills), buckets, options)[split]:
        order_of_task, of_block, indices = runs[one.path]
        part = slice(one.start, one.start + one.records)
        for block in np.unique(of_block[part]).tolist():
            found[order_of_task, block].append(indices[part][of_block[part] == block])
    return {block: np.sort(np.concatenate(rows)) for block, rows in found.items()}


def _runs_of_task(
    source: OpenedSource, task: Task, buckets: Buckets, options: IngestOptions, bad_rows: BadRows
) -> Iterator[dict[int, Strata]]:
    cutter, run = RunCutter(), dict[int, Strata]()
    for number, batch in enumerate(source.read(task.payload, bad_rows=bad_rows), start=1):
        chosen = choose_rows(batch, options, place_of(task.payload), bad_rows)
        if cutter.ends_before(chosen):
            yield run
            run = {}
        made = process_batch(chosen, None, buckets=buckets, options=options, serialized=source.serialized)
        run[number] = made.strata
    if run:
        yield run
