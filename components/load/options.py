"""Options of `infeed.load`, and the printed plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from infeed.components.base.checks import about, as_tuples, at_least, is_whole, refused, require
from infeed.components.base.errors import InfeedError, OptionError
from infeed.components.base.units import counted, size
from infeed.components.dataset.cache import CACHE_DIR
from infeed.components.feed.options import SINGLE_WORKER, GlobalBatch, WorkerContext
from infeed.components.load.delivery import Lengths, Rule
from infeed.components.load.order import BatchOrder, Remainder
from infeed.components.load.pictures import PictureOptions


@contextmanager
def arguments() -> Iterator[None]:
    """Report errors of an option at the argument of `infeed.load` that sets it."""
    try:
        yield
    except OptionError as error:
        where = f"infeed.load, {error.option}"
        raise OptionError(error.what, where=where, do=error.do, option=error.option) from error


def whole_number(value: Any, least: int, where: str) -> None:
    """Raise InfeedError unless an argument is an integer of at least `least`."""
    if not is_whole(value) or value < least:
        name = where.rpartition(" ")[2]
        raise InfeedError(f"{name} is {value!r}", where=where, do=f"use an integer of at least {least}")


@dataclass(frozen=True)
class LoadOptions:
    """Options of `infeed.load`.

    Attributes:
      batch_size: number of records in a global batch, over all workers.
      seed: seed of the shuffle. The same seed gives the same batches.
      shuffle: whether each epoch is a new permutation of all records, in whole batches. An epoch omits the records that
        do not fill its last batch. If False, the records are read once, in order, and the last batch may be short.
      workers: (index, count) of this worker. Each worker reads its part of every global batch.
      columns: names of the features to read. None for all.
      start_step: number of the first batch, counted from the beginning of training.
      on_missing: handling of missing values in columns of single values. "mark": NaN in float columns, None in text
          columns (in TensorFlow an empty string), and integer columns become Ragged. "fill": 0 and the empty string.
          "ragged":
        text and integer columns become Ragged. "error": raise an error. {column: value}: use this value; other columns
        behave as with "mark".
      cache_dir: local folder that caches the decoded columns for later calls.
      drop_remainder: whether to leave out a last batch that is not full. A shuffled epoch always does.
      pad_remainder: whether to pad the last batch with copies of its last row, of weight 0. Batches are then
        (features, label, weight). Without a label, the weight is the feature `sample_weight`. Requires shuffle=False.
      length: number of values of each list, so that columns of lists are dense: [batch, length]. Longer rows are cut,
        shorter ones padded with 0 or the empty text. {column: length} applies to the columns that it names. Of several
        lengths, such as (32, 128), a batch has the smallest that holds its longest row.
      pictures: how encoded pictures are decoded. By default, they are not.
    """

    batch_size: int = 128
    seed: int = 0
    shuffle: bool = True
    workers: WorkerContext | tuple[int, int] = SINGLE_WORKER
    columns: Sequence[str] | None = None
    start_step: int = 0
    on_missing: Rule | Mapping[str, str | bytes | float] = "mark"
    cache_dir: str | os.PathLike[str] = CACHE_DIR
    drop_remainder: bool = False
    pad_remainder: bool = False
    length: Lengths = None
    pictures: PictureOptions = field(default_factory=PictureOptions)

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("seed", None), ("start_step", 0)):
            value = getattr(self, name)
            require(is_whole(value), self, name, "use an integer")
            object.__setattr__(self, name, int(value))  # a step may be a NumPy integer
            if least is not None:
                at_least(self, least, name)
        for name in ("shuffle", "drop_remainder", "pad_remainder"):
            require(isinstance(getattr(self, name), bool), self, name, "use True or False")
        do = "use it with shuffle=False, without drop_remainder"
        require(not (self.pad_remainder and (self.shuffle or self.drop_remainder)), self, "pad_remainder", do)
        require(-(1 << 63) <= self.seed < 1 << 63, self, "seed", "use an integer of 64 bits")
        as_tuples(self, "columns")
        names = self.columns
        are_names = isinstance(names, tuple) and names and all(isinstance(name, str) for name in names)
        require(names is None or are_names, self, "columns", 'list the features, for example ["fare", "tips"]')
        is_rule = isinstance(self.on_missing, Mapping) or self.on_missing in get_args(Rule)
        do = f"use one of {', '.join(get_args(Rule))}, or {{column: value}}"
        require(is_rule, self, "on_missing", do)
        require(isinstance(self.cache_dir, str | os.PathLike), self, "cache_dir", "use a local folder")
        object.__setattr__(self, "cache_dir", os.fspath(self.cache_dir))
        if not isinstance(self.workers, WorkerContext):
            is_pair = isinstance(self.workers, tuple | list) and len(self.workers) == 2
            are_numbers = is_pair and all(map(is_whole, self.workers))
            require(are_numbers, self, "workers", "use the index of this worker and the number of workers: (0, 4)")
            try:
                object.__setattr__(self, "workers", WorkerContext(*map(int, self.workers)))
            except InfeedError as error:
                raise refused(self, "workers", error.do, error.what) from error

    def order(self, rows: int, epochs: int | None = None) -> BatchOrder:
        """Return the row numbers of this worker's batches."""
        assert isinstance(self.workers, WorkerContext), "created by `__post_init__`"
        batch = GlobalBatch(self.batch_size, self.seed, self.workers)
        with arguments():
            with about(self, "batch_size"):
                _ = batch.part  # raises if the workers cannot share a batch
            remainder: Remainder = "drop" if self.drop_remainder else "pad" if self.pad_remainder else "short"
            return BatchOrder(rows, batch, self.shuffle, self.start_step, epochs, remainder)


@dataclass(frozen=True)
class LoadPlan:
    """Plan of the batches. When printed, each decision and its reason is a line.

    Attributes:
      column_bytes: size of the columns in `folder`.
      remainder: whether a last batch that is not full is short, left out ("drop") or padded ("pad").
      pictures: what decodes the pictures of each batch, or an empty text.
      maps, threads: names of the functions on each batch, and the number of threads that decode and call them.
      processes: number of processes that do so instead of threads, or 0.
      lists: number of features that are feature lists of SequenceExamples.
      limit: the stage that takes most of the CPU time, and the rate that it allows. Empty before the first batch, and
        with processes.
    """

    place: str
    split: str
    files: int
    file_bytes: int
    records: int
    features: int
    column_bytes: int
    folder: str
    batch_size: int
    seed: int
    shuffle: bool
    steps_per_epoch: int
    remainder: str = "short"
    pictures: str = ""
    maps: tuple[str, ...] = ()
    threads: int = 1
    processes: int = 0
    lists: int = 0
    limit: str = ""

    def describe(self) -> str:
        order = (
            f"a new permutation of all rows in each epoch, by seed {self.seed}"
            if self.shuffle
            else "the order of the files"
        )
        lists = f", {counted(self.lists, 'feature list')} of SequenceExamples among them" if self.lists else ""
        short = "whole batches" if self.shuffle or self.remainder != "short" else "the last batch may be short"
        return "\n".join(
            [
                f"split {self.split!r} of {self.place}: {counted(self.records, 'record')} in "
                f"{counted(self.files, 'file')}, {size(self.file_bytes)}",
                f"1. decode  reads {counted(self.features, 'feature')} of every record{lists}, once: batches are "
                "gathered from columns",
                f"2. keep    holds them in {size(self.column_bytes)} of files in {self.folder}, mapped into "
                "memory: nothing is decoded twice, and the system can reclaim the memory",
                f"3. order   makes {order}, in {short}: any step of any worker can be recomputed",
                f"4. gather  takes {self.batch_size:,} rows at a time, {self.steps_per_epoch:,} batches an epoch: one "
                "call for all numbers of a type, and for several small batches",
                *self._mapped(),
            ]
        )

    def _mapped(self) -> Iterator[str]:
        workers = counted(self.processes, "process") if self.processes else counted(self.threads, "thread")
        is_ahead = self.processes or self.threads > 1
        where = f"on {workers}, in advance and in order" if is_ahead else "between steps"
        stages = [self.pictures, f"map     calls {', '.join(self.maps)}" if self.maps else ""]
        lines = [f"{stage} {where}" for stage in stages if stage]
        for number, line in enumerate([*lines, *([f"limit   {self.limit}"] if self.limit else [])], 5):
            yield f"{number}. {line}"

    def __str__(self) -> str:
        return self.describe()
