from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.slices import SliceSpec, Values, slice_rows

COLUMNS = ("a", "b", "c")
rows = st.lists(st.tuples(*[st.lists(st.sampled_from("xyz"), max_size=3)] * 3), min_size=1, max_size=12)
crosses = st.sets(st.sampled_from(COLUMNS), max_size=3)
values = st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from("xyz"), max_size=2)


def column(lists: list[list[Any]]) -> Values:
    flat = [value for inside in lists for value in inside]
    return Values(np.repeat(np.arange(len(lists)), [len(inside) for inside in lists]), np.array(flat, object))


@given(table=rows, crossed=crosses, given_values=values)
def test_rows_are_in_the_slices_of_all_their_values(
    table: Any, crossed: set[str], given_values: dict[str, str]
) -> None:
    spec = SliceSpec(tuple(sorted(crossed - given_values.keys())), tuple(sorted(given_values.items())))
    columns = {name: column([[v.encode() for v in row[i]] for row in table]) for i, name in enumerate(COLUMNS)}
    expected: dict[Any, list[int]] = {}
    for number, row in enumerate(table):
        of_row = {name: sorted(set(row[i])) for i, name in enumerate(COLUMNS)}
        if all(value in of_row[name] for name, value in given_values.items()):
            for parts in itertools.product(*([(name, value) for value in of_row[name]] for name in spec.columns)):
                expected.setdefault(tuple(sorted([*spec.values, *parts])), []).append(number)
    (found,) = slice_rows([spec], len(table), columns.get)
    assert {key: inside.tolist() for key, inside in found.items()} == expected


def test_without_columns_it_is_all_rows() -> None:
    assert slice_rows([SliceSpec((), ())], 3, {}.get)[0][()].tolist() == [0, 1, 2]


def test_a_column_that_the_batch_lacks_has_no_slices() -> None:
    assert slice_rows([SliceSpec(("a",), ()), SliceSpec((), (("a", 1),))], 3, {}.get) == [{}, {}]


def test_numbers_are_values_too() -> None:
    numbers = Values.of(np.array([[5, 5], [5, 7]]))
    (found,) = slice_rows([SliceSpec(("n",), ())], 2, {"n": numbers}.get)
    assert {key: inside.tolist() for key, inside in found.items()} == {(("n", 5),): [0, 1], (("n", 7),): [1]}


def test_values_of_several_models_are_one_column() -> None:
    both = Values.of(np.array([1, 2])).joined(Values.of(np.array([1, 3])))
    (found,) = slice_rows([SliceSpec(("n",), ())], 2, {"n": both}.get)
    assert {key[0][1]: inside.tolist() for key, inside in found.items()} == {1: [0], 2: [1], 3: [1]}


def test_a_spec_of_tfma_says_what_its_values_look_like() -> None:
    class Spec:
        feature_keys = ["b", "a"]
        feature_values = {"n": "5", "f": "0.5", "t": "five", "v": "1.2.3"}

    spec = SliceSpec.of(Spec)
    assert spec.columns == ("a", "b")
    assert dict(spec.values) == {"n": 5, "f": 0.5, "t": "five", "v": "1.2.3"}
    assert str(SliceSpec(("a",), (("n", 5),))) == "n = 5 and each value of a"


def test_a_value_that_is_no_text_is_an_error() -> None:
    with pytest.raises(InfeedError, match=r"a value of column 'a' is not UTF-8: b'\\xff'"):
        slice_rows([SliceSpec(("a",), ())], 1, {"a": column([[b"\xff"]])}.get)
