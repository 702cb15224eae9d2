"""A job of plain components: what kfp reads, settings of nodes, and commands that exist."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import unpack
from infeed.components.kubeflow.training_job import TrainingJob
from infeed.pipelines.cli import main
from infeed.pipelines.cluster.compile.compile import data_bytes
from infeed.pipelines.cluster.compile.kubeflow import CompileOptions
from infeed.pipelines.cluster.compile.native import compile_native
from infeed.pipelines.cluster.job.compiled import CompiledJob, leaves
from infeed.pipelines.cluster.job.disks import input_bytes, tight_disks
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.deploy.options import Resources
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

pytestmark = pytest.mark.stack

PROJECT = Path(__file__).parents[2] / "golden" / "project"
STEPS = [
    "CsvExampleGen-input",
    "CsvExampleGen",
    "StatisticsGen",
    "Transform",
    "Trainer",
    "Evaluator",
    "Pusher",
    "InputReport",
]


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    config = resolve(
        read_project(str(PROJECT)), Overrides(data=str(PROJECT / "flowers.csv"), root=str(tmp_path / "root"))
    )
    resources = {
        "default": Resources(memory="4Gi", retries=2),
        "Trainer": Resources(cpu="8", node_selector={"pool": "gpu"}),
        "Transform": Resources(cache=False),
        "Pusher": Resources(cache=True),
    }
    return dataclasses.replace(config, deploy=dataclasses.replace(config.deploy, resources=resources))


@pytest.fixture
def job(config: PipelineConfig, tmp_path: Path) -> CompiledJob:
    output = compile_native(config, CompileOptions(str(tmp_path / "job.yaml"), folder=str(PROJECT.resolve())))
    return CompiledJob.read(output)


def args_of(job: CompiledJob) -> dict[str, list[str]]:
    return {task.name: list(task.container["args"]) for task in leaves(job.tasks) if task.container}


@pytest.mark.slow
def test_kfp_reads_it(job: CompiledJob, tmp_path: Path) -> None:
    from kfp import components

    read = components.load_component_from_file(str(tmp_path / "job.yaml"))
    assert set(read.component_spec.inputs) == {"data", "epochs", "batch_size", "strategy"}
    assert set(read.pipeline_spec.components) == set(STEPS)
    assert "nodeSelector" in str(read.platform_spec)


def test_a_function_that_returns_the_rows_has_no_parameter_of_data(config: PipelineConfig, tmp_path: Path) -> None:
    data = f"{PROJECT.resolve()}/model.py:build_model"  # any function of the project
    of_function = dataclasses.replace(config, source="reader", data=data, source_options={})
    options = CompileOptions(str(tmp_path / "job.yaml"), folder=str(PROJECT.resolve()))
    job = CompiledJob.read(compile_native(of_function, options))
    found = args_of(job)
    assert "data" not in job.parameters
    for step in ("ArrowExampleGen-input", "ArrowExampleGen"):
        _, packed, *more = found[step]
        assert json.loads(unpack(packed))["data"] == "model.py:build_model"
        assert "--data" not in more
    assert data_bytes(of_function) == 0


def test_the_steps_are_those_of_the_tfx_form_and_have_its_settings(job: CompiledJob) -> None:
    tasks = {task.name: task for task in leaves(job.tasks)}
    assert {name: task.retries for name, task in tasks.items()} == dict.fromkeys(STEPS, 2)
    assert tasks["Trainer"].container == {
        **(tasks["Trainer"].container or {}),
        "resources": {"cpuLimit": 8.0, "memoryLimit": 4.294967296},
    }
    cacheable = [name for name, task in tasks.items() if task.cacheable]
    assert sorted(cacheable) == ["CsvExampleGen", "Evaluator", "InputReport", "Pusher", "StatisticsGen", "Trainer"]
    assert job.target == "kubeflow"


def test_a_json_file_is_for_kubeflow_as_well(config: PipelineConfig, tmp_path: Path) -> None:
    resources = {"default": Resources(memory="4Gi")}  # JSON has no place for settings of pods
    config = dataclasses.replace(config, deploy=dataclasses.replace(config.deploy, resources=resources))
    assert CompiledJob.read(compile_native(config, CompileOptions(str(tmp_path / "job.json")))).target == "kubeflow"


def test_each_placeholder_is_declared_and_each_input_used(job: CompiledJob) -> None:
    for task in leaves(job.tasks):
        assert task.container
        said = " ".join(task.container["args"])
        given = task.component.get("inputDefinitions", {})
        named = {("inputs.artifacts", name) for name in given.get("artifacts", {})} | {
            ("inputs.parameters", name) for name in given.get("parameters", {})
        }
        named |= {("outputs.artifacts", name) for name in task.outputs("artifacts") if not name.startswith("ui_")}
        named |= {("outputs.parameters", name) for name in task.outputs("parameters")}
        named -= {("inputs.parameters", "input_fingerprint")}  # a key of the cache, and nothing else
        assert set(re.findall(r"\{\{\$\.(\w+\.\w+)\['(\w+)'\]", said)) == named


def test_the_commands_and_options_exist(job: CompiledJob) -> None:
    import click

    for words in args_of(job).values():
        if words[0].startswith("--"):  # of an entry point that is no command
            continue
        words = words[3:] if words[0] == "{{$}}" else words
        command = main.get_command(click.Context(main), words[0])
        assert command
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_no_tfx_and_no_path_of_this_machine_is_in_it(job: CompiledJob, config: PipelineConfig) -> None:
    text = " ".join(str(unpack(word)) for words in args_of(job).values() for word in words)
    assert "model.py:" in text
    for path in (str(PROJECT), config.root, config.data):
        assert path not in text
    assert "gs://bucket/golden/serving" in text


def test_what_a_step_does_not_need_changes_nothing_in_it(config: PipelineConfig, tmp_path: Path) -> None:
    def compiled(**train: Any) -> dict[str, list[str]]:
        changed = dataclasses.replace(config, train=dataclasses.replace(config.train, **train))
        return args_of(CompiledJob.read(compile_native(changed, CompileOptions(str(tmp_path / "one.yaml")))))

    one, other = compiled(patience=3), compiled(patience=4)
    assert [name for name in one if one[name] != other[name]] == ["Trainer"]


def test_an_edited_function_is_no_hit_of_the_cache(config: PipelineConfig, tmp_path: Path) -> None:
    project = shutil.copytree(PROJECT, tmp_path / "project")
    train = dataclasses.replace(config.train, model_fn=f"{project}/model.py:build_model")
    own = dataclasses.replace(config, train=train)

    def compiled() -> dict[str, list[str]]:
        options = CompileOptions(str(tmp_path / "one.yaml"), folder=str(project))
        return args_of(CompiledJob.read(compile_native(own, options)))

    before = compiled()
    (project / "model.py").write_text((project / "model.py").read_text() + "# edited\n")
    after = compiled()
    assert [name for name in before if before[name] != after[name]] == ["Trainer"]


def test_a_disk_smaller_than_the_data_is_a_warning(config: PipelineConfig, tmp_path: Path) -> None:
    def warning(size: str) -> str:
        resources = {"Trainer": Resources(ephemeral_storage=size), "Pusher": Resources(ephemeral_storage="1")}
        small = dataclasses.replace(config, deploy=dataclasses.replace(config.deploy, resources=resources))
        job = CompiledJob.read(compile_native(small, CompileOptions(str(tmp_path / "small.yaml"))))
        told = tight_disks(job, lambda: data_bytes(config))
        assert told == tight_disks(job, lambda: input_bytes(job, str(PROJECT)))  # as `infeed submit` says it
        return told

    assert "too small for Trainer (100 B):" in (told := warning("100"))
    assert "deploy.reading" not in told, "these steps refuse it"
    assert warning("1Gi") == ""


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("beam_pipeline_args", ("--runner=FlinkRunner", "--job_endpoint=jobs:8099")),
        ("project", "archive"),
        ("reading", "direct"),
        ("training", TrainingJob(2)),
    ],
)
def test_what_only_the_tfx_form_has_is_refused(
    config: PipelineConfig, tmp_path: Path, setting: str, value: Any
) -> None:
    deploy = dataclasses.replace(config.deploy, **{setting: value})
    with pytest.raises(InfeedError) as error:
        compile_native(dataclasses.replace(config, deploy=deploy), CompileOptions(str(tmp_path / "job.yaml")))
    assert error.value.where == f"deploy.{setting}"


def test_the_model_of_a_warm_start_is_a_parameter_of_the_trainer(config: PipelineConfig, tmp_path: Path) -> None:
    warm = dataclasses.replace(config, warm_start=True)
    job = CompiledJob.read(compile_native(warm, CompileOptions(str(tmp_path / "job.yaml"))))
    words = args_of(job)["Trainer"]
    assert words[words.index("--warm-start") + 1] == "{{$.inputs.parameters['base_model']}}"
    tasks = {task.name: task for task in leaves(job.tasks)}
    source = tasks["Trainer"].spec["inputs"]["parameters"]["base_model"]["taskOutputParameter"]
    assert source == {"producerTask": "Trainer-input", "outputParameterKey": "base_model"}
    assert "gs://bucket/golden/serving" in args_of(job)["Trainer-input"]
    assert (tasks["Trainer"].cacheable, tasks["Trainer-input"].cacheable) == (True, False)


def test_spans_are_found_when_the_job_runs(config: PipelineConfig, tmp_path: Path) -> None:
    data = {"data": "flowers/{span-1.csv,span-2.csv}", "span_data": "flowers/span-{SPAN}.csv", "spans": 2}
    deploy = dataclasses.replace(config.deploy, data="gs://bucket/flowers/span-{SPAN}.csv")
    there = dataclasses.replace(config, **data, deploy=deploy)
    job = CompiledJob.read(compile_native(there, CompileOptions(str(tmp_path / "job.yaml"))))
    assert job.parameters["data"].default == "gs://bucket/flowers"
    for words in (args_of(job)[name] for name in ("CsvExampleGen-input", "CsvExampleGen")):
        ingest = json.loads(unpack(words[1]))["ingest"]
        assert ingest["spans"] == {"pattern": "span-{SPAN}.csv", "last": 2, "cache": "gs://bucket/golden/spans"}
        assert words[words.index("--data") + 1] == "{{$.inputs.parameters['data']}}"
    for number in (8, 9, 10):
        (tmp_path / f"span-{number}.csv").write_bytes(b"x" * number)
    assert input_bytes(job, str(tmp_path)) == 19  # the latest two


def test_pictures_are_shown_by_the_step_that_reads_them(config: PipelineConfig, tmp_path: Path) -> None:
    images = dataclasses.replace(config, source="images", data=str(tmp_path))
    images = dataclasses.replace(images, deploy=dataclasses.replace(config.deploy, resources={}))
    job = CompiledJob.read(compile_native(images, CompileOptions(str(tmp_path / "job.yaml"))))
    shown = next(task for task in leaves(job.tasks) if task.name == "ImageExampleGen").outputs("artifacts")
    assert shown["ui_pictures"]["artifactType"]["schemaTitle"] == "system.HTML"
    assert args_of(job)["ImageExampleGen"][:2] == ["{{$}}", "examples"]
