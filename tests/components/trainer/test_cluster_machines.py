"""Two machines of a training job on Kubeflow, of which one is killed. Covers `components/kubeflow/machine.py`.

The machines are processes of the real entry point, with `TF_CONFIG`. Artifacts and checkpoints are in an S3 store.
"""

import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import trained

from infeed.components.dataset import files
from infeed.components.feed.options import FeedOptions
from infeed.components.kubeflow.message import ARGUMENT

pytestmark = pytest.mark.tfx

# Each step may take a while, so that a machine can be killed between the first checkpoint and the last step.
SLOW = """
def slow_callbacks(spec):
    import time
    seconds = float(os.environ.get("SLOW", 0))
    wait = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(seconds))
    return [*callbacks(spec), wait]
"""
OPTIONS = {"label": "kind", "epochs": 5, "steps_per_call": 1}
SPLITS = {"split_names": '["train", "eval"]', "payload_format": "FORMAT_TF_EXAMPLE"}


def artifact(name, uri, **metadata):
    described = {"name": uri, "uri": uri, "metadata": metadata, "type": {"schemaTitle": f"tfx.{name}"}}
    return {"artifacts": [described]}


def arguments_of_step(root, custom_config):
    """The arguments of the Trainer's step, as Kubeflow's launcher fills them in."""
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
        "outputs": {"artifacts": outputs, "outputFile": "output.json"},
    }
    executor = ["--executor_class_path", "infeed.components.trainer.executor.TrainerExecutor"]
    spec = {"parameters": {name: {"parameterType": "STRING"} for name in values}}
    described = ["--json_serialized_inputs_spec_args", json.dumps(spec)]
    return [*executor, ARGUMENT, json.dumps(message), *described]


def weights(file):
    with np.load(file) as found:
        return [found[name] for name in found.files]


def run_machines(ports, arguments, environment, disks, kill_when=lambda: False):
    """Run two machines until both have ended, or one is killed and the others with it; return their outputs."""
    addresses, running = [f"localhost:{port}" for port in ports], []
    for number in range(2):
        (disks / str(number)).mkdir(parents=True, exist_ok=True)
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}}
        given = {
            "TF_CONFIG": json.dumps(config),
            "JOB_COMPLETION_INDEX": str(number),
            "INFEED_LAUNCHER_ROOT": str(disks / str(number)),
        }
        command = [sys.executable, "-m", "infeed.components.kubeflow.machine", *arguments]
        log = (disks / f"{number}.log").open("w+")
        running.append(subprocess.Popen(command, env={**environment, **given}, stdout=log, stderr=log))
    while None in (codes := [one.poll() for one in running]) and not any(codes):
        if kill_when():
            running[-1].kill()
        time.sleep(0.02)
    for one in running:
        one.kill()
    return [one.wait() for one in running], (disks / "0.log").read_text()


def test_a_killed_machine_changes_no_weight(table, arguments, train, warm, s3, hold_ports, tmp_path):
    folder = table[0]
    for split in ("train", "eval"):
        files.copy(str(folder / f"Split-{split}"), f"{s3}/examples/Split-{split}")
    files.copy(str(folder / "class" / "graph"), f"{s3}/graph")
    feed = FeedOptions(batch_size=16, cache_dir=str(tmp_path / "cache"))
    given = {**OPTIONS, "feed": feed, "checkpoint_dir": f"{s3}/checkpoints", "checkpoint_seconds": 0.1}
    config = arguments(tmp_path, folder, "class", "table", callbacks_fn="slow_callbacks", **given)["custom_config"]
    (tmp_path / "models.py").write_text((tmp_path / "models.py").read_text() + SLOW)
    step, environment = arguments_of_step(s3, config), {**os.environ, **warm}

    def is_checkpointed():
        return any(file.path.endswith(".index") for file in files.list_files(f"{s3}/checkpoints", depth=1))

    slow = {**environment, "SLOW": "0.5"}
    codes, first = run_machines(hold_ports(2), step, slow, tmp_path / "first", is_checkpointed)
    assert codes[1] == -9, first
    codes, output = run_machines(hold_ports(2), step, environment, tmp_path / "again")
    assert codes == [0, 0], output
    assert "Epoch 5/5" in output
    resumed = re.findall(r"training resumes after step (\d+)", output)
    assert len(resumed) == 1
    assert 0 < int(resumed[0]) < 20

    train(folder, "class", "table", place=tmp_path / "alone", callbacks_fn="callbacks", **OPTIONS, feed=feed)
    files.copy(f"{s3}/run", str(tmp_path / "run"))
    [ours] = (tmp_path / "run").rglob("weights.npz")
    [theirs] = (tmp_path / "alone").rglob("weights.npz")
    trained.check_weights(weights(ours), weights(theirs), atol=1e-5)
    [profile] = (tmp_path / "run").rglob("input_profile.json")
    found = json.loads(profile.read_text())
    assert (found["strategy"], found["hosts"]) == ("multi_worker_mirrored", 2)
    model = [files.name(file.path) for file in files.list_files(f"{s3}/model", depth=3)]
    assert "saved_model.pb" in model
    assert files.list_files(f"{s3}/checkpoints", depth=3) == []
