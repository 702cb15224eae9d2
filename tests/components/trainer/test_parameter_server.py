"""A chief, two workers and a parameter server as processes on one machine, as Kubeflow would start them."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.options import Workers
from infeed.components.trainer import asynchronous, parameter_server
from infeed.components.trainer.steps import prepare

SCRIPT = Path(__file__).with_name("server_script.py")
TASKS = (("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0))
CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


def tf_config(task, cluster):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})}


def cluster_here():
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in TASKS]
        for one in sockets:
            one.bind(("localhost", 0))
        chief, *workers, server = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    return {"chief": [chief], "worker": workers, "ps": [server]}


def test_the_chief_stands_for_the_first_of_the_workers():
    assert parameter_server.chief_of(tf_config(("chief", 0), CLUSTER)) == Workers(0, 2)


@pytest.mark.parametrize("missing", CLUSTER)
def test_a_cluster_without_one_of_the_tasks_is_refused(missing):
    cluster = {kind: addresses for kind, addresses in CLUSTER.items() if kind != missing}
    with pytest.raises(InfeedError, match=rf"there are .*0 {missing}(.|\n)*multi_worker_mirrored"):
        parameter_server.chief_of(tf_config(("chief", 0), cluster))


def test_an_evaluator_is_refused():
    with pytest.raises(InfeedError, match=r"the task evaluator 0 does not train(.|\n)*chief, worker or ps"):
        parameter_server.chief_of(tf_config(("evaluator", 0), CLUSTER))


def test_a_process_that_is_lost_is_told_of_with_what_to_do():
    told = pytest.raises(InfeedError, match=r"gone: Connection reset(.|\n)*Start all processes again")
    with told, parameter_server.naming_lost_processes():
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer\nAdditional information")


def test_workers_and_servers_carry_out_what_the_chief_sends():
    assert [parameter_server.only_serves(tf_config(task, CLUSTER)) for task in TASKS] == [False, True, True, True]


@pytest.mark.parametrize(
    ("optimizer", "complaint"),
    [
        (lambda: keras.optimizers.SGD(gradient_accumulation_steps=2), r"gradient_accumulation_steps is 2"),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), r"float16(.|\n)*Use bfloat16"),
    ],
)
def test_an_optimizer_that_updates_in_a_condition_is_refused(optimizer, complaint):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer(), "mse")
    with pytest.raises(InfeedError, match=complaint):
        asynchronous.check_model(model)


@pytest.mark.slow
def test_changing_by_difference_trains_to_what_keras_trains_to(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import server_script as script

    ours, theirs = script.build(), script.build()
    prepare(ours, tf.distribute.get_strategy(), script.script.data().element_spec)
    step = tf.function(asynchronous.by_difference(ours.train_step, ours))
    plain = tf.function(theirs.train_step)
    for batch in script.script.data():
        step(batch)
        plain(batch)
    values = zip(
        [*ours.variables, *ours.optimizer.variables], [*theirs.variables, *theirs.optimizer.variables], strict=True
    )
    for one, other in values:
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6, err_msg=one.path)


@pytest.mark.slow
def test_every_update_counts_once_and_a_broken_training_goes_on(tmp_path):
    cluster, processes = cluster_here(), []
    try:
        for task in TASKS:
            with (tmp_path / f"{task[0]}{task[1]}.txt").open("w") as log:
                env = {**os.environ, **tf_config(task, cluster), "PYTHONPATH": str(SCRIPT.parent)}
                command = [sys.executable, SCRIPT, tmp_path / "model", tmp_path / "checkpoints"]
                processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
        codes = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    chief, *others = ((tmp_path / f"{kind}{index}.txt").read_text() for kind, index in TASKS)
    assert codes == [0, 1, 1, 1], chief
    assert all("the chief ended and left no model" in output for output in others)  # the script exports none

    result = json.loads(chief.splitlines()[-1])
    assert {device.split("/")[1] for device in result["devices"]} == {"job:ps"}
    assert result["updates"] == 40  # 2 epochs of 10 steps, each one of both workers
    assert result["rows"] == 320
    history = result["history"]
    assert history["loss"][1] < 0.6 * history["loss"][0]
    assert max(history["val_loss"]) < history["loss"][0]
    assert [epoch[:2] for epoch in result["epochs"]] == [[10, 160], [10, 160]]
    assert all(0 <= waited <= seconds for _, _, waited, seconds in result["epochs"])
    assert result["ceiling"]["examples_per_second"] > 0


OPTIONS = {"label": "kind", "epochs": 3, "strategy": "parameter_server", "callbacks_fn": "callbacks", "patience": 2}


@pytest.mark.tfx
def test_the_trainer_exports_what_the_servers_hold_and_all_processes_end(table, start, example, tmp_path):
    cluster = cluster_here()
    given = (tmp_path / "together", table[0], "class", "table")
    processes = [start(*given, env=tf_config(task, cluster), class_weight={"big": 2.0}, **OPTIONS) for task in TASKS]
    for process in processes:
        code, output = process.finish()
        assert code == 0, output

    profile = json.loads((given[0] / "run" / "input_profile.json").read_text())
    assert (profile["strategy"], profile["hosts"], profile["plan"]["tier"]) == ("parameter_server", 2, "stream")
    assert [epoch["examples"] for epoch in profile["epochs"]] == [64, 64, 64]
    history = json.loads((given[0] / "run" / "history.json").read_text())
    assert history["loss"][2] < history["loss"][0]
    assert all(value * 32 == pytest.approx(round(value * 32)) for value in history["val_accuracy"])  # all 32 rows, once
    model = tf.saved_model.load(str(given[0] / "model"))
    served = model.signatures["raw"](x=tf.constant([0.0, 9.0]), z=tf.constant([0.0, 9.0]))
    assert served["class"].numpy().tolist() == [b"small", b"big"]
    rows = tf.constant([example({"x": 0.0, "z": None, "kind": kind, "n": 0.0}) for kind in (b"small", b"big")])
    labels = model.signatures["transform_features"](examples=rows)["kind"].numpy().ravel()
    assert sorted(labels) == [0, 1]  # the vocabulary came along
