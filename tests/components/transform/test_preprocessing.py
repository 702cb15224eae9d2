"""Each feature against its oracle: analysed by tft in a Beam pipeline, applied to the rows it was analysed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.errors import InfeedError
from infeed.components.transform.features import (
    Bucketize,
    DecodeImage,
    Feature,
    Fill,
    Label,
    Vocabulary,
    ZScore,
    features_to_json,
)

pytestmark = pytest.mark.tfx

ROWS = 500
RNG = np.random.default_rng(7)
MISSING = RNG.random(ROWS) < 0.1
AGE = RNG.normal(1000.0, 3.0, ROWS).astype(np.float32)
TRIPS = RNG.integers(0, 1000, ROWS)
TIME = 1_700_000_000_000_000 + TRIPS * 1_000_000  # microseconds since epoch; float32 is good to two minutes of them
CITY = RNG.choice([b"Basel", b"Bern", b"Chur", b"Genf"], ROWS, p=[0.5, 0.3, 0.15, 0.05])
GRADE = RNG.choice([2, 10, 100], ROWS)

Row = Mapping[str, Any]


def gaps(values: np.ndarray) -> list[Any]:
    """None where MISSING says so."""
    return [None if missing else value for value, missing in zip(values.tolist(), MISSING, strict=True)]


def transform(
    columns: Mapping[str, Sequence[Any]],
    features: Sequence[Feature],
    folder: Path,
    function: str | None = None,
    dense: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """The transformed features of the rows that were analysed, [rows, ...] each."""
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    from infeed.components.transform.preprocessing import preprocessing_fn

    rows = [
        {name: [] if value is None else [value] for name, value in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]
    types = {int: tf.int64, float: tf.float32, bytes: tf.string}
    dtypes = {name: types[type(next(v for v in column if v is not None))] for name, column in columns.items()}
    spec = {
        name: tf.io.FixedLenFeature([1], dtype) if name in dense else tf.io.VarLenFeature(dtype)
        for name, dtype in dtypes.items()
    }
    config = {"features": features_to_json(features), "preprocessing_fn": function}
    metadata = tft.DatasetMetadata.from_feature_spec(spec)
    with tft_beam.Context(temp_dir=str(folder)):
        (transformed, _), _ = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(
            lambda inputs: preprocessing_fn(inputs, custom_config=config)
        )
    return {name: np.array([row[name] for row in transformed]) for name in transformed[0]}


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """One analysis for all oracles: every kind, on columns with gaps, without, of every type."""
    return transform(
        {
            "age": gaps(AGE),
            "trips": gaps(TRIPS),
            "time": TIME.tolist(),
            "same": [0.1] * ROWS,
            "never": [float("nan")] * ROWS,
            "sometimes": [float("nan") if missing else 5.0 for missing in MISSING],
            "city": gaps(CITY),
            "grade": GRADE.tolist(),
            "paid": AGE.tolist(),
        },
        [
            ZScore("age"),
            ZScore("trips"),
            ZScore("trips", fill=-1, output="trips_filled"),
            ZScore("time"),
            ZScore("same"),
            ZScore("sometimes"),
            ZScore("never"),
            Bucketize("age", 4, output="age_bucket"),
            Vocabulary("city"),
            Vocabulary("city", size=2, oov=3, output="top_city"),
            Vocabulary("city", size=2, oov=0, output="only_top_city"),
            Fill("age", -1.0, output="age_filled"),
            Fill("trips", 7, output="trips_seven"),
            Fill("city", "none", output="city_filled"),
            Label("grade"),
            Label("paid", task="regression"),
        ],
        tmp_path_factory.mktemp("tft"),
        dense=["time", "grade"],
    )


def z_score(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    known = values[present].astype(np.float64)
    return np.where(present, (values - known.mean()) / known.std(), 0.0)


def test_z_score_equals_numpy_and_missing_is_zero(features: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(features["age"][:, 0], z_score(AGE, ~MISSING), atol=1e-5)
    np.testing.assert_allclose(features["trips"][:, 0], z_score(TRIPS, ~MISSING), atol=1e-5)


def test_z_score_fills_with_a_number(features: dict[str, np.ndarray]) -> None:
    filled = np.where(MISSING, -1, TRIPS)
    np.testing.assert_allclose(features["trips_filled"][:, 0], z_score(filled, filled == filled), atol=1e-5)


def test_z_score_keeps_the_precision_of_timestamps(features: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(features["time"][:, 0], z_score(TRIPS, TRIPS == TRIPS), atol=1e-3)


def test_z_score_of_a_constant_column_is_zero(features: dict[str, np.ndarray]) -> None:
    assert not features["same"].any()
    assert not features["sometimes"].any()
    assert not features["never"].any()


def test_vocabulary_counts_from_one_most_frequent_first(features: dict[str, np.ndarray]) -> None:
    order = [city for city, _ in Counter(CITY[~MISSING].tolist()).most_common()]
    expected = [0 if missing else 1 + order.index(city) for city, missing in zip(CITY, MISSING, strict=True)]
    assert features["city"][:, 0].tolist() == expected


def test_vocabulary_of_limited_size_shares_the_indices_after_it(features: dict[str, np.ndarray]) -> None:
    top = [city for city, _ in Counter(CITY[~MISSING].tolist()).most_common(2)]
    index = features["top_city"][:, 0]
    known = np.isin(CITY, top) & ~MISSING
    assert set(index[known]) == {1, 2}
    assert set(index[~known & ~MISSING]) <= {3, 4, 5}
    assert set(index[MISSING]) == {0}
    assert set(features["only_top_city"][~known, 0]) == {0}  # oov=0


def test_buckets_hold_equal_shares_in_rank_order(features: dict[str, np.ndarray]) -> None:
    bucket = features["age_bucket"][:, 0]
    assert set(bucket[MISSING]) == {0}
    exact = 1 + np.digitize(AGE, np.quantile(AGE[~MISSING], [0.25, 0.5, 0.75]))
    assert np.mean(bucket[~MISSING] != exact[~MISSING]) < 0.05  # boundaries are good to 1 % of rank
    shares = np.bincount(bucket[~MISSING], minlength=5)[1:] / np.sum(~MISSING)
    np.testing.assert_allclose(shares, 0.25, atol=0.02)


def test_fill_keeps_values_and_type(features: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(features["age_filled"][:, 0], np.where(MISSING, np.float32(-1), AGE))
    np.testing.assert_array_equal(features["trips_seven"][:, 0], np.where(MISSING, 7, TRIPS))
    assert features["city_filled"][MISSING, 0].tolist() == [b"none"] * int(MISSING.sum())


def test_classes_are_in_the_order_of_their_values_whatever_their_frequency(features: dict[str, np.ndarray]) -> None:
    assert features["grade"].tolist() == [[2, 10, 100].index(grade) for grade in GRADE]  # not "10" < "100" < "2"


def test_a_regression_label_is_the_number_itself(features: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(features["paid"], AGE)


def test_shapes_are_one_column_a_feature_and_none_for_labels(features: dict[str, np.ndarray]) -> None:
    labels = {"grade", "paid"}
    assert {name: array.shape for name, array in features.items()} == {
        name: (ROWS,) if name in labels else (ROWS, 1) for name in features
    }


@pytest.mark.parametrize("label", [Label("y"), Label("y", task="regression")])
def test_a_training_row_without_a_label_stops_the_analysis(label: Label, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="column 'y' has no label in 2 rows"):
        transform({"y": [1, None, 0, None]}, [label], tmp_path)


def test_rows_without_a_label_can_be_marked(tmp_path: Path) -> None:
    columns = {"y": [b"no", None, b"yes", b""], "z": [1.5, None, 2.5, float("nan")]}
    marked = transform(columns, [Label("y", missing="mark"), Label("z", "regression", missing="mark")], tmp_path)
    assert marked["y"].tolist() == [0, -1, 1, -1]
    np.testing.assert_array_equal(marked["z"], [1.5, np.nan, 2.5, np.nan])


def test_a_label_column_without_any_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="column 'y' holds no label at all"):
        transform({"y": [b"", b""]}, [Label("y", missing="mark")], tmp_path)


def doubled(inputs: Row) -> Row:
    """A user's preprocessing_fn."""
    return {"twice": inputs["x"] * 2}


def test_a_function_of_the_users_own_adds_features(tmp_path: Path) -> None:
    both = transform({"x": [1, 2]}, [Fill("x", 0)], tmp_path, f"{__file__}:doubled", dense=["x"])
    assert both["x"].tolist() == [[1], [2]]
    assert both["twice"].tolist() == [[2], [4]]


def test_a_function_alone_is_enough(tmp_path: Path) -> None:
    assert list(transform({"x": [1, 2]}, [], tmp_path, f"{__file__}:doubled", dense=["x"])) == ["twice"]


def test_one_name_from_both_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"both the features and .*:doubled give twice"):
        transform({"x": [1, 2]}, [Fill("x", 0, output="twice")], tmp_path, f"{__file__}:doubled", dense=["x"])


@pytest.mark.parametrize(
    ("column", "feature", "message"),
    [
        ([b"a"], ZScore("x"), "ZScore needs numbers, but column 'x' is string"),
        ([b"a"], Bucketize("x", 2), "Bucketize needs numbers, but column 'x' is string"),
        ([b"a"], Label("x", "regression"), "Label needs numbers, but column 'x' is string"),
        ([1.5], Vocabulary("x"), "Vocabulary needs strings or whole numbers, but column 'x' is float32"),
        ([1.5], Label("x"), "Label needs strings or whole numbers, but column 'x' is float32"),
        ([1], Fill("x", 0.5), "Fill needs a value other than 0.5, but column 'x' is int64"),
        ([1], Fill("x", "none"), "Fill needs a value other than 'none', but column 'x' is int64"),
        ([1], DecodeImage(8, 8, column="x"), "DecodeImage needs encoded images, but column 'x' is int64"),
        ([1], ZScore("y"), "no column 'y' in the data"),
    ],
)
def test_a_column_that_does_not_fit_its_feature_is_an_error(
    column: list[Any], feature: Feature, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InfeedError, match=message):
        transform({"x": column}, [feature], tmp_path)
