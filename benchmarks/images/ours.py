"""tfx-infeed: the same TFRecord shards through the feed engine.

The first argument is the tier. `columns` decodes the images once and holds them as uint8. `stream` keeps the records in
memory and decodes them in every epoch.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, cast

import tensorflow as tf
from protocol import SIDE, Batches, Job, serve

from infeed.components.feed.augment import augment
from infeed.components.feed.build import build, measure_records
from infeed.components.feed.capacity import Machine
from infeed.components.feed.options import Augment, FeedOptions, Normalise, Tier, WorkerContext
from infeed.components.feed.plan import FeedSpec, plan
from infeed.components.feed.shards import shard_files
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.transform.kinds.image import decode_batch


def make(job: Job, tier: Tier) -> Batches:
    made, options = stages(job), FeedOptions(batch_size=job.batch, tier=tier)
    shards = shard_files([f"{job.folder}/{job.kind}/Split-train/*"])
    spec = FeedSpec(training=True, sizes=measure_records(shards, made), augmentation="the full augmentation")
    batches = build(plan(shards, spec, options, Machine.here(cache_dir=options.cache_dir)), made)
    assert isinstance(batches, tf.data.Dataset), "row numbers are handed only to a loop that asks for them"
    return iter(batches)


def stages(job: Job) -> BatchFunctions:
    """Return decoding and augmentation as the Trainer passes them to the engine."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    recipe = job.recipe
    scale = Normalise(recipe.mean, recipe.std)
    change = Augment(
        shift=recipe.shift,
        flip="horizontal",
        rotate=recipe.rotate,
        brightness=recipe.brightness,
        contrast=recipe.contrast,
        cutout=recipe.cutout,
    )

    def decode(raw: dict[str, Any]) -> tuple[Any, Any]:
        if job.kind == "png":
            return decode_batch(raw["image"], SIDE, SIDE, 3), raw["label"]
        return tf.reshape(tf.io.decode_raw(raw["image"], tf.uint8), [-1, SIDE, SIDE, 3]), raw["label"]

    def changed(batch: Any, number: tf.Tensor, workers: WorkerContext) -> Any:
        return augment(batch[0], change, scale, tf.stack([tf.constant(1, tf.int64), number]), workers), batch[1]

    return BatchFunctions(partial(tf.io.parse_example, features=features), decode, changed, key=f"images {job.kind}")


if __name__ == "__main__":
    serve(partial(make, tier=cast(Tier, sys.argv.pop(1))))
