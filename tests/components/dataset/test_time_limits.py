from __future__ import annotations

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.time_limits import format_advice, read_column, read_limit, shown


@pytest.mark.parametrize(
    ("text", "form", "micros", "has_offset"),
    [
        ("1970-01-02", "iso", 86_400_000_000, False),
        ("1970-01-01T00:00:00.000001000+00:00", "iso", 1, True),
        ("01/02/1970", "%m/%d/%Y", 86_400_000_000, False),
        ("1970-01-02", "%m/%d/%Y", 86_400_000_000, False),
        ("1970-02-01", "%Y-%d-%m", 86_400_000_000, False),  # the format of the column comes first
        ("1970-01-02", "epoch_s", 86_400_000_000, False),
    ],
)
def test_a_limit_has_the_format_of_the_column_or_iso(text: str, form: str, micros: int, has_offset: bool) -> None:
    limit = read_limit(text, form, "here")
    assert limit
    assert (limit.micros, limit.has_offset) == (micros, has_offset)


def test_text_of_neither_form_is_no_limit() -> None:
    assert read_limit("01/02/1970", "iso", "here") is None
    assert read_limit("soon", "epoch_s", "here") is None


def test_a_limit_below_a_microsecond_is_refused() -> None:
    with pytest.raises(InfeedError, match=r"00\.1234567") as raised:
        read_limit("2020-01-01T00:00:00.1234567", "iso", "here")
    assert raised.value.where == "here"


def test_nulls_are_not_valid_and_no_error() -> None:
    assert read_column(pa.array(["2020", None]), "iso", [], "here", "").valid.tolist() == [True, False]


@pytest.mark.parametrize(
    ("examples", "advice"),
    [
        (["13/01/2020"], "F '%d/%m/%Y'"),
        (["01/02/2020", "01/13/2020"], "F '%m/%d/%Y'"),
        (["01/02/2020"], "F '%d/%m/%Y' or F '%m/%d/%Y'"),
        (["13/01/2020", "soon"], "F '%d/%m/%Y'"),
        (["17/05/20"], "F '%d/%m/%y'"),
    ],
)
def test_the_advice_lists_the_formats_that_fit(examples: list[str], advice: str) -> None:
    assert format_advice(examples, "F {}").endswith(f"such as {advice}")


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("soon", "iso"),
        ("2020-W20", "%m/%d/%Y"),
        ("2020-05-17 24:00:00", "%m/%d/%Y"),
        ("31/02/2020", "%d/%m/%Y"),
    ],
)
def test_without_a_fitting_format_the_advice_names_the_text_and_no_format(text: str, failed: str) -> None:
    with pytest.raises(InfeedError) as raised:
        read_column(pa.array([text]), failed, [], "here", "--time-format {}")
    assert repr(text) in raised.value.do
    assert "%" not in raised.value.do


def test_a_value_is_shown_as_text() -> None:
    assert shown(pa.array([b"a\xff"]), 0) == "a\N{REPLACEMENT CHARACTER}"
    assert shown(pa.array([0], pa.timestamp("s", "America/New_York")), 0) == "1969-12-31 19:00:00-0500"
