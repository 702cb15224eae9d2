import numpy as np
import pytest
import tensorflow as tf

from infeed.components.feed.columns import Columns, evaluation_rows, training_rows

TEXT = [b"one", b"", b"three", b"four", b"five"]
LISTS = [[1], [], [2, 3], [4], [5, 6, 7]]
SPARSE = tf.SparseTensor([[0, 0], [2, 1], [4, 0]], [10, 20, 30], [5, 2])


@pytest.fixture
def columns():
    features = {
        "text": TEXT,
        "lists": tf.ragged.constant(LISTS),
        "sparse": SPARSE,
        "image": np.ones((5, 2, 2, 1), "u1"),
    }
    return Columns(tf.data.Dataset.from_tensor_slices((features, np.arange(5.0))).batch(2))


def test_rows_of_every_kind_of_feature_are_taken_in_the_order_asked_for(columns):
    features, label = columns.take(tf.constant([4, 2, 2]))
    assert columns.rows == 5
    assert features["text"].numpy().tolist() == [b"five", b"three", b"three"]
    assert features["lists"].to_list() == [[5, 6, 7], [2, 3], [2, 3]]
    assert features["image"].dtype == tf.uint8
    assert features["image"].shape == [3, 2, 2, 1]
    assert label.numpy().tolist() == [4.0, 2.0, 2.0]


def test_sparse_features_come_back_sparse(columns):
    sparse = columns.take(tf.constant([4, 1]))[0]["sparse"]
    assert isinstance(sparse, tf.SparseTensor)
    assert sparse.values.numpy().tolist() == [30]
    assert sparse.indices.numpy().tolist() == [[0, 0]]


def test_the_order_is_a_permutation_that_depends_on_seed_and_epoch_alone():
    def epochs(seed):
        rows = np.concatenate(list(training_rows(1000, 100, seed).take(20).as_numpy_iterator()))
        return rows[:1000].tolist(), rows[1000:].tolist()

    first, second = epochs(3)
    assert sorted(first) == sorted(second) == list(range(1000))
    assert first != second
    assert epochs(3) == (first, second)
    assert epochs(4)[0] != first


def test_epochs_are_not_correlated():
    rows = np.stack([np.concatenate(list(training_rows(500, 500, seed).take(2))) for seed in range(20)])
    correlations = [np.corrcoef(row[:500], row[500:])[0, 1] for row in rows]
    assert np.abs(np.mean(correlations)) < 0.05  # 20 draws of a deviation of 1 / sqrt(500)


def test_evaluation_rows_are_all_rows_in_order():
    assert [rows.tolist() for rows in evaluation_rows(5, 2).as_numpy_iterator()] == [[0, 1], [2, 3], [4]]
