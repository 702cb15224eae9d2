"""Pretrained vectors as features, and the files that hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.vectors import PretrainedVectors

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
STEPS = (LowerCase(), Tokens())
VECTORS = {"good": [1.0, 0.0], "coffee": [0.5, 2.0], "tea": [-1.0, 1.0]}


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {one} {two}\n" for word, (one, two) in VECTORS.items()))
    return str(path)


def test_vectors_of_words_missing_ones_and_ones_the_file_lacks(vectors: str, transform: Transform) -> None:
    columns = {"x": [b"tea", None, b"milk", b"good"]}
    features = [PretrainedVectors("x", vectors), PretrainedVectors("x", vectors, output="zero", unseen="zero")]
    found = transform(columns, features)
    mean = np.mean(list(VECTORS.values()), 0)
    np.testing.assert_allclose(found["x"], [VECTORS["tea"], [0, 0], mean, VECTORS["good"]], rtol=1e-6)
    np.testing.assert_allclose(found["zero"][2], [0, 0])
    assert found["x"].dtype == np.float32


def test_indices_lead_to_rows_of_the_table(vectors: str, transform: Transform) -> None:
    feature = PretrainedVectors("x", vectors, gives="indices", size=2)
    found = transform({"x": [b"coffee", None, b"tea", b"good"]}, [feature])["x"]
    assert found.tolist() == [[2], [0], [3], [1]]
    np.testing.assert_allclose(feature.table()[found[:, 0]], [[0.5, 2], [0, 0], [0.75, 1], [1, 0]])


def test_vectors_of_the_words_of_a_text(vectors: str, transform: Transform) -> None:
    columns = {"x": [b"Good, good coffee", None, b"tea"]}
    features = [
        PretrainedVectors("x", vectors, clean=STEPS, pool="mean"),
        PretrainedVectors("x", vectors, output="padded", clean=STEPS, length=2),
    ]
    found = transform(columns, features)
    np.testing.assert_allclose(found["x"], [[2.5 / 3, 2 / 3], [0, 0], [-1, 1]], rtol=1e-6)
    assert found["padded"].tolist() == [[[1, 0], [1, 0]], [[0, 0], [0, 0]], [[-1, 1], [0, 0]]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PretrainedVectors("x", ""), "file is ''"),
        (lambda: PretrainedVectors("x", "f", gives="indices", pool="mean"), "pool is 'mean'"),
        (lambda: PretrainedVectors("x", "f", size=0), "size is 0"),
    ],
)
def test_options_are_checked(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        make()


def test_a_file_that_is_not_there_is_named(transform: Transform) -> None:
    with pytest.raises(InfeedError, match="there is no file"):
        transform({"x": [b"a"]}, [PretrainedVectors("x", "/nowhere/vectors.txt")])


NUMBERS = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)
