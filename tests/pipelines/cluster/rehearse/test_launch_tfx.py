"""The template of tables on Kubeflow with a root on S3: compiled, and rehearsed with a launcher and an S3 server.

Nothing stands for the bucket: the steps read and write it themselves, or through the paths of the launcher.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from infeed.components.dataset import files
from infeed.pipelines.cluster.job.compiled import STEP, CompiledJob

pytestmark = [pytest.mark.tfx, pytest.mark.image]  # here `test_native` and `test_runner` rehearse on S3

INFEED = Path(sys.executable).with_name("infeed")
ROOT = "s3://bucket/launched"
DEPLOY = f"""
deploy:
  image: registry.example/infeed:1
  root: {ROOT}
  data: {ROOT}/data/breast_cancer.csv
  reading: direct
  resources: {{default: {{retries: 1}}}}
"""


@pytest.fixture(scope="module")
def store(s3_endpoint: str) -> Mapping[str, str]:
    """Variables by which clients find the S3 server."""
    return {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@pytest.fixture(scope="module")
def launched(
    tmp_path_factory: pytest.TempPathFactory,
    table_run: SimpleNamespace,
    warm: Mapping[str, str],
    store: Mapping[str, str],
    s3_losing: Callable[[str], None],
) -> SimpleNamespace:
    """The template run here; and copied, compiled and rehearsed on S3. The Trainer's first attempt is killed."""
    folder = tmp_path_factory.mktemp("launched")
    environment = {**os.environ, **warm, **store}

    def infeed(*words: object, cwd: Path) -> str:
        command = [INFEED, *map(str, words)]
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    infeed("new", "tabular", "project", cwd=folder)
    project = folder / "project"
    with (project / "config.yaml").open("a") as config:
        config.write(DEPLOY)
    infeed("compile", "config.yaml", *table_run.options, "--output", "job.yaml", cwd=project)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.items():
            patch.setenv(name, value)
        files.copy(str(table_run.root / "data" / "breast_cancer.csv"), f"{ROOT}/data/breast_cancer.csv")
        options = ("--root", folder / "rehearsal", "--map", "s3://bucket=s3://bucket", "--fail", "Trainer")
        rehearsal = json.loads(infeed("rehearse", "job.yaml", *options, "--json", cwd=project))
        [version] = files.list_folders(f"{ROOT}/serving")
        unjudged = project / "unjudged.yaml"
        unjudged.write_text(without_evaluation((project / "job.yaml").read_text()))
        again = json.loads(infeed("rehearse", unjudged.name, *options[:-2], "--set", "epochs=2", "--json", cwd=project))
        files.copy(f"{ROOT}/serving/{version}", str(folder / version))
        examples = rehearsal["outputs"]["CsvExampleGen"]["examples"][0]["uri"]
        held = [files.relative(file.path, examples) for file in files.list_files(examples, depth=1)]
        stored = files.list_folders(files.read_bytes(f"{examples}/direct.txt").decode())
        moved = project / "moved.yaml"
        moved.write_text(first_steps_with_local_examples((project / "job.yaml").read_text()))
        s3_losing("/manifest.json")
        local = json.loads(infeed("rehearse", moved.name, *options[:-2], "--no-cache", "--json", cwd=project))
        uploaded = files.list_folders(local["outputs"]["CsvExampleGen"]["examples"][0]["uri"])
        pages = [("InputReport", "ui_report"), ("StatisticsGen", "ui_statistics")]
        shown = [files.read_bytes(rehearsal["outputs"][node][key][0]["uri"]).decode() for node, key in pages]
    here = Path(table_run.result["outcome"]["pushed"])
    return SimpleNamespace(
        rehearsal=rehearsal,
        held=held,
        stored=stored,
        again=again,
        local=local,
        uploaded=uploaded,
        shown=shown,
        job=project / "job.yaml",
        here=here,
        there=folder / version,
    )


def without_evaluation(job: str) -> str:
    """Return the job whose only step after the Trainer is InputReport: to evaluate again takes seconds."""
    spec = yaml.safe_load(job)
    for name in ("Evaluator", "Pusher"):
        del spec["root"]["dag"]["tasks"][name]
    text: str = yaml.safe_dump(spec)
    return text


def first_steps_with_local_examples(job: str) -> str:
    """Return the job without `reading: direct`, and without what follows on SchemaGen, a node of TFX."""
    spec = yaml.safe_load(job)
    tasks = spec["root"]["dag"]["tasks"]
    for name in tasks.keys() - {"CsvExampleGen-input", "CsvExampleGen", "StatisticsGen", "SchemaGen"}:
        del tasks[name]
    for executor in spec["deploymentSpec"]["executors"].values():
        del executor["container"]["env"]
    text: str = yaml.safe_dump(spec)
    return text


def test_every_step_runs_behind_our_entry_point(launched: SimpleNamespace) -> None:
    job = CompiledJob.read(launched.job)
    first, *others = (task.container for task in job.tasks)
    assert first is not None
    assert first["command"][-1] == "infeed.components.kubeflow.input_state"
    assert {tuple((container or {})["command"]) for container in others} == {STEP}
    assert job.target == "kubeflow"
    assert {node["state"] for node in launched.rehearsal["report"]["nodes"]} == {"done"}


def test_the_artifacts_and_their_metadata_name_the_store(launched: SimpleNamespace) -> None:
    assert launched.rehearsal["artifacts"] == f"{ROOT}/artifacts"
    outputs = launched.rehearsal["outputs"]
    uris = [found["uri"] for node in outputs.values() for [found] in node.values()]
    assert all(uri.startswith(f"{ROOT}/artifacts/") for uri in uris)
    blessing = outputs["Evaluator"]["blessing"][0]["metadata"]
    assert outputs["Trainer"]["model"][0]["uri"] in blessing.values()
    assert "/pods/" not in json.dumps(outputs)


def test_another_number_of_epochs_runs_the_trainer_and_what_follows(launched: SimpleNamespace) -> None:
    states = {node["name"]: node["state"] for node in launched.again["report"]["nodes"]}
    assert states == {
        "CsvExampleGen-input": "done",
        **dict.fromkeys(["CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform"], "cached"),
        **dict.fromkeys(["Trainer", "InputReport"], "done"),
    }


def test_the_examples_stay_in_the_store(launched: SimpleNamespace) -> None:
    [examples] = launched.rehearsal["outputs"]["CsvExampleGen"]["examples"]
    assert launched.held == ["direct.txt"]
    assert launched.stored == ["Split-eval", "Split-test", "Split-train"]
    assert examples["uri"].rpartition("/")[2] == "examples"


def test_the_launcher_moves_examples_and_a_store_that_loses_a_part_costs_an_attempt(launched: SimpleNamespace) -> None:
    nodes = {node["name"]: node for node in launched.local["report"]["nodes"]}
    assert {name: node["state"] for name, node in nodes.items()} == dict.fromkeys(nodes, "done")
    assert nodes["CsvExampleGen"]["note"] == "attempt 2 of 2"
    assert launched.uploaded == ["Split-eval", "Split-test", "Split-train"]
    assert set(nodes) == {"CsvExampleGen-input", "CsvExampleGen", "StatisticsGen", "SchemaGen"}


def test_no_pod_is_left(launched: SimpleNamespace) -> None:
    assert not list(Path(launched.rehearsal["logs"]).parents[1].glob("pods/*"))


def test_the_pushed_model_is_the_one_of_a_run_on_this_machine(
    launched: SimpleNamespace, warm: Mapping[str, str]
) -> None:
    [data] = (launched.here.parents[1] / "data").glob("*.csv")
    script = (
        "import dataclasses, json, sys; from infeed.pipelines.predict.predict import predict; "
        "print(json.dumps([[dataclasses.asdict(p) for p in predict(model, [sys.argv[1]])] for model in sys.argv[2:]]))"
    )
    command = [sys.executable, "-c", script, str(data), str(launched.here), str(launched.there)]
    done = subprocess.run(command, env={**os.environ, **warm}, capture_output=True, text=True, check=True)
    here, there = json.loads(done.stdout.splitlines()[-1])
    assert [one["value"] for one in here] == [one["value"] for one in there]
    assert [one["probability"] for one in here] == pytest.approx([one["probability"] for one in there], abs=1e-5)


def test_kubeflow_shows_metrics_a_confusion_matrix_and_pages(launched: SimpleNamespace) -> None:
    evaluator = launched.rehearsal["outputs"]["Evaluator"]
    accuracy = evaluator["ui_metrics"][0]["metadata"]["accuracy"]
    rows = evaluator["ui_confusion_matrix"][0]["metadata"]["confusionMatrix"]["rows"]
    counts = [row["row"] for row in rows]
    assert accuracy == pytest.approx((counts[0][0] + counts[1][1]) / sum(map(sum, counts)))
    report, statistics = launched.shown
    assert report.lower().startswith("<!doctype html>")
    assert "mean_radius" in statistics
