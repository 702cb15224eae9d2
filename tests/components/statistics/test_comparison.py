from __future__ import annotations

import dataclasses
import random
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.histograms import common_histograms, numbers_of
from infeed.components.statistics.comparison import ColumnChange, ComparisonOptions, compare


def columns(**values: list[Any]) -> dict[str, ColumnStatistics]:
    return {name: ColumnStatistics.of(name, pa.array(of_rows)) for name, of_rows in values.items()}


def one(before: list[Any], after: list[Any], options: ComparisonOptions | None = None) -> ColumnChange:
    (found,) = compare(columns(x=before), columns(x=after), options)
    return found


def test_text_differs_by_the_value_whose_share_changes_most() -> None:
    found = one(["a"] * 10 + ["b"] * 30, ["a"] * 5 + ["b"] * 10 + ["c"] * 30)
    assert (found.measure, found.most, found.problem) == ("L-infinity", b"c", "differs")
    assert found.distance == pytest.approx(2 / 3)  # as TFDV says of these counts


def test_numbers_differ_by_the_divergence_of_their_histograms() -> None:
    found = one([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])
    assert (found.measure, found.distance, found.problem) == ("Jensen-Shannon", 1.0, "differs")
    assert one([1, 2, 3] * 5, [1, 2, 3] * 7).distance == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("threshold", "problem"), [(0.3, "differs"), (0.5, "")])
def test_the_threshold_decides(threshold: float, problem: str) -> None:
    found = one(["a", "a"], ["a", "b"], ComparisonOptions(l_infinity=threshold, new_words=1))
    assert (found.distance, found.threshold, found.problem) == (0.5, threshold, problem)


def _found(change: ColumnChange) -> dict[str, float | None]:
    return {one.measure: one.distance for one in change.differences if one.exceeds}


@pytest.mark.parametrize("value", ["abc", 1.5, 7])
def test_a_column_that_goes_missing_differs(value: Any) -> None:
    before, after = [value] * 9 + [None], [value] + [None] * 9
    found = one(before, after)
    assert (found.distance, found.problem) == (0, "differs")
    assert _found(found) == {"missing": pytest.approx(0.8)}
    assert found.differences[0].change == "10 % -> 90 % of the rows"
    assert one(after, before).problem == "differs"
    assert one(before, after, ComparisonOptions(missing=0.85)).problem == ""


@pytest.mark.parametrize("value", ["a", 2.0])
def test_longer_lists_differ(value: Any) -> None:
    found = one([[value] * 3] * 20, [[value] * 60] * 20)
    assert (found.distance, found.problem) == (0, "differs")
    assert _found(found) == {"lengths": 1}
    assert found.differences[1].change == "3 -> 60 values a row"
    assert one([[value] * 3] * 20, [[value] * 60] * 20, ComparisonOptions(lengths=1)).problem == ""


def test_new_and_lost_words_differ_although_each_is_rare() -> None:
    before, after = [f"w{number % 50}" for number in range(200)], [f"w{number % 50 + 25}" for number in range(200)]
    found = one(before, after)
    assert found.distance == pytest.approx(0.02)
    assert _found(found) == {"new_words": pytest.approx(0.5), "lost_words": pytest.approx(0.5)}
    assert one(before, after, ComparisonOptions(new_words=0.6)).problem == "differs"
    assert one(before, after, ComparisonOptions(new_words=0.6, lost_words=0.6)).problem == ""


def test_words_that_occur_once_are_expected_to_change() -> None:
    draw = random.Random(5)
    names = [f"id{number}" for number in range(1_000)]
    assert one(names[:500], names[500:]).problem == ""  # identifiers
    words = [f"w{int(draw.paretovariate(0.7))}" for _ in range(4_000)]
    assert one(words[:2_000], words[2_000:]).problem == ""  # two samples of one long-tailed column


def test_columns_come_go_and_change_their_type() -> None:
    found = compare(columns(old=[1], kept=[1], empty=[None, 1]), columns(new=["a"], kept=["1"], empty=[None, 1]))
    assert [(change.name, change.problem) for change in found] == [
        ("empty", ""),
        ("kept", "was int, is bytes"),
        ("new", "new"),
        ("old", "lost"),
    ]


def test_a_column_that_no_row_has_is_not_there() -> None:
    before, after = columns(x=[1]), {"x": ColumnStatistics.none("x", "int", 5)}
    assert [change.problem for change in compare(before, after)] == ["lost"]


def test_a_column_of_empty_lists_has_no_distance() -> None:
    empty = {"x": ColumnStatistics.of("x", pa.array([[]], pa.list_(pa.float32())))}
    (found,) = compare(empty, empty)
    assert (found.distance, found.problem) == (None, "")


@pytest.mark.parametrize("name", [option.name for option in dataclasses.fields(ComparisonOptions)])
def test_a_threshold_is_a_share(name: str) -> None:
    with pytest.raises(InfeedError, match=f"{name} is 1.5"):
        ComparisonOptions(**{name: 1.5})


def test_one_far_number_makes_no_difference() -> None:
    numbers = [float(number) for number in range(1_000)]
    assert one(numbers, [*numbers, 1e9]).distance == pytest.approx(0, abs=0.001)


@pytest.mark.tfx
def test_the_distances_are_what_tfdv_measures_of_the_same_counts() -> None:
    import tensorflow_data_validation as tfdv
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from infeed.components.dataset.statistics.tfdv import to_proto

    before = columns(n=[1.0, 2.0, 2.0, 7.5], i=[1, 2, 3, 4], t=["a", "b", "b", "b"])
    after = columns(n=[2.0, 2.0, 3.0, 5.5], i=[3, 3, 4, 9], t=["a", "a", "a", "d"])
    comparators = {"n": "jensen_shannon_divergence", "i": "jensen_shannon_divergence", "t": "infinity_norm"}
    features = [
        f'feature {{ name: "{name}" type: {kind} drift_comparator {{ {comparators[name]} {{ threshold: 0 }} }} }}'
        for name, kind in (("n", "FLOAT"), ("i", "INT"), ("t", "BYTES"))
    ]
    schema = text_format.Parse("".join(features), schema_pb2.Schema())
    sides = [to_proto(side.values(), 4) for side in (before, after)]
    for name in ("n", "i"):
        common = common_histograms(numbers_of(before[name]), numbers_of(after[name]))
        for side, histogram in zip(sides, common, strict=True):
            (feature,) = (feature for feature in side.datasets[0].features if feature.path.step == [name])
            del feature.num_stats.histograms[0].buckets[:]
            for bucket in histogram.buckets:
                feature.num_stats.histograms[0].buckets.add(
                    low_value=bucket.low, high_value=bucket.high, sample_count=bucket.count
                )
    found = tfdv.validate_statistics(sides[1], schema, previous_statistics=sides[0])
    theirs = {one.path.step[0]: one.drift_measurements[0].value for one in found.drift_skew_info}
    assert {change.name: change.distance for change in compare(before, after)} == pytest.approx(theirs)
    assert all(0 < distance < 1 for distance in theirs.values())
