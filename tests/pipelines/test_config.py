from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import pack
from infeed.pipelines.config import (
    EXAMPLE_GENS,
    Blessing,
    PipelineConfig,
    Resolved,
    local_root,
    read_resolved,
    resumable,
    split_data,
)
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve


def test_everything_is_written_under_the_root(taxi: PipelineConfig) -> None:
    assert taxi.artifacts == "/runs/taxi/artifacts"
    assert taxi.metadata == "/runs/taxi/metadata.sqlite"
    assert taxi.serving == "/runs/taxi/serving"
    assert taxi.logs == "/runs/taxi/logs"


def test_logs_are_on_this_machine_wherever_the_root_is(taxi: PipelineConfig) -> None:
    assert dataclasses.replace(taxi, root="gs://bucket/taxi").logs == "runs/taxi/logs"
    assert local_root("/runs/taxi", "taxi") == "/runs/taxi"


def test_checkpoints_stay_where_the_next_attempt_finds_them(taxi: PipelineConfig) -> None:
    assert resumable(taxi).train.checkpoint_dir == "/runs/taxi/checkpoints"
    own = dataclasses.replace(taxi, train=dataclasses.replace(taxi.train, checkpoint_dir="/kept"))
    assert resumable(own).train.checkpoint_dir == "/kept"


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_of_waiting_is_from_0_to_1(taxi: PipelineConfig, share: float) -> None:
    with pytest.raises(InfeedError, match=rf"max_wait_fraction is {share}"):
        dataclasses.replace(taxi, max_wait_fraction=share)


@pytest.mark.parametrize(("metric", "higher"), [("accuracy", True), ("f1", True), ("mse", False)])
def test_of_an_error_less_is_better(metric: str, higher: bool) -> None:
    assert Blessing(metric, 0.5).higher_is_better is higher  # type: ignore[arg-type]


def test_a_file_has_a_folder_and_a_name_and_a_folder_has_no_name(tmp_path: Path) -> None:
    assert split_data(str(tmp_path)) == (str(tmp_path), None)
    assert split_data(str(tmp_path / "rides.csv")) == (str(tmp_path), "rides.csv")


def test_each_kind_of_input_has_its_example_gen() -> None:
    assert EXAMPLE_GENS["csv"] == "CsvExampleGen"
    assert EXAMPLE_GENS["images"] == "ImageExampleGen"


PROJECT = Path(__file__).parent / "golden" / "project"


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return resolve(
        read_project(str(PROJECT)), Overrides(data=str(PROJECT / "flowers.csv"), root=str(tmp_path / "root"))
    )


def test_it_comes_back_equal(config: PipelineConfig) -> None:
    back = read_resolved(pack(Resolved.of(config).to_json()), {})
    assert back
    assert Resolved.of(back) == Resolved.of(config)
    same = ("features", "ingest", "splits", "patterns", "blessing", "source_options", "judged_on")
    assert {name: getattr(back, name) for name in same} == {name: getattr(config, name) for name in same}
    assert list(back.splits) == list(config.splits) != sorted(config.splits)  # rows are divided in this order
    assert back.survey.classes == config.survey.classes


def test_parameters_of_the_pipeline_win(config: PipelineConfig) -> None:
    given = {
        "data": "elsewhere.csv",
        "train": {"epochs": 3, "batch_size": 7, "strategy": "one_device"},
        "keep": (),
        "label": None,
    }
    back = read_resolved(pack(Resolved.of(config).to_json()), given)
    assert back
    assert (back.data, back.train.epochs, back.train.feed.batch_size) == ("elsewhere.csv", 3, 7)
    feed = dataclasses.replace(config.train.feed, batch_size=7)
    assert back.train == dataclasses.replace(config.train, feed=feed, epochs=3, strategy="one_device")


def test_anything_else_is_a_project_or_an_error(config: PipelineConfig) -> None:
    assert read_resolved("config.yaml", {}) is None
    with pytest.raises(InfeedError) as error:
        read_resolved(pack(Resolved.of(config).to_json()), {"label": "species"})
    assert error.value.where == "--label"
