import collections

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.columns import training_rows
from infeed.components.feed.options import SINGLE_WORKER, GlobalBatch, WorkerContext
from infeed.components.feed.sampling import Group, SamplingWeights, apportion, group_rows, sample

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

GROUPS = (Group(np.arange(10), 1.0), Group(np.arange(10, 14), 3.0))


def drawn(epoch, total=12, seed=0):
    return sample(GROUPS, total, seed, tf.constant(epoch, tf.int64)).numpy().tolist()


@pytest.mark.parametrize(
    ("shares", "total", "wanted"),
    [([1, 3], 12, [3, 9]), ([0.5, 0.5], 7, [4, 3]), ([1, 1, 1], 100, [34, 33, 33]), ([0.7, 0.2, 0.1], 4, [3, 1, 0])],
)
def test_rows_are_shared_out_in_whole_numbers_that_add_up(shares, total, wanted):
    assert apportion(shares, total) == wanted


def test_an_epoch_takes_of_each_group_what_its_share_comes_to():
    rows = drawn(0)
    assert [sum(row < 10 for row in rows), sum(row >= 10 for row in rows)] == [3, 9]


def test_a_group_goes_round_its_rows_before_one_comes_again_and_goes_on_where_the_last_epoch_ended():
    epochs = [drawn(epoch) for epoch in range(20)]
    large = [row for rows in epochs for row in rows if row < 10]  # 60 of 10 rows
    for begin in range(0, 60, 10):
        assert sorted(large[begin : begin + 10]) == list(range(10))
    small = collections.Counter(row for rows in epochs for row in rows if row >= 10)  # 180 of 4 rows
    assert small == dict.fromkeys(range(10, 14), 45)
    for rows in epochs:  # nine of four rows: each twice, and one of them once more
        assert sorted(collections.Counter(row for row in rows if row >= 10).values()) in ([2, 2, 2, 3], [1, 2, 3, 3])


def test_the_seed_decides_which_rows_come_first():
    assert drawn(0, seed=1) == drawn(0, seed=1)
    assert drawn(0, seed=1) != drawn(0, seed=2)


def test_rows_are_grouped_by_key_and_those_without_a_share_are_left_out():
    groups = group_rows(np.array([1, 0, 2, 1]), SamplingWeights("class", ("a", "b", "c"), (0.25, 0.75, 0.0)))
    assert [(group.rows.tolist(), group.weight) for group in groups] == [([1], 0.25), ([0, 3], 0.75)]


def test_a_share_of_what_is_not_there_is_refused():
    with pytest.raises(InfeedError, match=r"'b' has a share of 0.5(.|\n)*class_shares"):
        group_rows(np.array([0, 0]), SamplingWeights("class", ("a", "b"), (0.5, 0.5)))


def test_batches_of_mixed_rows_are_the_same_at_any_number_of_workers_and_from_any_step_on():
    def steps(count, workers=SINGLE_WORKER, **options):
        made = training_rows(14, GlobalBatch(4, 7, workers), groups=GROUPS, **options)
        return [rows.tolist() for rows in made.take(count).as_numpy_iterator()]

    alone = steps(9)  # three a epoch
    assert [sum(row < 10 for rows in alone[begin : begin + 3] for row in rows) for begin in (0, 3, 6)] == [3, 3, 3]
    parts = [steps(9, workers=WorkerContext(index, 2)) for index in range(2)]
    assert [first + second for first, second in zip(*parts, strict=True)] == alone
    assert steps(4, start_step=5) == alone[5:]


def test_a_batch_larger_than_the_split_is_mixed_as_exactly():
    (rows,) = training_rows(14, GlobalBatch(40), groups=GROUPS).take(1).as_numpy_iterator()
    assert [sum(rows < 10), sum(rows >= 10)] == [10, 30]
