"""A job of plain components, rehearsed as a user does it, ends with the model and the metrics of `infeed run`.

Covers `pipelines/compile/native.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.tfx
DEPLOY = """
deploy:
  image: registry.example/infeed:1
  root: s3://bucket/taxi
  data: s3://bucket/data/breast_cancer.csv
  resources: {default: {retries: 1}}
"""


@pytest.fixture(scope="module")
def rehearsal(
    tmp_path_factory: pytest.TempPathFactory, table_run: SimpleNamespace, warm: Mapping[str, str]
) -> SimpleNamespace:
    """The template of tables, compiled and rehearsed; the first attempt to transform dies."""
    folder = tmp_path_factory.mktemp("native")

    def infeed(*words: object) -> str:
        command = [Path(sys.executable).with_name("infeed"), *map(str, words)]
        environment = {**os.environ, **warm}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    infeed("new", "tabular", "project")
    with (folder / "project" / "config.yaml").open("a") as config:
        config.write(DEPLOY)
    shutil.copytree(table_run.root / "data", folder / "bucket" / "data")
    infeed("compile", "project", *table_run.options, "--target", "kfp", "--output", "job.yaml")
    options = ("--project", "project", "--map", "s3://bucket=bucket", "--leave", "Transform", "--json")
    result = json.loads(infeed("rehearse", "job.yaml", *options))
    [pushed] = (folder / "bucket" / "taxi" / "serving").iterdir()
    return SimpleNamespace(result=result, pushed=pushed, run=table_run.result["outcome"])


def test_every_step_is_done(rehearsal: SimpleNamespace) -> None:
    states = {node["name"]: node["state"] for node in rehearsal.result["report"]["nodes"]}
    assert len(states) == 8
    assert set(states.values()) == {"done"}


def test_kubeflow_is_given_the_metrics_of_infeed_run(rehearsal: SimpleNamespace) -> None:
    outputs = rehearsal.result["outputs"]["Evaluator"]
    assert outputs["ui_metrics"][0]["metadata"]["accuracy"] == rehearsal.run["metrics"]["accuracy"]
    matrix = outputs["ui_confusion_matrix"][0]["metadata"]["confusionMatrix"]
    assert sum(count for row in matrix["rows"] for count in row["row"]) == rehearsal.run["rows"]
    pages = [rehearsal.result["outputs"][node]["page"][0]["uri"] for node in ("StatisticsGen", "InputReport")]
    assert all("<html" in Path(page).read_text() for page in pages)


def test_the_pushed_weights_are_those_of_infeed_run(rehearsal: SimpleNamespace) -> None:
    import tensorflow as tf

    folders = rehearsal.pushed, Path(rehearsal.run["pushed"])
    one, other = (tf.train.load_checkpoint(str(folder / "variables" / "variables")) for folder in folders)
    names = one.get_variable_to_shape_map().keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    assert names == other.get_variable_to_shape_map().keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"} != set()
    for name in names:
        np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), name)
