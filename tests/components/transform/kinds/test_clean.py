"""Steps before a feature: values by tables of what goes in and comes out, and texts that are taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.features import check_types, features_from_json, features_to_json
from infeed.components.transform.kinds.clean import (
    Clip,
    Fill,
    FillWith,
    LowerCase,
    StripAccents,
    Tokens,
    Trim,
)
from infeed.components.transform.kinds.encode import Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.scale import ZScore

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]


@pytest.mark.parametrize(
    ("column", "steps", "expected"),
    [
        ([1.0, None, 4.0], (FillWith(2.5),), [1.0, 2.5, 4.0]),
        ([1.0, None, 4.0], (FillWith("mean"),), [1.0, 2.5, 4.0]),
        ([1, None, 4], (FillWith("mean"),), [1.0, 2.5, 4.0]),  # of whole numbers: numbers with fractions
        ([1, None, 4, 9], (FillWith("median"),), [1, 4, 4, 9]),
        ([3, None, 3, 9], (FillWith("mode"),), [3, 3, 3, 9]),
        ([b"a", None, b"b", b"b"], (FillWith("mode"),), [b"a", b"b", b"b", b"b"]),
        ([1.0, 5.0, 9.0], (Clip(2.0, 6.0),), [2.0, 5.0, 6.0]),
        ([1, 5, 9], (Clip(low=1.5),), [2, 5, 9]),
        # Each step sees what those before it give: 100 is no part of the mean.
        ([1.0, 3.0, 100.0, None], (Clip(high=8.0), FillWith("mean")), [1.0, 3.0, 8.0, 4.0]),
        ([b" a ", b"  ", None], (Trim(),), [b"a", b"none", b"none"]),
        (["\u00c9TE".encode()], (LowerCase(),), ["\u00e9te".encode()]),
    ],
)
def test_steps_change_values(
    column: list[Any], steps: tuple[Any, ...], expected: list[Any], transform: Transform
) -> None:
    rest = "none" if isinstance(expected[0], bytes) else -1
    made = transform({"x": column}, [Fill("x", rest, clean=steps)])["x"][:, 0].tolist()
    assert made == (expected if isinstance(expected[0], bytes) else pytest.approx(expected))


def test_fill_keeps_values_and_type(transform: Transform) -> None:
    made = transform({"x": [1, None, 3], "y": [1.5, None, 2.5]}, [Fill("x", 7), Fill("y", -1)])
    assert made["x"].tolist() == [[1], [7], [3]]
    assert made["x"].dtype == np.int64
    assert made["y"].tolist() == [[1.5], [-1.0], [2.5]]


def test_a_column_without_any_value_has_nothing_to_be_filled_with(transform: Transform) -> None:
    with pytest.raises(InfeedError, match="column 'x' has no values"):
        transform({"x": [float("nan"), float("nan")]}, [Fill("x", 0.0, clean=(FillWith("median"),))])


def test_steps_survive_json() -> None:
    features = [
        ZScore("x", clean=(FillWith("median"), Clip(high=9.0))),
        Vocabulary("y", clean=(Trim(),)),
    ]
    plain = features_to_json(features)
    assert plain[1]["clean"] == [{"kind": "trim"}]
    assert features_from_json(plain) == features


@pytest.mark.parametrize(
    ("feature", "type_", "message"),
    [
        (ZScore("x", clean=(Trim(),)), "float", "Trim needs text, but column 'x' holds numbers with fractions"),
        (Vocabulary("x", clean=(Clip(0.0),)), "bytes", "Clip needs whole numbers or numbers with fractions, but"),
        (Vocabulary("x", clean=(FillWith("mean"),)), "int", "Vocabulary needs whole numbers or text, but"),
        (Vocabulary("x", clean=(FillWith("mode"),)), "float", "FillWith needs whole numbers or text, but"),
    ],
)
def test_a_type_that_a_step_cannot_take_is_an_error(feature: Any, type_: str, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        check_types([feature], {"x": type_})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FillWith(float("inf")), "value is inf\n"),
        (lambda: Clip(), "low is None\n"),
        (lambda: Clip(2.0, 1.0), "high is 1.0\n"),
    ],
)
def test_a_bad_option_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=f"^{message}"):
        build()


REVIEWS = [b"Good, good coffee", None, "Très bon café!".encode(), b"", b"bad coffee"]


def filled(transform: Transform, texts: list[bytes | None], *steps: Any) -> list[bytes]:
    return transform({"x": texts}, [Fill("x", "none", clean=steps)])["x"][:, 0].tolist()


def test_trimmed_text_of_nothing_but_space_is_missing(transform: Transform) -> None:
    texts = [b"  a  b\t", "\u3000".encode(), None, b"c"]
    assert filled(transform, texts, Trim()) == [b"a  b", b"none", b"none", b"c"]
    assert filled(transform, texts, Trim(inner=True)) == [b"a b", b"none", b"none", b"c"]


def test_steps_are_done_in_their_order(transform: Transform) -> None:
    assert filled(transform, ["ÉTÉ ".encode(), None], LowerCase(), StripAccents(), Trim()) == [b"ete", b"none"]


def test_lower_case_is_unicodes(transform: Transform) -> None:
    text = "ÄÖÜ ΣΑΣ İ ЯЖ ǅ"
    assert filled(transform, [text.encode()], LowerCase()) == [text.lower().encode()]


def test_tokens_have_indices_padded_to_a_length(transform: Transform) -> None:
    feature = Vocabulary("x", clean=(LowerCase(), StripAccents(), Tokens()), length=3)
    found = transform({"x": REVIEWS}, [feature], served={"x": [*REVIEWS, b"a fine good coffee, good"]})["x"]
    # good 2, coffee 2, then tres, cafe, bon, bad: of equally frequent ones the later first
    assert found.tolist() == [[1, 1, 2], [0, 0, 0], [3, 5, 4], [0, 0, 0], [6, 2, 0], [7, 7, 1]]
    assert found.dtype == np.int64


def test_tokens_have_ragged_indices_without_a_length(transform: Transform) -> None:
    found = transform({"x": REVIEWS}, [Vocabulary("x", clean=(LowerCase(), Tokens()), min_count=2, oov=0)])["x"]
    assert [row.tolist() if isinstance(row, np.ndarray) else row for row in found] == [
        [1, 1, 2],
        [],
        [0] * 3,
        [],
        [0, 2],
    ]


def test_a_row_of_several_texts_has_the_tokens_of_all(transform: Transform) -> None:
    feature = Vocabulary("x", clean=(Tokens(ngrams=(2, 2)),), values="all", length=3)
    found = transform({"x": [[b"a b", b"b c d"], [], [b"x"]]}, [feature])["x"]
    assert found.tolist() == [[3, 2, 1], [0, 0, 0], [0, 0, 0]]


def test_every_feature_of_categories_takes_tokens(transform: Transform) -> None:
    steps = (LowerCase(), Tokens("whitespace"))
    features = [
        OneHot("x", output="hot", clean=steps, size=1),
        Hash("x", output="hash", buckets=5, clean=steps, length=2),
    ]
    found = transform({"x": [b"A b", b"a", None]}, features)
    assert found["hot"].tolist() == [[0, 1, 1], [0, 1, 0], [0, 0, 0]]
    assert found["hash"].shape == (3, 2)
    assert found["hash"][1:, 1:].tolist() == [[0], [0]]


def test_characters_are_tokens(transform: Transform) -> None:
    found = transform({"x": ["aé".encode(), b"a"]}, [Vocabulary("x", clean=(Tokens("characters"),), length=2)])["x"]
    assert found.tolist() == [[1, 2], [1, 0]]


@pytest.mark.parametrize("ngrams", [(0, 1), (2, 1), (1,)])
def test_a_range_of_ngrams_is_checked(ngrams: Any) -> None:
    with pytest.raises(InfeedError, match=r"(?s)ngrams is .*least, most"):
        Tokens(ngrams=ngrams)


def test_a_unit_is_checked() -> None:
    with pytest.raises(InfeedError, match=r"(?s)unit is 'sentence'.*words, whitespace, characters"):
        Tokens("sentence")  # type: ignore[arg-type]
