from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.manifest import Balanced
from infeed.components.dataset.options import Balance
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen.planning import balance_labels, divide_by_label
from infeed.components.example_gen.spills import Spill


def spill(records: int, label: Any, path: str = "p") -> Spill:
    return Spill("train", path, 0, records, records * 100, (label, label))


def records(spills: list[Spill], by: str = "label") -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for one in spills:
        counts[(one.split, one.strata[0]) if by == "split" else one.strata[1]] += one.records
    return counts


@given(
    segments=st.lists(st.tuples(st.integers(1, 9), st.sampled_from("abc")), max_size=30),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_every_label_is_divided_by_the_shares_to_within_a_record_a_cut(
    segments: list[tuple[int, str]], shares: list[int]
) -> None:
    spills = [spill(count, label, str(number)) for number, (count, label) in enumerate(segments)]
    buckets = Buckets(tuple((str(number), share) for number, share in enumerate(shares)))
    divided = divide_by_label(spills, buckets)
    counts = records(divided, by="split")
    for label, total in records(spills).items():
        for name, share in buckets.shares:
            assert abs(counts[name, label] - total * share / sum(shares)) < max(len(shares) - 1, 1)
    taken = [(one.path, record) for one in divided for record in range(one.start, one.start + one.records)]
    assert len(taken) == len(set(taken)) == sum(count for count, _ in segments)


def test_the_odd_record_of_a_rare_label_goes_to_the_first_split() -> None:
    divided = divide_by_label([spill(1, "rare")], Buckets((("train", 2), ("eval", 1))))
    assert [one.split for one in divided] == ["train"]


SEGMENTS = [spill(4, "a"), spill(1, "b"), spill(3, "a"), spill(2, "b"), spill(5, None)]


def test_over_sampling_repeats_until_all_are_as_frequent() -> None:
    sampled, counts = balance_labels(SEGMENTS, Balance("label", sampling="over"))
    assert records(sampled) == {"a": 7, "b": 7, None: 5}  # rows without a label stay as they are
    assert counts == Balanced(repeated=4)


def test_under_sampling_drops_until_all_are_as_rare() -> None:
    sampled, counts = balance_labels(SEGMENTS, Balance("label", sampling="under"))
    assert records(sampled) == {"a": 3, "b": 3, None: 5}
    assert counts == Balanced(dropped=4)


def test_balancing_nothing() -> None:
    assert balance_labels([], Balance("label")) == ([], Balanced())
