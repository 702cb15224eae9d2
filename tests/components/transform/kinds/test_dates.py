"""Parts of dates, as steps before other features."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.clean import Fill
from infeed.components.transform.kinds.dates import DatePart
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
