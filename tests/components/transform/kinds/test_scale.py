"""Scaled numbers against NumPy and scikit-learn, which compute the same constants from all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler

from infeed.components.base.errors import InfeedError
from infeed.components.transform.analyses import ByKey, Moments
from infeed.components.transform.feature import Tables
from infeed.components.transform.kinds.clean import FillWith
from infeed.components.transform.kinds.scale import (
    Cycle,
    Log,
    MinMax,
    Robust,
    ZScore,
)

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
ROWS = 500
RNG = np.random.default_rng(7)
MISSING = RNG.random(ROWS) < 0.1
AGE = RNG.normal(1000.0, 3.0, ROWS).astype(np.float32)
INCOME = RNG.lognormal(1.0, 1.0, ROWS).astype(np.float32)
TRIPS = RNG.integers(0, 1000, ROWS)
TIME = 1_700_000_000_000_000 + TRIPS * 1_000_000  # microseconds since epoch; float32 is good to two minutes of them
CITY = RNG.choice([b"Basel", b"Bern", b"Chur"], ROWS, p=[0.6, 0.3, 0.1])


def gaps(values: np.ndarray) -> list[Any]:
    """None where MISSING says so."""
    return [None if missing else value for value, missing in zip(values.tolist(), MISSING, strict=True)]


def z_score(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    known = values[present].astype(np.float64)
    return np.where(present, (values - known.mean()) / known.std(), 0.0)


def test_z_score_equals_numpy_and_missing_is_zero(transform: Transform) -> None:
    columns = {"age": gaps(AGE), "trips": gaps(TRIPS), "time": TIME.tolist()}
    scaled = transform(
        columns, [ZScore("age"), ZScore("trips"), ZScore("trips", output="filled", fill=-1), ZScore("time")]
    )
    np.testing.assert_allclose(scaled["age"][:, 0], z_score(AGE, ~MISSING), atol=1e-5)
    np.testing.assert_allclose(scaled["trips"][:, 0], z_score(TRIPS, ~MISSING), atol=1e-5)
    filled = np.where(MISSING, -1, TRIPS)
    np.testing.assert_allclose(scaled["filled"][:, 0], z_score(filled, filled == filled), atol=1e-5)
    np.testing.assert_allclose(scaled["time"][:, 0], z_score(TRIPS, TRIPS == TRIPS), atol=1e-6)
    assert scaled["age"].shape == (ROWS, 1)
    assert scaled["age"].dtype == np.float32


@pytest.mark.parametrize("feature", [ZScore("x"), MinMax("x"), Robust("x")])
@pytest.mark.parametrize("column", [[0.1] * 9, [float("nan")] * 9, [5.0, float("nan"), 5.0]])
def test_a_constant_column_becomes_zero_with_a_warning(
    feature: Any, column: list[float], transform: Transform, caplog: pytest.LogCaptureFixture
) -> None:
    assert not transform({"x": column}, [feature])["x"].any()
    assert "column 'x' is " in caplog.text
    assert "is always 0, because column" in caplog.text


def test_min_max_goes_from_low_to_high_and_beyond(transform: Transform) -> None:
    columns = {"x": [10.0, 20.0, None, 30.0]}
    assert transform(columns, [MinMax("x")])["x"][:, 0].tolist() == [0.0, 0.5, 0.0, 1.0]
    wide = transform(columns, [MinMax("x", low=-1.0, high=3.0)], served={"x": [10.0, 40.0]})
    assert wide["x"][:, 0].tolist() == [-1.0, 5.0]


def test_robust_equals_scikit_learn(transform: Transform) -> None:
    odd = INCOME[: ROWS - 3]  # its quartiles are values of the data, as a sketch's are
    scaled = transform({"income": odd.tolist()}, [Robust("income")])["income"]
    np.testing.assert_allclose(
        scaled[:, 0], RobustScaler().fit_transform(odd[:, np.newaxis])[:, 0], rtol=1e-5, atol=0.02
    )


def test_log_is_that_of_one_more_and_nothing_where_there_is_none(transform: Transform) -> None:
    values = transform({"x": [0.0, np.e - 1, -1.0, None]}, [Log("x"), Log("x", output="plain", offset=0.0)])
    np.testing.assert_allclose(values["x"][:, 0], [0.0, 1.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(values["plain"][:, 0], [0.0, np.log(np.e - 1), 0.0, 0.0], atol=1e-6)


def test_each_key_has_its_own_constants_and_others_those_of_all(transform: Transform) -> None:
    columns = {"age": AGE.tolist(), "city": CITY.tolist()}
    scaled = transform(columns, [ZScore("age", key="city"), MinMax("age", output="range", key="city")])
    for city in set(CITY):
        of_city = AGE[city == CITY].astype(np.float64)
        np.testing.assert_allclose(
            scaled["age"][city == CITY, 0], (of_city - of_city.mean()) / of_city.std(), atol=1e-4
        )
        assert (scaled["range"][city == CITY, 0].min(), scaled["range"][city == CITY, 0].max()) == (0.0, 1.0)
    (unseen,) = transform(columns, [ZScore("age", key="city")], served={"age": [1003.0], "city": [b"Genf"]})["age"]
    assert unseen[0] == pytest.approx((1003.0 - AGE.astype(np.float64).mean()) / AGE.std(), abs=1e-4)


def test_more_keys_than_a_graph_should_hold_are_looked_up_in_a_file(tmp_path: Path) -> None:
    import tensorflow as tf

    keys = np.array([b"%d" % key for key in range(70_000)], object)
    by_key = ByKey(Moments)
    for value in (0.0, 2.0):
        by_key.add(np.arange(70_000, dtype=np.float32) + np.float32(value), keys)
    tables = Tables(str(tmp_path))
    found = tables.constants_by_key(by_key, lambda one: (one.mean, one.count), tf.constant(["7", "69999", "unseen"]))
    assert found.numpy().tolist() == [[8, 2], [70_000, 2], [35_000.5, 140_000]]
    assert [len(file.read_bytes().splitlines()) for file in tmp_path.iterdir()] == [70_000]


def test_more_constants_than_a_graph_holds_are_refused(tmp_path: Path) -> None:
    by_key = ByKey(Moments)
    by_key.add(np.arange(100, dtype=np.float32), np.array([b"%d" % key for key in range(100)], object))
    tables = Tables(str(tmp_path), most_bytes=1_000)
    with pytest.raises(InfeedError, match="1,616 bytes") as raised:
        tables.constants_by_key(by_key, lambda one: (one.mean, one.count), ["7"])
    assert raised.value.where == "the transform graph"


def test_lists_are_scaled_over_all_values_or_by_position(transform: Transform) -> None:
    rows = [[1.0, 100.0], [3.0], [], [5.0, 300.0]]
    everything = np.array([1, 100, 3, 5, 300], float)
    ragged = transform({"x": rows}, [ZScore("x", values="all")])["x"]
    flat = np.concatenate([np.asarray(row, float) for row in ragged])
    np.testing.assert_allclose(flat, (everything - everything.mean()) / everything.std(), rtol=1e-5)
    assert [len(row) for row in ragged] == [2, 1, 0, 2]
    by_position = transform({"x": rows}, [ZScore("x", values="by_position", length=2)])["x"]
    root = np.sqrt(1.5)
    np.testing.assert_allclose(by_position, [[-root, -1], [0, 0], [0, 0], [root, 1]], rtol=1e-5)


def test_what_is_filled_first_counts(transform: Transform) -> None:
    cleaned = transform({"x": [1.0, None, 3.0, 8.0]}, [ZScore("x", clean=(FillWith("median"),))])["x"]
    np.testing.assert_allclose(cleaned[:, 0], z_score(np.array([1.0, 3, 3, 8]), np.full(4, True)), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MinMax("x", low=1.0, high=1.0), "high is 1.0\n  where: MinMax\n"),
        (lambda: ZScore("x", key=""), "key is ''\n  where: ZScore\n"),
        (lambda: ZScore("x", key="y", values="by_position"), "key is 'y'\n  where: ZScore\n"),
        (lambda: ZScore("x", length=3), "length is 3\n  where: ZScore\n"),
        (lambda: ZScore("x", clean=("trim",)), "clean is \\('trim',\\)\n  where: ZScore\n"),  # type: ignore[arg-type]
        (lambda: Log("x", offset=float("nan")), "offset is nan\n  where: Log\n"),
    ],
)
def test_a_bad_option_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=f"^{message}"):
        build()


def test_a_cycle_lies_on_the_circle_and_closes(transform: Transform) -> None:
    hours = [0, 6, 23, 24, None, -6]
    found = transform(
        {"hour": hours, "wind": [0.0, 90.0, 360.0, None, 45.0, 1.0]}, [Cycle("hour", 24), Cycle("wind", 360)]
    )
    angles = np.array([0, 6, 23, 0, np.nan, 18]) * 2 * np.pi / 24
    expected = np.nan_to_num(np.stack([np.sin(angles), np.cos(angles)], 1), nan=0.0)
    np.testing.assert_allclose(found["hour"], expected, atol=1e-6)
    np.testing.assert_allclose(found["wind"][:4], [[0, 1], [1, 0], [0, 1], [0, 0]], atol=1e-6)
    assert found["hour"].dtype == np.float32


@pytest.mark.parametrize("period", [0, -7, float("nan"), "week"])
def test_a_period_is_a_number_above_zero(period: Any) -> None:
    with pytest.raises(InfeedError, match="period is "):
        Cycle("hour", period)
