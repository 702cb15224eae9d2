"""Called as TFX's Transform is called, ours gives what TFX's gives. Covers `statistics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_examples import serialize

from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

SCHEMA = """
feature { name: "age" type: FLOAT presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
feature { name: "city" type: BYTES presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
feature { name: "never" type: FLOAT }
"""
# As TFX's guides write them: a module that imports its neighbor, and says how its statistics are made.
MODULE = """
import tensorflow as tf
import tensorflow_transform as tft
from against_tfx_neighbor import scaled

def preprocessing_fn(inputs, custom_config):
    city = tft.compute_and_apply_vocabulary(inputs["city"], vocab_filename="city")
    nothing = tf.reduce_sum(inputs["never"].values)
    return {"age_scaled": scaled(inputs["age"], custom_config["factor"]) + nothing, "city_index": city}

def stats_options_updater_fn(stats_type, stats_options):
    stats_options.num_top_values = 1
    return stats_options
"""
NEIGHBOR = """
import tensorflow_transform as tft

def scaled(column, factor):
    return factor * tft.scale_to_z_score(column)
"""
WHO = ("ours", "theirs")
# No age lies where two of ten buckets meet, for there rounding decides which it falls into.
ROWS = [(20.0, b"Basel"), (32.0, b"Bern"), (61.0, b"Bern"), (70.0, b"Chur")]


def records(rows: list[tuple[float, bytes]]) -> list[bytes]:
    return [serialize({"age": age, "city": city}) for age, city in rows]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / "transforming.py").write_text(MODULE)
    (folder / "against_tfx_neighbor.py").write_text(NEIGHBOR)
    return folder / "transforming.py"


def of_graph(outputs: Mapping[str, Path], rows: list[tuple[float, bytes]]) -> dict[str, np.ndarray]:
    """The graph applied to the rows."""
    import tensorflow as tf
    import tensorflow_transform as tft

    graph = tft.TFTransformOutput(str(outputs["transform_graph"]))
    parsed = tf.io.parse_example(records(rows), graph.raw_feature_spec())
    return {name: value.numpy() for name, value in graph.transform_raw_features(parsed).items()}


def materialised(outputs: Mapping[str, Path], split: str) -> list[dict[str, Any]]:
    import tensorflow as tf

    files = [str(file) for file in (outputs["transformed_examples"] / f"Split-{split}").iterdir()]
    examples = [tf.train.Example.FromString(one.numpy()) for one in tf.data.TFRecordDataset(files, "GZIP")]
    return [
        {name: list(f.float_list.value or f.int64_list.value) for name, f in one.features.feature.items()}
        for one in examples
    ]


def statistics_in(folder: Path) -> Any:
    """What is in FeatureStats.pb, its features by name."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    (dataset,) = statistics_pb2.DatasetFeatureStatisticsList.FromString(
        (folder / "FeatureStats.pb").read_bytes()
    ).datasets
    features = {feature.path.step[0]: feature for feature in dataset.features}
    for feature in features.values():
        feature.ClearField("path")
    return dataset.num_examples, features


def standard_buckets(feature: Any) -> np.ndarray:
    """Low, high and count of the buckets of one width, [buckets, 3], which are taken out.

    TFDV's counts are estimates, and with NumPy 2 it computes the bounds in float32.
    """
    found = [bucket for one in feature.num_stats.histograms[:1] for bucket in one.buckets]
    buckets = [(bucket.low_value, bucket.high_value, bucket.sample_count) for bucket in found]
    for bucket in found:
        bucket.Clear()
    return np.array(buckets).reshape(-1, 3)


@pytest.fixture(scope="module")
def executed(
    tmp_path_factory: pytest.TempPathFactory, module: Path, execute: Callable[..., Any]
) -> dict[str, dict[str, Path]]:
    """The module by both Transforms, on the same two spans, with everything that TFX writes by default."""
    import tfx.components

    from infeed.components.transform.component import Transform

    root = tmp_path_factory.mktemp("executed")
    split = {"train": records(ROWS), "eval": records(ROWS[:2])}
    given = {"module_file": str(module), "custom_config": {"factor": 10.0}}
    kinds = {"ours": Transform, "theirs": tfx.components.Transform}
    return {who: execute(kind, root / who, [split], SCHEMA, **given) for who, kind in kinds.items()}


def test_called_as_tfxs_it_gives_what_tfxs_gives(executed: Mapping[str, Mapping[str, Path]]) -> None:
    ours, theirs = executed["ours"], executed["theirs"]
    assert ours.keys() == theirs.keys()
    for name in ("train", "eval"):
        assert materialised(ours, name) == materialised(theirs, name)
    here, there = of_graph(ours, ROWS), of_graph(theirs, ROWS)
    assert here.keys() == there.keys() == {"age_scaled", "city_index"}
    for name, values in here.items():
        np.testing.assert_array_equal(values, there[name])
    ages = np.array([age for age, _ in ROWS])
    np.testing.assert_allclose(here["age_scaled"][:, 0], 10 * (ages - ages.mean()) / ages.std(), rtol=1e-5)
    assert any(ours["updated_analyzer_cache"].iterdir())


def test_statistics_of_raw_and_transformed_rows_are_tfxs(executed: Mapping[str, Mapping[str, Path]]) -> None:
    for when in ("pre", "post"):
        (rows, ours), (of_theirs, theirs) = (statistics_in(executed[who][f"{when}_transform_stats"]) for who in WHO)
        assert rows == of_theirs
        assert (
            ours.keys()
            == theirs.keys()
            == {"pre": {"age", "city", "never"}, "post": {"age_scaled", "city_index"}}[when]
        )
        for name, feature in theirs.items():
            there, here = standard_buckets(feature), standard_buckets(ours[name])
            np.testing.assert_allclose(here[:, 2], there[:, 2], atol=0.01 * rows, err_msg=name)  # its error of a rank
            size = np.abs(there[:, :2]).max(initial=0)
            np.testing.assert_allclose(here[:, :2], there[:, :2], rtol=0, atol=1e-6 * size, err_msg=name)
            assert ours[name] == feature
        assert {len(one.string_stats.top_values) for one in ours.values() if one.HasField("string_stats")} == {1}


@pytest.mark.parametrize("output", ["pre_transform_schema", "post_transform_schema", "post_transform_anomalies"])
def test_schemas_and_anomalies_are_tfxs(output: str, executed: Mapping[str, Mapping[str, Path]]) -> None:
    ours, theirs = ({one.name: one.read_bytes() for one in executed[who][output].iterdir()} for who in WHO)
    assert ours == theirs != {}


def test_features_join_a_module_file_of_which_spans_in_the_cache_are_not_analyzed_again(
    tmp_path: Path, module: Path, execute: Callable[..., Any]
) -> None:
    from infeed.components.transform.component import Transform

    first, second = ROWS, [(100.0, b"Genf"), (80.0, b"Basel")]
    given = {
        "features": [ZScore("age"), Label("city")],
        "module_file": str(module),
        "custom_config": {"factor": 1.0},
        "data": tmp_path / "data",
    }
    ran = execute(Transform, tmp_path / "1", [{"train": records(first)}], SCHEMA, disable_analyzer_cache=False, **given)
    assert ran.keys() == {"transform_graph", "updated_analyzer_cache"}
    # The first span's ages are others now; what the function's analysis gave is in the cache.
    spans = [{"train": records([(0.0, city) for _, city in first])}, {"train": records(second)}]
    cached = execute(Transform, tmp_path / "2", spans, SCHEMA, cache=ran["updated_analyzer_cache"], **given)

    values = of_graph(cached, first + second)
    ages = np.array([age for age, _ in first + second])
    np.testing.assert_allclose(values["age_scaled"][:, 0], (ages - ages.mean()) / ages.std(), rtol=1e-5)
    now = np.array([0.0] * len(first) + [100.0, 80.0])
    np.testing.assert_allclose(values["age"][:, 0], (ages - now.mean()) / now.std(), rtol=1e-5)
    assert values["city"].tolist() == [0, 1, 1, 2, 3, 0]
