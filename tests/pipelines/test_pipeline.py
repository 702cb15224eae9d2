"""What the pipeline is made of; what it does is in test_run.py, what is compiled of it in compile/test_compile.py."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from infeed.components.dataset.options import Spans
from infeed.pipelines.config import EXAMPLE_GENS, Blessing, PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

pytestmark = pytest.mark.tfx

PROJECT = Path(__file__).parent / "golden" / "project"


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    given = Overrides(data=str(PROJECT / "flowers.csv"), root=str(tmp_path / "runs"))
    return resolve(read_project(str(PROJECT)), given)


def nodes(config: PipelineConfig, **how: Any) -> list[str]:
    from infeed.pipelines.pipeline import create_pipeline

    return [component.id for component in create_pipeline(config, **how).components]


def test_every_component_has_its_node_and_comes_after_what_it_takes(config: PipelineConfig) -> None:
    found = nodes(config)
    assert found[:6] == ["CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Trainer"]
    assert sorted(found[6:]) == ["Evaluator", "InputReport", "Pusher", "latest_blessed_model"]
    assert found.index("latest_blessed_model") < found.index("Evaluator") < found.index("Pusher")


def test_the_driver_sees_the_files_of_all_spans_and_the_executor_reads_the_latest(config: PipelineConfig) -> None:
    from infeed.components.example_gen.executor import Request
    from infeed.pipelines.pipeline import create_pipeline

    of_spans = dataclasses.replace(config, span_data="/data/span-{SPAN}/*.csv", spans=3)
    example_gen = create_pipeline(of_spans).components[0]
    request = Request.of(example_gen.exec_properties)
    assert (request.input_base, request.patterns) == ("/data", {None: "span-*/*.csv"})
    assert request.options.spans == Spans("span-{SPAN}/*.csv", 3, f"{config.root}/spans")


def test_rows_of_a_function_come_by_the_component_of_arrow(config: PipelineConfig, tmp_path: Path) -> None:
    from infeed.components.example_gen.executor import Request
    from infeed.pipelines.pipeline import create_pipeline

    (tmp_path / "rows.py").write_text("def rows(): ...\n")
    data = f"{tmp_path}/rows.py:rows"
    of_function = dataclasses.replace(config, source="reader", data=data, source_options={"version": 3})
    example_gen = create_pipeline(of_function).components[0]
    request = Request.of(example_gen.exec_properties)
    assert (example_gen.id, request.format, request.source["version"]) == ("ArrowExampleGen", "reader", 3)
    assert request.patterns == {None: data}
    assert of_function.user_functions["reader"] == data


def test_a_format_without_a_component_of_its_own_is_named_to_the_one_of_all_files(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infeed.components.example_gen.executor import Request
    from infeed.pipelines.pipeline import create_pipeline

    monkeypatch.setitem(EXAMPLE_GENS, config.source, "FileExampleGen")
    example_gen = create_pipeline(config).components[0]
    assert (example_gen.id, Request.of(example_gen.exec_properties).format) == ("FileExampleGen", config.source)


def test_an_earlier_model_is_looked_up_only_where_it_is_wanted(config: PipelineConfig) -> None:
    assert "latest_blessed_model" not in nodes(config, baseline=None)
    assert "warm_start_model" in nodes(dataclasses.replace(config, warm_start=True), baseline=None)


def test_a_preprocessing_fn_of_the_config_is_transforms_which_writes_nothing_but_the_graph(
    config: PipelineConfig, tmp_path: Path
) -> None:
    from infeed.pipelines.pipeline import create_pipeline

    (tmp_path / "own.py").write_text("def preprocessing_fn(inputs):\n    return dict(inputs)\n")
    named = f"{tmp_path / 'own.py'}:preprocessing_fn"
    own = dataclasses.replace(config, features=(), preprocessing_fn=named)
    (transform,) = (one for one in create_pipeline(own).components if one.id == "Transform")
    assert transform.exec_properties["preprocessing_fn"] == named
    assert transform.outputs.keys() == {"transform_graph"}


def test_metadata_is_kept_here_and_on_a_cluster_by_the_platform(config: PipelineConfig) -> None:
    from infeed.pipelines.pipeline import create_pipeline

    connection = create_pipeline(config).metadata_connection_config
    assert connection.sqlite.filename_uri == config.metadata
    assert create_pipeline(dataclasses.replace(config, root="gs://bucket/taxi")).metadata_connection_config is None


@pytest.mark.parametrize(
    ("metric", "classes", "expected"),
    [
        ("accuracy", ("a", "b"), ["accuracy"]),
        ("f1", ("a", "b"), ["f1", "accuracy", "auc", "recall", "precision"]),
        ("recall", ("a", "b", "c"), ["recall", "accuracy", "precision", "f1"]),  # AUC is of two classes
    ],
)
def test_the_metric_that_decides_comes_first(
    config: PipelineConfig, metric: Any, classes: tuple[str, ...], expected: list[str]
) -> None:
    from infeed.pipelines.judging import model_reports

    survey = dataclasses.replace(config.survey, classes=classes, class_rows=(1,) * len(classes))
    [report] = model_reports(dataclasses.replace(config, blessing=Blessing(metric, 0.5), survey=survey))
    assert [*report.metrics] == expected


def test_a_regression_is_measured_by_its_errors(config: PipelineConfig) -> None:
    from infeed.pipelines.judging import model_reports

    train = dataclasses.replace(config.train, task="regression")
    [report] = model_reports(dataclasses.replace(config, train=train))
    assert report.metrics == ("mse", "mae", "r2")
