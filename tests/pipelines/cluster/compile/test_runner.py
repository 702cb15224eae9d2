"""A user's own TFX pipeline, compiled by a command and a runner, and rehearsed on an S3 server. Covers `resolvers`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.pipelines.cli import main
from infeed.pipelines.cluster.compile.runner import KubeflowRunner, load_pipeline, read_deploy
from infeed.pipelines.cluster.job.compiled import STEP, CompiledJob, leaves

pytestmark = pytest.mark.tfx

FILE = Path(__file__).parents[2] / "users_pipeline.py"
IMAGE = "registry.example/users:1"


def infeed(*words: Any) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def compile_(function: str, output: Path, *words: Any) -> Result:
    return infeed("compile", f"{FILE}:{function}", "--output", output, "--image", IMAGE, *words)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def steps_are_forked(warm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in warm.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def compiled(here: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> CompiledJob:
    monkeypatch.setenv("USERS_ROOT", s3)
    rows = "a,b\n" + "".join(f"{number},{number / 2}\n" for number in range(60))
    files.write_bytes(f"{s3}/data/rows.csv", rows.encode())
    schema = "".join(f'feature {{ name: "{name}" type: {kind} }}\n' for name, kind in (("a", "INT"), ("b", "FLOAT")))
    files.write_bytes(f"{s3}/schema/schema.pbtxt", schema.encode())
    settings = here / "settings.yaml"
    settings.write_text("deploy: {resources: {default: {retries: 1}, Transform: {memory: 4G}}}")
    done = compile_("create_pipeline", here / "job.yaml", "--root", f"{s3}/root", "--config", settings)
    assert done.exit_code == 0, done.output
    return CompiledJob.read(here / "job.yaml")


def test_every_step_of_a_users_pipeline_runs_behind_our_entry_point_with_its_settings(
    compiled: CompiledJob, s3: str
) -> None:
    containers = {task.name: task.container for task in leaves(compiled.tasks) if task.container}
    inserted = containers.pop("CsvExampleGen-input")
    assert inserted is not None
    assert containers.keys() == {
        *("CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Export")
    }
    assert {(tuple(one["command"]), one["image"]) for one in containers.values() if one} == {(STEP, IMAGE)}
    assert containers["Transform"]["resources"]["memoryLimit"] == 4.0  # type: ignore[index]
    assert {task.retries for task in leaves(compiled.tasks) if task.container} == {1}
    assert compiled.root == f"{s3}/root"
    assert compiled.parameters["data"].default == f"{s3}/data"


@pytest.mark.usefixtures("steps_are_forked")
def test_a_users_pipeline_is_rehearsed_on_s3_with_its_module_file_importer_and_empty_input(
    compiled: CompiledJob, here: Path
) -> None:
    bucket = ("--map", "s3://bucket=s3://bucket", "--project", FILE.parent, "--root", here / "out", "--json")
    done = infeed("rehearse", here / "job.yaml", *bucket)
    logs = "\n".join(file.read_text()[-3000:] for file in (here / "out" / "logs").rglob("*.log"))
    assert done.exit_code == 0, done.output + logs
    [model] = json.loads(done.stdout)["outputs"]["Export"]["model"]
    assert files.read_bytes(f"{model['uri']}/model.txt") == b"True None 10000"
    [anomalies] = json.loads(done.stdout)["outputs"]["ExampleValidator"]["anomalies"]
    assert files.list_folders(anomalies["uri"])


@pytest.mark.image
@pytest.mark.usefixtures("steps_are_forked")
def test_values_go_from_step_to_step(here: Path, s3: str) -> None:
    assert compile_("with_values", here / "job.yaml", "--root", f"{s3}/root").exit_code == 0
    bucket = ("--map", "s3://bucket=s3://bucket", "--project", FILE.parent, "--root", here / "out", "--json")
    done = infeed("rehearse", here / "job.yaml", *bucket)
    assert done.exit_code == 0, done.output + "\n".join(file.read_text() for file in here.rglob("*.log"))
    [model] = json.loads(done.stdout)["outputs"]["Report"]["model"]
    assert files.read_bytes(f"{model['uri']}/model.txt") == b"3 0.0 3"


def test_the_runner_writes_the_job_of_the_command(compiled: CompiledJob, here: Path, s3: str) -> None:
    import infeed as package

    deploy = read_deploy(str(here / "settings.yaml"))
    runner = package.KubeflowRunner(
        str(here / "again.yaml"), IMAGE, f"{s3}/root", deploy=deploy, folder=str(FILE.parent)
    )
    pipeline = load_pipeline(f"{FILE}:create_pipeline")
    assert [warning.split()[0] for warning in runner.warnings(pipeline)] == ["Export.base"]
    assert runner.run(pipeline) == str(here / "again.yaml")
    assert (here / "again.yaml").read_text() == (here / "job.yaml").read_text()


def test_a_container_of_another_image_keeps_its_command_and_its_long_words(here: Path) -> None:
    assert compile_("with_container", here / "job.yaml", "--root", "s3://bucket/root").exit_code == 0
    spec = yaml.safe_load((here / "job.yaml").read_text())
    container = spec["deploymentSpec"]["executors"]["Notify_executor"]["container"]
    assert container["image"] == "registry.example/third:2"
    assert container["command"][0] == "echo"
    assert len(container["command"][1]) == 10_000


@pytest.mark.parametrize(
    ("function", "words", "told"),
    [
        ("nothing", ["--root", "s3://bucket/x"], "no function 'nothing'"),
        ("not_a_pipeline", ["--root", "s3://bucket/x"], "returns int"),
        ("with_arguments", ["--root", "s3://bucket/x"], "without required arguments"),
        ("misnamed", ["--root", "s3://bucket/x"], "'my-pipeline'"),
        ("with_container", [], "pipeline_root is ''"),
        ("with_container", ["--root", "hdfs://place/x"], "hdfs://"),
        ("with_container", ["--root", "s3://bucket/x", "--epochs", "3"], "--epochs"),
        ("with_container", ["--root", "s3://bucket/x", "--target", "kfp"], "--target kubeflow"),
        ("with_container", ["--root", "s3://bucket/x", "--config", "nowhere.yaml"], "nowhere.yaml"),
        ("that_requires", ["--root", "s3://bucket/x"], "Transform requires schema"),
        ("of_this_machine", ["--root", "s3://bucket/x"], "'/models/1'"),
        ("with_container", ["--root", "s3://bucket/x", "--kfp", "2"], "--kfp is '2'"),
        ("create_pipeline", ["--root", "minio://bucket/x"], "a wheel of module_file on minio://bucket/x"),
        ("of_minio", ["--root", "minio://bucket/x"], "input_base on minio://bucket/data"),
    ],
)
def test_what_cannot_be_compiled_is_refused(here: Path, function: str, words: list[str], told: str) -> None:
    done = compile_(function, here / "job.yaml", *words)
    assert (done.exit_code, told in done.stderr) == (2, True), done.output
    assert not (here / "job.yaml").exists()


def test_without_an_image_a_pipeline_is_refused(here: Path) -> None:
    runner = KubeflowRunner(str(here / "job.yaml"), root="s3://bucket/x")
    with pytest.raises(InfeedError, match="no container image"):
        runner.run(load_pipeline(f"{FILE}:with_container"))


def test_a_file_of_settings_has_only_the_section_deploy(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("deploy: {image: a}\ntrain: {epochs: 1}")
    with pytest.raises(InfeedError, match="train") as caught:
        read_deploy(str(tmp_path / "settings.yaml"))
    assert caught.value.where == str(tmp_path / "settings.yaml")
