"""The function that Transform runs: the declared features, then the user's own, as one tft preprocessing function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.transform.columns import Column, dense_columns
from infeed.components.transform.features import (
    Bucketize,
    DecodeImage,
    Feature,
    Fill,
    Label,
    Vocabulary,
    ZScore,
    check_features,
    features_from_json,
)
from infeed.components.transform.images import decode_batch
from infeed.components.transform.labels import refuse_missing, sorted_classes

Tensors = dict[str, Any]  # name -> tf.Tensor, tf.SparseTensor or tf.RaggedTensor

# Below this share of the mean a standard deviation is rounding error of float64 sums, not data.
_CONSTANT = 1e-12


def preprocessing_fn(inputs: Tensors, custom_config: Mapping[str, Any]) -> Tensors:
    """Raw columns to transformed features, as `custom_config` says.

    Args:
      inputs: the columns of the schema.
      custom_config: "features", a list as `features_to_json` makes it, and "preprocessing_fn", the user's own function
        as `package.module:function` or None; it gets `inputs` and gives further features.

    Raises:
      InfeedError: a feature names a column that the schema lacks, a column's type does not fit its feature, or two
        features have one name.
    """
    features = features_from_json(custom_config["features"])
    check_features(features, inputs)
    outputs = apply_features(features, inputs)
    reference = custom_config["preprocessing_fn"]
    if not reference:
        return outputs
    own = user_code.load(reference, "preprocessing_fn")(dict(inputs))
    return _merged(outputs, own, reference)


def apply_features(features: Sequence[Feature], inputs: Tensors) -> Tensors:
    """Transformed features by output name; shapes and types as in `features.py`, images as float32."""
    # Labels apart: what shares a matrix shares its inputs, and serving has no label to give.
    labels = dense_columns(
        {feature.column: inputs[feature.column] for feature in features if isinstance(feature, Label)}
    )
    columns = dense_columns({f.column: inputs[f.column] for f in features if not isinstance(f, Label)})
    scaled = [feature for feature in features if isinstance(feature, ZScore)]
    outputs = _z_scores(scaled, columns) if scaled else {}
    for feature in features:
        if not isinstance(feature, ZScore):
            known = labels if isinstance(feature, Label) else columns
            outputs[feature.output_name] = _apply(feature, known[feature.column])
    return outputs


def _merged(declared: Tensors, own: Tensors, reference: str) -> Tensors:
    both = sorted(declared.keys() & own.keys())
    if both:
        raise InfeedError(
            f"both the features and {reference} give {', '.join(both)}",
            where="option preprocessing_fn",
            do="rename one of them",
        )
    return {**declared, **own}


def _apply(feature: Feature, column: Column) -> tf.Tensor:
    match feature:
        case Vocabulary():
            return _vocabulary(feature, column)[:, tf.newaxis]
        case Bucketize():
            return _bucketize(feature, column)[:, tf.newaxis]
        case Fill():
            return _fill(feature, column)[:, tf.newaxis]
        case DecodeImage():
            return _decode_image(feature, column)
        case Label(task="classification"):
            return _class_index(feature, column)
        case Label(task="regression"):
            return _target(feature, column)
    raise TypeError(f"not a feature: {feature!r}")


def _z_scores(features: Sequence[ZScore], columns: Mapping[str, Column]) -> Tensors:
    """All columns as one matrix, so two analyzers in total: each analyzer adds stages to Beam's graph."""
    features = sorted(features, key=lambda feature: columns[feature.column].values.dtype.name)
    matrix = _matrix_with_gaps(features, columns)  # tft leaves NaN out of mean and variance
    mean = tft.mean(matrix, reduce_instance_dims=False)
    deviation = tf.sqrt(tft.var(matrix, reduce_instance_dims=False))
    varies = deviation > _CONSTANT * tf.abs(mean)
    known = varies & ~tf.math.is_nan(matrix)
    scaled = tf.where(known, (matrix - mean) / tf.where(varies, deviation, 1.0), 0.0)
    split = tf.split(tf.cast(scaled, tf.float32), len(features), axis=1)
    return {feature.output_name: one for feature, one in zip(features, split, strict=True)}


def _matrix_with_gaps(features: Sequence[ZScore], columns: Mapping[str, Column]) -> tf.Tensor:
    """[batch, features] float64, NaN where a value is missing and has no number to fill it; features sorted by type."""
    chosen = [_numeric(feature, columns[feature.column]) for feature in features]
    by_type = [list(group) for _, group in groupby(chosen, key=lambda column: column.values.dtype)]
    values = [tf.cast(tf.stack([column.values for column in group], 1), tf.float64) for group in by_type]
    present = tf.stack([column.present for column in chosen], 1)
    fills = [math.nan if feature.fill == "mean" else feature.fill for feature in features]
    return tf.where(present, tf.concat(values, 1), tf.constant(fills, tf.float64))


def _vocabulary(feature: Vocabulary, column: Column) -> tf.Tensor:
    _require_categories(feature, column)
    file = tft.vocabulary(column.only_present(), top_k=feature.size, vocab_filename=feature.output_name)
    index = tft.apply_vocabulary(_keys(column), file, default_value=-1, num_oov_buckets=feature.oov)
    return tf.where(column.present, index + 1, 0)


def _bucketize(feature: Bucketize, column: Column) -> tf.Tensor:
    column = _numeric(feature, column)
    boundaries = tft.quantiles(column.only_present(), feature.buckets, epsilon=0.01)
    return tf.where(column.present, tft.apply_buckets(column.values, boundaries) + 1, 0)


def _fill(feature: Fill, column: Column) -> tf.Tensor:
    dtype = column.values.dtype
    fits = isinstance(feature.value, str) == (dtype == tf.string) and (
        dtype != tf.int64 or float(feature.value).is_integer()
    )
    if not fits:
        raise _wrong_type(feature, column, f"a value other than {feature.value!r}")
    value = tf.constant(int(feature.value) if dtype == tf.int64 else feature.value, dtype)
    return tf.where(column.present, column.values, value)


def _decode_image(feature: DecodeImage, column: Column) -> tf.Tensor:
    if column.values.dtype != tf.string:
        raise _wrong_type(feature, column, "encoded images")
    pixels = decode_batch(column.values, feature.height, feature.width, feature.channels)
    return tf.cast(pixels, tf.float32)


def _class_index(feature: Label, column: Column) -> tf.Tensor:
    _require_categories(feature, column)
    if column.values.dtype == tf.string:
        column = column._replace(present=column.present & (column.values != ""))
    path = sorted_classes(column, feature.output_name, refuse_missing=feature.missing == "error")
    index = tft.apply_vocabulary(_keys(column), path, default_value=-1)
    return tf.where(column.present, index, -1)


def _target(feature: Label, column: Column) -> tf.Tensor:
    column = _numeric(feature, column)
    if feature.missing == "error":
        refuse_missing(column)
    return tf.where(column.present, tf.cast(column.values, tf.float32), math.nan)


def _keys(column: Column) -> tf.Tensor:
    # Always strings: TensorFlow shares tables by the name of the op, and one with integer keys that is still alive from
    # another trace in this process would make the next with string keys fail.
    return column.values if column.values.dtype == tf.string else tf.strings.as_string(column.values)


def _numeric(feature: Feature, column: Column) -> Column:
    if column.values.dtype == tf.string:
        raise _wrong_type(feature, column, "numbers")
    return column


def _require_categories(feature: Feature, column: Column) -> None:
    if column.values.dtype.is_floating:
        raise _wrong_type(feature, column, "strings or whole numbers")


def _wrong_type(feature: Feature, column: Column, expected: str) -> InfeedError:
    return InfeedError(
        f"{type(feature).__name__} needs {expected}, but column {column.name!r} is {column.values.dtype.name}",
        where=f"{feature}",
        do="use another kind of feature for this column, or correct its type in the data",
    )
