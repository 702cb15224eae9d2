"""Sparse, ragged and dense columns come out alike: one value a row or lists, with a flag for what is missing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.transform.columns import TracedPass, analyze, as_column
from infeed.components.transform.kinds.scale import ZScore

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

ROWS = tf.ragged.constant([[3.0], [], [5.0]])


@pytest.mark.parametrize("raw", [ROWS, ROWS.to_sparse()], ids=["ragged", "sparse"])
def test_an_empty_row_is_missing(raw: tf.RaggedTensor | tf.SparseTensor) -> None:
    column = as_column("fare", raw, many=False)
    assert column.values.numpy().tolist() == [3.0, 0.0, 5.0]
    assert column.present.numpy().tolist() == [True, False, True]
    assert column.splits is None


@pytest.mark.parametrize(
    ("values", "empty"),
    [([[1], []], 0), ([[b"Basel"], []], b""), ([[1.5], []], 0.0)],
)
def test_columns_of_all_types_keep_their_own_values(values: list[list[object]], empty: object) -> None:
    column = as_column("x", tf.ragged.constant(values).to_sparse(), many=False)
    assert column.values.numpy().tolist() == [values[0][0], empty]


def test_a_batch_without_any_value_is_a_batch_of_missing_ones() -> None:
    column = as_column("x", tf.ragged.constant([[], []], tf.int64, ragged_rank=1).to_sparse(), many=False)
    assert column.values.numpy().tolist() == [0, 0]
    assert not column.present.numpy().any()


@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_a_dense_column_has_no_missing_row(shape: list[int]) -> None:
    column = as_column("fare", tf.reshape(tf.constant([3, 4, 5], tf.int64), shape), many=False)
    assert column.values.numpy().tolist() == [3, 4, 5]
    assert column.present.numpy().all()


@pytest.mark.parametrize("many", [False, True])
def test_nan_and_infinity_are_missing(many: bool) -> None:
    column = as_column("fare", tf.constant([[np.nan], [np.inf], [5.0]]), many)
    assert column.values.numpy().tolist() == [0.0, 0.0, 5.0]
    assert column.present.numpy().tolist() == [False, False, True]


LISTS = tf.ragged.constant([[1, 2], [], [3]], tf.int64)


@pytest.mark.parametrize("raw", [LISTS, LISTS.to_sparse()], ids=["ragged", "sparse"])
def test_lists_are_their_values_and_where_rows_end(raw: tf.RaggedTensor | tf.SparseTensor) -> None:
    column = as_column("tags", raw, many=True)
    assert column.values.numpy().tolist() == [1, 2, 3]
    assert column.splits.numpy().tolist() == [0, 2, 2, 3]


def test_a_list_of_lists_counts_as_one() -> None:
    column = as_column("tags", tf.ragged.constant([[[1, 2], [3]], [], [[4]]]), many=True)
    assert column.values.numpy().tolist() == [1, 2, 3, 4]
    assert column.splits.numpy().tolist() == [0, 3, 3, 4]


def test_a_fixed_shape_is_a_list_of_that_length() -> None:
    column = as_column("embedding", tf.reshape(tf.range(6), [2, 3]), many=True)
    assert column.splits.numpy().tolist() == [0, 3, 6]


def test_a_row_of_several_values_is_an_error_that_names_the_column() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"several values[\s\S]*tags"):
        as_column("tags", LISTS.to_sparse(), many=False)


def test_a_fixed_shape_of_several_values_is_an_error_that_names_the_column() -> None:
    with pytest.raises(InfeedError, match=r"column 'embedding' has \(8,\) values per row"):
        as_column("embedding", tf.zeros([2, 8]), many=False)


def test_batches_of_several_sizes_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """To trace a graph takes seconds where there are many columns."""
    traced: list[tf.Tensor] = []
    monkeypatch.setattr(ZScore, "analyzed", lambda feature, column: traced.append(column.values) or column)
    batches: list[dict[str, tf.SparseTensor]] = [{"fare": ROWS[:size].to_sparse()} for size in (3, 1, 2)]
    analyze([ZScore("fare")], lambda one: TracedPass(one).over(batches), {})
    assert len(traced) == 1
