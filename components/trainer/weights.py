"""Class weights: how much each example of a class counts in the loss of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from infeed.components.errors import InfeedError


def weighted(dataset: tf.data.Dataset, class_weight: Mapping[str, float], classes: Sequence[str]) -> tf.data.Dataset:
    """(features, label [batch]) -> (features, label, weight float32 [batch]), as Keras takes them.

    Weights that the batches have already are multiplied by those of the classes.

    Args:
      dataset: labels are class indices.
      class_weight: by class name; classes left out weigh 1. Empty leaves the dataset as it is.
      classes: names in index order.

    Raises:
      InfeedError: a class that does not exist.
    """
    if not class_weight:
        return dataset
    unknown = sorted(set(class_weight) - set(classes))
    if unknown:
        raise InfeedError(
            f"there is no class {unknown[0]!r}",
            where="option class_weight",
            do=f"The classes are: {', '.join(classes)}.",
        )
    weights = tf.constant([class_weight.get(name, 1.0) for name in classes], tf.float32)

    def with_weight(features: Any, label: tf.Tensor, *weight: tf.Tensor) -> tuple[Any, tf.Tensor, tf.Tensor]:
        return features, label, math.prod(weight, start=tf.gather(weights, label))

    return dataset.map(with_weight, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
