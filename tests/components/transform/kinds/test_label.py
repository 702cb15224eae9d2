"""Labels: classes in a fixed order, quantities, lists of classes; and rows that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.clean import LowerCase
from infeed.components.transform.kinds.label import Label

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]


def test_classes_are_in_the_order_of_their_values_whatever_their_frequency(transform: Transform) -> None:
    made = transform({"n": [100, 2, 10, 2, -1], "s": [b"b", b"a", b"B", b"b", b"b"]}, [Label("n"), Label("s")])
    assert made["n"].tolist() == [3, 1, 2, 1, 0]
    assert made["s"].tolist() == [2, 1, 0, 2, 2]


def test_a_quantity_is_the_number_itself(transform: Transform) -> None:
    assert transform({"y": [1.5, 2.5]}, [Label("y", "regression")])["y"].tolist() == [1.5, 2.5]


def test_floats_that_are_whole_are_classes_as_their_integers_are(transform: Transform, tmp_path: Any) -> None:
    given: dict[str, Any] = {"y": [10.0, 2.0, float("nan"), -0.0, 2.0]}
    made = transform(given, [Label("y", missing="mark")])["y"]
    assert made.tolist() == [2, 1, -1, 0, 1]
    served = transform({"y": [0.0, 1.0]}, [Label("y")], served={"y": [1.0, 0.5, 7.0]})["y"]
    assert served.tolist() == [1, -1, -1]


def test_several_classes_a_row_are_one_vector(transform: Transform) -> None:
    made = transform({"y": [[b"a", b"c"], [], [b"b"], [b"a"]]}, [Label("y", "multilabel")])["y"]
    assert made.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_a_class_that_was_never_seen_is_marked(transform: Transform) -> None:
    assert transform({"y": [1, 2]}, [Label("y")], served={"y": [2, 3]})["y"].tolist() == [1, -1]


@pytest.mark.parametrize(
    ("values", "label", "what"),
    [
        ([1, None, 0, None], Label("y"), "column 'y' has no label in 2 rows"),
        ([1, None, 0, None], Label("y", "regression"), "column 'y' has no label in 2 rows"),
        ([0.5, 1.0], Label("y"), "has the label 0.5"),
        ([b"", b""], Label("y", missing="mark"), "column 'y' has no labels"),
        ([b"a\nb"], Label("y"), "which contains a line break"),
    ],
)
def test_labels_that_cannot_be_learned_are_an_error(
    values: list[Any], label: Label, what: str, transform: Transform
) -> None:
    with pytest.raises(InfeedError) as raised:
        transform({"y": values}, [label])
    assert what in raised.value.what


def test_rows_without_a_label_can_be_marked(transform: Transform) -> None:
    columns = {"y": [b"no", None, b"yes", b""], "z": [1.5, None, 2.5, float("nan")]}
    made = transform(columns, [Label("y", missing="mark"), Label("z", "regression", missing="mark")])
    assert made["y"].tolist() == [0, -1, 1, -1]
    np.testing.assert_array_equal(made["z"], [1.5, np.nan, 2.5, np.nan])


def test_labels_can_be_cleaned(transform: Transform) -> None:
    assert transform({"y": [b"YES", b"yes", b"no"]}, [Label("y", clean=(LowerCase(),))])["y"].tolist() == [1, 1, 0]
