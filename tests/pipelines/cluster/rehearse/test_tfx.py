"""Jobs that `infeed compile` makes of real TFX pipelines, rehearsed as a user does it.

On this machine, or where INFEED_TEST_IMAGE names one inside the image of a new project: `make test-image` does that.
`test_launch_tfx` rehearses the template of tables on this machine, as a job for Kubeflow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from infeed.pipelines.cluster.job.compiled import CompiledJob

pytestmark = pytest.mark.tfx

INFEED = Path(sys.executable).with_name("infeed")
IMAGE = os.environ.get("INFEED_TEST_IMAGE")
DEPLOY = """
deploy:
  image: registry.example/infeed:1
  root: gs://bucket/taxi
  data: gs://bucket/data/breast_cancer.csv
  resources: {default: {retries: 1}}
  vertex:
    project: my-project
    region: europe-west4
    training: {machine: n1-standard-8}
"""


@pytest.fixture(scope="module")
def table(
    tmp_path_factory: pytest.TempPathFactory, table_run: SimpleNamespace, warm: Mapping[str, str]
) -> SimpleNamespace:
    """The template of tables: run here; and copied, compiled with a custom job that trains, and rehearsed.

    The first step dies once and leaves files, and a folder stands for the bucket. One machine trains: of several, each
    would drop other units out, and the model would be another one.
    """
    folder = tmp_path_factory.mktemp("table")

    def infeed(*words: object, cwd: Path) -> str:
        command = [INFEED, *map(str, words)]
        done = subprocess.run(command, cwd=cwd, env={**os.environ, **warm}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    infeed("new", "tabular", "project", cwd=folder)
    project = folder / "project"
    with (project / "config.yaml").open("a") as config:
        config.write(DEPLOY)
    shutil.copytree(table_run.root / "data", folder / "bucket" / "data")
    infeed("compile", "config.yaml", *table_run.options, "--target", "vertex", "--output", "job.json", cwd=project)
    options = ("--root", folder / "rehearsal", "--map", f"gs://bucket={folder / 'bucket'}", "--leave", "CsvExampleGen")
    image = ("--image", IMAGE) if IMAGE else ()
    rehearsal = json.loads(infeed("rehearse", "job.json", *options, *image, "--json", cwd=project))
    [pushed] = (folder / "bucket" / "taxi" / "serving").iterdir()
    here = Path(table_run.result["outcome"]["pushed"])
    return SimpleNamespace(run=table_run.result, rehearsal=rehearsal, job=project / "job.json", here=here, there=pushed)


@pytest.mark.image
def test_every_step_of_the_job_is_done(table: SimpleNamespace) -> None:
    names = {node["name"] for node in table.rehearsal["report"]["nodes"]}
    assert names == set(CompiledJob.read(table.job).spec["root"]["dag"]["tasks"])
    assert {node["state"] for node in table.rehearsal["report"]["nodes"]} == {"done"}


@pytest.mark.image
def test_the_step_that_died_was_retried_among_what_it_had_left(table: SimpleNamespace) -> None:
    [node] = (node for node in table.rehearsal["report"]["nodes"] if node["name"] == "CsvExampleGen")
    assert node["note"] == "attempt 2 of 2, 1 killed on purpose"


@pytest.mark.image
def test_the_trainer_of_the_custom_job_has_trained_in_its_step_and_says_so(table: SimpleNamespace) -> None:
    [node] = (node for node in table.rehearsal["report"]["nodes"] if node["name"] == "Trainer")
    assert node["note"] == "trained as one process"
    assert "Epoch" in Path(table.rehearsal["logs"], "Trainer.log").read_text()


@pytest.mark.image
def test_it_ends_with_the_same_pushed_model_as_the_run_on_this_machine(table: SimpleNamespace) -> None:
    [[blessing]] = [outputs["blessing"] for outputs in table.rehearsal["outputs"].values() if "blessing" in outputs]
    assert blessing["metadata"]["blessed"] == table.run["outcome"]["blessed"] == 1
    layouts = [
        sorted(str(path.relative_to(pushed)) for path in pushed.rglob("*")) for pushed in (table.here, table.there)
    ]
    assert layouts[0] == layouts[1]


@pytest.mark.image
def test_both_models_predict_the_same(table: SimpleNamespace, warm: Mapping[str, str]) -> None:
    [data] = (table.here.parents[1] / "data").glob("*.csv")
    script = (
        "import dataclasses, json, sys; from infeed.pipelines.predict.predict import predict; "
        "print(json.dumps([[dataclasses.asdict(p) for p in predict(model, [sys.argv[1]])] for model in sys.argv[2:]]))"
    )
    command = [sys.executable, "-c", script, str(data), str(table.here), str(table.there)]
    done = subprocess.run(command, env={**os.environ, **warm}, capture_output=True, text=True, check=True)
    here, there = json.loads(done.stdout.splitlines()[-1])
    assert len(here) == 569
    equal = [one["value"] == other["value"] for one, other in zip(here, there, strict=True)]
    apart = [abs(one["probability"] - other["probability"]) for one, other in zip(here, there, strict=True)]
    if IMAGE:  # its TensorFlow is another one, and training amplifies how it rounds
        assert sum(equal) >= 0.95 * len(equal), (sum(equal), max(apart))
        assert sum(apart) <= 0.05 * len(apart), (sum(apart), max(apart))
    else:
        assert all(equal)
        assert max(apart) <= 1e-5


def test_a_job_of_schema_2_0_hands_its_types_over(
    trial: ModuleType, jobs: ModuleType, tmp_path: Path, warm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from infeed.pipelines.cluster.compile.kubeflow import CompileOptions, compile_kubeflow

    for name, value in warm.items():  # the driver and the executor are processes that import TFX
        monkeypatch.setenv(name, value)
    pipeline = trial.csv_pipeline(tmp_path)
    output = compile_kubeflow(pipeline, CompileOptions(str(tmp_path / "job.json"), "vertex", "2.0"), image="image:1")
    compiled = only(CompiledJob.read(output), "CsvExampleGen")
    rehearsal = jobs.run(compiled, tmp_path / "root")
    assert jobs.states(rehearsal) == {"CsvExampleGen": "done"}, jobs.node(rehearsal, "CsvExampleGen").error
    [examples] = rehearsal.outputs["CsvExampleGen"]["examples"]
    assert json.loads(examples.metadata["split_names"]) == ["train", "eval"]
    assert examples.metadata["custom:span"] == 0  # TFX marks what it writes beside the property of the same name
    assert "xor_checksum" in examples.metadata["input_fingerprint"]  # of the driver
    assert list(Path(examples.uri, "Split-train").iterdir())


def only(job: CompiledJob, name: str) -> CompiledJob:
    """The job without its other tasks."""
    tasks: dict[str, Any] = job.spec["root"]["dag"]["tasks"]
    for other in tasks.keys() - {name}:
        del tasks[other]
    return job
