"""Column statistics on the way: each task counts what it reads, and each split's file is the sum over the tasks.

Rows are shuffled over all shards of a split, so a split is the least that statistics are kept of. A split whose rows
are chosen only after all are read, by label, has none; nor have records that are imported unread. Their statistics are
read from the shards when somebody asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pyarrow as pa

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import ByLabel
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.reading import key_of
from infeed.components.dataset.statistics.table_statistics import Gatherer, TableStatistics, add
from infeed.components.example_gen.spills import RowsBySplit

_MAX_COLUMNS = 500  # a wider table has too few rows in memory at a time for work on whole columns to pay
_FOLDER = "statistics"
_KEY = "task"  # of a file that nobody else sees


def analysed_splits(splits: Sequence[str], schema: pa.Schema, options: IngestOptions, serialized: bool) -> list[str]:
    """The splits that statistics are gathered of."""
    if serialized or not options.statistics or isinstance(options.split_by, ByLabel) or len(schema) > _MAX_COLUMNS:
        return []
    balanced = options.balance.splits if options.balance else ()
    return [split for split in splits if split not in balanced]


class TaskAnalysis:
    """Statistics of the rows of one task, split by split.

    Args:
      splits: to be analysed
      empty_lists: a null is written as an empty list
    """

    def __init__(self, splits: Iterable[str], *, empty_lists: bool) -> None:
        self._splits = frozenset(splits)
        self._empty_lists = empty_lists
        self._gatherers: dict[str, Gatherer] = defaultdict(Gatherer)

    def add(self, batch: pa.RecordBatch, by_split: RowsBySplit) -> None:
        """Takes a block as it is written."""
        wanted = {split: rows for split, rows in by_split.items() if split in self._splits and len(rows)}
        if not wanted:
            return
        found = zip(batch.schema.names, batch.columns, strict=True)
        cells = {name: Cells.of(column, empty_lists=self._empty_lists) for name, column in found}
        for split, rows in wanted.items():
            taken = {name: column.take(rows) for name, column in cells.items() if column is not None}
            self._gatherers[str(split)].add(len(rows), taken)

    def leave(self, temporary: str, order: int) -> None:
        """Writes down what was found in the task of this number."""
        for split, gatherer in self._gatherers.items():
            gatherer.statistics().write(files.join(temporary, _FOLDER, split, f"{order:06d}.json"), _KEY)


def publish_statistics(temporary: str, root: str, splits: Iterable[tuple[str, Split]]) -> None:
    """Adds up what all tasks left, in their order, and writes it beside the splits."""
    for name, split in splits:
        left = (
            TableStatistics.read(file.path, _KEY) for file in files.glob(files.join(temporary, _FOLDER, name), "*.json")
        )
        found = add(part for part in left if part is not None)
        found.collapse().write(names.statistics_file(root, name), key_of(split))
