from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

pytestmark = pytest.mark.tfx

PROJECT = Path(__file__).parents[1] / "golden" / "project"


def config(tmp_path: Path, there: str | None) -> PipelineConfig:
    given = Overrides(data=str(PROJECT / "flowers.csv"), root=str(tmp_path))
    resolved = resolve(read_project(str(PROJECT)), given)
    return dataclasses.replace(resolved, deploy=dataclasses.replace(resolved.deploy, data=there))


def test_the_defaults_are_the_configs_own_values(tmp_path: Path) -> None:
    from infeed.pipelines.compile.kubeflow import runtime_parameters

    parameters = runtime_parameters(config(tmp_path, None))
    assert {name: (parameter.ptype, parameter.default) for name, parameter in parameters.items()} == {
        "data": (str, str(PROJECT)),
        "epochs": (int, 5),
        "batch_size": (int, 32),
        "strategy": (str, "auto"),
    }


def test_a_file_is_looked_for_in_its_folder_there(tmp_path: Path) -> None:
    from infeed.pipelines.compile.kubeflow import runtime_parameters

    assert runtime_parameters(config(tmp_path, "gs://bucket/data/flowers.csv"))["data"].default == "gs://bucket/data"


def test_and_must_have_the_same_name(tmp_path: Path) -> None:
    from infeed.pipelines.compile.kubeflow import runtime_parameters

    with pytest.raises(InfeedError, match=r"trees\.csv(.|\n)*deploy\.data"):
        runtime_parameters(config(tmp_path, "gs://bucket/data/trees.csv"))


def test_a_run_here_takes_the_defaults(tmp_path: Path, trial: ModuleType) -> None:
    from tfx.components.example_gen import utils
    from tfx.orchestration.data_types import RuntimeParameter

    from infeed.components import CsvExampleGen
    from infeed.pipelines.local.runner import run_local

    data = RuntimeParameter("data", ptype=str, default=str(PROJECT))
    examples = CsvExampleGen(data, utils.make_default_input_config("flowers.csv"))
    report = run_local(trial.pipeline(tmp_path, [examples]), on_change=lambda nodes: None)
    assert report.succeeded
    assert list((tmp_path / "artifacts" / "CsvExampleGen").glob("examples/*/Split-train/*"))
