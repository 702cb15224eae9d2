"""Stages that keep all rows of a split as columns, and stages that gather batches by row number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from infeed.components.feed.capacity import Window
from infeed.components.feed.options import GlobalBatch
from infeed.components.feed.sampling import Group, SamplingWeights, group_rows
from infeed.components.feed.stages.base import BuildContext

if TYPE_CHECKING:
    import tensorflow as tf

    from infeed.components.feed.columns import Columns
    from infeed.components.feed.row_batches import RowBatches

_LABELS_A_CALL = 1 << 16


@dataclass(frozen=True)
class CacheRecords:
    """Keep serialized records as one column, so that each epoch repeats only parsing."""

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
    """Keep columns in files under `cache_dir`. Later trainings on the same data reuse the files.

    Attributes:
      cache_dir: a local folder.
      kept_bytes: estimated size of the columns.
      decoded: whether the columns hold decoded features or serialized records.
    """

    cache_dir: str
    kept_bytes: float
    decoded: bool = True

    name = "disk"

    @property
    def does(self) -> str:
        what = "every feature as one column" if self.decoded else "the serialized records"
        return f"keeps {what} in files under {self.cache_dir}, mapped into memory"

    @property
    def reason(self) -> str:
        done = "parsed or decoded" if self.decoded else "read or unpacked"
        return f"nothing is {done} twice, not even by the next training on the same data"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> Columns:
        from infeed.components.feed import disk

        assert context.functions.key, "the plan keeps columns on disk, so the functions must have a key"
        # The key covers the data and the functions, so that no other split or graph uses these columns.
        shards = [shard.identity for shard in context.shards]
        made_of = json.dumps([disk.FORMAT, shards, context.functions.key, str(before.element_spec)])
        key = hashlib.sha256(made_of.encode()).hexdigest()[:32]
        return disk.cache_columns(before, self.cache_dir, key, self.kept_bytes)


@dataclass(frozen=True)
class GatherShuffled:
    """Gather endless full training batches.

    Attributes:
      size: rows of a global batch.
      batches: batches gathered in one call. `SplitBatches` splits them.
      window: rows shuffled together; None for all.
      weights: sampling weights; None uses each row once per epoch.
    """

    size: int
    batches: int = 1
    window: Window | None = None
    weights: SamplingWeights | None = None

    name = "gather"

    @property
    def does(self) -> str:
        does = f"gathers {self.size:,} rows at a time"
        if self.weights:
            does += f", drawn by share and shuffled by seed and epoch: {self.weights.describe()}"
        elif self.window:
            does = (
                f"permutes blocks of {self.window.block:,} rows and shuffles the rows of {self.window.blocks:,} blocks "
                f"together, by seed and epoch; {does}"
            )
        else:
            does += ", in an order of all rows made from seed and epoch"
        return f"{does}, {self.batches} batches in a call" if self.batches > 1 else does

    @property
    def reason(self) -> str:
        if self.weights:
            return f"set by {self.weights.option}; each cycles through its own rows, none twice before all others"
        if self.window:
            return f"{self.window.rows:,} rows fit in memory, so each part of the files is read once an epoch"
        return "an exact shuffle for a few bytes a row, and static shapes"

    def apply(self, before: Columns, context: BuildContext) -> tf.data.Dataset:
        import tensorflow as tf

        from infeed.components.feed.columns import training_rows

        rows = training_rows(  # int64 [batch]
            before.rows,
            context.batch,
            start_step=context.start_step,
            window=self.window,
            groups=_groups(before, self.weights, context),
        )
        if self.batches > 1:
            several = rows.batch(self.batches, drop_remainder=True)
            rows = several.map(lambda some: tf.reshape(some, [-1]))  # int64 [batches * batch]
        return context.mapped(rows, before.take)


@dataclass(frozen=True)
class GatherInStep:
    """Hand row numbers to the training steps, which gather endless full batches.

    Attributes:
      size: rows of a global batch.
      weights: sampling weights; None uses each row once per epoch.
    """

    size: int
    weights: SamplingWeights | None = None

    name = "gather"
    reason = "steps gather rows from local memory, and row numbers are cheaper to transfer than batches"

    @property
    def does(self) -> str:
        order = f"drawn by share: {self.weights.describe()}" if self.weights else "an exact shuffle"
        return (
            f"hands over the row numbers of all steps of a call, {order}, in an order made from seed and epoch; "
            f"the graph of the steps gathers their rows, {self.size:,} a step"
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
    reason = "each step gathers its rows where it runs, so only row numbers travel"

    @property
    def does(self) -> str:
        return f"copies the columns to {', '.join(':'.join(one.split(':')[-2:]) for one in self.devices)}, once"

    def apply(self, before: RowBatches, context: BuildContext) -> RowBatches:
        return before.on_devices(self.devices)


@dataclass(frozen=True)
class GatherInOrder:
    """Gather every row once and in order, for evaluation."""

    size: int

    name = "gather"
    reason = "evaluation data is complete: the last short batch is kept"

    @property
    def does(self) -> str:
        return f"gathers {self.size:,} rows at a time, in order"

    def apply(self, before: Columns, context: BuildContext) -> tf.data.Dataset:
        from infeed.components.feed.columns import evaluation_rows

        return context.mapped(evaluation_rows(before.rows, context.batch), before.take)


def _groups(columns: Columns, weights: SamplingWeights | None, context: BuildContext) -> list[Group]:
    """Return the rows of each split or of each class; empty without weights."""
    from infeed.components.feed.columns import evaluation_rows

    if not weights:
        return []
    if weights.by == "split":
        places = [weights.names.index(shard.split) for shard in context.shards]
        keys = np.repeat(places, [shard.records for shard in context.shards])
    else:
        rows = evaluation_rows(columns.rows, GlobalBatch(_LABELS_A_CALL))
        keys = np.concatenate(list(rows.map(lambda some: _labels(columns.take(some), context)).as_numpy_iterator()))
    return group_rows(keys, weights)


def _labels(kept: Any, context: BuildContext) -> tf.Tensor:
    """Return the labels of kept rows, decoded or serialized."""
    batch = kept if isinstance(kept, tuple) else context.functions.transform(context.functions.parse(kept))
    return batch[1]
