from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Balanced
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.splits import Buckets, ByLabel
from infeed.components.example_gen import planning
from infeed.components.example_gen.planning import SpilledTask, balance_labels, divide_by_label, limited
from infeed.components.example_gen.spills import Spill, Spills


def spill(records: int, label: Any, path: str = "p") -> Spill:
    return Spill("train", path, 0, records, records * 100, (label, label))


def records(spills: list[Spill], by: str = "label") -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for one in spills:
        counts[(one.split, one.strata[0]) if by == "split" else one.strata[1]] += one.records
    return counts


def divide(spills: list[Spill], buckets: Buckets) -> list[Spill]:
    divided = divide_by_label(Spills.of(spills), buckets)
    return [dataclasses.replace(one, split=split) for split, found in divided.items() for one in found]


def balance(spills: list[Spill], options: Balance) -> tuple[list[Spill], Balanced]:
    balanced, counts = balance_labels(Spills.of(spills), options)
    return list(balanced), counts


@given(
    segments=st.lists(st.tuples(st.integers(1, 9), st.sampled_from("abc")), max_size=30),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_every_label_is_divided_by_the_shares_to_within_a_record_a_cut(
    segments: list[tuple[int, str]], shares: list[int]
) -> None:
    spills = [spill(count, label, str(number)) for number, (count, label) in enumerate(segments)]
    buckets = Buckets(tuple((str(number), share) for number, share in enumerate(shares)))
    divided = divide(spills, buckets)
    counts = records(divided, by="split")
    for label, total in records(spills).items():
        for name, share in buckets.shares:
            assert abs(counts[name, label] - total * share / sum(shares)) < max(len(shares) - 1, 1)
    sizes = [sum(count for (split, _), count in counts.items() if split == name) for name in buckets.names]
    if min(records(spills).values(), default=0) >= sum(shares):  # otherwise rare labels may enlarge the first split
        assert all(abs(size - sum(sizes) * share / sum(shares)) < 1 for size, share in zip(sizes, shares, strict=True))
    taken = [(one.path, record) for one in divided for record in range(one.start, one.start + one.records)]
    assert len(taken) == len(set(taken)) == sum(count for count, _ in segments)


@pytest.mark.parametrize("rows", [(25, 15), (13, 13, 14), (5,) * 8, (1, 2, 2, 35)])
def test_the_splits_of_a_small_table_have_exact_sizes(rows: tuple[int, ...]) -> None:
    """With each label rounded up for itself, the last split would have too few rows."""
    spills = [spill(count, f"label {number}") for number, count in enumerate(rows)]
    divided = records(divide(spills, Buckets((("train", 10), ("eval", 5), ("test", 5)))), by="split")
    sizes = {name: sum(count for (split, _), count in divided.items() if split == name) for name, _ in divided}
    assert sizes == {"train": 20, "eval": 10, "test": 10}
    assert all(divided["train", f"label {number}"] for number in range(len(rows)))


def test_the_odd_record_of_a_rare_label_goes_to_the_first_split() -> None:
    divided = divide([spill(1, "rare")], Buckets((("train", 2), ("eval", 1))))
    assert [one.split for one in divided] == ["train"]


SEGMENTS = [spill(4, "a"), spill(1, "b"), spill(3, "a"), spill(2, "b"), spill(5, None)]


def test_over_sampling_repeats_until_all_are_as_frequent() -> None:
    sampled, counts = balance(SEGMENTS, Balance("label", sampling="over"))
    assert records(sampled) == {"a": 7, "b": 7, None: 5}  # rows without a label stay as they are
    assert counts == Balanced(repeated=4)


def test_under_sampling_drops_until_all_are_as_rare() -> None:
    sampled, counts = balance(SEGMENTS, Balance("label", sampling="under"))
    assert records(sampled) == {"a": 3, "b": 3, None: 5}
    assert counts == Balanced(dropped=4)


def test_balancing_nothing() -> None:
    assert balance([], Balance("label")) == ([], Balanced())


def test_shares_of_very_many_records_are_exact() -> None:
    few, many = 3_000_000_001, 5_000_000_003  # their product exceeds 64 bits
    sampled, _ = balance([spill(few, "a"), spill(many - 2, "b"), spill(2, "b")], Balance("label", sampling="under"))
    assert records(sampled) == {"a": few, "b": few}


def tasks(labels: int) -> Iterator[SpilledTask]:
    """Three tasks, each with as many labels of its own."""
    for order in range(3):
        spills = Spills.of(spill(1, f"{order}-{number}") for number in range(labels))
        yield SpilledTask(order, labels, 0, 0, None, None, (), (), spills)


@pytest.mark.parametrize("options", [IngestOptions(split_by=ByLabel("id")), IngestOptions(balance=Balance("id"))])
def test_a_column_of_too_many_labels_stops_at_the_task_that_exceeds_the_bound(
    options: IngestOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_MOST_LABELS", 10)
    assert len(list(limited(tasks(3), options))) == 3
    found = limited(tasks(6), options)
    next(found)
    with pytest.raises(InfeedError, match="more than 10 distinct labels") as raised:
        next(found)
    assert raised.value.where == "column 'id'"


def test_too_many_runs_of_equal_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST_SPILLS", 10)
    with pytest.raises(InfeedError, match="12 runs of equal labels") as raised:
        list(limited(tasks(4), IngestOptions(split_by=ByLabel("id"))))
    assert raised.value.where == "column 'id'"


def test_a_label_that_would_be_repeated_too_often() -> None:
    with pytest.raises(InfeedError, match="10000001 runs") as raised:
        balance([spill(1, "rare"), spill(10_000_000, "common")], Balance("y"))
    assert raised.value.where == "column 'y'"


def test_columns_that_are_not_labels_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST_SPILLS", 10)
    assert len(list(limited(tasks(6), IngestOptions()))) == 3
