from __future__ import annotations

import keyword
import random
import re

from hypothesis import given
from hypothesis import strategies as st

from infeed.components.trainer.export import argument_names, examples_argument


def test_a_name_that_tensorflow_accepts_stays_and_others_are_made_of_theirs() -> None:
    assert argument_names(["image/encoded", "a b", "a_b", "1st", "_id", "größe"]) == {
        "1st": "f_1st",
        "_id": "f__id",
        "größe": "gr__e",
        "a b": "a_b_2",
        "a_b": "a_b",
        "image/encoded": "image_encoded",
    }


def test_names_that_differ_in_case_alone_get_numbers() -> None:
    assert argument_names(["a", "A", "b"]) == {"A": "A", "a": "a_2", "b": "b"}


def test_reserved_names_are_marked() -> None:
    assert argument_names(["self", "examples", "class", "None"]) == {
        "self": "f_self",
        "examples": "f_examples",
        "class": "f_class",
        "None": "f_None",
    }


def test_the_argument_of_examples_has_no_columns_name() -> None:
    assert examples_argument(["age", "example"]) == "examples"
    assert examples_argument(["age", "examples"]) == "examples_2"
    assert examples_argument(["Examples", "examples_2"]) == "examples_3"


NAMES = st.one_of(st.text(max_size=8), st.sampled_from([*keyword.kwlist, "self", "examples", "A", "a", "f_a", "a_2"]))


@given(st.sets(NAMES, max_size=40), st.randoms())
def test_all_names_become_arguments_that_differ_whatever_their_order(names: set[str], shuffler: random.Random) -> None:
    found = argument_names(names)
    shuffled = sorted(names)
    shuffler.shuffle(shuffled)
    assert found.keys() == names
    assert argument_names(shuffled) == found
    assert len({argument.lower() for argument in found.values()}) == len(names)
    for argument in found.values():
        assert re.fullmatch("[A-Za-z][A-Za-z0-9_]*", argument)
        assert not keyword.iskeyword(argument)
        assert argument not in ("self", "examples")
