"""What formats of dates may say; what they read is in `../operators/test_dates.py`."""

from __future__ import annotations

import re

import pytest

from infeed.components.errors import InfeedError
from infeed.components.transform.kinds.dates import pieces_of, regex_of


@pytest.mark.parametrize(
    ("form", "text", "year"),
    [
        ("iso", "2024-02-29t17:05:09.25+01:00", "2024"),
        ("%d.%m.%Y", "1.2.1999", "1999"),
        ("(%Y) %B %d", "(2001)  june 5", "2001"),
    ],
)
def test_a_format_is_a_regular_expression(form: str, text: str, year: str) -> None:
    match = re.fullmatch(regex_of(pieces_of(form), "Y"), text)
    assert match
    assert match.groups() == (year,)
    assert re.fullmatch(regex_of(pieces_of(form)), text + "x") is None


def test_a_format_must_say_the_day_once() -> None:
    for form in ("%H:%M", "%Y-%m", "%d.%m", "%Y %Y-%m-%d"):
        with pytest.raises(InfeedError, match="the day once"):
            pieces_of(form)


def test_an_unknown_directive_is_named() -> None:
    with pytest.raises(InfeedError, match=r"(?s)has '%q'.*use these: %Y %y"):
        pieces_of("%Y-%q-%d")
    with pytest.raises(InfeedError, match="has '%'"):
        pieces_of("%Y-%m-%d %")
