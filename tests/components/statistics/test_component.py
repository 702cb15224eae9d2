from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed import components
from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

BATCH = pa.RecordBatch.from_pydict(
    {"age": [1, 2, 3, 3], "city": ["Bern", "Bern", None, "Chur"], "picture": [b"\xff", b"\xfe" * 3, b"\xff", b"\xff"]}
)


@pytest.fixture
def examples(tmp_path: Path, write_examples: Callable[..., Any]) -> Any:
    return write_examples(tmp_path / "examples", {"train": BATCH, "eval": BATCH.slice(0, 2)})


def run(execute: Callable[..., Any], tmp_path: Path, examples: Any, schema: Any = None, **options: Any) -> Any:
    return execute(components.StatisticsGen, tmp_path / "statistics", examples, schema, **options)


def written(output: Any) -> set[str]:
    return {path.parent.name for path in Path(output.uri).rglob("FeatureStats.pb")}


def test_unchanged_options_are_not_beyond_us() -> None:
    import tensorflow_data_validation as tfdv

    from infeed.components.dataset.statistics.tfdv import StatisticsRequest

    assert StatisticsRequest.of(tfdv.StatsOptions().to_json()).beyond == ""


def test_splits_that_are_excluded_are_not_written(tmp_path: Path, examples: Any, execute: Callable[..., Any]) -> None:
    output = run(execute, tmp_path, examples, exclude_splits=["eval"])
    assert written(output) == {"Split-train"}
    assert json.loads(output.split_names) == ["train"]
    with pytest.raises(InfeedError, match="all splits are excluded: train, eval"):
        run(execute, tmp_path, examples, exclude_splits=["eval", "train"])


def test_only_the_columns_that_are_allowed_are_described(
    tmp_path: Path, examples: Any, execute: Callable[..., Any], read_statistics: Callable[..., Any]
) -> None:
    import tensorflow_data_validation as tfdv

    options = tfdv.StatsOptions(feature_allowlist=["age"], num_histogram_buckets=2)
    (found,) = read_statistics(run(execute, tmp_path, examples, stats_options=options), "train").datasets[0].features
    assert list(found.path.step) == ["age"]
    assert [bucket.sample_count for bucket in found.num_stats.histograms[0].buckets] == [2, 2]


def test_with_a_schema_pictures_are_measured_and_categories_are_counted(
    tmp_path: Path, examples: Any, execute: Callable[..., Any], read_statistics: Callable[..., Any]
) -> None:
    import tfx.components
    from tfx.types import standard_artifacts

    schema = standard_artifacts.Schema()
    schema.uri = str(tmp_path / "schema")
    Path(schema.uri).mkdir()
    (Path(schema.uri) / "schema.pbtxt").write_text("""
        feature { name: "age" type: INT int_domain { is_categorical: true } }
        feature { name: "picture" type: BYTES image_domain {} }
    """)
    ours = read_statistics(run(execute, tmp_path, examples, schema), "train")
    theirs = read_statistics(execute(tfx.components.StatisticsGen, tmp_path / "tfx", examples, schema), "train")
    sides = [{feature.path.step[0]: feature for feature in side.datasets[0].features} for side in (ours, theirs)]
    assert sides[0]["picture"].type == sides[0]["picture"].BYTES
    assert sides[0]["age"].string_stats.top_values[0].value == "3"
    assert sides[0] == sides[1]


def test_what_partials_cannot_answer_is_computed_by_tfx_and_the_log_says_why(
    tmp_path: Path,
    examples: Any,
    execute: Callable[..., Any],
    read_statistics: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    beam_runners: list[str],
) -> None:
    import tensorflow_data_validation as tfdv

    with caplog.at_level(logging.WARNING):
        output = run(execute, tmp_path, examples, stats_options=tfdv.StatsOptions(weight_feature="age"))
    assert "computed by TFX's own executor on Beam: stats_options.weight_feature is 'age'" in caplog.text
    assert beam_runners == ["FnApiRunner"]
    assert read_statistics(output, "train").datasets[0].weighted_num_examples == 9


def test_formats_samples_and_sharded_output_are_left_to_tfx(examples: Any) -> None:
    from infeed.components.statistics import component

    assert component.beyond(examples, {}) == ""
    assert "sample_rate_by_split" in component.beyond(examples, {"sample_rate_by_split": '{"train": 0.5}'})
    assert "sharded_stats_output" in component.beyond(examples, {"sharded_stats_output": True})
    examples.set_string_custom_property("payload_format", "FORMAT_PROTO")
    assert "payload_format of the examples is 'FORMAT_PROTO'" in component.beyond(examples, {})
