"""What formats of dates may say; what they read is in `test_times.py` and `../transform/kinds/test_dates.py`."""

from __future__ import annotations

import re

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.time_formats import formats_of, pieces_of, regex_of


@pytest.mark.parametrize(
    ("form", "text", "year"),
    [
        ("iso", "2024-02-29t17:05:09.25+01:00", "2024"),
        ("iso", "2024-02", "2024"),
        ("%d.%m.%Y", "1.2.1999", "1999"),
        ("(%Y) %B %d", "(2001)  june 5", "2001"),
        ("%Y-%m", "1999-3", "1999"),
    ],
)
def test_a_format_is_a_regular_expression(form: str, text: str, year: str) -> None:
    match = re.fullmatch(regex_of(pieces_of(form), "Y"), text)
    assert match
    assert match.groups() == (year,)
    assert re.fullmatch(regex_of(pieces_of(form)), text + "x") is None


def test_a_format_must_say_the_date_once() -> None:
    for form in ("%H:%M", "%Y-%d", "%d.%m", "%Y %Y-%m-%d"):
        with pytest.raises(InfeedError, match="the date once"):
            pieces_of(form)


def test_an_unknown_directive_is_named() -> None:
    with pytest.raises(InfeedError, match=r"'%q'"):
        pieces_of("%Y-%q-%d")
    with pytest.raises(InfeedError, match="'%'"):
        pieces_of("%Y-%m-%d %")


@pytest.mark.parametrize(
    ("texts", "forms"),
    [
        (["2024-06-15T12:00:00Z"], ["iso"]),
        (["06/15/2024"], ["%m/%d/%Y"]),
        (["06/05/2024", "6/7/2024"], ["%d/%m/%Y", "%m/%d/%Y"]),
        (["06/05/24", "6/17/24"], ["%m/%d/%y"]),
        (["15.06.24 12:00"], ["%d.%m.%y %H:%M"]),
        (["Jun 15, 2024 1:30 pm"], ["%b %d, %Y %I:%M %p"]),
        (["soon"], []),
    ],
)
def test_the_usual_formats_that_fit(texts: list[str], forms: list[str]) -> None:
    assert formats_of(texts) == forms
