"""The declarative features: checked when built, plain data for JSON, and checked against the data's columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import check_features, features_from_json, features_to_json
from infeed.components.transform.kinds.clean import Fill, LowerCase, StripAccents, Tokens, Trim
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.encode import Bucketize, Vocabulary
from infeed.components.transform.kinds.image import DecodeImage
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import Cycle, ZScore
from infeed.components.transform.kinds.text import BagOfWords
from infeed.components.transform.kinds.vectors import PretrainedVectors

ONE_OF_EACH = [
    ZScore("age", fill=30.0),
    Vocabulary("city", size=100, oov=2),
    Bucketize("fare", 4, output="fare_bucket"),
    Fill("tips", 0),
    DecodeImage(32, 32, 1),
    Label("paid", task="regression"),
    Cycle("day", period=7, clean=(DatePart("weekday", "%d.%m.%Y", utc_offset=1.5),)),
    Vocabulary("review", clean=(Trim(inner=True), LowerCase(), StripAccents(), Tokens(ngrams=(1, 2))), length=64),
    BagOfWords("review", output="bag", clean=(Tokens("characters"),), weights="tf_idf", smooth=False),
    PretrainedVectors("word", "glove.txt", size=100, pool="mean"),
    DecodeImage(8, 8, output="small", resize="crop", scale="mean_std", mean=(0.5,) * 3, std=(0.2,) * 3),
]


def test_features_survive_json() -> None:
    assert features_from_json(json.loads(json.dumps(features_to_json(ONE_OF_EACH)))) == ONE_OF_EACH


def test_json_says_only_what_differs_from_the_defaults() -> None:
    assert features_to_json([ZScore("age"), Label("paid")]) == [
        {"kind": "z_score", "column": "age"},
        {"kind": "label", "column": "paid"},
    ]


def test_output_is_named_like_the_column_unless_told_otherwise() -> None:
    names = [feature.output_name for feature in ONE_OF_EACH[:6]]
    assert names == ["age", "city", "fare_bucket", "tips", "image", "paid"]


def test_cardinality_counts_the_missing_and_the_unknown() -> None:
    assert Vocabulary("city", oov=2).cardinality(values=100) == 103
    assert Bucketize("fare", 4).cardinality() == 5


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ZScore(""), r"^column is ''\n  where: ZScore\n"),
        (lambda: ZScore("age", output=""), r"^output is ''\n  where: ZScore\n"),
        (lambda: ZScore("age", fill="median"), r"^fill is 'median'\n  where: ZScore\n"),  # type: ignore[arg-type]
        (lambda: ZScore("age", fill=float("nan")), r"^fill is nan\n  where: ZScore\n"),
        (lambda: Vocabulary("city", size=0), r"^size is 0\n  where: Vocabulary\n"),
        (lambda: Vocabulary("city", oov=-1), r"^oov is -1\n  where: Vocabulary\n"),
        (lambda: Bucketize("fare", 1), r"^buckets is 1\n  where: Bucketize\n"),
        (lambda: Bucketize("fare", True), r"^buckets is True\n  where: Bucketize\n"),  # a bool is an int in Python
        (lambda: Fill("tips", None), r"^value is None\n  where: Fill\n"),  # type: ignore[arg-type]
        (lambda: DecodeImage(0, 32), r"^height is 0\n  where: DecodeImage\n"),
        (lambda: DecodeImage(32, 32, 2), r"^channels is 2\n  where: DecodeImage\n"),
        (lambda: Label("paid", task="ranking"), r"^task is 'ranking'\n  where: Label\n"),  # type: ignore[arg-type]
        (lambda: Label("paid", missing="drop"), r"^missing is 'drop'\n  where: Label\n"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_option_is_refused_when_built(build: Callable[[], Feature], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        build()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            {"kind": "zscore", "column": "age"},
            r"kind is 'zscore'; did you mean 'z_score'\?\n  where: features\[1\]\.kind\n",
        ),
        ({"column": "age"}, r"the setting 'kind' is missing\n  where: features\[1\]\n"),
        ({"kind": "z_score", "colum": "age"}, r"'colum'; did you mean 'column'\?\n  where: features\[1\]\n"),
        ({"kind": "bucketize", "column": "fare"}, r"buckets is None\n  where: features\[1\]\.buckets\n"),
        ({"kind": "bucketize", "column": "fare", "buckets": 1}, r"buckets is 1\n  where: features\[1\]\.buckets\n"),
        ({"kind": "vocabulary", "column": "a", "size": True}, r"size is True\n  where: features\[1\]\.size\n"),
        ("age", r"features\[1\] is 'age'\n  where: features\[1\]\n  do:    use a mapping"),
    ],
)
def test_a_bad_description_is_refused_with_its_place(item: Any, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        features_from_json([{"kind": "z_score", "column": "age"}, item])


def test_two_features_of_one_name_are_refused_even_if_they_are_equal() -> None:
    for other in (Bucketize("age", 4), ZScore("age")):
        with pytest.raises(InfeedError, match="two features are named 'age'"):
            features_to_json([ZScore("age"), other])


def test_one_column_may_give_several_features() -> None:
    check_features([ZScore("age"), Bucketize("age", 4, output="age_bucket")], ["age", "fare"])


def test_a_column_that_the_data_lacks_is_named_with_the_nearest_and_all_there_are() -> None:
    with pytest.raises(InfeedError) as caught:
        check_features([ZScore("trip_mile")], iter(["trip_miles", "fare"]))
    assert "no column 'trip_mile' in the data; did you mean 'trip_miles'?" in caught.value.what
    assert "the columns are: fare, trip_miles" in caught.value.where


def test_a_feature_in_words_is_what_was_said_of_it() -> None:
    assert str(ZScore("age")) == "ZScore(column='age')"
    assert (
        str(Vocabulary("city", size=3, clean=(LowerCase(),)))
        == "Vocabulary(column='city', size=3, clean=(LowerCase(),))"
    )
