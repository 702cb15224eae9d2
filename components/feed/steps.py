"""The steps a plan is made of, each in words: what it does, and why there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from infeed.components.feed.capacity import Capacity, Window
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.shards import ShardFile

# Records decoded at a time where the batches of training come later; larger ones gained nothing.
_DECODE_BATCH = 1024
# Records read in a row from one shard before turning to the next: turning after sixteen made reading twice as dear.
_BLOCK_LENGTH = 256


@dataclass(frozen=True)
class Step:
    """One step of the pipeline. `name` is what `build` looks up, `settings` what it is called with."""

    name: str
    does: str
    reason: str
    settings: dict[str, Any] = field(default_factory=dict)


def shards_in_order(shards: Sequence[ShardFile], reason: str) -> Step:
    return Step("shards", f"lists {_shards(len(shards))} in order", reason, {"permute": False})


def shards_permuted(shards: Sequence[ShardFile]) -> Step:
    does = f"permutes {_shards(len(shards))} by seed and epoch"
    return Step("shards", does, "neighbours on disk do not stay neighbours in training", {"permute": True})


def read(shards: Sequence[ShardFile], capacity: Capacity, *, in_order: bool) -> Step:
    asked = capacity.options.readers
    readers = min(len(shards), asked or capacity.machine.cpus)
    why = "asked for in FeedOptions.readers" if asked else "one reader a core"
    if readers == len(shards):
        why = "as many as there are shards"
    does = f"{'reads' if in_order else 'interleaves'} {_shards(readers)} at a time"
    if in_order:
        does += ", records in the order of the files"
    # A block as long as the longest shard makes readers work ahead without mixing what they read.
    block = max(shard.records for shard in shards) if in_order else _BLOCK_LENGTH
    return Step("read", does, why, {"readers": readers, "block": block})


def cache(reason: str) -> Step:
    return Step("cache", "keeps the serialized records in memory after the first epoch", reason)


def shuffle(size: int, reason: str) -> Step:
    does = f"draws from a buffer of {size:,} records, anew each epoch"
    return Step("shuffle", does, f"{reason}; before batching, so that batches differ between epochs", {"buffer": size})


def repeat() -> Step:
    return Step("repeat", "goes round without end", "no batch is cut short and no step waits at the end of an epoch")


def batch(size: int, reason: str, *, drop: bool) -> Step:
    return Step("batch", f"gathers {size:,} records", reason, {"size": size, "drop_remainder": drop})


def decode_batch() -> Step:
    return batch(_DECODE_BATCH, "parsing and decoding are vectorised, so they want large batches", drop=False)


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


def gather_shuffled(capacity: Capacity, window: Window | None) -> Step:
    rows, batches = capacity.options.batch_size, capacity.batches_a_call()
    does = f"gathers {rows:,} rows at a time, in an order of all rows made from seed and epoch"
    reason = "an exact shuffle for a few bytes a row, and static shapes"
    if window:
        does = (
            f"permutes blocks of {window.block:,} rows and shuffles the rows of {window.blocks:,} blocks together, "
            f"by seed and epoch; gathers {rows:,} rows at a time"
        )
        reason = f"{window.rows:,} rows fit in memory, so each part of the files is read once an epoch"
    if batches > 1:
        does, reason = f"{does}, {batches} batches in a call", f"{reason}; a call costs more than a small batch"
    return Step("gather", does, reason, {"shuffle": True, "window": window, "batches": batches})


def gather_in_order(options: FeedOptions) -> Step:
    does = f"gathers {options.batch_size:,} rows at a time, in order"
    return Step("gather", does, "evaluation data is complete: the last short batch is kept", {"shuffle": False})


def augment(does: str) -> Step:
    return Step(
        "augment", does, "random work comes after the cache, seeded by the step, so a run can be repeated exactly"
    )


def normalise(does: str) -> Step:
    return Step("normalise", does, "the same numbers in training, evaluation and serving")


def prefetch() -> Step:
    return Step(
        "prefetch", "prepares the next batches while the step runs", "last, so that every step above overlaps it"
    )


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"
