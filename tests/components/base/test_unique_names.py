from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.unique_names import UniqueNames, like, told_apart


def taken(names: list[str]) -> list[str]:
    unique = UniqueNames()
    return [unique.take(name) for name in names]


def test_the_first_keeps_its_name_and_the_others_get_numbers() -> None:
    assert taken(["A", "a", "b", "A"]) == ["A", "a_2", "b", "A_3"]


def test_a_number_that_another_name_has_is_passed_over() -> None:
    assert taken(["a", "a_2", "a", "a"]) == ["a", "a_2", "a_3", "a_4"]


def test_two_spellings_of_one_letter_are_one_name() -> None:
    assert taken(["\u00e9", "e\u0301", "\u212a", "k"]) == ["\u00e9", "e\u0301_2", "\u212a", "k_2"]


@given(st.lists(st.text(max_size=4), max_size=30))
def test_all_names_differ_where_case_does_not_count(names: list[str]) -> None:
    folded = [unicodedata.normalize("NFKC", name).casefold() for name in taken(names)]
    assert len(set(folded)) == len(names)


@given(st.lists(st.text("aA e\u0301\u00e9\u00a0", max_size=4), min_size=2, max_size=3, unique=True))
def test_names_that_differ_are_told_apart(names: list[str]) -> None:
    looks = [unicodedata.normalize("NFC", name) for name in told_apart(names)]
    assert len(set(looks)) == len(names)


@given(st.text(max_size=6))
def test_case_spaces_and_forms_do_not_count(name: str) -> None:
    assert like(f" {unicodedata.normalize('NFD', name)} ") == like(unicodedata.normalize("NFC", name))
