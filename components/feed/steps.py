"""The steps a plan is made of, each in words: what it does, and why there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infeed.components.feed.capacity import Capacity, Window
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.shards import ShardFile
from infeed.components.feed.shares import Shares

# Records read in a row from one shard before turning to the next; they travel together from there on, because what is
# done with records one by one costs more than reading them.
_BLOCK = 256


@dataclass(frozen=True)
class Step:
    """One step of the pipeline. `name` is what `build` looks up, `settings` what it is called with."""

    name: str
    does: str
    reason: str
    settings: dict[str, Any] = field(default_factory=dict)


def shards_in_order(shards: Sequence[ShardFile], reason: str) -> Step:
    return Step("shards", f"lists {_shards(len(shards))} in order", reason, {"permute": False})


def shards_permuted(shards: Sequence[ShardFile], shares: Shares | None) -> Step:
    does = f"permutes {_shards(len(shards))} by seed and epoch"
    if shares:
        does += ", those of each split by themselves"
    why = "neighbours on disk do not stay neighbours in training"
    return Step("shards", does, why, {"permute": True, "shares": shares})


def read(shards: Sequence[ShardFile], capacity: Capacity, *, in_order: bool) -> Step:
    asked = capacity.options.readers
    readers = min(len(shards), asked or capacity.machine.cpus)
    why = "asked for in FeedOptions.readers" if asked else "one reader a core"
    if readers == len(shards):
        why = "as many as there are shards"
    does = f"{'reads' if in_order else 'interleaves'} {_shards(readers)} at a time"
    block = capacity.rows_a_call() if in_order else _BLOCK
    does += f", in blocks of {block:,} records"
    if in_order:
        does += " and in the order of the files"
    # As many blocks in a row as the longest shard has make readers work ahead without mixing what they read.
    in_a_row = -(-max(shard.records for shard in shards) // block) if in_order else 1
    return Step("read", does, why, {"readers": readers, "block": block, "in_a_row": in_a_row})


def cache(reason: str) -> Step:
    return Step("cache", "holds the serialized records in memory", reason)


def shuffle(size: int, reason: str) -> Step:
    does = f"shuffles up to {size:,} records together, window after window"
    return Step("shuffle", does, f"{reason}; before batching, so that batches differ between epochs", {"window": size})


def mix(window: int, shares: Shares) -> Step:
    does = f"draws windows of {window:,} records by share and shuffles each: {shares.describe()}"
    why = f"asked for in {shares.option}; each split goes round its own records without end"
    return Step("mix", does, why, {"window": window, "shares": shares})


def repeat() -> Step:
    return Step("repeat", "goes round without end", "no batch is cut short and no step waits at the end of an epoch")


def read_ahead() -> Step:
    does = "reads the next window while this one is used"
    return Step("prefetch", does, "training does not wait where a window ends", {"elements": 1})


def batch(size: int, reason: str, *, drop: bool) -> Step:
    return Step("batch", f"gathers {size:,} records", reason, {"size": size, "drop_remainder": drop})


def decode_batch(capacity: Capacity) -> Step:
    return batch(capacity.rows_a_call(), "parsing and decoding are vectorised, so they want large batches", drop=False)


def training_batch(capacity: Capacity) -> Step:
    size, batches = capacity.options.batch_size, capacity.batches_a_call()
    why = "static shapes, and the vectorised steps below run once for all of them"
    made = batch(size * batches, why, drop=True)
    return replace(made, does=f"{made.does}, {batches} batches") if batches > 1 else made


def cut(capacity: Capacity) -> Step:
    size, batches = capacity.options.batch_size, capacity.batches_a_call()
    return Step(
        "cut",
        f"cuts {batches} batches of {size:,} out of what was made in one call",
        "a call costs more than a small batch",
        {"batches": batches},
    )


def parse() -> Step:
    return Step("parse", "parses whole batches in parallel", "one vectorised call instead of one a record")


def transform() -> Step:
    return Step("transform", "applies the transform graph to whole batches in parallel", "the same graph as in serving")


def in_memory() -> Step:
    return Step("columns", "holds every feature as one column in memory", "nothing is read, parsed or decoded twice")


def on_disk(capacity: Capacity) -> Step:
    folder = capacity.options.cache_dir
    return Step(
        "disk",
        f"keeps every feature as one column in files under {folder}, mapped into memory",
        "nothing is parsed or decoded twice, not even by the next training on the same data",
        {"folder": folder, "bytes": capacity.decoded},
    )


def gather_shuffled(capacity: Capacity, window: Window | None, shares: Shares | None) -> Step:
    rows, batches = capacity.options.batch_size, capacity.batches_a_call()
    does = f"gathers {rows:,} rows at a time, in an order of all rows made from seed and epoch"
    reason = "an exact shuffle for a few bytes a row, and static shapes"
    if window:
        does = (
            f"permutes blocks of {window.block:,} rows and shuffles the rows of {window.blocks:,} blocks together, "
            f"by seed and epoch; gathers {rows:,} rows at a time"
        )
        reason = f"{window.rows:,} rows fit in memory, so each part of the files is read once an epoch"
    if shares:
        does = f"gathers {rows:,} rows at a time, drawn by share and shuffled by seed and epoch: {shares.describe()}"
        reason = f"asked for in {shares.option}; each goes round its own rows, none twice before all others"
    if batches > 1:
        does = f"{does}, {batches} batches in a call"
    return Step("gather", does, reason, {"shuffle": True, "window": window, "batches": batches, "shares": shares})


def gather_in_order(options: FeedOptions) -> Step:
    does = f"gathers {options.batch_size:,} rows at a time, in order"
    return Step("gather", does, "evaluation data is complete: the last short batch is kept", {"shuffle": False})


def fill(size: int) -> Step:
    does = f"fills the last short batch up to {size:,} rows, of weight 0"
    return Step("fill", does, "the device wants one shape for all batches", {"size": size})


def augment(does: str) -> Step:
    return Step(
        "augment",
        does,
        "random work comes after what is kept, seeded by each picture's place, so a run can be repeated",
    )


def normalise(does: str) -> Step:
    return Step("normalise", does, "the same numbers in training, evaluation and serving")


def prefetch() -> Step:
    reason = "last, so that every step above overlaps it"
    return Step("prefetch", "prepares the next batches while the step runs", reason, {"elements": None})


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"
