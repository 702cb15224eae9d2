"""Column statistics that are counted while rows are ingested: of each task, of groups of tasks, and of whole splits.

Each task counts what it reads, and each split's file is the sum over the tasks, in their order. A split is the least
that statistics are kept of, since rows are shuffled over all its shards. A split whose rows are chosen only after all
are read, by label, has none; nor have records that are imported unread. Theirs are read from the shards when somebody
asks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Split
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import ByLabel
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.table_statistics import Gatherer, TableStatistics, add, key_of
from infeed.components.example_gen.spills import RowsBySplit

_MAX_COLUMNS = 20_000  # of a wider table, statistics take more memory than its rows
_FOLDER, _GROUPS = "statistics", "statistics-groups"
_KEY = "task"  # of temporary files
_GROUP = 64  # tasks at least: fewer are added up at once


def analyzed_splits(splits: Sequence[str], schema: pa.Schema, options: IngestOptions, serialized: bool) -> list[str]:
    """The splits that statistics are gathered of."""
    if serialized or not options.statistics or isinstance(options.split_by, ByLabel) or len(schema) > _MAX_COLUMNS:
        return []
    balanced = options.balance.splits if options.balance else ()
    return [split for split in splits if split not in balanced]


class TaskAnalysis:
    """Statistics of the rows of one task, split by split.

    Args:
      splits: to be analyzed
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
            taken = {name: column and column.take(rows) for name, column in cells.items()}
            self._gatherers[str(split)].add(len(rows), taken)

    def leave(self, temporary: str, order: int) -> None:
        """Writes down what was found in the task of this number."""
        for split, gatherer in self._gatherers.items():
            gatherer.statistics().write(files.join(temporary, _FOLDER, split, _file(order)), _KEY)


@dataclass(frozen=True)
class StatisticsGroup:
    """Neighboring tasks whose statistics one worker adds up: from order `first` on, up to `stop`, not included."""

    number: int
    first: int
    stop: int


def statistics_groups(tasks: int) -> list[StatisticsGroup]:
    """Return as many groups as each has tasks, so that no sum has many parts; none where the tasks are few."""
    if tasks <= _GROUP:
        return []
    size = max(_GROUP, math.ceil(math.sqrt(tasks)))
    return [StatisticsGroup(number, first, first + size) for number, first in enumerate(range(0, tasks, size))]


def merge_statistics(group: StatisticsGroup, temporary: str, splits: Iterable[str]) -> None:
    """Add up what the tasks of a group left."""
    for split in splits:
        folder = files.join(temporary, _FOLDER, split)
        paths = [files.join(folder, _file(order)) for order in range(group.first, group.stop)]
        add(_read(paths)).write(files.join(temporary, _GROUPS, split, _file(group.number)), _KEY)


def publish_statistics(temporary: str, root: str, tasks: int, splits: Iterable[tuple[str, Split]]) -> None:
    """Add up what all tasks left, or all groups of them, in their order; write it beside the splits."""
    groups = len(statistics_groups(tasks))
    folder, count = (_GROUPS, groups) if groups else (_FOLDER, tasks)
    for name, split in splits:
        found = add(_read(files.join(temporary, folder, name, _file(number)) for number in range(count)))
        found.collapse().write(names.statistics_file(root, name), key_of(split))


def _read(paths: Iterable[str]) -> Iterator[TableStatistics]:
    """Those that are there: a task leaves none of a split that it has no rows of."""
    return (part for path in paths if (part := TableStatistics.read(path, _KEY)) is not None)


def _file(number: int) -> str:
    return f"{number:08d}.json.zst"
