"""Column statistics gathered during ingest: of each task, of groups of tasks, and of splits.

A split's statistics are the sum over its tasks, in order. Shards have no separate statistics, because rows are
shuffled over all shards of a split. Two kinds of splits get none during ingest: stratified splits, whose rows are
chosen after reading, and imported records, which are not parsed. Their statistics are read from the shards on demand.
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
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.table_statistics import Gatherer, TableStatistics, add, key_of
from infeed.components.example_gen.spills import RowsBySplit

_MAX_COLUMNS = 20_000  # statistics of wider tables take more memory than the rows
_FOLDER, _GROUPS = "statistics", "statistics-groups"
_KEY = "task"  # key of the temporary files
_GROUP = 64  # smallest number of tasks that is worth a group


def analyzed_splits(splits: Sequence[str], schema: pa.Schema, options: IngestOptions, serialized: bool) -> list[str]:
    if serialized or not options.statistics or options.divides_later or len(schema) > _MAX_COLUMNS:
        return []
    balanced = options.balance.splits if options.balance else ()
    return [split for split in splits if split not in balanced]


class TaskAnalysis:
    """Gathers the statistics of one task, by split. `empty_lists` counts nulls as empty lists, as they are written."""

    def __init__(self, splits: Iterable[str], *, empty_lists: bool) -> None:
        self._splits = frozenset(splits)
        self._empty_lists = empty_lists
        self._gatherers: dict[str, Gatherer] = defaultdict(Gatherer)

    def add(self, batch: pa.RecordBatch, by_split: RowsBySplit) -> None:
        for split, rows in by_split.items():
            if split not in self._splits or not len(rows):
                continue
            part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            found = zip(part.schema.names, part.columns, strict=True)
            cells = {name: Cells.of(column, empty_lists=self._empty_lists) for name, column in found}
            self._gatherers[str(split)].add(len(rows), cells)

    def leave(self, temporary: str, order: int) -> None:
        for split, gatherer in self._gatherers.items():
            gatherer.statistics().write(files.join(temporary, _FOLDER, split, _file_name(order)), _KEY)


@dataclass(frozen=True)
class StatisticsGroup:
    """Tasks `first` to `stop`, whose statistics one worker adds up."""

    number: int
    first: int
    stop: int


def statistics_groups(tasks: int) -> list[StatisticsGroup]:
    """Divide the tasks into groups of about the square root of their number. Empty if there are few tasks."""
    if tasks <= _GROUP:
        return []
    size = max(_GROUP, math.ceil(math.sqrt(tasks)))
    return [StatisticsGroup(number, first, first + size) for number, first in enumerate(range(0, tasks, size))]


def merge_statistics(group: StatisticsGroup, temporary: str, splits: Iterable[str]) -> None:
    for split in splits:
        folder = files.join(temporary, _FOLDER, split)
        paths = [files.join(folder, _file_name(order)) for order in range(group.first, group.stop)]
        add(_read(paths)).write(files.join(temporary, _GROUPS, split, _file_name(group.number)), _KEY)


def publish_statistics(temporary: str, root: str, tasks: int, splits: Iterable[tuple[str, Split]]) -> None:
    """Add up the statistics of all tasks or groups, in order, and write them beside the splits."""
    groups = len(statistics_groups(tasks))
    folder, count = (_GROUPS, groups) if groups else (_FOLDER, tasks)
    for name, split in splits:
        found = add(_read(files.join(temporary, folder, name, _file_name(number)) for number in range(count)))
        found.collapse().write(names.statistics_file(root, name), key_of(split))


def _read(paths: Iterable[str]) -> Iterator[TableStatistics]:
    """Read the statistics that exist. A task writes none for a split without rows."""
    return (part for path in paths if (part := TableStatistics.read(path, _KEY)) is not None)


def _file_name(number: int) -> str:
    return f"{number:08d}.json.zst"
