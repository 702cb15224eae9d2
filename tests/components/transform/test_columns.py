"""Sparse, ragged and dense columns all come out as one value a row with a flag for the missing ones."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.transform.columns import dense_columns

ROWS = tf.ragged.constant([[3.0], [], [5.0]])


@pytest.mark.parametrize("raw", [ROWS, ROWS.to_sparse()], ids=["ragged", "sparse"])
def test_an_empty_row_is_missing(raw: tf.RaggedTensor | tf.SparseTensor) -> None:
    column = dense_columns({"fare": raw})["fare"]
    assert column.values.numpy().tolist() == [3.0, 0.0, 5.0]
    assert column.present.numpy().tolist() == [True, False, True]
    assert column.only_present().numpy().tolist() == [3.0, 5.0]


@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_a_dense_column_has_no_missing_row(shape: list[int]) -> None:
    column = dense_columns({"fare": tf.reshape(tf.constant([3, 4, 5], tf.int64), shape)})["fare"]
    assert column.values.numpy().tolist() == [3, 4, 5]
    assert column.present.numpy().all()


def test_nan_and_infinity_are_missing() -> None:
    column = dense_columns({"fare": tf.constant([[np.nan], [np.inf], [5.0]])})["fare"]
    assert column.values.numpy().tolist() == [0.0, 0.0, 5.0]
    assert column.present.numpy().tolist() == [False, False, True]


def test_columns_of_all_types_keep_their_own_values() -> None:
    columns = dense_columns(
        {
            "b": tf.ragged.constant([[], []], tf.int64, ragged_rank=1),  # no value at all in this batch
            "a": tf.ragged.constant([[1], []], tf.int64),
            "c": tf.ragged.constant([[], [3]], tf.int64),
            "city": tf.ragged.constant([[b"Basel"], []]),
            "fare": tf.constant([1.5, 2.5]),
        }
    )
    assert {name: column.values.numpy().tolist() for name, column in columns.items()} == {
        "a": [1, 0],
        "b": [0, 0],
        "c": [0, 3],
        "city": [b"Basel", b""],
        "fare": [1.5, 2.5],
    }


def test_a_row_of_several_values_is_an_error_that_names_the_column() -> None:
    fine, several = tf.ragged.constant([[1], [2]]), tf.ragged.constant([[1], [2, 3]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"several values[\s\S]*tags"):
        dense_columns({"fare": fine, "tags": several})


def test_a_fixed_shape_of_several_values_is_an_error_that_names_the_column() -> None:
    with pytest.raises(InfeedError, match=r"column 'embedding' holds \(8,\) values a row"):
        dense_columns({"embedding": tf.zeros([2, 8])})
