"""Two processes on one machine train together, as Vertex AI and Kubeflow would start them."""

import json
import socket

import numpy as np
import pytest

pytestmark = pytest.mark.tfx

OPTIONS = {"label": "kind", "epochs": 3, "callbacks_fn": "callbacks"}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def tf_config(task, index, ports):
    cluster = {"chief": [f"localhost:{ports[0]}"], "worker": [f"localhost:{port}" for port in ports[1:]]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})}


def saved(place):
    with np.load(place / "run" / "weights.npz") as file:
        weights = [file[name] for name in file.files]
    return weights, json.loads((place / "run" / "history.json").read_text())


def test_two_workers_train_to_the_weights_of_one(table, train, start, tmp_path):
    folder, _ = table
    ports, together = free_ports(2), tmp_path / "together"
    tasks = [("chief", 0), ("worker", 0)]
    workers = [start(together, folder, "class", "table", env=tf_config(*task, ports), **OPTIONS) for task in tasks]
    alone = train(folder, "class", "table", **OPTIONS)
    for worker in workers:
        code, output = worker.finish()
        assert code == 0, output

    weights, history = saved(together)
    expected_weights, expected_history = saved(alone)
    for ours, theirs in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)  # sums over workers are added up in another order
    for name, values in expected_history.items():  # of evaluation too, over 32 rows in batches of 16
        np.testing.assert_allclose(history[name], values, rtol=1e-4, err_msg=name)

    profile = json.loads((together / "run" / "input_profile.json").read_text())
    assert (profile["strategy"], profile["hosts"], profile["replicas"]) == ("multi_worker_mirrored", 2, 2)
    assert [epoch["examples"] for epoch in profile["epochs"]] == [64, 64, 64]
    assert (together / "model" / "saved_model.pb").exists()
    assert len(list((together / "run" / "train").iterdir())) == 1  # one worker's TensorBoard log
