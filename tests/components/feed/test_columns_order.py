import itertools

import numpy as np
import pytest

from infeed.components.feed.capacity import Window
from infeed.components.feed.columns import evaluation_rows, training_rows
from infeed.components.feed.options import GlobalBatch, WorkerContext

pytestmark = pytest.mark.slow

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


@WINDOWS
@pytest.mark.parametrize("start", [1, 49, 50, 73])
def test_any_step_can_be_started_at(window, start):
    whole = rows(training_rows(1010, GlobalBatch(20, 5), window=window), 120)  # 50 steps an epoch
    np.testing.assert_array_equal(
        rows(training_rows(1010, GlobalBatch(20, 5), window=window, start_step=start), 40), whole[start:][:40]
    )


@WINDOWS
def test_the_parts_of_all_workers_end_to_end_are_the_batch_of_one(window):
    whole = rows(training_rows(1010, GlobalBatch(20, 5), window=window), 120)
    parts = [
        rows(training_rows(1010, GlobalBatch(20, 5, WorkerContext(index, 4)), window=window), 120) for index in range(4)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_evaluation_rows_are_all_rows_in_order():
    assert [batch.tolist() for batch in evaluation_rows(5, GlobalBatch(2)).as_numpy_iterator()] == [[0, 1], [2, 3], [4]]


def test_every_worker_is_given_as_many_evaluation_batches():
    parts = [
        [b.tolist() for b in evaluation_rows(5, GlobalBatch(2, workers=WorkerContext(i, 2))).as_numpy_iterator()]
        for i in range(2)
    ]
    assert parts == [[[0], [2], []], [[1], [3], [4]]]
