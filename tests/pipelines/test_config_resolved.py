"""A resolved config travels as text, and a step changes of it only the parameters of a pipeline."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import pack
from infeed.pipelines.config import PipelineConfig, Resolved, read_resolved
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

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
