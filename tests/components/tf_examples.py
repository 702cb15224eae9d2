"""Rows as serialized tf.Examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def serialize(row: Mapping[str, Any]) -> bytes:
    """A serialized tf.Example. A value may be a list (an empty one is of bytes), and None is a missing feature."""
    import tensorflow as tf

    kinds = {bytes: ("bytes_list", tf.train.BytesList), int: ("int64_list", tf.train.Int64List)}
    made = {}
    for name, value in row.items():
        if value is not None:
            values = value if isinstance(value, list) else [value]
            key, kind = kinds.get(type(values[0]) if values else bytes, ("float_list", tf.train.FloatList))
            made[name] = tf.train.Feature(**{key: kind(value=values)})
    example = tf.train.Example(features=tf.train.Features(feature=made))
    return bytes(example.SerializeToString(deterministic=True))
