"""On the same Examples, ours writes what TFX's StatisticsGen writes.

Covers `component` and `components/dataset/statistics/tfdv.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infeed import components

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

TAXI = Path(__file__).parents[4] / "shared" / "data" / "chicago_taxi.parquet"
LONG = ("long_text", "pictures")  # of values that ours does not count
EPSILON = 0.01  # TFDV's error of a rank, as a share of all values


@pytest.fixture(scope="module")
def splits(every_type: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    """Every type, few rows without the first column, and taxi trips where there are some beside the checkout."""
    few = every_type.slice(0, 20)
    found = {"train": every_type, "eval": pa.RecordBatch.from_arrays(few.columns[1:], few.schema.names[1:])}
    if TAXI.exists():
        table = pq.read_table(TAXI).combine_chunks()
        found |= {"taxi": table.to_batches()[0].slice(0, 3_000), "taxi_eval": table.to_batches()[0].slice(8_000, 1_500)}
    return found


@pytest.fixture(scope="module")
def examples(
    tmp_path_factory: pytest.TempPathFactory, write_examples: Callable[..., Any], splits: dict[str, pa.RecordBatch]
) -> Any:
    return write_examples(tmp_path_factory.mktemp("examples"), splits)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, examples: Any, execute: Callable[..., Any]) -> dict[str, Any]:
    import tfx.components

    kinds = {"ours": components.StatisticsGen, "theirs": tfx.components.StatisticsGen}
    return {whose: execute(kind, tmp_path_factory.mktemp(whose), examples) for whose, kind in kinds.items()}


@pytest.fixture(params=["train", "eval", "taxi", "taxi_eval"])
def both(
    request: pytest.FixtureRequest, outputs: dict[str, Any], splits: Any, read_statistics: Callable[..., Any]
) -> dict[str, Any]:
    """The statistics of one split, whose -> name of a feature -> its message."""
    if request.param not in splits:
        pytest.skip("no taxi data in a folder shared/data beside the checkout")
    found = {whose: read_statistics(output, request.param).datasets for whose, output in outputs.items()}
    assert found["ours"][0].num_examples == found["theirs"][0].num_examples == splits[request.param].num_rows
    features = {whose: {one.path.step[0]: one for one in datasets[0].features} for whose, datasets in found.items()}
    return {**features, "rows": splits[request.param]}


def pairs(both: dict[str, Any], kind: str) -> Iterator[tuple[str, Any, Any]]:
    """(name, ours, theirs) of the features that TFX has described so."""
    for name, theirs in both["theirs"].items():
        if theirs.WhichOneof("stats") == kind:
            assert both["ours"][name].WhichOneof("stats") == kind
            yield name, getattr(both["ours"][name], kind), getattr(theirs, kind)


def test_the_features_and_their_types_are_the_same(both: dict[str, Any]) -> None:
    assert sorted(both["ours"]) == sorted(both["theirs"])
    assert "never" not in both["ours"]
    for name, theirs in both["theirs"].items():
        assert (both["ours"][name].type, both["ours"][name].WhichOneof("stats")) == (
            theirs.type,
            theirs.WhichOneof("stats"),
        )


def test_presence_and_lengths_are_the_same(both: dict[str, Any]) -> None:
    for name, feature in both["theirs"].items():
        kind = feature.WhichOneof("stats")
        ours, theirs = (getattr(both[whose][name], kind).common_stats for whose in ("ours", "theirs"))
        for one in (ours, theirs):
            assert_quantiles(lengths_of(both["rows"].column(name)), one.num_values_histogram, name)
            one.ClearField("num_values_histogram")
        assert ours == theirs, name


def test_what_is_exact_of_numbers_is_the_same(both: dict[str, Any]) -> None:
    for name, ours, theirs in pairs(both, "num_stats"):
        assert (ours.min, ours.max, ours.num_zeros) == (theirs.min, theirs.max, theirs.num_zeros), name
        assert [one.num_nan for one in ours.histograms] == [one.num_nan for one in theirs.histograms], name
        size = max(abs(theirs.min), abs(theirs.max)) if np.isfinite([theirs.min, theirs.max]).all() else 0
        assert ours.mean == pytest.approx(theirs.mean, rel=1e-9, abs=1e-9 * size, nan_ok=True), name
        # TFDV's deviation is rounded at each step, by some 1e-16 of the numbers, which is much of large ones.
        assert ours.std_dev == pytest.approx(theirs.std_dev, rel=1e-6, abs=1e-15 * size), name


def test_histograms_have_the_same_bounds_and_counts_within_tfdvs_error(both: dict[str, Any]) -> None:
    for name, ours, theirs in pairs(both, "num_stats"):
        assert [one.type for one in ours.histograms] == [one.type for one in theirs.histograms]
        # With NumPy 2, TFDV computes the bounds of float32 in float32.
        size = max(abs(theirs.min), abs(theirs.max)) if np.isfinite([theirs.min, theirs.max]).all() else 0
        for one, other in zip(ours.histograms[:1], theirs.histograms[:1], strict=True):
            for bound in ("low_value", "high_value"):
                found = [[getattr(bucket, bound) for bucket in side.buckets] for side in (one, other)]
                np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6 * size, err_msg=name)
            counts = [np.cumsum([bucket.sample_count for bucket in side.buckets]) for side in (one, other)]
            np.testing.assert_allclose(*counts, atol=2 * EPSILON * sum(counts[0][-1:]), err_msg=name)


def test_quantiles_lie_within_tfdvs_error_of_the_true_ones(both: dict[str, Any]) -> None:
    for name, *sides in pairs(both, "num_stats"):
        values = values_of(both["rows"].column(name))
        for side in sides:
            if side.histograms and side.histograms[1].buckets:
                assert_quantiles(values, side.histograms[1], name)
                assert_quantile(values, side.median, 0.5, name)


def values_of(column: pa.Array) -> np.ndarray:
    """All numbers of all rows, as TFDV sees them."""
    items = column.flatten() if pa.types.is_list(column.type) else column
    values = items.drop_null().to_numpy(zero_copy_only=False)
    values = values.astype(np.float32 if values.dtype.kind == "f" else np.int64).astype(np.float64)
    return values[~np.isnan(values)]


def lengths_of(column: pa.Array) -> np.ndarray:
    """How many values each row has that has the feature."""
    present = column.drop_null()
    return present.value_lengths().to_numpy() if pa.types.is_list(column.type) else np.ones(len(present))


def assert_quantile(values: np.ndarray, value: float, fraction: float, name: str) -> None:
    assert np.mean(values < value) - EPSILON <= fraction <= np.mean(values <= value) + EPSILON, name


def assert_quantiles(values: np.ndarray, histogram: Any, name: str) -> None:
    """Each bound is a quantile, and as many values as the buckets say are at or below it."""
    buckets = histogram.buckets
    upto = np.cumsum([bucket.sample_count for bucket in buckets])
    assert sum(bucket.sample_count for bucket in buckets) == pytest.approx(len(values)), name
    for number, bucket in enumerate(buckets, start=1):
        assert_quantile(values, bucket.high_value, number / len(buckets), name)
        if number == len(buckets) or buckets[number].high_value > bucket.high_value:
            true = np.count_nonzero(values <= bucket.high_value)
            assert upto[number - 1] == pytest.approx(true, abs=EPSILON * len(values) + 1), name


def test_texts_are_counted_the_same(both: dict[str, Any]) -> None:
    for name, ours, theirs in pairs(both, "string_stats"):
        if name in LONG:
            continue
        assert (ours.unique, ours.invalid_utf8_count) == (theirs.unique, theirs.invalid_utf8_count), name
        assert ours.avg_length == pytest.approx(theirs.avg_length, rel=1e-6), name
        assert ours.top_values == theirs.top_values, name
        assert ours.rank_histogram == theirs.rank_histogram, name


@pytest.mark.parametrize("name", LONG)
def test_texts_that_are_too_long_to_be_counted_are_said_to_differ(both: dict[str, Any], name: str) -> None:
    if name in both["ours"]:
        ours, theirs = (both[whose][name].string_stats for whose in ("ours", "theirs"))
        assert ours.unique == theirs.unique == ours.common_stats.tot_num_values
        assert ours.avg_length == theirs.avg_length
        assert ours.invalid_utf8_count == theirs.invalid_utf8_count
        assert [(one.value, one.frequency) for one in ours.top_values] == [("__LARGE_BYTES__", ours.unique)]
        assert not ours.rank_histogram.buckets, "SchemaGen would take them for all values"


def test_the_artifact_says_what_tfxs_says(outputs: dict[str, Any]) -> None:
    ours, theirs = outputs["ours"], outputs["theirs"]
    assert (ours.split_names, ours.span) == (theirs.split_names, theirs.span)
    assert ours.mlmd_artifact.custom_properties == theirs.mlmd_artifact.custom_properties
    assert files_in(ours) == files_in(theirs)


def files_in(output: Any) -> list[str]:
    root = Path(output.uri)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.pb"))


@pytest.mark.parametrize(("train", "evaluated"), [("train", "eval"), ("taxi", "taxi_eval")])
def test_schema_gen_and_example_validator_make_the_same_of_them(
    outputs: dict[str, Any], splits: Any, train: str, evaluated: str, read_statistics: Callable[..., Any]
) -> None:
    import tensorflow_data_validation as tfdv

    if train not in splits:
        pytest.skip("no taxi data in a folder shared/data beside the checkout")
    found = []
    for output in outputs.values():
        schema = tfdv.infer_schema(read_statistics(output, train), infer_feature_shape=True)
        anomalies = tfdv.validate_statistics(read_statistics(output, evaluated), schema)
        found.append((sorted(schema.feature, key=lambda feature: feature.name), schema.string_domain, anomalies))
    ours, theirs = found
    assert ours[0] == theirs[0]
    assert {domain.name: domain for domain in ours[1]} == {domain.name: domain for domain in theirs[1]}
    assert dict(ours[2].anomaly_info) == dict(theirs[2].anomaly_info)
    assert ours[2].anomaly_info, "so there is something to compare"
