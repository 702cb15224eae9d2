"""Row numbers are handed over and steps gather: the batches are those that a dataset would have gathered."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.feed.columns import load_columns, training_calls, training_rows
from infeed.components.feed.options import GlobalBatch, WorkerContext
from infeed.components.feed.row_batches import CallRows, RowBatches, deal_rows
from infeed.components.feed.sampling import Group

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

ROWS, BATCH = 46, 4  # 11 steps an epoch
GROUPS = (Group(np.arange(30), 1.0), Group(np.arange(30, ROWS), 2.0))


def steps_of(calls, count):
    """The row numbers of the first steps, whatever calls they come in."""
    return np.stack(list(itertools.islice(itertools.chain.from_iterable(calls.as_numpy_iterator()), count)))


def row_batches(**options):
    features = {"number": tf.range(ROWS), "pair": tf.reshape(tf.range(2.0 * ROWS), [ROWS, 2])}
    columns = load_columns(tf.data.Dataset.from_tensor_slices((features, tf.range(ROWS) % 2)).batch(10))
    return RowBatches(columns, lambda steps: training_calls(ROWS, GlobalBatch(BATCH, 3), steps, **options))


@pytest.mark.parametrize("groups", [(), GROUPS])
@pytest.mark.parametrize("steps_per_call", [1, 4, 11, 16])
@pytest.mark.parametrize("workers", [WorkerContext(), WorkerContext(1, 2)])
def test_the_rows_of_each_step_do_not_depend_on_the_length_of_a_call(steps_per_call, workers, groups):
    one = training_rows(ROWS, GlobalBatch(BATCH, 3, workers), groups=groups).take(40)
    calls = training_calls(ROWS, GlobalBatch(BATCH, 3, workers), steps_per_call, groups=groups)
    np.testing.assert_array_equal(steps_of(calls, 40), np.stack(list(one.as_numpy_iterator())))


@pytest.mark.parametrize("start_step", [0, 4, 8, 11, 15, 41])
def test_a_call_begins_with_every_epoch_and_where_training_starts(start_step):
    calls = list(training_calls(ROWS, GlobalBatch(BATCH, 3), 4, start_step=start_step).take(6).as_numpy_iterator())
    left = -start_step % 11 or 11
    lengths = [min(4, left - done) for done in range(0, left, 4)] + [4, 4, 3] * 2
    assert [len(call) for call in calls] == lengths[:6]
    whole = steps_of(training_calls(ROWS, GlobalBatch(BATCH, 3), 1), 70)
    made = np.concatenate(calls)
    np.testing.assert_array_equal(made, whole[start_step:][: len(made)])


def test_fewer_rows_than_a_batch_make_one_step_an_epoch():
    calls = training_calls(3, GlobalBatch(BATCH), 16).take(2)
    assert [call.shape for call in calls.as_numpy_iterator()] == [(1, BATCH)] * 2


def test_a_step_makes_the_batch_that_a_dataset_makes():
    made = row_batches()
    handed = next(iter(made.handed(5)))
    assert isinstance(handed, CallRows)
    gathered, batch_of = made.gather(handed.numbers), tf.function(made.batch_of)
    for step, (numbers, (features, label)) in enumerate(zip(handed.numbers, made.dataset(), strict=False)):
        own_features, own_label = batch_of(gathered, tf.constant(step))
        assert (
            own_features["number"].numpy().tolist() == features["number"].numpy().tolist() == numbers.numpy().tolist()
        )
        np.testing.assert_array_equal(own_features["pair"], features["pair"])
        np.testing.assert_array_equal(own_label, label)
    features, label = made.element_spec
    assert features["pair"] == tf.TensorSpec([BATCH, 2], tf.float32)
    assert label == tf.TensorSpec([BATCH], tf.int32)


def test_rows_are_gathered_of_as_many_steps_at_once_as_a_cache_holds_and_of_an_even_part_of_a_call(monkeypatch):
    made = row_batches()  # a row takes 16 bytes, a batch 64
    for cache, steps in ((1 << 20, 6), (6 * 64, 6), (6 * 64 - 1, 3), (2 * 64, 2), (1, 1)):
        monkeypatch.setattr("infeed.components.feed.row_batches._AT_ONCE_BYTES", cache)
        calls = list(itertools.islice(made.handed(6), 12))
        assert len(calls[0].numbers) == steps
        rows = np.concatenate([call.numbers for call in calls])[:12]
        np.testing.assert_array_equal(rows, steps_of(training_calls(ROWS, GlobalBatch(BATCH, 3), 6), 12))


def test_what_is_mapped_is_done_in_the_step_in_its_order():
    doubled = row_batches().map(lambda features, label: ({"x": features["number"] * 2}, label))
    made = doubled.map(lambda features, label: (features, label, features["x"] + 1))
    numbers = tf.constant([7, 0], tf.int64)
    features, _, weight = made.take(numbers)
    assert features["x"].numpy().tolist() == [14, 0]
    assert weight.numpy().tolist() == [15, 1]
    assert len(made.element_spec) == 3


def test_the_parts_of_all_replicas_end_to_end_are_the_batch():
    made = row_batches()
    whole, parts = (list(one.take(count)) for one, count in ((made.handed(4), 3), (deal_rows(made.handed(4), 2), 6)))
    assert deal_rows(made.handed(4), 2).element_spec.numbers.shape.as_list() == [None, BATCH // 2]
    for call, first, second in zip(whole, parts[::2], parts[1::2], strict=True):
        np.testing.assert_array_equal(np.concatenate([first.numbers, second.numbers], axis=1), call.numbers)


def test_rows_gathered_from_a_copy_on_the_device_are_those_of_the_host():
    held, placed = row_batches(), row_batches().on_devices(["/device:CPU:0"])
    assert placed.element_spec == held.element_spec
    for call, same in zip(held.handed(4).take(4), placed.handed(4), strict=False):
        np.testing.assert_array_equal(call.numbers, same.numbers)
        for one, other in zip(*(tf.nest.flatten(made.take(call.numbers[0])) for made in (held, placed)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_is_handed_over_has_no_end():
    made = row_batches()
    for one in (made.handed(4), deal_rows(made.handed(4), 2), made.dataset()):
        assert one.cardinality() == tf.data.INFINITE_CARDINALITY
