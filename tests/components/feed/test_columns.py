"""Columns in memory and on disk: the same promises."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.feed.capacity import Window
from infeed.components.feed.columns import (
    Layout,
    can_keep,
    can_split,
    evaluation_rows,
    load_columns,
    mapped,
    row_lengths,
    split_batches,
    training_rows,
    without_rewrites,
)
from infeed.components.feed.disk import cache_columns
from infeed.components.feed.options import GlobalBatch, WorkerContext

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

TEXT = [b"one", b"", b"three", b"f\xff\x00r", b"five"]
LISTS = [[1], [], [2, 3], [4], [5, 6, 7]]
WORDS = [[b"a", b"bc"], [], [b""], [b"def"], [b"g", b"h", b"i"]]
NESTED = [[[1.0]], [], [[2.0, 3.0], []], [[]], [[4.0]]]
SPARSE = tf.SparseTensor([[0, 0], [2, 1], [4, 0]], [10, 20, 30], [5, 2])
NAMES = tf.SparseTensor([[0, 0], [2, 1], [4, 0]], [b"x", b"", b"yz"], [5, 2])
FEATURES = {
    "text": TEXT,
    "pair": [[word, word + b"!"] for word in TEXT],
    "lists": tf.ragged.constant(LISTS),
    "words": tf.ragged.constant(WORDS),
    "nested": tf.ragged.constant(NESTED, ragged_rank=2),
    "sparse": SPARSE,
    "names": NAMES,
    "flag": [True, False, True, False, False],
    "image": np.arange(20, dtype="u1").reshape(5, 2, 2, 1),
}


def batches(features=FEATURES):
    return tf.data.Dataset.from_tensor_slices((features, np.arange(5.0))).batch(2)


@pytest.fixture(scope="module", params=["memory", "disk"])
def make(request, tmp_path_factory):
    """batches -> Columns"""

    def on_disk(made):
        return cache_columns(made, str(tmp_path_factory.mktemp("columns")), "key", 0)

    return load_columns if request.param == "memory" else on_disk


@pytest.fixture(scope="module")
def columns(make):
    """Of every kind of feature."""
    return make(batches())


def test_rows_of_every_kind_of_feature_are_taken_in_the_order_asked_for(columns):
    features, label = columns.take(tf.constant([4, 2, 2], tf.int64))
    assert columns.rows == 5
    assert features["text"].numpy().tolist() == [b"five", b"three", b"three"]
    assert features["pair"].numpy().tolist() == [[b"five", b"five!"], [b"three", b"three!"], [b"three", b"three!"]]
    assert features["lists"].to_list() == [[5, 6, 7], [2, 3], [2, 3]]
    assert features["words"].to_list() == [[b"g", b"h", b"i"], [b""], [b""]]
    assert features["nested"].to_list() == [[[4.0]], [[2.0, 3.0], []], [[2.0, 3.0], []]]
    assert features["flag"].numpy().tolist() == [False, True, True]
    assert features["image"].numpy().tolist() == [FEATURES["image"][row].tolist() for row in (4, 2, 2)]
    assert label.numpy().tolist() == [4.0, 2.0, 2.0]


def test_features_of_one_type_and_width_share_a_column_and_come_back_in_their_places(make):
    wide, tall = tf.reshape(tf.range(10.0), [5, 2]), tf.reshape(tf.range(10.0, 20), [5, 2, 1])
    features = {"a": tf.range(5.0), "b": wide, "c": tf.range(5.0, 10)[:, tf.newaxis], "d": tall, "e": tf.range(5)}
    made = tf.data.Dataset.from_tensor_slices((features, tf.range(10.0, 15))).batch(2)
    assert Layout.of(made.element_spec).packs == ((0, 2, 5), (1, 3), (4,))
    rows = tf.constant([3, 0], tf.int64)
    taken, label = make(made).take(rows)
    assert label.numpy().tolist() == [13, 10]
    for name, column in features.items():
        np.testing.assert_array_equal(taken[name], tf.gather(column, rows))


def test_types_and_static_shapes_are_those_of_what_was_read(columns):
    made = tf.data.Dataset.from_tensors(tf.constant([0, 1], tf.int64)).map(columns.take)
    for got, read in zip(*(tf.nest.flatten(one.element_spec) for one in (made, batches())), strict=True):
        assert type(got) is type(read)
        assert (got.dtype, got.shape[2:]) == (read.dtype, read.shape[2:])


def test_sparse_features_come_back_sparse(columns):
    features, _ = columns.take(tf.constant([4, 1], tf.int64))
    for name, value in (("sparse", 30), ("names", b"yz")):
        assert isinstance(features[name], tf.SparseTensor)
        assert features[name].values.numpy().tolist() == [value]
        assert features[name].indices.numpy().tolist() == [[0, 0]]


def test_rows_without_any_value_are_taken_too(columns):
    features, _ = columns.take(tf.constant([1], tf.int64))
    assert features["text"].numpy().tolist() == [b""]
    assert features["words"].to_list() == [[]]
    assert features["names"].values.shape == [0]
    none, _ = columns.take(tf.zeros([0], tf.int64))
    assert none["text"].shape == [0]


def test_a_dense_feature_padded_batch_by_batch_cannot_be_kept():
    lists = tf.ragged.constant([[1], [2], [3, 4], [5], [6, 7, 8]])
    padded = tf.data.Dataset.from_tensor_slices(lists).map(lambda one: one).padded_batch(2)  # widths 1, 2 and 3
    assert not can_split(padded.element_spec)
    assert not can_keep(padded.element_spec)
    assert can_keep(batches().element_spec)


def test_several_batches_taken_at_once_are_the_batches_taken_one_by_one(make):
    dense = {name: value for name, value in FEATURES.items() if name not in ("sparse", "names")}
    columns, rows = make(batches(dense)), tf.constant([[4, 2], [0, 1]], tf.int64)
    assert can_split(batches(dense).element_spec)
    several = tf.data.Dataset.from_tensors(tf.reshape(rows, [-1])).map(columns.take)
    together = several.map(lambda *batch: split_batches(batch, 2, 2)).unbatch()
    for taken, some in zip(together, rows, strict=True):
        for got, alone in zip(*(tf.nest.flatten(one) for one in (taken, columns.take(some))), strict=True):
            as_list = "to_list" if isinstance(alone, tf.RaggedTensor) else "numpy"
            assert str(getattr(got, as_list)()) == str(getattr(alone, as_list)())


LENGTHS = np.random.default_rng(0).integers(1, 60, 1_003)


def rows_of(epochs=1, *, index=0, count=1, **options):
    """Row numbers of the worker's batches of eight, int64 [steps, batch]."""
    batch = GlobalBatch(8, seed=3, workers=WorkerContext(index, count))
    made = training_rows(len(LENGTHS), batch, **options).take(epochs * batch.steps(len(LENGTHS)))
    return np.stack(list(made.as_numpy_iterator()))


@pytest.mark.parametrize("window", [None, Window(block=40, blocks=12)])
def test_batches_of_similar_lengths_have_the_rows_of_an_epoch_in_another_order(window):
    plain, similar = (rows_of(window=window, lengths=lengths) for lengths in (None, LENGTHS))
    assert sorted(similar.flat) == sorted(plain.flat)
    spread = [np.mean(np.ptp(LENGTHS[rows], axis=1)) for rows in (plain, similar)]
    assert spread[1] < spread[0] / 20
    longest = LENGTHS[similar].max(1)
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.2, "short batches must not come first"


def test_workers_and_later_starts_get_their_part_of_the_same_batches_of_similar_lengths():
    whole = rows_of(2, lengths=LENGTHS)
    assert not np.array_equal(*np.split(whole, 2))
    parts = [rows_of(2, index=index, count=2, lengths=LENGTHS) for index in range(2)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    assert np.array_equal(rows_of(lengths=LENGTHS, start_step=70), whole[70 : 70 + len(whole) // 2])


@pytest.mark.parametrize(
    ("feature", "lengths"),
    [
        (FEATURES["lists"], [1, 0, 2, 1, 3]),
        (FEATURES["nested"], [1, 0, 2, 1, 1]),
        (SPARSE, [1, 0, 1, 0, 1]),
        (tf.constant([[1, 0, 2], [0, 0, 0], [1, 1, 0]]), [3, 0, 2]),
        (tf.constant([["a", ""], ["", "b"], ["", ""]]), [1, 2, 0]),
    ],
)
def test_a_row_is_as_long_as_its_values_without_padding(feature, lengths):
    found = row_lengths(feature)
    assert found.dtype == tf.int64
    assert found.numpy().tolist() == lengths


WINDOWS = pytest.mark.parametrize("window", [None, Window(100, 3), Window(20, 1), Window(200, 7)])


def rows(made, steps):
    return np.stack(list(made.take(steps).as_numpy_iterator()))


@WINDOWS
def test_an_epoch_is_a_permutation_that_depends_on_seed_and_epoch_alone(window):
    def epochs(seed):
        made = rows(training_rows(1000, GlobalBatch(20, seed), window=window), 100).ravel()
        return made[:1000].tolist(), made[1000:].tolist()

    first, second = epochs(3)
    assert sorted(first) == sorted(second) == list(range(1000))
    assert first != second
    assert epochs(3) == (first, second)
    assert epochs(4)[0] != first


@pytest.mark.parametrize("window", [None, Window(30, 4)])
def test_epochs_are_not_correlated(window):
    epochs = rows(training_rows(600, GlobalBatch(30, 0), window=window), 21 * 20).reshape(21, 600)
    correlations = [np.corrcoef(one, next_one)[0, 1] for one, next_one in itertools.pairwise(epochs)]
    assert np.abs(np.mean(correlations)) < 0.05  # 20 draws of a deviation of 1 / sqrt(600)


@pytest.mark.parametrize("window", [None, Window(20, 3)])
def test_what_does_not_fill_the_last_batch_is_left_out_other_rows_each_epoch(window):
    made = rows(training_rows(115, GlobalBatch(20, 0), window=window), 5 * 40).reshape(40, 100)
    assert all(len(set(epoch)) == 100 for epoch in made)
    assert len({tuple(sorted(set(range(115)) - set(epoch))) for epoch in made}) > 30


def test_a_window_takes_its_rows_from_its_own_blocks():
    first = rows(
        training_rows(1000, GlobalBatch(10, 0), window=Window(50, 2)), 10
    )  # one window: two runs of 50 neighbors
    steps = np.diff(np.sort(first.ravel()))
    assert (steps == 1).sum() >= 97


@functools.cache
def whole_training(window):
    return rows(training_rows(1010, GlobalBatch(20, 5), window=window), 120)  # 50 steps an epoch


@WINDOWS
@pytest.mark.parametrize("start", [1, 49, 50, 73])
def test_any_step_can_be_started_at(window, start):
    np.testing.assert_array_equal(
        rows(training_rows(1010, GlobalBatch(20, 5), window=window, start_step=start), 40),
        whole_training(window)[start:][:40],
    )


@WINDOWS
def test_the_parts_of_all_workers_end_to_end_are_the_batch_of_one(window):
    parts = [
        rows(training_rows(1010, GlobalBatch(20, 5, WorkerContext(index, 4)), window=window), 120) for index in range(4)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole_training(window))


def test_evaluation_rows_are_all_rows_in_order():
    assert [batch.tolist() for batch in evaluation_rows(5, GlobalBatch(2)).as_numpy_iterator()] == [[0, 1], [2, 3], [4]]


def test_every_worker_is_given_as_many_evaluation_batches():
    parts = [
        [b.tolist() for b in evaluation_rows(5, GlobalBatch(2, workers=WorkerContext(i, 2))).as_numpy_iterator()]
        for i in range(2)
    ]
    assert parts == [[[0], [2], []], [[1], [3], [4]]]


def test_a_dataset_without_rewrites_has_the_same_elements():
    made = without_rewrites(mapped(tf.data.Dataset.range(5), lambda number: number * 2))
    assert not made.options().experimental_optimization.apply_default_optimizations
    assert list(made.as_numpy_iterator()) == [0, 2, 4, 6, 8]
