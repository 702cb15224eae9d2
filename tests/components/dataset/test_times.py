"""Times of columns, beside Python's datetime."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.times import format_advice, holds_times, parse, read_column, read_limit, shown, times_of

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
MICROSECOND = dt.timedelta(microseconds=1)
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
INSTANTS = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31), timezones=OFFSETS)


def micros(values: pa.Array, form: str = "iso") -> list[int | None]:
    times = times_of(values, form)
    return [time if valid else None for time, valid in zip(times.micros.tolist(), times.valid.tolist(), strict=True)]


def of_python(text: str, form: str) -> int | None:
    try:
        time = dt.datetime.strptime(text, form)
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)) - EPOCH) // MICROSECOND


@given(st.lists(INSTANTS, min_size=1, max_size=20))
def test_iso_text_is_the_instant_that_python_reads(instants: list[dt.datetime]) -> None:
    texts = [instant.isoformat() for instant in instants]
    assert micros(pa.array(texts)) == [(instant - EPOCH) // MICROSECOND for instant in instants]
    assert times_of(pa.array(texts)).has_offset.all()


@pytest.mark.parametrize(
    "form",
    [
        *("%d.%m.%Y %H:%M", "%b %d, %Y %I:%M %p", "%Y%m%d", "%m/%d/%y", "%Y%j", "%Y-%m", "%Y"),
        *("%A %d %B %Y %H:%M:%S.%f %z", "%a, %d %b %Y 100%% (%H+%M)"),
    ],
)
@given(instants=st.lists(INSTANTS, min_size=1, max_size=20))
def test_a_format_reads_what_strptime_reads(form: str, instants: list[dt.datetime]) -> None:
    texts = [instant.strftime(form.replace("%Y", f"{instant.year:04}")) for instant in instants]
    assert micros(pa.array(texts, pa.large_string()), form) == [of_python(text, form) for text in texts]


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("2024", "2024-01-01T00:00:00+00:00"),
        ("2024-02", "2024-02-01T00:00:00+00:00"),
        (" 2024-02-29t17Z ", "2024-02-29T17:00:00+00:00"),
        ("2024-02-29 17:05", "2024-02-29T17:05:00+00:00"),
        ("2024-02-29T17:05:09,123456789-0330", "2024-02-29T17:05:09.123456-03:30"),
        ("1969-12-31T23:59:59.9", "1969-12-31T23:59:59.900000+00:00"),
    ],
)
def test_iso_may_be_short_and_is_utc_without_an_offset(text: str, full: str) -> None:
    expected = (dt.datetime.fromisoformat(full) - EPOCH) // MICROSECOND
    assert micros(pa.array([text])) == micros(pa.array([text.encode()])) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        *("", "2023-02-29", "2024-2-9", "2024-02-29T24:00", "29.2.2024", "é", "0000-01-01", "2024-13", "2024-06-31"),
        *("06/15/2024", "Jun 15, 2024", "20240615", "2024-06-15T12:00+24:00", "2024-06-15x", "0001-01-01T00:00+01:00"),
    ],
)
def test_what_is_not_iso_is_not_valid(text: str) -> None:
    assert micros(pa.array([text, None])) == [None, None]


def test_bytes_that_are_no_text_are_no_times() -> None:
    assert micros(pa.array([b"\xff", b"2024-01-01"])) == [None, 1_704_067_200_000_000]


@pytest.mark.parametrize(
    ("values", "form", "expected"),
    [
        (pa.array([dt.date(1969, 12, 31), None]), "iso", [-86_400_000_000, None]),
        (pa.array([dt.date(1970, 1, 2)], pa.date64()), "iso", [86_400_000_000]),
        (pa.array([-1, 1_999], pa.timestamp("ns")), "iso", [-1, 1]),
        (pa.array([-3], pa.timestamp("s", "Asia/Tokyo")), "iso", [-3_000_000]),
        (pa.array([20240229, 20240230]), "%Y%m%d", [1_709_164_800_000_000, None]),
        (pa.array([-1, 1 << 60]), "epoch_s", [-1_000_000, None]),
        (pa.array([1.5, float("nan"), None]), "epoch_s", [1_500_000, None, None]),
        (pa.array([-1, 2_500]), "epoch_ns", [-1, 2]),
    ],
)
def test_columns_of_other_types(values: pa.Array, form: str, expected: list[int | None]) -> None:
    assert holds_times(values.type, form)
    assert micros(values, form) == expected


@pytest.mark.parametrize(
    ("values", "has_offset"),
    [
        (["2024-01-01", "2024-01-01T00:00Z", "2024-01-01T00:00-05"], [False, True, True]),
        (pa.array([0], pa.timestamp("us", "UTC")), [True]),
        (pa.array([0], pa.timestamp("us")), [False]),
    ],
)
def test_a_time_knows_whether_it_has_an_offset(values: Any, has_offset: list[bool]) -> None:
    assert times_of(pa.array(values) if isinstance(values, list) else values).has_offset.tolist() == has_offset


@pytest.mark.parametrize(("type_", "form"), [(pa.int64(), "iso"), (pa.float64(), "%Y"), (pa.list_(pa.string()), "iso")])
def test_columns_that_hold_no_times(type_: pa.DataType, form: str) -> None:
    assert not holds_times(type_, form)


def test_a_column_without_rows() -> None:
    assert len(parse(pa.array([], pa.string()), "iso").micros) == 0


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
