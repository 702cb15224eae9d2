from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infeed.pipelines.cli import main
from infeed.pipelines.cluster.job.compiled import CompiledJob

PROJECT = Path(__file__).parents[1] / "golden" / "project"
TABLE = PROJECT / "flowers.csv"


def compile_(*words: Any) -> Result:
    return CliRunner().invoke(main, ["compile", *map(str, words)])


def test_without_an_image_it_says_where_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_bytes((PROJECT / "model.py").read_bytes())
    (tmp_path / "config.yaml").write_text((PROJECT / "config.yaml").read_text().partition("deploy:")[0])
    result = compile_(tmp_path, "--data", TABLE, "--output", tmp_path / "job.yaml")
    assert result.exit_code == 2
    assert "deploy.image" in result.stderr
    assert "--image" in result.stderr


@pytest.mark.tfx
def test_options_of_the_command_line_become_the_defaults_of_the_parameters(tmp_path: Path) -> None:
    output = tmp_path / "job.json"
    given = ["--data", TABLE, "--root", tmp_path, "--epochs", "7", "--batch-size", "8", "--strategy", "mirrored"]
    result = compile_(PROJECT, *given, "--target", "vertex", "--image", "registry.example/other:2", "--output", output)
    assert result.exit_code == 0, result.output
    job = CompiledJob.read(output)
    assert job.images == ("registry.example/other:2",)
    assert {name: parameter.default for name, parameter in job.parameters.items()} == {
        "data": "gs://bucket/data",
        "epochs": 7,
        "batch_size": 8,
        "strategy": "mirrored",
    }


@pytest.mark.tfx
def test_a_pipeline_on_bundled_data_compiles_for_kubeflow(tmp_path: Path) -> None:
    output = tmp_path / "job.json"
    result = compile_("tabular", "--root", tmp_path, "--output", output, "--image", "registry.example/image:1")
    assert result.exit_code == 0, result.output
    job = CompiledJob.read(output)
    nodes = {"CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Trainer", "Evaluator"}
    nodes |= {"CsvExampleGen-input", "Pusher", "InputReport"}
    assert nodes == set(job.spec["root"]["dag"]["tasks"])
    assert job.images == ("registry.example/image:1",)
