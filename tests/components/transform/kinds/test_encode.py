"""Indices and vectors of categories and numbers, against counting by hand and NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.encode import Bucketize, Cross, Hash, OneHot, Vocabulary

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
ROWS = 500
RNG = np.random.default_rng(7)
MISSING = RNG.random(ROWS) < 0.1
AGE = RNG.normal(1000.0, 3.0, ROWS).astype(np.float32)
CITY = RNG.choice([b"Basel", b"Bern", b"Chur", b"Genf"], ROWS, p=[0.5, 0.3, 0.15, 0.05])


def gaps(values: np.ndarray) -> list[Any]:
    """None where MISSING says so."""
    return [None if missing else value for value, missing in zip(values.tolist(), MISSING, strict=True)]


def test_a_vocabulary_counts_from_one_most_frequent_first(transform: Transform) -> None:
    order = [city for city, _ in Counter(CITY[~MISSING].tolist()).most_common()]
    index = transform({"city": gaps(CITY)}, [Vocabulary("city")])["city"]
    assert index[:, 0].tolist() == [
        0 if missing else 1 + order.index(city) for city, missing in zip(CITY, MISSING, strict=True)
    ]


def test_equally_frequent_words_are_in_reversed_order_of_bytes_and_numbers_are_words(transform: Transform) -> None:
    columns = {"word": [b"a", b"c", b"b", b"b", b""], "number": [10, 9, 9, 10, 7]}
    index = transform(columns, [Vocabulary("word"), Vocabulary("number")])
    assert index["word"][:, 0].tolist() == [3, 2, 1, 1, 4]  # the empty string is never in a vocabulary
    assert index["number"][:, 0].tolist() == [2, 1, 1, 2, 3]  # b"9" > b"10"


def test_a_vocabulary_of_limited_size_shares_the_indices_after_it(transform: Transform) -> None:
    features = [
        Vocabulary("city", output="top", size=2, oov=3),
        Vocabulary("city", output="only_top", size=2, oov=0),
        Vocabulary("city", output="frequent", min_count=int(np.sum(CITY[~MISSING] == b"Chur")) + 1, oov=0),
    ]
    made = transform({"city": gaps(CITY)}, features)
    known = np.isin(CITY, [b"Basel", b"Bern"]) & ~MISSING
    assert set(made["top"][known, 0]) == {1, 2}
    assert set(made["top"][~known & ~MISSING, 0]) <= {3, 4, 5}
    assert set(made["top"][MISSING, 0]) == {0}
    assert set(made["only_top"][~known, 0]) == {0}
    np.testing.assert_array_equal(made["frequent"], made["only_top"])


def test_an_empty_vocabulary_is_an_error_that_shows_values(transform: Transform) -> None:
    with pytest.raises(InfeedError, match=r"vocabulary of 'x' is empty: the training rows hold values such as \[b'a'"):
        transform({"x": [b"a", b"b"]}, [Vocabulary("x", min_count=2)])


def test_lists_of_words_are_ragged_or_padded_indices(transform: Transform) -> None:
    columns = {"tags": [[b"a", b"b"], [b"a"], [], [b"a", b"b", b"c"]]}
    made = transform(columns, [Vocabulary("tags", values="all"), Vocabulary("tags", "two", values="all", length=2)])
    assert [list(row) for row in made["tags"]] == [[1, 2], [1], [], [1, 2, 3]]
    assert made["two"].tolist() == [[1, 2], [1, 0], [0, 0], [1, 2]]


def test_one_hot_has_a_place_for_the_missing_and_one_for_others(transform: Transform) -> None:
    made = transform({"x": [b"a", b"a", b"b", None]}, [OneHot("x")], served={"x": [b"a", b"b", None, b"new"]})["x"]
    assert made.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert made.dtype == np.float32


def test_of_lists_one_hot_is_multi_hot(transform: Transform) -> None:
    made = transform({"x": [[b"a", b"b", b"a"], [], [b"a"], [b"a", b"b"]]}, [OneHot("x", values="all", oov=0)])["x"]
    assert made.tolist() == [[0, 1, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1]]


def test_hashing_needs_no_analysis_and_keeps_zero_for_the_missing(transform: Transform) -> None:
    import tensorflow as tf

    made = transform({"x": [b"a", None, b"b"], "n": [1, 2, None]}, [Hash("x", 5), Hash("n", 5)])
    expected = [int(tf.strings.to_hash_bucket_fast(word, 5)) + 1 for word in (b"a", b"b", b"1", b"2")]
    assert made["x"][:, 0].tolist() == [expected[0], 0, expected[1]]
    assert made["n"][:, 0].tolist() == [expected[2], expected[3], 0]


def test_buckets_hold_equal_shares_in_rank_order(transform: Transform) -> None:
    bucket = transform({"age": gaps(AGE)}, [Bucketize("age", 4)])["age"][:, 0]
    exact = 1 + np.digitize(AGE, np.quantile(AGE[~MISSING], [0.25, 0.5, 0.75], method="inverted_cdf"))
    np.testing.assert_array_equal(bucket, np.where(MISSING, 0, exact))


def test_edges_divide_and_belong_above(transform: Transform) -> None:
    bucket = transform({"x": [-5.0, 0.0, 9.99, 10.0, 99.0, None]}, [Bucketize("x", edges=(0.0, 10.0))])["x"]
    assert bucket[:, 0].tolist() == [1, 2, 2, 3, 3, 0]


def test_buckets_of_each_key(transform: Transform) -> None:
    columns = {"x": [1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0], "key": [1, 1, 1, 1, 2, 2, 2, 2]}
    assert transform(columns, [Bucketize("x", 2, key="key")])["x"][:, 0].tolist() == [1, 2, 2, 2] * 2
    unseen = {"x": [5.0, 4.0, 3.9], "key": [3, 3, 3]}
    assert transform(columns, [Bucketize("x", 2, key="key")], served=unseen)["x"][:, 0].tolist() == [2, 2, 1]


def test_a_cross_is_a_category_of_its_own(transform: Transform) -> None:
    columns = {"a": [b"x", b"x", b"y", None], "b": [1, 1, 1, 1]}
    made = transform(columns, [Cross(("a", "b"), "ab"), Cross(("a", "b"), "hashed", buckets=1000)])
    assert made["ab"][:, 0].tolist() == [1, 1, 2, 0]
    first, same, other, missing = made["hashed"][:, 0].tolist()
    assert first == same != other != 0 == missing
    (unseen,) = transform(columns, [Cross(("a", "b"), "ab")], served={"a": [b"y"], "b": [2]})["ab"]
    assert unseen[0] == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Bucketize("x"), "buckets is None\n"),
        (lambda: Bucketize("x", 2, edges=(1.0,)), "buckets is 2\n"),
        (lambda: Bucketize("x", edges=(2.0, 1.0)), r"edges is \(2.0, 1.0\)\n"),
        (lambda: Bucketize("x", edges=(1.0,), key="k"), r"edges is \(1.0,\)\n"),
        (lambda: Bucketize("x", 2, key=""), "key is ''\n"),
        (lambda: Bucketize("x", 2, key="k", values="by_position"), "key is 'k'\n"),
        (lambda: Vocabulary("x", min_count=0), "min_count is 0\n"),
        (lambda: Hash("x", 0), "buckets is 0\n"),
        (lambda: Cross(("a",), "x"), r"of is \('a',\)\n"),
        (lambda: Cross(("a", "a"), "x"), r"of is \('a', 'a'\)\n"),
        (lambda: OneHot("x", values="all", length=2), "length is 2\n"),
    ],
)
def test_a_bad_option_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=f"^{message}"):
        build()
