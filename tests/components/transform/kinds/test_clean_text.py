"""Texts that are cleaned and taken apart before a feature is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from infeed.components.errors import InfeedError
from infeed.components.transform.kinds.clean import Fill, LowerCase, StripAccents, Tokens, Trim
from infeed.components.transform.kinds.encode import Hash, OneHot, Vocabulary

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
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
    with pytest.raises(InfeedError, match=r"(?s)ngrams is .*give it as \(least, most\)"):
        Tokens(ngrams=ngrams)


def test_a_unit_is_checked() -> None:
    with pytest.raises(InfeedError, match=r"(?s)unit is 'sentence'.*words, whitespace, characters"):
        Tokens("sentence")  # type: ignore[arg-type]
