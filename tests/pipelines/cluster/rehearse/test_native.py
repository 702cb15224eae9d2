"""A job of plain components, rehearsed as a user does it, ends with the model and the metrics of `infeed run`.

Covers `pipelines/cluster/compile/native.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from infeed.components.dataset import files

pytestmark = pytest.mark.tfx
ROOT = "s3://bucket/native"
DEPLOY = f"""
warm_start: true
deploy:
  image: registry.example/infeed:1
  root: {ROOT}
  data: {ROOT}/data/breast_cancer.csv
  resources: {{default: {{retries: 1}}}}
"""


@pytest.fixture(scope="module")
def rehearsal(
    tmp_path_factory: pytest.TempPathFactory, table_run: SimpleNamespace, warm: Mapping[str, str], s3_endpoint: str
) -> SimpleNamespace:
    """The template of tables, compiled and rehearsed on S3 with Kubeflow's launcher; and again with fewer epochs."""
    folder = tmp_path_factory.mktemp("native")
    store = {"AWS_ENDPOINT_URL": s3_endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}

    def infeed(*words: object) -> str:
        command = [Path(sys.executable).with_name("infeed"), *map(str, words)]
        environment = {**os.environ, **warm, **store}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    infeed("new", "tabular", "project")
    with (folder / "project" / "config.yaml").open("a") as config:
        config.write(DEPLOY)
    infeed("compile", "project", *table_run.options, "--target", "kfp", "--output", "job.yaml")
    options = ("--project", "project", "--map", "s3://bucket=s3://bucket", "--json")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.items():
            patch.setenv(name, value)
        files.copy(str(table_run.root / "data" / "breast_cancer.csv"), f"{ROOT}/data/breast_cancer.csv")
        result = json.loads(infeed("rehearse", "job.yaml", *options))
        [version] = files.list_folders(f"{ROOT}/serving")
        files.copy(f"{ROOT}/serving/{version}", str(folder / version))
        pages = [result["outputs"][node]["page"][0]["uri"] for node in ("StatisticsGen", "InputReport")]
        shown = [files.read_bytes(page).decode() for page in pages]
        again = json.loads(infeed("rehearse", "job.yaml", *options, "--set", "epochs=2"))
        training = (folder / again["logs"] / "Trainer.log").read_text()
        versions = files.list_folders(f"{ROOT}/serving")
    return SimpleNamespace(
        result=result,
        pushed=folder / version,
        run=table_run.result["outcome"],
        shown=shown,
        again=again,
        training=training,
        versions=versions,
    )


def test_every_step_is_done(rehearsal: SimpleNamespace) -> None:
    states = {node["name"]: node["state"] for node in rehearsal.result["report"]["nodes"]}
    assert len(states) == 9
    assert set(states.values()) == {"done"}


def test_another_number_of_epochs_runs_the_trainer_and_what_follows(rehearsal: SimpleNamespace) -> None:
    states = {node["name"]: node["state"] for node in rehearsal.again["report"]["nodes"]}
    assert {name for name, state in states.items() if state == "cached"} == {
        *("CsvExampleGen", "StatisticsGen", "Transform")
    }
    assert len(rehearsal.versions) == 2
    assert re.search(r"started from +(\S+)", rehearsal.training)[1] == f"{ROOT}/serving/{rehearsal.pushed.name}"  # type: ignore[index]


def test_kubeflow_is_given_the_metrics_of_infeed_run(rehearsal: SimpleNamespace) -> None:
    outputs = rehearsal.result["outputs"]["Evaluator"]
    assert outputs["ui_metrics"][0]["metadata"]["accuracy"] == rehearsal.run["metrics"]["accuracy"]
    matrix = outputs["ui_confusion_matrix"][0]["metadata"]["confusionMatrix"]
    assert sum(count for row in matrix["rows"] for count in row["row"]) == rehearsal.run["rows"]
    assert all("<html" in page for page in rehearsal.shown)


def test_the_pushed_weights_are_those_of_infeed_run(rehearsal: SimpleNamespace) -> None:
    import tensorflow as tf

    folders = rehearsal.pushed, Path(rehearsal.run["pushed"])
    one, other = (tf.train.load_checkpoint(str(folder / "variables" / "variables")) for folder in folders)
    names = one.get_variable_to_shape_map().keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    assert names == other.get_variable_to_shape_map().keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"} != set()
    for name in names:
        np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), name)
