"""Measures the first records of a split, so that the plan knows sizes instead of guessing them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from infeed.components.feed.build import Stages
from infeed.components.feed.capacity import Sample
from infeed.components.feed.shards import ShardFile

_RECORDS = 256


def measure(shards: Sequence[ShardFile], stages: Stages) -> Sample:
    """Reads up to 256 records and passes them through `parse` and `transform`."""
    path = shards[0].path
    dataset = tf.data.TFRecordDataset(path, compression_type="GZIP" if path.endswith(".gz") else "")
    records = next(iter(dataset.batch(_RECORDS)))
    features = tf.nest.flatten(stages.transform(stages.parse(records)), expand_composites=True)
    count = int(records.shape[0])
    return Sample(
        record_bytes=float(tf.reduce_sum(tf.strings.length(records))) / count,
        feature_bytes=sum(_bytes(tensor) for tensor in features) / count,
    )


def _bytes(tensor: tf.Tensor) -> float:
    if tensor.dtype == tf.string:
        return float(tf.reduce_sum(tf.strings.length(tensor)))
    return float(tf.size(tensor) * tensor.dtype.size)
