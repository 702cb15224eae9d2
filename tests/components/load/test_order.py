"""Which rows make up which batch: the feed's order, for every worker and from every step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import GlobalBatch, WorkerContext
from infeed.components.load.order import BatchOrder


def first(order: BatchOrder, steps: int) -> list[list[int]]:
    return [rows.tolist() for rows in itertools.islice(order, steps)]


def test_an_epoch_holds_each_row_once():
    order = BatchOrder(rows=20, batch=GlobalBatch(5, 3), shuffled=True, epochs=2)
    batches = first(order, 100)
    assert len(batches) == len(order) == 8
    assert sorted(itertools.chain(*batches[:4])) == sorted(itertools.chain(*batches[4:])) == list(range(20))
    assert batches[:4] != batches[4:]


def test_what_does_not_fill_a_batch_is_left_out_of_training_and_kept_in_evaluation():
    assert [len(rows) for rows in BatchOrder(11, GlobalBatch(4), True, epochs=1)] == [4, 4]
    assert first(BatchOrder(11, GlobalBatch(4), False), 9) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_fewer_rows_than_a_batch_are_repeated():
    assert all(len(rows) == 5 and set(rows) == {0, 1} for rows in first(BatchOrder(2, GlobalBatch(5), True), 3))


@given(
    rows=st.integers(1, 60),
    parts=st.integers(1, 5),
    workers=st.integers(1, 4),
    start=st.integers(0, 40),
    shuffled=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
)
def test_all_workers_parts_are_the_batch_of_one_from_any_step_on(rows, parts, workers, start, shuffled, seed):
    one = BatchOrder(rows, GlobalBatch(parts * workers, seed), shuffled)
    if not shuffled:
        start %= one.steps_per_epoch
    several = [
        BatchOrder(rows, GlobalBatch(parts * workers, seed, WorkerContext(index, workers)), shuffled, start)
        for index in range(workers)
    ]
    together = [list(itertools.chain(*step)) for step in zip(*(first(order, 5) for order in several), strict=True)]
    assert together == first(one, start + 5)[start:]


@given(rows=st.integers(1, 60), batch=st.integers(1, 9), most=st.integers(1, 7), shuffled=st.booleans())
def test_several_batches_at_a_time_are_the_same(rows, batch, most, shuffled):
    order = BatchOrder(rows, GlobalBatch(batch, 4), shuffled, epochs=2)
    together = [part for some, batches in order.chunks(most) for part in np.split(some, batches)]
    assert [part.tolist() for part in together] == first(order, 200)


def test_an_endless_order_has_no_length():
    with pytest.raises(TypeError, match="an endless order has no length"):
        len(BatchOrder(10, GlobalBatch(2), True))


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"shuffled": True, "start_step": 5, "epochs": 1}, "start_step is 5, beyond the epoch of 5 steps"),
        ({"shuffled": True, "start_step": 12, "epochs": 2}, "start_step is 12, beyond 2 epochs of 5"),
        ({"shuffled": False, "start_step": 5}, "start_step is 5, beyond the epoch of 5 steps"),
        ({"shuffled": True, "epochs": 0}, "epochs is 0"),
    ],
)
def test_what_cannot_be_is_refused(order, said):
    with pytest.raises(InfeedError, match=said):
        BatchOrder(**{"rows": 10, "batch": GlobalBatch(2), **order})


@pytest.mark.stack
@pytest.mark.slow
@pytest.mark.parametrize(("rows", "batch", "workers", "start"), [(1, 4, 2, 3), (1000, 8, 1, 130), (5003, 64, 4, 77)])
def test_it_is_the_feeds_own(rows, batch, workers, start):
    from infeed.components.feed.columns import evaluation_rows, training_rows

    for index in range(workers):
        worker = WorkerContext(index, workers)
        theirs = training_rows(rows, GlobalBatch(batch, 11, worker), start_step=start).take(200).as_numpy_iterator()
        ours = BatchOrder(rows, GlobalBatch(batch, 11, worker), True, start)
        assert first(ours, 200) == [batch.tolist() for batch in theirs]
        theirs = evaluation_rows(rows, GlobalBatch(batch, workers=worker)).as_numpy_iterator()
        assert first(BatchOrder(rows, GlobalBatch(batch, workers=worker), False), 10_000) == [
            batch.tolist() for batch in theirs
        ]
