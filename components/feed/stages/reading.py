"""Stages that read and shuffle records without row numbers: files, windows of records, mixed splits.

Their elements are blocks of serialized records, string [block] or shorter, because handling single records costs more
than reading them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted
from infeed.components.dataset.files import tensorflow_opens
from infeed.components.dataset.records import is_gzip
from infeed.components.feed.sampling import SamplingWeights, apportion
from infeed.components.feed.shards import RecordRange, check_files, stored_blocks
from infeed.components.feed.stages.base import BuildContext, EpochReader

if TYPE_CHECKING:
    import tensorflow as tf

_READ_BUFFER_BYTES = 8 << 20


@dataclass(frozen=True)
class VerifyFiles:
    """Raise InfeedError if a file that this worker reads is missing, damaged or replaced.

    `cache_dir` stores which files are verified. `weights` are split weights if the workers share each split separately.
    """

    cache_dir: str
    weights: SamplingWeights | None = None

    name = "verify"
    does = "compares each file with its checksum, once"
    reason = "damaged or replaced files are reported, not read"

    def apply(self, before: None, context: BuildContext) -> None:
        ranges = itertools.chain(*context.ranges_of_splits(self.weights)) if self.weights else context.ranges
        # The reader of other stores verifies each record, and another pass would double the traffic.
        read = {one.path for one in ranges if tensorflow_opens(one.path)}
        check_files([shard for shard in context.shards if shard.path in read], self.cache_dir)


@dataclass(frozen=True)
class ListShards:
    """List the files of this worker in order."""

    shards: int
    reason: str

    name = "shards"

    @property
    def does(self) -> str:
        return f"lists {counted(self.shards, 'shard')} in order"

    def apply(self, before: None, context: BuildContext) -> tf.data.Dataset:
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices(_tensors(context.ranges))


@dataclass(frozen=True)
class PermuteShards:
    """Permute the files of this worker in each epoch. With `weights`, permute each split separately."""

    shards: int
    weights: SamplingWeights | None = None

    name = "shards"
    reason = "neighbors on disk must not stay neighbors in training"

    @property
    def does(self) -> str:
        separately = ", separately in each split" if self.weights else ""
        return f"permutes {counted(self.shards, 'shard')} by seed and epoch{separately}"

    def apply(self, before: None, context: BuildContext) -> list[EpochReader]:
        import tensorflow as tf

        def permuted(ranges: Sequence[RecordRange], epoch: tf.Tensor) -> tf.data.Dataset:
            # Dataset.shuffle adds TensorFlow's global seed, and fails in a function if that seed is 0.
            order = tf.random.experimental.stateless_shuffle(tf.range(len(ranges)), context.derive_seed(epoch, 0))
            return tf.data.Dataset.from_tensor_slices(tuple(tf.gather(field, order) for field in _tensors(ranges)))

        splits = context.ranges_of_splits(self.weights) if self.weights else [context.ranges]
        return [partial(permuted, ranges) for ranges in splits]


@dataclass(frozen=True)
class ReadShards:
    """Read files in their order."""

    readers: int  # shards read in parallel
    block: int  # records per block
    longest: int  # records of the longest shard
    reason: str  # reason for the number of readers
    advice: str = ""  # advice on shards of uneven sizes, if any

    name = "read"

    @property
    def does(self) -> str:
        blocks = f"in blocks of {self.block:,} records, in file order"
        return f"reads {counted(self.readers, 'shard')} at a time, {blocks}"

    @property
    def in_a_row(self) -> int:
        """Blocks read from one shard before the next. The longest shard fits, so parallel readers keep the order."""
        return -(-self.longest // self.block)

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        return _read(before, context, self.readers, self.block, self.in_a_row)


@dataclass(frozen=True)
class InterleaveShards:
    """Read several files in parallel, a block of each in turn. Fields are those of `ReadShards`."""

    readers: int
    reason: str
    block: int = 256  # large enough for low overhead, small enough to mix the records of different files
    advice: str = ""

    name = "read"

    @property
    def does(self) -> str:
        return f"interleaves {counted(self.readers, 'shard')} at a time, in blocks of {self.block:,} records"

    def apply(self, before: list[EpochReader], context: BuildContext) -> list[EpochReader]:
        def blocks(files: EpochReader, epoch: tf.Tensor) -> tf.data.Dataset:
            return _read(files(epoch), context, self.readers, self.block, in_a_row=1)

        return [partial(blocks, files) for files in before]


@dataclass(frozen=True)
class ShuffleWindows:
    """Shuffle each window of records. `size_reason` explains the window size."""

    window: int
    size_reason: str

    name = "shuffle"

    @property
    def does(self) -> str:
        return f"shuffles windows of up to {self.window:,} records"

    @property
    def reason(self) -> str:
        return f"{self.size_reason}; before batching, so that batches differ between epochs"

    def apply(self, before: list[EpochReader], context: BuildContext) -> EpochReader:
        (blocks,) = before
        windows = -(-context.records // self.window)
        rows = -(-context.records // windows)  # windows of equal size, because a very short window would shuffle little

        def shuffled(epoch: tf.Tensor) -> tf.data.Dataset:
            windows = blocks(epoch).rebatch(rows).enumerate()  # string [rows], or fewer
            # Seed 0 of the epoch is used to shuffle the files.
            return windows.map(lambda number, records: _shuffled(records, context.derive_seed(epoch, 1 + number)))

        return shuffled


@dataclass(frozen=True)
class SampleSplits:
    """Fill each window with records of every split in proportion to the weights, and shuffle the window."""

    window: int
    weights: SamplingWeights

    name = "mix"

    @property
    def does(self) -> str:
        return f"samples windows of {self.window:,} records by share and shuffles each: {self.weights.describe()}"

    @property
    def reason(self) -> str:
        return f"set by {self.weights.option}; each split cycles through its records"

    def apply(self, before: list[EpochReader], context: BuildContext) -> tf.data.Dataset:
        import tensorflow as tf

        # Every window takes the same number of records of a split, so a resumed training computes where each stopped.
        number, taken = divmod(context.first_record, self.window)
        counts = apportion(self.weights.weights, self.window)  # records of each split per window
        for name, weight, count in zip(self.weights.names, self.weights.weights, counts, strict=True):
            if weight and not count:
                what = f"windows of {self.window:,} records contain none of the split {name!r}"
                do = "increase its share or FeedOptions.shuffle_records"
                raise InfeedError(what, where=self.weights.option, do=do)
        splits = zip(before, counts, context.ranges_of_splits(self.weights), strict=True)
        parts = [_endless(blocks, count, number, ranges) for blocks, count, ranges in splits if count]
        windows = tf.data.Dataset.zip(tuple(parts)).map(lambda *some: tf.concat(some, axis=0)).enumerate(number)
        # No epoch has number -1, so no seed is reused.
        no_epoch = tf.constant(-1, tf.int64)
        shuffled = windows.map(lambda place, records: _shuffled(records, context.derive_seed(no_epoch, place)))
        return _without_first(shuffled, taken)  # string [window]


@dataclass(frozen=True)
class Repeat:
    """Repeat the records for endless epochs, starting at the first batch of the training."""

    name = "repeat"
    does = "repeats endlessly"
    reason = "no batch is short, and no step waits at the end of an epoch"

    def apply(self, before: EpochReader, context: BuildContext) -> tf.data.Dataset:
        import tensorflow as tf

        epoch, taken = divmod(context.first_record, context.records)
        return _without_first(tf.data.Dataset.counter(epoch).flat_map(before), taken)


@dataclass(frozen=True)
class ReadAhead:
    """Prefetch the next window."""

    name = "prefetch"
    does = "reads the next window while the current one is used"
    reason = "training does not wait at the end of a window"

    def apply(self, before: tf.data.Dataset, context: BuildContext) -> tf.data.Dataset:
        return before.prefetch(1)


def _tensors(ranges: Sequence[RecordRange]) -> tuple[tf.Tensor, ...]:
    """Return the fields of the ranges, [ranges] each."""
    import tensorflow as tf

    types = {"path": tf.string, "skip": tf.int64, "records": tf.int64, "to_end": tf.bool}
    return tuple(tf.constant([getattr(one, name) for one in ranges], kind) for name, kind in types.items())


def _read(files: tf.data.Dataset, context: BuildContext, readers: int, block: int, in_a_row: int) -> tf.data.Dataset:
    """Read ranges of files as blocks of records, string [block] or shorter, `in_a_row` blocks per file in turn."""
    import tensorflow as tf

    paths = dict.fromkeys(one.path for one in context.ranges)
    opens = all(map(tensorflow_opens, paths))
    compressed = {is_gzip(path) for path in paths} if opens else set[bool]()
    compression = "GZIP" if True in compressed else ""

    def blocks_of(path: tf.Tensor, skip: tf.Tensor, records: tf.Tensor, to_end: tf.Tensor) -> tf.data.Dataset:
        read = tf.data.TFRecordDataset(path, compression_type=compression, buffer_size=_READ_BUFFER_BYTES)
        # Read to the end of the file, so that records beyond the manifest's count raise an error.
        read = read.skip(skip).take(tf.where(to_end, tf.constant(-1, tf.int64), records))
        return read.apply(tf.data.experimental.assert_cardinality(records)).batch(block)

    def stored_blocks_of(path: tf.Tensor, skip: tf.Tensor, records: tf.Tensor, to_end: tf.Tensor) -> tf.data.Dataset:
        stop = tf.where(to_end, tf.constant(-1, tf.int64), skip + records)
        return stored_blocks(path, skip, stop, records).rebatch(block)

    # With mixed files, the graph determines the compression of each.
    reader = blocks_of if len(compressed) == 1 else stored_blocks_of
    return files.interleave(reader, cycle_length=readers, block_length=in_a_row, num_parallel_calls=readers)


def _endless(blocks: EpochReader, count: int, window: int, ranges: Sequence[RecordRange]) -> tf.data.Dataset:
    """Yield `count` records of a split per window, string [count], starting at a given window, and repeat the split."""
    import tensorflow as tf

    epoch, taken = divmod(window * count, sum(one.records for one in ranges))
    endless = _without_first(tf.data.Dataset.counter(epoch).flat_map(blocks), taken)
    return endless.rebatch(count, drop_remainder=True)


def _shuffled(records: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.gather(records, tf.random.experimental.stateless_shuffle(tf.range(tf.size(records)), seed))


def _without_first(blocks: tf.data.Dataset, records: int) -> tf.data.Dataset:
    """Skip the first `records` records of the blocks, string [n] each."""
    import tensorflow as tf

    def rest(left: tf.Tensor, block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        here = tf.minimum(left, tf.size(block, tf.int64))
        return left - here, block[here:]

    return blocks.scan(tf.constant(records, tf.int64), rest) if records else blocks
