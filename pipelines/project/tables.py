"""Columns of a table, their statistics and a sample of the rows, cached between surveys.

The cache in the user's home folder keeps all three for large tables, by the names, sizes and modification times of the
files, as in TFX's cache. The next survey reads only new files, unless a new file changes the type of a column.

A large text file is read once: types are inferred from a sample, and the pass that gathers statistics verifies them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from importlib import metadata
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infeed.components.base import machine, schema, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import example_types, files
from infeed.components.dataset.cache import CACHE_DIR, digest, keep_file, kept_file
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import is_function
from infeed.components.dataset.splits import ByName, ByTime, check_filled, check_rows, columns_of
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import (
    Gatherer,
    TableStatistics,
    add,
    keep_statistics,
    kept_statistics,
)
from infeed.components.engine.choice import Work, choose
from infeed.components.engine.engine import Tree
from infeed.components.example_gen.codes import Codes, add_codes
from infeed.components.example_gen.formats import default_settings, has_option
from infeed.components.example_gen.inputs import AstrayError, BadRow, BadRows, Findings, OpenedSource, Task, check_limit
from infeed.components.example_gen.planning import OtherKindsError, check_found, line_offsets, settled, shifted
from infeed.components.example_gen.spills import (
    choose_columns,
    choose_rows,
    complete,
    passing,
    strata_of_rows,
    with_label,
)
from infeed.components.transform.infer import SAMPLE
from infeed.pipelines.config import Source
from infeed.pipelines.project.number_columns import CellShapes, shapes_of
from infeed.pipelines.project.samples import ROWS, Sample, Sampler, from_bytes, merge, to_bytes
from infeed.pipelines.project.sources import files_of_table, open_splits, open_table

Ints = npt.NDArray[np.int64]
_KEPT_BYTES = 1 << 20  # bytes of a file or table from which results are cached
_LEAST_SAMPLED = 8_192  # minimum sampled rows of a file


@dataclass(frozen=True)
class Column:
    """Column over all files of a table. `type` is Arrow's name."""

    name: str
    type: str
    is_list: bool


@dataclass(frozen=True)
class _Look:
    """Result of surveying all files. Without one of the files, types might differ."""

    columns: tuple[Column, ...]
    files: tuple[files.FileStat, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Shapes:
    """Shapes of the cells of each text column, codes among numbers, and counts of rows, as in `Found`."""

    columns: Mapping[str, CellShapes]
    codes: Mapping[str, Codes]
    unlabeled: int
    cut: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Found:
    """Result of one pass over the rows of some files."""

    statistics: TableStatistics = field(default_factory=TableStatistics)
    sample: Sample = field(default_factory=lambda: merge([]))  # without columns that have no type
    shapes: Mapping[str, CellShapes] = field(default_factory=dict)  # of the cells of each text column
    rejected: int = 0
    unlabeled: int = 0  # rows that `IngestOptions.labeled` excludes
    codes: Mapping[str, Codes] = field(default_factory=dict)  # cells of number columns that look like codes
    misfit: InfeedError | None = None  # why the rule of the splits does not fit a row
    cut: tuple[int, ...] = ()  # rows between the cuts of a split by time

    @property
    def can_be_kept(self) -> bool:
        return not self.rejected and self.misfit is None

    @classmethod
    def of(cls, parts: Sequence[Found], rows: int) -> Found:
        """Merge results in order, with a sample of at most `rows` rows."""
        return cls(
            add(one.statistics for one in parts),
            merge([one.sample for one in parts], rows),
            reduce(_united, [one.shapes for one in parts], dict[str, CellShapes]()),
            sum(one.rejected for one in parts),
            sum(one.unlabeled for one in parts),
            add_codes(one.codes for one in parts),
            next((one.misfit for one in parts if one.misfit), None),
            _summed([one.cut for one in parts]),
        )


@dataclass(frozen=True, eq=False)
class _Part:
    """The result of one task. The line of `last_bad` is counted from the start of the task."""

    found: Found
    findings: Findings | None = None
    last_bad: BadRow | None = None


@dataclass(frozen=True)
class _ReadTask:
    """Reader of a task, given with its index among the tasks of its file.

    Runs in any process, and samples up to `rows` rows. `is_divided` is whether the rule of the splits applies.
    """

    source: OpenedSource
    options: IngestOptions
    rows: int
    is_divided: bool

    def __call__(self, numbered: tuple[Task, int]) -> _Part:
        task, number = numbered
        path = _path_of(task)
        bad_rows = BadRows(self.options.on_bad_row, self.options.bad_row_limit, relative=True)
        sampler, gatherer = Sampler(f"{path} {number}" if number else path, self.rows), Gatherer()
        bad, shapes, unlabeled = list[BadRow](), dict[str, CellShapes](), 0
        misfit, cut = None, tuple[int, ...]()
        try:
            for batch in self.source.read(task.payload, bad_rows=bad_rows):
                passed = passing(batch, self.options)
                labeled = with_label(passed, self.options)
                unlabeled += passed.num_rows - labeled.num_rows
                rows = complete(labeled, self.options, path, bad_rows)
                if self.is_divided and misfit is None:
                    try:
                        cut = _summed([cut, tuple(check_rows(rows, self.options.split_by).tolist())])
                        strata_of_rows(rows, self.options.strata)
                    except InfeedError as error:
                        # Kept for `check_rule`: with other types, which the survey may choose, the rule may fit.
                        misfit = error
                block = choose_columns(rows, self.options)
                cells = {name: Cells.of(column) for name, column in zip(block.schema.names, block.columns, strict=True)}
                typed = {name: one for name, one in cells.items() if one is not None}
                gatherer.add(block.num_rows, typed)
                sampler.add(block.num_rows, typed)
                shapes = _united(shapes, shapes_of(block, but=[name for name, one in shapes.items() if one.given_up]))
                bad += bad_rows.take()
        except AstrayError:
            bad_rows.found = Findings(astray=True)
        bad += bad_rows.take()
        statistics, sample = gatherer.statistics().collapse(), sampler.sample()
        found = Found(statistics, sample, shapes, len(bad), unlabeled, bad_rows.codes, misfit, cut)
        return _Part(found, bad_rows.found, bad[-1] if bad else None)


class Table:
    """Table. Columns are known after construction, and statistics are computed on demand.

    Args:
      path: file or folder of files.
      settings: options of the format, such as the delimiter of a CSV.
      options: filter, columns, and handling of bad rows.
      patterns: split -> pattern of its files below `path`. Empty for all files.

    Attributes:
      columns: chosen columns of all files, in order.
      names: names of all columns.
      left_out: columns that tf.Examples do not support, with reasons.
      has_nulls: whether an option of the format names words that mean a missing value.

    Raises:
      InfeedError: there is no file, or a file has another format.
    """

    def __init__(
        self,
        path: str,
        source: Source,
        settings: Mapping[str, Any],
        options: IngestOptions,
        patterns: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._open = partial(open_table, source=source, settings=settings, options=options)
        self._path, self._options, self._patterns = path, options, patterns
        self._source, self._settings = source, settings
        self.has_nulls = has_option(source, "nulls")
        rows = [options.filter, options.required, options.labeled]
        columns = [options.columns, options.drop, options.words]
        checked = repr(options.split_by) if isinstance(options.split_by, ByTime | ByName) else ""
        checked += repr(options.strata) if any(options.strata) else ""
        how = json.dumps(
            [source, dict(settings), *rows, *columns, dict(patterns), checked], sort_keys=True, default=str
        )
        # The key of cached results has everything that changes them.
        self._read_as = [metadata.version("tfx-infeed"), how]
        if options.filter and is_function(options.filter):
            self._read_as.append(user_code.digest(options.filter, "filter"))
        self._known: _Look | None = None
        of_splits = (file for found in self._by_split.values() for file in found)
        self._files = tuple(of_splits if patterns else files_of_table(path, source))
        self._look_file = f"look-{digest([*self._read_as, path])}.json"
        look: _Look | None = None
        with suppress(ValueError):  # another version wrote it
            if content := kept_file(CACHE_DIR, self._look_file):
                look = schema.read_json(_Look, content)
        # The types of a cached survey hold only if each new file has the same columns.
        added = self._open_added(look) if look else None
        self._known, self._added = (None, {}) if added is None else (look, added)
        if self._known:
            self._set_columns(self._known.columns, self._known.left_out)
        else:
            self._set_columns(_columns(self._whole.schema), self._whole.left_out)
            if self._whole.sample:
                _ = self.found  # reads all rows, so that `columns` has the final types

    def _set_columns(self, every: tuple[Column, ...], left_out: Mapping[str, str]) -> None:
        self._every, self.left_out = every, left_out
        self.names = tuple(column.name for column in every)
        check_named(self.names, self._options)
        taken = {column.name: column for column in every}
        self.columns = tuple(taken[name] for name in self._options.written(taken))

    @cached_property
    def _whole(self) -> OpenedSource:
        """Open all files. Without a cached survey, types of large text files are inferred from a sample."""
        sampled = self._known is None
        if not self._patterns:
            return self._open(self._path, sampled=sampled)
        settings = {**default_settings(self._files[0].path, self._source), **self._settings}
        return open_splits(self._path, self._source, settings, self._options, self._patterns, sampled=sampled)

    @cached_property
    def _by_split(self) -> dict[str, list[files.FileStat]]:
        return {split: files.glob(self._path, pattern) for split, pattern in self._patterns.items()}

    def rows_of(self) -> dict[str, int]:
        """Estimate the rows of each split from the sizes of its files."""
        size, rows = max(sum(file.size for file in self._files), 1), self.found.statistics.rows
        return {split: sum(file.size for file in found) * rows // size for split, found in self._by_split.items()}

    def sampled_splits(self) -> Ints | None:
        """Return int64 [sampled rows], the split index of each row. None unless there are several splits."""
        if len(self._by_split) < 2:
            return None
        numbers = np.repeat(np.arange(len(self._by_split)), [len(found) for found in self._by_split.values()])
        return numbers[self.found.sample.files]

    def _open_added(self, look: _Look) -> dict[files.FileStat, OpenedSource] | None:
        """Return the files that are new since then. None if other files or the columns may have changed."""
        if not set(look.files) <= set(self._files):
            return None
        try:
            added = {file: self._open(file.path) for file in self._files if file not in look.files}
        except InfeedError:  # opening all files reports the error
            return None
        return added if all(_columns(one.schema) == look.columns for one in added.values()) else None

    def statistics(self) -> tuple[dict[str, ColumnStatistics], int]:
        """Return the statistics of every column in order, and the number of bad rows."""
        found = self.found.statistics
        none = {column.name: ColumnStatistics.none(column.name, "bytes", found.rows) for column in self.columns}
        return {**none, **found.columns}, self.found.rejected

    def check_rule(self) -> None:
        """Raise InfeedError if the rule of the splits or the balance does not fit the rows, or a split is empty."""
        if self.found.misfit:
            raise self.found.misfit
        if isinstance(rule := self._options.split_by, ByTime):
            check_filled(self.found.cut, rule)

    def sampled_values(self) -> dict[str, list[bytes]]:
        """Return distinct values of each text column from random rows."""
        return {column.name: self.found.sample.different(column.name, SAMPLE) for column in self.columns}

    @cached_property
    def found(self) -> Found:
        if kept := self._kept(self._files):
            return kept
        parts = self._read_files() if self._known else settled(self._whole, self._read_and_check)
        numbered = [replace(one, sample=one.sample.of_file(number)) for number, one in enumerate(parts)]
        found = Found.of(numbered, ROWS)
        found = replace(found, statistics=found.statistics.collapse())
        # A table with bad rows is not cached, so that every survey reports those rows.
        if found.can_be_kept:
            if len(self._files) > 1:  # a single file is already cached under the same key
                self._keep(self._files, found)
            if _is_worth_keeping(self._files):
                keep_file(CACHE_DIR, self._look_file, _json(_Look(self._every, self._files, self.left_out)))
        return found

    def _read_files(self) -> list[Found]:
        """Read each file. Files with bad rows are not cached, so that every survey reports those rows."""
        found = {file: kept for file in self._files if (kept := self._kept([file]))}
        for file, source in self._added.items():
            if file not in found:
                found |= self._read(source, [file], sum(one.rejected for one in found.values()))
        if rest := [file for file in self._files if file not in found]:
            found |= self._read(self._whole, rest, sum(one.rejected for one in found.values()))
        for file in self._files:
            self._keep([file], found[file])
        return [found[file] for file in self._files]

    def _read_and_check(self, whole: OpenedSource) -> list[Found]:
        """Read each file, assuming the types of `whole`. Raise OtherKindsError if the sampled types were wrong."""
        self._whole = whole
        self._set_columns(_columns(whole.schema), whole.left_out)
        if whole.sample is None:
            return self._read_files()
        try:
            choose_rows(pa.RecordBatch.from_pylist([], schema=whole.schema), self._options, "", BadRows())
        except InfeedError as error:  # the filter may fit the types of all rows
            raise OtherKindsError(None) from error
        found = self._read(whole, self._files, 0)
        for file in self._files:
            self._keep([file], found[file])
        return [found[file] for file in self._files]

    def _read(self, source: OpenedSource, of: Sequence[files.FileStat], rejected: int) -> dict[files.FileStat, Found]:
        """Read some files on a suitable number of processes.

        `rejected` bad rows of other files count toward the limit.
        """
        by_path = {file.path: file for file in of}
        chosen = (task for task in source.tasks if _path_of(task) in by_path)
        tasks = [(task, number) for _, group in groupby(chosen, key=_path_of) for number, task in enumerate(group)]
        # If the label is not a column, the survey reports it with the columns and their values.
        labeled = tuple(name for name in self._options.labeled if name in self.names)
        read = _ReadTask(
            # Without its tasks, because the reader is pickled for the worker processes.
            replace(source, tasks=(), reopen=None, sample=None),
            replace(self._options, labeled=labeled),
            max(_LEAST_SAMPLED, 2 * ROWS // max(len(tasks), 1)),
            is_divided=not self._patterns,
        )
        found, findings = dict.fromkeys(of, Found()), list[tuple[int, Findings | None]]()
        work = Work("looks through", len(tasks), sum(file.size for file in of), machine.SURVEY_BYTES, noun="task")
        with choose(work) as engine:
            parts = zip(tasks, engine.map(read, tasks), strict=True)
            for path, group in groupby(parts, key=lambda pair: _path_of(pair[0][0])):
                tree = Tree[Found](lambda one, two: Found.of([one, two], 2 * ROWS))
                for (task, _), part in group:
                    rejected += part.found.rejected
                    findings.append((task.order, part.findings))
                    if part.last_bad:
                        line = shifted(part.last_bad, line_offsets(findings).get(task.order, 0))
                        check_limit(rejected, self._options.bad_row_limit, line.where)
                    tree.add(part.found)
                of_file = tree.result()
                found[by_path[path]] = replace(of_file, statistics=of_file.statistics.collapse())
        if source.sample:
            check_found([one for _, one in findings if one], source.sample)
        return found

    def _kept(self, of: Sequence[files.FileStat]) -> Found | None:
        key = self._key(of) if _is_worth_keeping(of) else ""
        statistics = kept_statistics(key, CACHE_DIR) if key else None
        shapes, sample = (kept_file(CACHE_DIR, name) for name in _beside(key))
        if statistics is None or shapes is None or sample is None:
            return None
        try:
            beside = schema.read_json(_Shapes, shapes)
            rows = from_bytes(sample)
            return Found(statistics, rows, beside.columns, 0, beside.unlabeled, beside.codes, cut=beside.cut)
        except (OSError, ValueError):  # a file is damaged
            return None

    def _keep(self, of: Sequence[files.FileStat], found: Found) -> None:
        if _is_worth_keeping(of) and found.can_be_kept:
            key = self._key(of)
            shapes, sample = _beside(key)
            keep_statistics(found.statistics, key, CACHE_DIR)
            keep_file(CACHE_DIR, sample, to_bytes(found.sample))
            keep_file(CACHE_DIR, shapes, _json(_Shapes(found.shapes, found.codes, found.unlabeled, found.cut)))

    def _key(self, of: Sequence[files.FileStat]) -> str:
        return digest([*self._read_as, repr(self._every), *map(repr, of)])


def check_named(names: Collection[str], options: IngestOptions) -> None:
    """Raise InfeedError if the options name a column that does not exist."""
    rule = options.split_by
    asked = {
        "columns to keep": options.columns or (),
        "columns to drop": options.drop,
        "required columns": options.required,
        f"split by {rule.how}" if rule else "": columns_of(rule),
        "balance": (options.balance.label,) if options.balance else (),
    }
    for where, columns in asked.items():
        schema.check_known(columns, names, where, "column")


def _columns(found: pa.Schema) -> tuple[Column, ...]:
    return tuple(Column(field.name, str(field.type), example_types.is_list(field.type)) for field in found)


def _united(some: Mapping[str, CellShapes], others: Mapping[str, CellShapes]) -> dict[str, CellShapes]:
    return {**some, **{name: some.get(name, CellShapes()) + one for name, one in others.items()}}


def _summed(counts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Add up counts of the same splits. Counts of no rows are empty."""
    return tuple(map(sum, zip(*filter(None, counts), strict=True)))


def _json(found: _Look | _Shapes) -> bytes:
    return json.dumps(schema.to_plain(found)).encode()


def _beside(key: str) -> tuple[str, str]:
    """Return the cache files stored with the statistics of this key: shapes and sample."""
    return f"shapes-{key}.json", f"sample-{key}.arrow"


def _is_worth_keeping(of: Sequence[files.FileStat]) -> bool:
    return sum(file.size for file in of) >= _KEPT_BYTES


def _path_of(task: Task) -> str:
    return task.payload.file.path  # type: ignore[no-any-return]
