"""A Trainer's step on Kubeflow trains on two machines of a JobSet, of which one is killed. Covers
`components/kubeflow/machine.py`.

The step and the machines are the real entry points. A stand-in for the cluster's API server checks the JobSet by
Kubeflow's own models, and runs its pods as processes. Artifacts and checkpoints are in an S3 store.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from infeed.components.dataset import files
from infeed.components.feed.options import FeedOptions
from infeed.components.kubeflow.message import ARGUMENT
from infeed.pipelines.rehearse.cluster import Cluster, serving
from infeed.pipelines.rehearse.machines import Kills

pytestmark = pytest.mark.tfx

# Each step takes a moment, so that a machine can be killed between the first checkpoint and the last step.
SLOW = """
def slow_callbacks(spec):
    import time
    wait = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.1))
    return [*callbacks(spec), wait]
"""
OPTIONS = {"label": "kind", "epochs": 5, "steps_per_call": 1}
SPLITS = {"split_names": '["train", "eval"]', "payload_format": "FORMAT_TF_EXAMPLE"}


def artifact(name, uri, **metadata):
    described = {"name": uri, "uri": uri, "metadata": metadata, "type": {"schemaTitle": f"tfx.{name}"}}
    return {"artifacts": [described]}


def step(root, output_file, custom_config):
    """The command line of the Trainer's step, as Kubeflow's launcher fills it in."""
    values = {
        "run_fn": "infeed.components.trainer.run_fn.run_fn",
        "custom_config": json.dumps(custom_config),
        "train_args": json.dumps({"splits": ["train"]}),
        "eval_args": json.dumps({"splits": ["eval"]}),
    }
    inputs = {
        "examples": artifact("Examples", f"{root}/examples", **SPLITS),
        "transform_graph": artifact("TransformGraph", f"{root}/graph"),
    }
    outputs = {"model": artifact("Model", f"{root}/model"), "model_run": artifact("ModelRun", f"{root}/run")}
    message = {
        "inputs": {"parameterValues": values, "artifacts": inputs},
        "outputs": {"artifacts": outputs, "outputFile": str(output_file)},
    }
    job = {"options": {"machines": 2}, "pod": {"spec": {"containers": [{"name": "node", "image": "i:1"}]}}}
    executor = ["--executor_class_path", "infeed.components.trainer.executor.TrainerExecutor"]
    spec = {"parameters": {name: {"parameterType": "STRING"} for name in values}}
    described = ["--json_serialized_inputs_spec_args", json.dumps(spec)]
    return ["--job", json.dumps(job), *executor, ARGUMENT, json.dumps(message), *described]


def weights(file):
    with np.load(file) as found:
        return [found[name] for name in found.files]


def test_a_killed_machine_changes_no_weight(table, arguments, train, warm, s3, check_kubernetes, tmp_path, monkeypatch):
    for name, value in {**warm, "INFEED_LAUNCHER_ROOT": str(tmp_path / "pod")}.items():
        monkeypatch.setenv(name, value)
    folder = table[0]
    for split in ("train", "eval"):
        files.copy(str(folder / f"Split-{split}"), f"{s3}/examples/Split-{split}")
    files.copy(str(folder / "class" / "graph"), f"{s3}/graph")
    feed = FeedOptions(batch_size=16, cache_dir=str(tmp_path / "cache"))
    given = {**OPTIONS, "feed": feed, "checkpoint_dir": f"{s3}/checkpoints", "checkpoint_seconds": 0.1}
    config = arguments(tmp_path, folder, "class", "table", callbacks_fn="slow_callbacks", **given)["custom_config"]
    (tmp_path / "models.py").write_text((tmp_path / "models.py").read_text() + SLOW)

    with serving(Cluster(Kills(1, f"{s3}/checkpoints"), check_kubernetes)) as kubeconfig:
        command = [sys.executable, "-m", "infeed.components.kubeflow.step"]
        ended = subprocess.run(
            [*command, *step(s3, tmp_path / "output.json", config)],
            env={**os.environ, "KUBECONFIG": kubeconfig},
            capture_output=True,
            text=True,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "restart 1" in ended.stderr
    assert "Epoch 5/5" in ended.stdout
    resumed = re.findall(r"training goes on after step (\d+)", ended.stdout)
    assert len(resumed) == 1
    assert 0 < int(resumed[0]) < 20

    train(folder, "class", "table", place=tmp_path / "alone", callbacks_fn="callbacks", **OPTIONS, feed=feed)
    files.copy(f"{s3}/run", str(tmp_path / "run"))
    [ours] = (tmp_path / "run").rglob("weights.npz")
    [theirs] = (tmp_path / "alone").rglob("weights.npz")
    for one, other in zip(weights(ours), weights(theirs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    [profile] = (tmp_path / "run").rglob("input_profile.json")
    found = json.loads(profile.read_text())
    assert (found["strategy"], found["hosts"]) == ("multi_worker_mirrored", 2)
    model = [files.name(file.path) for file in files.list_files(f"{s3}/model", depth=3)]
    assert "saved_model.pb" in model
    assert files.list_files(f"{s3}/checkpoints", depth=3) == []
