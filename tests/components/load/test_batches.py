"""Passes over an order: what is repeated, what goes on, and what a state restores."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import GlobalBatch, WorkerContext
from infeed.components.load.ahead import in_background
from infeed.components.load.batches import Batches, BatchSampler
from infeed.components.load.order import BatchOrder

ROWS, SIZE = 23, 4
STEPS = ROWS // SIZE  # of a shuffled epoch


def order(shuffled: bool = True, start_step: int = 0, epochs: int | None = None, **batch: int) -> BatchOrder:
    size, seed = batch.get("size", SIZE), batch.get("seed", 3)
    return BatchOrder(ROWS, GlobalBatch(size, seed, WorkerContext(0, 1)), shuffled, start_step, epochs)


def epoch(number: int) -> list[list[int]]:
    """The batches of one epoch of a training that nothing broke off."""
    return [rows.tolist() for rows in order(start_step=number * STEPS, epochs=number + 1)]


def test_each_iteration_reads_the_next_epoch():
    batches = BatchSampler(order(epochs=1))
    assert [list(batches), list(batches), list(batches)] == [epoch(0), epoch(1), epoch(2)]
    assert epoch(0) != epoch(1)


def test_a_sampler_is_pickled_for_processes() -> None:
    batches = BatchSampler(order(epochs=1))
    assert list(pickle.loads(pickle.dumps(batches))) == list(batches)


def test_each_iteration_reads_as_many_epochs_as_were_asked_for():
    batches = BatchSampler(order(epochs=2))
    assert (list(batches), list(batches)) == (epoch(0) + epoch(1), epoch(2) + epoch(3))
    assert len(batches) == 2 * STEPS


def test_an_iteration_that_was_left_is_not_repeated():
    batches = BatchSampler(order(epochs=1))
    assert list(islice(batches, 2)) == epoch(0)[:2]
    assert list(batches) == epoch(1)


def test_an_endless_order_begins_each_iteration_with_an_epoch():
    batches = BatchSampler(order())
    assert list(islice(batches, STEPS + 1)) == [*epoch(0), epoch(1)[0]]
    assert list(islice(batches, STEPS)) == epoch(2)
    with pytest.raises(TypeError):
        len(batches)


def test_without_a_shuffle_each_iteration_reads_all_rows():
    batches = BatchSampler(order(shuffled=False))
    assert list(batches) == list(batches)
    assert sorted(row for rows in batches for row in rows) == list(range(ROWS))
    assert [len(rows) for rows in batches] == [4, 4, 4, 4, 4, 3]
    assert len(batches) == 6


def test_only_the_first_iteration_begins_at_the_start_step():
    for shuffled in (True, False):
        batches, whole = BatchSampler(order(shuffled, start_step=2, epochs=1)), BatchSampler(order(shuffled, epochs=1))
        assert len(batches) == len(whole) - 2
        assert list(batches) == list(whole)[2:]
        assert len(batches) == len(whole)
        assert list(batches) == list(whole)


def test_next_and_a_loop_after_it_read_on():
    batches = BatchSampler(order(epochs=1))
    assert [next(batches), next(batches), *batches] == epoch(0)
    assert list(iter(lambda: next(batches, None), None)) == epoch(1)
    assert list(batches) == epoch(2)


def test_a_client_may_set_the_epoch():
    batches = BatchSampler(order(epochs=1))
    batches.set_epoch(7)
    assert list(batches) == epoch(7)
    batches.set_epoch(2)
    next(iter(batches))
    batches.set_epoch(2)
    assert list(batches) == epoch(2)


def test_a_resumed_training_that_sets_its_epoch_stays_at_its_step():
    batches = BatchSampler(order(start_step=2 * STEPS + 3))
    batches.set_epoch(2)
    assert list(islice(batches, 2)) == epoch(2)[3:]


def test_it_has_what_clients_of_batch_samplers_ask_for():
    assert BatchSampler(order()).batch_size == SIZE
    assert BatchSampler(order()).drop_last
    assert not BatchSampler(order(shuffled=False)).drop_last
    assert BatchSampler(order()).sampler.set_epoch


@given(
    shuffled=st.booleans(),
    epochs=st.sampled_from([None, 1, 3]),
    start_step=st.integers(0, STEPS - 1),
    read=st.integers(0, 4 * STEPS),
    ahead=st.integers(0, 3),
)
def test_a_state_restores_the_position_after_the_last_batch(
    shuffled: bool, epochs: int | None, start_step: int, read: int, ahead: int
):
    def made() -> Batches[list[int]]:
        return Batches(
            order(shuffled, start_step, epochs), lambda some: in_background((rows.tolist() for rows in some), ahead)
        )

    whole, resumed = made(), made()
    for _, _ in zip(range(read), forever(whole), strict=False):
        pass
    resumed.load_state_dict(whole.state_dict())
    assert list(islice(forever(resumed), 3 * STEPS)) == list(islice(forever(whole), 3 * STEPS))


def forever(batches: Batches[list[int]]) -> Iterator[list[int]]:
    """Read by `next`, over the ends of iterations."""
    while True:
        yield from iter(lambda: next(batches, None), None)


def test_after_a_state_the_length_stays_that_of_a_whole_iteration():
    batches = BatchSampler(order(epochs=2))
    next(batches)
    restored = BatchSampler(order(epochs=2))
    restored.load_state_dict(batches.state_dict())
    assert len(restored) == 2 * STEPS
    assert len(list(restored)) == 2 * STEPS - 1
    assert len(restored) == 2 * STEPS


@pytest.mark.parametrize("other", [{"size": 5}, {"seed": 4}], ids=str)
def test_a_state_of_another_order_is_refused(other: dict[str, int]):
    state = BatchSampler(order()).state_dict()
    with pytest.raises(InfeedError, match="options of the saved state") as error:
        BatchSampler(order(**other)).load_state_dict(state)
    assert error.value.where == "load_state_dict"
