"""A chief, two workers and a parameter server as processes on one machine, as Kubeflow would start them."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.cluster import lost_process_context

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

SCRIPT = Path(__file__).with_name("server_script.py")
TASKS = (("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0))


def tf_config(task, cluster):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})}


def cluster_here():
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in TASKS]
        for one in sockets:
            one.bind(("localhost", 0))
        chief, *workers, server = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    return {"chief": [chief], "worker": workers, "ps": [server]}


def test_a_process_that_is_lost_is_told_of_with_what_to_do():
    told = pytest.raises(InfeedError, match=r"gone: Connection reset(.|\n)*start all processes again")
    with told, lost_process_context():
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer\nAdditional information")


def test_every_update_counts_once_and_a_broken_training_goes_on(tmp_path, warm):
    cluster, processes = cluster_here(), []
    try:
        for task in TASKS:
            with (tmp_path / f"{task[0]}{task[1]}.txt").open("w") as log:
                path = os.pathsep.join([warm["PYTHONPATH"], str(SCRIPT.parent)])
                env = {**os.environ, **warm, **tf_config(task, cluster), "PYTHONPATH": path}
                command = [sys.executable, SCRIPT, tmp_path / "model", tmp_path / "checkpoints"]
                processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
        codes = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    chief, *others = ((tmp_path / f"{kind}{index}.txt").read_text() for kind, index in TASKS)
    assert codes == [0, 1, 1, 1], chief
    assert all("without exporting a model" in output for output in others)  # the script exports none

    result = json.loads(chief.splitlines()[-1])
    assert {device.split("/")[1] for device in result["devices"]} == {"job:ps"}
    assert result["updates"] == 40  # 2 epochs of 10 steps, each one of both workers
    assert result["rows"] == 320
    history = result["history"]
    assert history["loss"][1] < history["loss"][0]  # by how much depends on whose update comes first
    assert max(history["val_loss"]) < history["loss"][0]
    assert [epoch[:2] for epoch in result["epochs"]] == [[10, 160], [10, 160]]
    assert all(0 <= waited <= seconds for _, _, waited, seconds in result["epochs"])
    assert result["ceiling"]["examples_per_second"] > 0


OPTIONS = {"label": "kind", "epochs": 3, "strategy": "parameter_server", "callbacks_fn": "callbacks", "patience": 2}


@pytest.mark.tfx
def test_the_trainer_exports_what_the_servers_hold_and_all_processes_end(table, start, answers_alike, tmp_path):
    cluster = cluster_here()
    given = (tmp_path / "together", table[0], "class", "table")
    processes = [start(*given, env=tf_config(task, cluster), class_weight="balanced", **OPTIONS) for task in TASKS]
    for process in processes:
        code, output = process.finish()
        assert code == 0, output

    profile = json.loads((given[0] / "run" / "input_profile.json").read_text())
    assert (profile["strategy"], profile["hosts"], profile["plan"]["tier"]) == ("parameter_server", 2, "stream")
    assert [epoch["examples"] for epoch in profile["epochs"]] == [64, 64, 64]
    for epoch in profile["epochs"]:
        first, second = epoch["workers_wait_seconds"]
        assert 0 < min(first, second) <= max(first, second) == epoch["wait_seconds"]
    history = json.loads((given[0] / "run" / "history.json").read_text())
    assert history["loss"][2] < history["loss"][0]
    assert all(value * 32 == pytest.approx(round(value * 32)) for value in history["val_accuracy"])  # all 32 rows, once
    answers_alike(given[0], table[1])  # the vocabulary came along
