"""The declarative features: checked when built, plain data for JSON, and checked against the data's columns."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from infeed.components.errors import InfeedError
from infeed.components.transform.features import (
    Bucketize,
    DecodeImage,
    Feature,
    Fill,
    Label,
    Vocabulary,
    ZScore,
    check_features,
    features_from_json,
    features_to_json,
)

ONE_OF_EACH = [
    ZScore("age", fill=30.0),
    Vocabulary("city", size=100, oov=2),
    Bucketize("fare", 4, output="fare_bucket"),
    Fill("tips", 0),
    DecodeImage(32, 32, 1),
    Label("paid", task="regression"),
]


def test_features_survive_json() -> None:
    assert features_from_json(json.loads(json.dumps(features_to_json(ONE_OF_EACH)))) == ONE_OF_EACH


def test_json_says_only_what_differs_from_the_defaults() -> None:
    assert features_to_json([ZScore("age"), Label("paid")]) == [
        {"kind": "z_score", "column": "age"},
        {"kind": "label", "column": "paid"},
    ]


def test_output_is_named_like_the_column_unless_told_otherwise() -> None:
    names = [feature.output_name for feature in ONE_OF_EACH]
    assert names == ["age", "city", "fare_bucket", "tips", "image", "paid"]


def test_cardinality_counts_the_missing_and_the_unknown() -> None:
    assert Vocabulary("city", oov=2).cardinality(values=100) == 103
    assert Bucketize("fare", 4).cardinality() == 5


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ZScore(""), "ZScore: column is ''"),
        (lambda: ZScore("age", output=""), "ZScore: output is ''"),
        (lambda: ZScore("age", fill="median"), "ZScore: fill is 'median'"),  # type: ignore[arg-type]
        (lambda: ZScore("age", fill=float("nan")), "ZScore: fill is nan"),
        (lambda: Vocabulary("city", size=0), "Vocabulary: size is 0"),
        (lambda: Vocabulary("city", oov=-1), "Vocabulary: oov is -1"),
        (lambda: Bucketize("fare", 1), "Bucketize: buckets is 1"),
        (lambda: Bucketize("fare", True), "Bucketize: buckets is True"),  # a bool is an int in Python
        (lambda: Fill("tips", None), "Fill: value is None"),  # type: ignore[arg-type]
        (lambda: DecodeImage(0, 32), "DecodeImage: height is 0"),
        (lambda: DecodeImage(32, 32, 2), "DecodeImage: channels is 2"),
        (lambda: Label("paid", task="ranking"), "Label: task is 'ranking'"),  # type: ignore[arg-type]
        (lambda: Label("paid", missing="drop"), "Label: missing is 'drop'"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_option_is_refused_when_built(build: Callable[[], Feature], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        build()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"kind": "zscore", "column": "age"}, "no kind of feature is called 'zscore'; did you mean 'z_score'?"),
        ({"column": "age"}, "no kind of feature is called 'None'"),
        ({"kind": "z_score", "colum": "age"}, "has no option 'colum'; did you mean 'column'?"),
        ({"kind": "bucketize", "column": "fare"}, "a feature of kind bucketize lacks its option 'buckets'"),
    ],
)
def test_a_bad_description_is_refused(item: dict[str, str], message: str) -> None:
    with pytest.raises(InfeedError) as caught:
        features_from_json([item])
    assert message in caught.value.what


def test_what_is_no_description_at_all_is_refused() -> None:
    with pytest.raises(InfeedError, match=r"(?s)'age' is no feature.*give each as"):
        features_from_json(["age"])  # type: ignore[list-item]


def test_two_features_of_one_name_are_refused() -> None:
    with pytest.raises(InfeedError, match="two features are both called 'age'"):
        features_to_json([ZScore("age"), Bucketize("age", 4)])


def test_equal_features_count_as_two() -> None:
    with pytest.raises(InfeedError, match="two features are both called 'age'"):
        features_to_json([ZScore("age"), ZScore("age")])


def test_one_column_may_give_several_features() -> None:
    check_features([ZScore("age"), Bucketize("age", 4, output="age_bucket")], ["age", "fare"])


def test_a_column_that_the_data_lacks_is_named_with_the_nearest_and_all_there_are() -> None:
    with pytest.raises(InfeedError) as caught:
        check_features([ZScore("trip_mile")], iter(["trip_miles", "fare"]))
    assert "no column 'trip_mile' in the data; did you mean 'trip_miles'?" in caught.value.what
    assert "the columns are: fare, trip_miles" in caught.value.where
