"""Measures the first records of a split, so that the plan knows sizes instead of guessing them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from infeed.components.feed.build import Stages
from infeed.components.feed.capacity import Sample
from infeed.components.feed.columns import can_be_cut
from infeed.components.feed.shards import ShardFile

_RECORDS = 256


def measure(shards: Sequence[ShardFile], stages: Stages) -> Sample:
    """Reads up to 256 records and passes them through `parse` and `transform`."""
    path = shards[0].path
    dataset = tf.data.TFRecordDataset(path, compression_type="GZIP" if path.endswith(".gz") else "").batch(_RECORDS)
    made = dataset.map(lambda records: (records, stages.transform(stages.parse(records))))
    records, features = next(iter(made))
    count = int(records.shape[0])
    return Sample(
        record_bytes=_bytes(records) / count,
        feature_bytes=sum(map(_bytes, tf.nest.flatten(features, expand_composites=True))) / count,
        can_be_cut=can_be_cut(made.element_spec[1]),
    )


def _bytes(tensor: tf.Tensor) -> float:
    if tensor.dtype == tf.string:
        return float(tf.reduce_sum(tf.strings.length(tensor)))
    return float(tf.size(tensor) * tensor.dtype.size)
