from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base import units
from infeed.components.base.units import UniqueNames, like, one_line, plain, told_apart

TEXTS = {
    units.percent: {
        0: "0 %",
        0.00004: "0.0 %",
        0.0123: "1.2 %",
        0.0996: "10 %",
        0.343: "34 %",
        0.9965: "99.6 %",
        0.99999: "99.9 %",
        1: "100 %",
    },
    units.significant: {None: "unknown", 22374.2: "22,374", 0.93421: "0.9342", 6.9e9: "6,900,000,000"},
    units.times: {1.0134: "1.01 times", 2.38: "2.4 times", 9.96: "10 times"},
    units.seconds: {
        **{0.0021: "2.1 ms", 0.25: "250 ms", 1.23: "1.2 s"},
        **{59.97: "1 min 0 s", 754: "12 min 34 s", 7300: "2 h 1 min"},
    },
    units.size: {0: "0 B", 999: "999 B", 1234567: "1.2 MB", 160_000_000: "160 MB", 999_600: "1.0 MB"},
    units.number: {0: "0", 3.21: "3.2", 133009.4: "133,009"},
    units.listed: {(): "", ("a",): "a", ("a", "b"): "a and b", ("a", "b", "c"): "a, b and c"},
    units.stopwatch: {0.04: "0.0 s", 1.93: "1.9 s", 59.9: "59.9 s", 125: "2 min 05 s"},
    units.seconds_left: {0.2: "1 s left", 89.5: "90 s left", 754: "13 min left", 7260: "2 h 1 min left"},
}
CASES = [(function, *case) for function, texts in TEXTS.items() for case in texts.items()]


@pytest.mark.parametrize(("function", "value", "text"), CASES)
def test_values_have_texts(function: Callable[[Any], str], value: Any, text: str) -> None:
    assert function(value) == text


def test_counted() -> None:
    assert [units.counted(n, "epoch") for n in (0, 1, 1200)] == ["0 epochs", "1 epoch", "1,200 epochs"]
    assert [units.counted(2, noun) for noun in ("batch", "class", "pass")] == ["2 batches", "2 classes", "2 passes"]


def test_a_path_is_told_by_its_shorter_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert units.short_path(tmp_path / "a" / "log.txt") == "log.txt"
    assert units.short_path("/x") == "/x"


@pytest.mark.parametrize("text", ["\x1b", "\x07", "\x9b", "\r", "\u202e", "\udcff", "\u2066"])
def test_characters_that_a_terminal_would_obey_are_written_as_python_writes_them(text: str) -> None:
    assert plain(f"a{text}b\tc\n") == f"a{text.encode('unicode_escape').decode()}b\tc\n"


def test_a_cell_of_a_table_has_one_line() -> None:
    assert one_line("a\nb\tc\r\x1b") == "a\\nb\\tc\\r\\x1b"


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
