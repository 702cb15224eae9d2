"""Parts of times, beside Python's datetime."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.transform.kinds.dates import Part
from infeed.components.transform.operators.dates import from_epoch, part_of

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

EPOCH = dt.datetime(1970, 1, 1)
RNG = np.random.default_rng(5)
MICROS = np.array(
    [
        *RNG.integers(-62_135_596_800_000_000, 253_402_300_800_000_000, 2_000),
        *RNG.integers(-(10**15), 2 * 10**15, 2_000),
        *(-62_135_596_800_000_000, 253_402_300_799_999_999, -1, 0, 951_782_400_000_000),
    ]
)
TIMES = [EPOCH + dt.timedelta(microseconds=int(micros)) for micros in MICROS]
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
    "days": lambda time: (time - EPOCH).days,
    "seconds": lambda time: (time - EPOCH) // dt.timedelta(seconds=1),
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
