"""Steps before a feature, by tables of what goes in and comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from infeed.components.errors import InfeedError
from infeed.components.transform.features import check_types, features_from_json, features_to_json
from infeed.components.transform.kinds.clean import Clip, Fill, FillWith, IsOutlier, LowerCase, Outliers, Trim
from infeed.components.transform.kinds.encode import Vocabulary
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
        ([1.0, 2.0, 3.0, 4.0, 100.0, 2.0], (Outliers(then="clip"),), [1.0, 2.0, 3.0, 4.0, 7.0, 2.0]),
        ([1.0, 2.0, 3.0, 4.0, 100.0, 2.0], (Outliers(),), [1.0, 2.0, 3.0, 4.0, -1.0, 2.0]),
        # Each step sees what those before it give: 100 is no part of the mean.
        ([1.0, 2.0, 3.0, 4.0, 100.0, 2.0], (Outliers(), FillWith("mean")), [1.0, 2.0, 3.0, 4.0, 2.4, 2.0]),
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


def test_outliers_are_flagged(transform: Transform) -> None:
    made = transform({"x": [1.0, 2.0, 3.0, 4.0, 100.0, None]}, [IsOutlier("x"), IsOutlier("x", "farther", 100.0)])
    assert made["x"].tolist() == [[0], [0], [0], [0], [1], [0]]
    assert made["farther"].tolist() == [[0]] * 6
    assert made["x"].dtype == np.int64


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
        ZScore("x", clean=(Outliers(reach=3.0), FillWith("median"), Clip(high=9.0))),
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
        (lambda: Outliers(reach=-1.0), "reach is -1.0\n"),
        (lambda: Outliers(then="drop"), "then is 'drop'\n"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_option_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=f"^{message}"):
        build()
