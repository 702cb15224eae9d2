"""Parts of dates, as steps before other features."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.time_formats import regexes_of
from infeed.components.dataset.times import times_of
from infeed.components.transform.kinds.clean import Fill
from infeed.components.transform.kinds.dates import DatePart, Part, from_epoch, parse, part_of
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.scale import ZScore

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
DATES = [b"31.12.2023 23:30", b"29.2.2024 07:05", None, b"29.2.2023 07:05", b"soon"]


def part(transform: Transform, column: list[Any], step: DatePart) -> list[int]:
    found = transform({"x": column}, [Fill("x", -1, clean=(step,))])["x"]
    assert found.dtype == np.int64
    return found[:, 0].tolist()


@pytest.mark.parametrize(("name", "expected"), [("month", [12, 2]), ("weekday", [6, 3]), ("hour", [23, 7])])
def test_a_date_that_is_missing_malformed_or_none_is_missing(
    name: Any, expected: list[int], transform: Transform
) -> None:
    assert part(transform, DATES, DatePart(name, "%d.%m.%Y %H:%M")) == [*expected, -1, -1, -1]


def test_another_clock_may_show_another_day(transform: Transform) -> None:
    step = DatePart("day", "%d.%m.%Y %H:%M", utc_offset=1)
    assert part(transform, DATES[:2], step) == [1, 29]
    assert part(transform, [0, 86_400_000 - 1], DatePart("hour", "epoch_ms", utc_offset=-5.5)) == [18, 18]


def test_numbers_are_since_1970(transform: Transform) -> None:
    time = dt.datetime(2024, 2, 29, 17, 5, tzinfo=dt.timezone.utc)
    seconds = int(time.timestamp())
    assert part(transform, [seconds, None, 2**62], DatePart("year", "epoch_s")) == [2024, -1, -1]
    assert part(transform, [seconds * 1000], DatePart("day_of_year", "epoch_ms")) == [60]
    assert part(transform, [float(seconds), float("nan")], DatePart("week", "epoch_s")) == [9, -1]


def test_features_follow_and_their_constants_are_those_of_the_part(transform: Transform) -> None:
    dates = [b"2024-01-01", b"2024-01-02", b"2024-01-08", None]
    found = transform(
        {"x": dates},
        [
            Vocabulary("x", output="weekday", clean=(DatePart("weekday"),)),
            ZScore("x", output="days", clean=(DatePart("days"),)),
        ],
    )
    assert found["weekday"][:, 0].tolist() == [1, 2, 1, 0]
    np.testing.assert_allclose(
        found["days"][:, 0], [*((np.array([0, 1, 7]) - 8 / 3) / np.std([0, 1, 7])), 0], rtol=1e-5
    )


@pytest.mark.parametrize("form", ["iso", "%d.%m.%Y"])
def test_text_is_taken_where_the_format_is_of_text(form: str) -> None:
    assert DatePart("year", form).takes == ("bytes",)
    assert DatePart("year", form).gives("bytes") == "int"


def test_what_a_step_may_say() -> None:
    assert DatePart("year", "epoch_s").takes == ("int", "float")
    with pytest.raises(InfeedError, match=r"(?s)the format '%q' contains '%q'.*use these"):
        DatePart("year", "%q")
    with pytest.raises(InfeedError, match=r"(?s)part is 'decade'.*use one of year, quarter"):
        DatePart("decade")  # type: ignore[arg-type]
    with pytest.raises(InfeedError, match="utc_offset is 90"):
        DatePart("year", utc_offset=90)


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
NAIVE_EPOCH = dt.datetime(1970, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)
RNG = np.random.default_rng(5)
SECONDS = [*RNG.uniform(-3e9, 4e9, 300), -62_135_596_800, 253_402_300_799, 951_782_400]  # 0001, 9999, a leap day


def micros(texts: list[str], form: str) -> list[int | None]:
    """What `parse` gives, None where it is not valid."""
    times = parse(tf.constant(texts), *regexes_of(form))
    assert times.micros.dtype == tf.int64
    return [time if valid else None for time, valid in zip(times.micros.numpy(), times.valid.numpy(), strict=True)]


def of_python(text: str, form: str) -> int | None:
    try:
        time = dt.datetime.strptime(text, form)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)).__sub__(EPOCH) // MICROSECOND


@pytest.mark.parametrize(
    "form",
    [
        "%d.%m.%Y %H:%M",
        "%b %d, %Y %I:%M %p",
        "%Y%m%d",
        "%m/%d/%y",
        "%y%j",
        "%A %d %B %Y %H:%M:%S.%f %z",
        "%a, %d %b %Y 100%% (%H+%M)",
    ],
)
def test_a_format_reads_what_strptime_reads(form: str) -> None:
    times = [EPOCH + dt.timedelta(seconds=float(seconds)) for seconds in SECONDS]
    zones = [dt.timezone(dt.timedelta(minutes=int(minutes))) for minutes in RNG.integers(-700, 700, len(times) - 3)]
    times = [time.astimezone(zone) for time, zone in zip(times, zones, strict=False)] + times[-3:]
    texts = [time.strftime(form.replace("%Y", f"{time.year:04}")) for time in times]
    found = micros(texts, form)
    assert None not in found
    assert found == [of_python(text, form) for text in texts]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("30.02.2024", "%d.%m.%Y"),
        ("29.02.1900", "%d.%m.%Y"),
        ("29.02.2000", "%d.%m.%Y"),
        ("1.2.2024", "%d.%m.%Y"),
        ("32.1.2024", "%d.%m.%Y"),
        ("1.13.2024", "%d.%m.%Y"),
        ("1.1.0000", "%d.%m.%Y"),
        ("1.1.2024 24:00", "%d.%m.%Y %H:%M"),
        ("1.1.2024  7:05", "%d.%m.%Y %H:%M"),
        ("2024131", "%Y%m%d"),
        ("2024366", "%Y%j"),
        ("12 am 2024-01-01", "%I %p %Y-%m-%d"),
        ("12 PM 2024-01-01", "%I %p %Y-%m-%d"),
        ("", "%Y-%m-%d"),
        ("2024-01-01x", "%Y-%m-%d"),
        ("June 5 2024", "%B %d %Y"),
    ],
)
def test_what_strptime_refuses_is_not_valid(text: str, form: str) -> None:
    assert micros([text], form) == [of_python(text, form)]


def test_the_366th_day_of_a_common_year_is_not_valid() -> None:
    assert micros(["2023366"], "%Y%j") == [None]  # Python takes it for the first day of 2024


@pytest.mark.parametrize("form", ["iso", "%Y-%m", "%d.%m.%y %H:%M", "%b %d, %Y %I %p", "%Y%j", "%Y-%m-%dT%H:%M:%S%z"])
def test_ingest_reads_the_same_instants_as_the_graph(form: str) -> None:
    """The two implementations share the expressions of the formats, and nothing else."""
    some = ["2024", "2024-02", "2024-02-30", "2024-2-9", "2024-02-29T17", "31.04.99 23:59", "jan 31, 0001 12 PM", "x"]
    times = [EPOCH + dt.timedelta(seconds=float(seconds)) for seconds in SECONDS]
    texts = [*some, *(time.strftime(form).rjust(8) if form != "iso" else time.isoformat() for time in times)]
    found = times_of(pa.array(texts), form)
    ours = [time if valid else None for time, valid in zip(found.micros.tolist(), found.valid.tolist(), strict=True)]
    assert ours == micros(texts, form)


def test_iso_has_times_fractions_and_offsets() -> None:
    texts = {
        "2024-02-29": "2024-02-29T00:00:00+00:00",
        "2024-02": "2024-02-01T00:00:00+00:00",
        "2024-02-29T17": "2024-02-29T17:00:00+00:00",
        "2024-02-29T17:05": "2024-02-29T17:05:00+00:00",
        "2024-02-29 17:05:09": "2024-02-29T17:05:09+00:00",
        " 2024-02-29t17:05:09.25z ": "2024-02-29T17:05:09.250000+00:00",
        "2024-02-29T17:05:09,123456789-0330": "2024-02-29T17:05:09.123456-03:30",
        "2024-02-29T17:05+01": "2024-02-29T17:05:00+01:00",
        "1969-12-31T23:59:59.999999": "1969-12-31T23:59:59.999999+00:00",
    }
    expected = [(dt.datetime.fromisoformat(text) - EPOCH) // MICROSECOND for text in texts.values()]
    assert micros(list(texts), "iso") == expected


@pytest.mark.parametrize("text", ["", "2023-02-29", "2024-2-9", "2024-02-29T24:00", "29.2.2024", "é"])
def test_what_is_not_iso_is_not_valid(text: str) -> None:
    assert micros([text], "iso") == [None]


def test_a_time_beyond_the_calendar_is_not_valid() -> None:
    assert micros(["9999-12-31T23:59:59-01:00", "0001-01-01T00:00+01:00"], "iso") == [None, None]


def test_any_shape_is_kept() -> None:
    times = parse(tf.constant([["2024-01-01", "x"], ["2024-01-02", ""]]), *regexes_of("%Y-%m-%d"))
    assert times.valid.numpy().tolist() == [[True, False], [True, False]]


MICROS = np.array(
    [
        *RNG.integers(-62_135_596_800_000_000, 253_402_300_800_000_000, 2_000),
        *RNG.integers(-(10**15), 2 * 10**15, 2_000),
        *(-62_135_596_800_000_000, 253_402_300_799_999_999, -1, 0, 951_782_400_000_000),
    ]
)
TIMES = [NAIVE_EPOCH + dt.timedelta(microseconds=int(micros)) for micros in MICROS]
OF_PYTHON: dict[str, Callable[[dt.datetime], int]] = {
    "year": lambda time: time.year,
    "quarter": lambda time: math.ceil(time.month / 3),
    "month": lambda time: time.month,
    "week": lambda time: time.isocalendar()[1],
    "day": lambda time: time.day,
    "day_of_year": lambda time: time.timetuple().tm_yday,
    "weekday": lambda time: time.weekday(),
    "hour": lambda time: time.hour,
    "minute": lambda time: time.minute,
    "second": lambda time: time.second,
    "days": lambda time: (time - NAIVE_EPOCH).days,
    "seconds": lambda time: (time - NAIVE_EPOCH) // dt.timedelta(seconds=1),
}


@pytest.mark.parametrize("part", get_args(Part))
def test_parts_are_those_of_datetime(part: str) -> None:
    found = part_of(tf.constant(MICROS), part)
    assert found.dtype == tf.int64
    assert found.numpy().tolist() == [OF_PYTHON[part](time) for time in TIMES]


@pytest.mark.parametrize(("unit", "scale"), [("epoch_s", 10**6), ("epoch_ms", 10**3), ("epoch_us", 1)])
def test_epochs_become_microseconds(unit: str, scale: int) -> None:
    numbers = MICROS // scale
    times = from_epoch(tf.constant(numbers), unit)
    assert times.valid.numpy().all()
    assert (times.micros.numpy() == numbers * scale).all()


def test_nanoseconds_are_cut() -> None:
    assert from_epoch(tf.constant([1_999, -1], tf.int64), "epoch_ns").micros.numpy().tolist() == [1, -1]


def test_numbers_with_fractions_are_epochs_too() -> None:
    times = from_epoch(tf.constant([0.5, -0.25, math.nan, math.inf, -math.inf, 1e30]), "epoch_s")
    assert times.valid.numpy().tolist() == [True, True, False, False, False, False]
    assert times.micros.numpy().tolist() == [500_000, -250_000, 0, 0, 0, 0]


@pytest.mark.parametrize("unit", ["epoch_s", "epoch_ms", "epoch_us"])
def test_beyond_the_calendar_is_not_valid(unit: str) -> None:
    numbers = tf.constant([2**63 - 1, -(2**63), 253_402_300_800_000_000, 0], tf.int64)
    assert from_epoch(numbers, unit).valid.numpy().tolist() == [False, False, False, True]
