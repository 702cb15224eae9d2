"""Stages that keep all rows of a split as columns, and stages that gather batches by row number."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import nearest
from infeed.components.dataset.cache import digest
from infeed.components.feed.capacity import Window, short_name
from infeed.components.feed.options import GlobalBatch
from infeed.components.feed.sampling import Group, SamplingWeights, group_rows
from infeed.components.feed.stages.base import BuildContext

if TYPE_CHECKING:
    import tensorflow as tf

    from infeed.components.feed.columns import Columns
    from infeed.components.feed.row_batches import RowBatches

_ROWS_A_CALL = 1 << 16
_BUCKET_BY = "FeedOptions.bucket_by"


@dataclass(frozen=True)
class CacheRecords:
    """Keep serialized records as one column, so that later epochs only parse."""

    reason: str

    name = "cache"
    does = "holds the serialized records in memory"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> Columns:
        from infeed.components.feed.columns import load_columns

        return load_columns(before)


@dataclass(frozen=True)
class LoadColumns:
    """Keep decoded features in memory."""

    name = "columns"
    does = "holds every feature as one column in memory"
    reason = "nothing is read, parsed or decoded twice"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> Columns:
        from infeed.components.feed.columns import load_columns

        return load_columns(before)


@dataclass(frozen=True)
class CacheColumns:
    """Keep columns in files under `cache_dir`. Later trainings on the same data reuse them."""

    cache_dir: str  # a local folder
    kept_bytes: float  # estimated size of the columns
    decoded: bool = True  # whether the columns hold decoded features or serialized records

    name = "disk"

    @property
    def does(self) -> str:
        what = "every feature as one column" if self.decoded else "the serialized records"
        return f"keeps {what} in files under {self.cache_dir}, mapped into memory"

    @property
    def reason(self) -> str:
        done = "parsed or decoded" if self.decoded else "read or decompressed"
        return f"nothing is {done} twice, not even by the next training on the same data"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> Columns:
        from infeed.components.feed import disk

        assert context.functions.key, "a plan with columns on disk requires functions with a key"
        # The key covers data and functions, so no other split or graph uses these columns.
        shards = [shard.identity for shard in context.shards]
        made_of = json.dumps([disk.FORMAT, shards, context.functions.key, str(before.element_spec)])
        key = digest([made_of])
        return disk.cache_columns(before, self.cache_dir, key, self.kept_bytes)


@dataclass(frozen=True)
class GatherShuffled:
    """Gather endless full training batches."""

    size: int  # rows of a global batch
    batches: int = 1  # batches gathered in one call. `SplitBatches` splits them.
    window: Window | None = None  # rows shuffled together. None for all
    weights: SamplingWeights | None = None  # sampling weights. None uses each row once per epoch
    bucket_by: str | None = None  # feature whose rows have similar lengths within a batch. None for no grouping

    name = "gather"

    @property
    def does(self) -> str:
        does = f"gathers {self.size:,} rows at a time"
        if self.weights:
            does += f", sampled by share and shuffled by seed and epoch: {self.weights.describe()}"
        elif self.window:
            does = (
                f"permutes blocks of {self.window.block:,} rows and shuffles the rows of {self.window.blocks:,} blocks "
                f"together, by seed and epoch; {does}"
            )
        else:
            does += ", in a permutation of all rows by seed and epoch"
        if self.bucket_by:
            does += f", each batch of similar lengths of {self.bucket_by!r}"
        return f"{does}, {self.batches} batches in a call" if self.batches > 1 else does

    @property
    def reason(self) -> str:
        if self.weights:
            return f"set by {self.weights.option}; each cycles through its rows, so none repeats before all others"
        if self.window:
            return f"{self.window.rows:,} rows fit in memory, so each part of the files is read once an epoch"
        return "an exact shuffle for a few bytes per row, and static shapes"

    def apply(self, before: Columns, context: BuildContext) -> tf.data.Dataset:
        import tensorflow as tf

        from infeed.components.feed.columns import training_rows

        rows = training_rows(  # int64 [batch]
            before.rows,
            context.batch,
            start_step=context.start_step,
            window=self.window,
            groups=_groups(before, self.weights, context),
            lengths=_lengths(before, self.bucket_by, context) if self.bucket_by else None,
        )
        if self.batches > 1:
            several = rows.batch(self.batches, drop_remainder=True)
            rows = several.map(lambda some: tf.reshape(some, [-1]))  # int64 [batches * batch]
        return context.mapped(rows, before.take)


@dataclass(frozen=True)
class GatherInStep:
    """Pass row numbers to the training steps, which gather full batches. Fields as in `GatherShuffled`."""

    size: int
    weights: SamplingWeights | None = None

    name = "gather"
    reason = "steps gather rows from local memory, and row numbers are cheaper to pass than batches"

    @property
    def does(self) -> str:
        order = f"sampled by share: {self.weights.describe()}" if self.weights else "an exact shuffle"
        return (
            f"passes the row numbers of all steps of a call, {order}, in an order computed from seed and "
            f"epoch; the graph of the steps gathers their rows, {self.size:,} a step"
        )

    def apply(self, before: Columns, context: BuildContext) -> RowBatches:
        from infeed.components.feed.columns import training_calls
        from infeed.components.feed.row_batches import RowBatches

        calls = partial(
            training_calls,
            before.rows,
            context.batch,
            start_step=context.start_step,
            groups=_groups(before, self.weights, context),
        )
        return RowBatches(before, calls, context.start_step)


@dataclass(frozen=True)
class PlaceColumns:
    """Copy the columns to the named devices, where the steps gather their rows."""

    devices: tuple[str, ...]

    name = "device"
    reason = "each step gathers rows on its device, so only row numbers are transferred"

    @property
    def does(self) -> str:
        return f"copies the columns once to {', '.join(map(short_name, self.devices))}"

    def apply(self, before: RowBatches, context: BuildContext) -> RowBatches:
        return before.on_devices(self.devices)


@dataclass(frozen=True)
class GatherInOrder:
    """Gather every row once and in order, for evaluation."""

    size: int

    name = "gather"
    reason = "evaluation data is complete: the last, short batch is kept"

    @property
    def does(self) -> str:
        return f"gathers {self.size:,} rows at a time, in order"

    def apply(self, before: Columns, context: BuildContext) -> tf.data.Dataset:
        from infeed.components.feed.columns import evaluation_rows

        return context.mapped(evaluation_rows(before.rows, context.batch), before.take)


def _groups(columns: Columns, weights: SamplingWeights | None, context: BuildContext) -> list[Group]:
    """Return the rows of each split or class. Empty without weights."""
    if not weights:
        return []
    if weights.by == "split":
        places = [weights.names.index(shard.split) for shard in context.shards]
        keys = np.repeat(places, [shard.records for shard in context.shards])
    else:
        keys = _of_all_rows(columns, context, lambda batch: batch[1])
    return group_rows(keys, weights)


def _lengths(columns: Columns, name: str, context: BuildContext) -> npt.NDArray[np.int64]:
    """Return the length of each row of a feature, int64 [rows].

    Raises InfeedError if the feature does not exist, or all rows have the same length.
    """
    import tensorflow as tf

    from infeed.components.feed.columns import row_lengths

    def of_batch(batch: Any) -> tf.Tensor:
        if name not in batch[0]:
            do = f"use one of {', '.join(sorted(batch[0]))}"
            raise InfeedError(f"there is no feature {name!r}{nearest(name, batch[0])}", where=_BUCKET_BY, do=do)
        if isinstance(batch[0][name], tf.Tensor) and batch[0][name].shape[1:].is_fully_defined():
            do = "use a feature of lists, such as the words of a text, or leave out the option"
            raise InfeedError(f"all rows of {name!r} have the same length", where=_BUCKET_BY, do=do)
        return row_lengths(batch[0][name])

    return _of_all_rows(columns, context, of_batch)


def _of_all_rows(columns: Columns, context: BuildContext, value: Callable[[Any], tf.Tensor]) -> npt.NDArray[Any]:
    """Return a value for each row, [rows], of decoded or serialized rows."""
    from infeed.components.feed.columns import evaluation_rows

    def of_rows(numbers: tf.Tensor) -> tf.Tensor:
        kept = columns.take(numbers)
        return value(kept if isinstance(kept, tuple) else context.functions.transform(context.functions.parse(kept)))

    rows = evaluation_rows(columns.rows, GlobalBatch(_ROWS_A_CALL))
    return np.concatenate(list(context.mapped(rows, of_rows).as_numpy_iterator()))
